"""A finished store sent to a bucket, so that readers of an older one are disturbed least.

Chunks and shards go first, then the metadata from the leaves upwards, and when the server lists
all of that as it was sent, the root's zarr.json. What is there already is not sent again.

S3 replaces objects one by one: until the root is sent, readers of an older store may get some of
each. That one's root loses its stamp first, so that no run takes the mixture for a store.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from pathlib import Path, PurePosixPath
from typing import Final, TypeVar

from .destination import DestinationError, created_utc
from .s3_bucket import Bucket
from .s3_content import Content, Stored

ROOT: Final = "zarr.json"
STAMP_HEADER: Final = "x-amz-meta-created-utc"
REPLACED: Final = "replaced"
"""Stands for the stamp of a store while another is sent over it."""

SENT_AT_ONCE: Final = 16
FIRST: Final = -1_000_000

MINUTE: Final = "public, max-age=60"
DAY: Final = "public, max-age=86400"
TYPES: Final = {".json": "application/json", ".parquet": "application/vnd.apache.parquet"}

Item = TypeVar("Item")
Result = TypeVar("Result")


def headers_for(name: str) -> dict[str, str]:
    """Content type and cache lifetime: a minute for documents, a day for chunks and shards."""
    kind = TYPES.get(PurePosixPath(name).suffix)
    return {
        "Content-Type": kind or "application/octet-stream",
        "Cache-Control": MINUTE if kind else DAY,
    }


def upload_store(bucket: Bucket, local_dir: Path, prefix: str) -> tuple[str, ...]:
    """Send a store to the keys below `prefix`, which ends with a slash.

    Returns the names of the objects there that are not of this store. Raises DestinationError,
    and OSError for a local file that cannot be read.
    """
    names = sorted(_files(local_dir))
    if ROOT not in names:
        raise DestinationError(f"s3://{bucket.name}/{prefix}: no store was given, without {ROOT}.")
    names.remove(ROOT)
    present = bucket.list(prefix)
    if ROOT in present and (older := bucket.read(prefix + ROOT)) is not None:
        _send_root(bucket, prefix, older.content, REPLACED)
    upload = _Upload(bucket, local_dir, prefix, present)
    upload.send(names)
    upload.confirm()
    root = (local_dir / ROOT).read_bytes()
    _send_root(bucket, prefix, root, created_utc(root))
    return tuple(sorted(set(present).difference(names, [ROOT])))


class _Upload:
    def __init__(
        self, bucket: Bucket, local_dir: Path, prefix: str, present: Mapping[str, Stored]
    ) -> None:
        self.bucket = bucket
        self.local_dir = local_dir
        self.prefix = prefix
        self.present = present
        self.stored: dict[str, Stored] = {}
        self.has_sent = False

    def send(self, names: Sequence[str]) -> None:
        """Send what the bucket does not have, one rank after another."""
        for _, rank in groupby(sorted(names, key=_rank), key=_rank):
            for name, stored in side_by_side(self._send, rank, SENT_AT_ONCE):
                self.stored[name] = stored
                self.has_sent |= self.present.get(name) != stored

    def confirm(self) -> None:
        """Have the server list what should be there; what differs is sent once more."""
        again = self._differing()
        if not again:
            return
        self.present = {}
        self.send(again)
        if again := self._differing():
            key = f"s3://{self.bucket.name}/{self.prefix}{again[0]}"
            raise DestinationError(
                f"{key} is listed with another size or ETag than it was sent with, also after it "
                "was sent again."
            )

    def _differing(self) -> list[str]:
        listed = self.bucket.list(self.prefix) if self.has_sent else self.present
        return [name for name, stored in self.stored.items() if listed.get(name) != stored]

    def _send(self, name: str) -> tuple[str, Stored]:
        content = Content.of_file(self.local_dir / name)
        if self.present.get(name) == content.stored:
            return name, content.stored
        return name, self.bucket.put(self.prefix + name, content, headers_for(name))


def _send_root(bucket: Bucket, prefix: str, content: bytes, stamp: str | None) -> None:
    headers = headers_for(ROOT)
    if stamp:
        headers[STAMP_HEADER] = stamp
    bucket.put(prefix + ROOT, Content.of_bytes(content), headers)


def side_by_side(
    work: Callable[[Item], Result], items: Iterable[Item], threads: int
) -> Iterator[Result]:
    """The results, in order; after the first error nothing new is begun."""
    with ThreadPoolExecutor(threads) as pool:
        yield from pool.map(work, items)


def _rank(name: str) -> int:
    """Chunks and shards come first, then zarr.json after zarr.json, the deepest first."""
    is_metadata = name.rpartition("/")[2] == ROOT
    return -name.count("/") if is_metadata else FIRST


def _files(folder: Path) -> Iterator[str]:
    """The names of all files below a folder, relative to it."""
    folders = [""]
    while folders:
        below = folders.pop()
        with os.scandir(folder / below) as entries:
            for entry in entries:
                name = f"{below}{entry.name}"
                if entry.is_dir(follow_symlinks=False):
                    folders.append(f"{name}/")
                else:
                    yield name
