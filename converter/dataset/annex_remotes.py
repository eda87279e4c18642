"""Special remotes whose objects can be fetched by HTTP: S3, and `httpalso` beside others.

Settings and names of objects as git-annex documents them under "special remotes", "chunking"
and "export".
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from ..storage.http import normal_url
from ..storage.objects import Address, Bucket, Place
from .annex import AnnexKey, parse_pointer
from .annex_branch import AnnexBranch, Chunking, KeyLogs
from .recording import Entry
from .repository import BlobReader, RepositoryError

AMAZON: Final = "s3.amazonaws.com"
_REGIONS = {"US": "us-east-1", "EU": "eu-west-1"}

# A hostile branch could name millions.
_MOST_ADDRESSES = 10
_MOST_CHUNKS = 4_000_000
_POINTER_LIMIT = 64 * 1024

_HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\]")
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,254}")
_REGION = re.compile(r"[A-Za-z0-9-]{1,40}")
_SIZE = re.compile(r"(?P<number>\d{1,15}(?:\.\d{1,9})?) *(?P<unit>[A-Za-z]*)")
_PREFIXES = ("", "k", "m", "g", "t", "p", "e", "z", "y")
_NAMES = ("", "kilo", "mega", "giga", "tera", "peta", "exa", "zetta", "yotta")

# What remotes that share another's content take over from it.
_SHARED = ("encryption", "chunk", "exporttree")


@dataclass(frozen=True, slots=True)
class ObjectRemote:
    """A special remote whose objects have URLs.

    `uuid` is the one that location logs name; `bases` are the URLs that objects' names are
    appended to, `bucket` where they can be signed for, `prefix` what their names begin with;
    `chunk` is the size in bytes of the chunks it makes now, `trees` those exported to it, which
    it holds by their paths in place of keys where `is_export`.
    """

    uuid: str
    title: str
    is_encrypted: bool
    bases: tuple[str, ...]
    bucket: Bucket | None = None
    prefix: str = ""
    chunk: int | None = None
    is_export: bool = False
    trees: tuple[str, ...] = ()

    def places(
        self, entry: Entry, key: AnnexKey, logs: KeyLogs, blobs: BlobReader
    ) -> Iterator[Place]:
        """Where in the remote the content may lie, the most probable first."""
        if self.is_encrypted:
            return
        versions = logs.versions.get(self.uuid, ())[:_MOST_ADDRESSES]
        if self.bucket is not None:
            for name, version in versions:
                url = self.bucket.url(name, version)
                yield Place.whole(self.title, Address(url, self.bucket, name, version))
        if self.is_export:
            if any(_has(blobs, tree, entry.path, key) for tree in self.trees):
                yield from self._whole(entry.path)
            return
        for chunking in self._chunkings(key, logs):
            yield from self._chunked(key, chunking)
        yield from self._whole(key.plain)
        if self.bucket is None:
            for directory in (key.hash_lower, key.hash_mixed):
                yield from self._whole(f"{directory}/{key.plain}/{key.plain}")

    def _whole(self, name: str) -> Iterator[Place]:
        for base in self.bases:
            yield Place.whole(self.title, self._address(base, name))

    def _chunked(self, key: AnnexKey, chunking: Chunking) -> Iterator[Place]:
        for base in self.bases:

            def address(number: int, base: str = base) -> Address:
                return self._address(base, key.chunk_name(chunking.size, number + 1))

            yield Place(self.title, address, chunking.count, chunking.size)

    def _address(self, base: str, name: str) -> Address:
        name = f"{self.prefix}{name}"
        return Address(f"{base}{quote(name, safe='/~')}", self.bucket, name)

    def _chunkings(self, key: AnnexKey, logs: KeyLogs) -> Iterator[Chunking]:
        """The ways that the logs know, then the one that the remote is set to."""
        seen = set()
        for chunking in logs.chunkings.get(self.uuid, ())[:_MOST_ADDRESSES]:
            fits = key.size is None or _count(key.size, chunking.size) == chunking.count
            if fits and chunking.count <= _MOST_CHUNKS:
                seen.add(chunking.size)
                yield chunking
        if self.chunk and key.size is not None and self.chunk not in seen:
            count = _count(key.size, self.chunk)
            if count <= _MOST_CHUNKS:
                yield Chunking(self.chunk, count)


def object_remotes(branch: AnnexBranch, blobs: BlobReader) -> tuple[ObjectRemote, ...]:
    """The special remotes that a branch tells of and whose objects have URLs, S3 first."""
    remotes = branch.remotes(blobs)
    exports = branch.exports(blobs)
    found = (
        _remote(uuid, _with_shared(settings, remotes), exports)
        for uuid, settings in sorted(remotes.items())
    )
    known = (remote for remote in found if remote is not None)
    return tuple(sorted(known, key=lambda remote: remote.bucket is None))


def web_places(logs: KeyLogs) -> Iterator[Place]:
    """The URLs that were recorded for a key; each place is called by its host."""
    for written in logs.urls[:_MOST_ADDRESSES]:
        url = normal_url(written)
        if url is not None:
            host = url.partition("://")[2].partition("/")[0]
            yield Place.whole(host.partition("?")[0], Address(url))


def _remote(
    uuid: str, settings: Mapping[str, str], exports: Mapping[str, tuple[str, ...]]
) -> ObjectRemote | None:
    kind = settings.get("type")
    name = settings.get("sameas-name") or settings.get("name") or uuid
    public = normal_url(settings.get("publicurl" if kind == "S3" else "url", ""))
    bucket = _bucket(settings) if kind == "S3" else None
    if bucket is not None:
        title = f"S3 remote {name[:40]}, bucket {bucket.name} at {_host_of(bucket.endpoint)}"
        bases: tuple[str, ...] = (bucket.url(""),)
    elif kind == "httpalso" and public is not None:
        title, bases = f"remote {name[:40]} at {_host_of(public)}", ()
    else:
        return None
    if public is not None:
        bases = (public.rstrip("/") + "/", *bases)
    shared = settings.get("sameas-uuid") or uuid
    return ObjectRemote(
        uuid=shared,
        title=title,
        is_encrypted=settings.get("encryption", "none") != "none",
        bases=bases,
        bucket=bucket,
        prefix=settings.get("fileprefix", "") if bucket is not None else "",
        chunk=parse_size(settings.get("chunk", "")),
        is_export=settings.get("exporttree") == "yes",
        trees=exports.get(shared, ()),
    )


def _with_shared(
    settings: Mapping[str, str], remotes: Mapping[str, Mapping[str, str]]
) -> dict[str, str]:
    other = remotes.get(settings.get("sameas-uuid", ""), {})
    return {**{name: other[name] for name in _SHARED if name in other}, **settings}


def _bucket(settings: Mapping[str, str]) -> Bucket | None:
    """The bucket of a remote's settings; None where they name none that can be asked.

    Amazon is always asked by https. Like git-annex, others are by http where neither the
    protocol nor port 443 says so.
    """
    name, host = settings.get("bucket", ""), settings.get("host", AMAZON).lower()
    region = settings.get("region") or settings.get("datacenter", "US")
    region = _REGIONS.get(region, region)
    port = settings.get("port", "")
    known = _HOST.fullmatch(host) and _BUCKET.fullmatch(name) and _REGION.fullmatch(region)
    if not known or not (port == "" or (port.isdecimal() and 0 < int(port) < 65536)):
        return None
    protocol = settings.get("protocol") or ("https" if port == "443" else "http")
    if host == AMAZON or host.endswith(".amazonaws.com"):
        protocol, port = "https", ""
        if host == AMAZON and region != _REGIONS["US"]:
            host = f"s3.{region}.amazonaws.com"
    if protocol not in ("http", "https"):
        return None
    is_standard = port in ("", "80" if protocol == "http" else "443")
    endpoint = f"{protocol}://{host}" if is_standard else f"{protocol}://{host}:{int(port)}"
    in_path = settings.get("requeststyle") == "path" or "." in name or not is_standard
    return Bucket(endpoint, name, region, in_path or _is_address(host))


def parse_size(text: str) -> int | None:
    """A size in bytes as git-annex writes it ("1MiB", "500 kB", "2 megabytes"); None if none."""
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        return None
    unit = found["unit"].lower()
    for power, (letter, name) in enumerate(zip(_PREFIXES, _NAMES, strict=True)):
        if unit in (f"{letter}b", f"{name}byte", f"{name}bytes", "" if power == 0 else "-"):
            return int(float(found["number"]) * 1000**power)
        binary = f"{name[:2]}bi"
        if power and unit in (f"{letter}ib", f"{binary}byte", f"{binary}bytes"):
            return int(float(found["number"]) * 1024**power)
    return None


def _count(size: int, chunk_size: int) -> int:
    return max(1, -(-size // chunk_size))


def _host_of(url: str) -> str:
    return url.partition("://")[2].partition("/")[0]


def _is_address(host: str) -> bool:
    return host.startswith("[") or host.replace(".", "").isdecimal()


def _has(blobs: BlobReader, tree: str, path: str, key: AnnexKey) -> bool:
    """Whether the file at a path of an exported tree is the one with this key."""
    try:
        pointer = blobs.read_path(tree, path, _POINTER_LIMIT)
    except RepositoryError:
        return False
    found = None if pointer is None else parse_pointer(pointer)
    return found is not None and found.key == key.key
