"""A bucket, or what lies below a prefix in it, as a destination."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from uuid import uuid4

from .destination import ANY, Anything, DestinationError, Document, created_utc, steps_of
from .s3_bucket import Bucket, bucket
from .s3_client import S3Options, explained
from .s3_content import Content
from .s3_store import ROOT, STAMP_HEADER, headers_for, side_by_side, upload_store

ASKED_AT_ONCE = 32


@dataclass(frozen=True)
class S3Destination:
    """The objects of a bucket whose keys begin with `prefix`, "" or one that ends in a slash.

    Every method raises DestinationError. The version of a document is its ETag.
    """

    bucket: str
    prefix: str
    options: S3Options

    def __post_init__(self) -> None:
        if self.prefix and not self.prefix.endswith("/"):
            raise ValueError(f"a prefix that ends in a slash was expected, not {self.prefix!r}")

    @property
    def location(self) -> str:
        """The bucket and the prefix, as AWS's programs write them."""
        return f"s3://{self.bucket}/{self.prefix}"

    def read_document(self, name: str) -> Document | None:
        """A document as it is now, None when there is none."""
        return self._bucket.read(self._key(name))

    def write_document(
        self, name: str, content: bytes, expected: str | Anything | None = ANY
    ) -> str:
        """Replace a document, all of it or not at all; return its new version."""
        key, headers = self._key(name), headers_for(name)
        if isinstance(expected, Anything):
            return f'"{self._bucket.put(key, Content.of_bytes(content), headers).etag}"'
        return self._bucket.replace(key, content, headers, expected)

    def fetch_file(self, name: str, folder: Path) -> Path | None:
        """A copy of a published file, under a name of its own in `folder`; or None."""
        path = folder / f"published-{uuid4().hex}{PurePosixPath(name).suffix}"
        with explained(f"{self.location}: {name} cannot be fetched"):
            return path if self._bucket.download(self._key(name), path) else None

    def write_file(self, name: str, source: Path) -> None:
        """Replace a file with a copy of a local one, all of it or not at all."""
        with explained(f"{self.location}: {name} cannot be written"):
            content = Content.of_file(source)
        self._bucket.put(self._key(name), content, headers_for(name))

    def place_store(self, local_dir: Path, zarr: str) -> tuple[str, ...]:
        """Send a finished store and remove it here; see `s3_store` for the order.

        Returns the objects of an older store that the new one does not have.
        """
        prefix = f"{self._key(zarr)}/"
        with explained(f"{self.location}: the store {zarr} cannot be placed"):
            stale = upload_store(self._bucket, local_dir, prefix)
        shutil.rmtree(local_dir, ignore_errors=True)
        return stale

    def remove_document(self, name: str) -> None:
        """Remove a document; nothing happens when there is none."""
        self._bucket.delete([self._key(name)])

    def store_stamps(self, zarrs: Iterable[str]) -> dict[str, str]:
        """`created_utc` of those of the stores that are there."""
        wanted = list(zarrs)
        stamps = zip(wanted, side_by_side(self._stamp, wanted, ASKED_AT_ONCE), strict=True)
        return {zarr: stamp for zarr, stamp in stamps if stamp is not None}

    def remove_store(self, zarr: str) -> None:
        """Remove a store; its root metadata goes first, so that none stands over lost chunks."""
        prefix = f"{self._key(zarr)}/"
        names = self._bucket.list(prefix)
        if ROOT in names:
            self._bucket.delete([prefix + ROOT])
        self._bucket.delete([prefix + name for name in names if name != ROOT])

    def remove_objects(self, zarr: str, names: Sequence[str], stamp: str) -> None:
        """Remove what `place_store` named, if the store still has this `created_utc`."""
        keys = [self._key(f"{zarr}/{name}") for name in names]
        if keys and self._stamp(zarr) == stamp:
            self._bucket.delete(keys)

    def sweep(self) -> None:
        """Do nothing: an object appears whole.

        The parts of one that was never finished are for a lifecycle rule of the bucket.
        """

    def _stamp(self, zarr: str) -> str | None:
        key = self._key(f"{zarr}/{ROOT}")
        headers = self._bucket.head(key)
        if headers is None:
            return None
        if STAMP_HEADER in headers:
            return headers[STAMP_HEADER]
        root = self._bucket.read(key)
        return None if root is None else created_utc(root.content)

    def _key(self, name: str) -> str:
        key = self.prefix + "/".join(steps_of(name, self.location))
        try:
            key.encode()
        except UnicodeEncodeError as error:
            raise DestinationError(
                f"{self.location}: the name {name!r} is not Unicode, which S3 wants."
            ) from error
        return key

    @property
    def _bucket(self) -> Bucket:
        return bucket(self.bucket, self.options)
