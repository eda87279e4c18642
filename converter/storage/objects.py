"""Where the bytes of a file lie: addresses of whole objects, and of the pieces of chunked ones."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import quote

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

_REGION = re.compile(r"[a-z0-9-]{1,40}")


class Hasher(Protocol):
    """What of a `hashlib` object is used."""

    def update(self, data: Any, /) -> None:
        """Add bytes."""

    def hexdigest(self) -> str:
        """The digest so far."""


@dataclass(frozen=True, slots=True)
class Checksum:
    """The digest that bytes must have: `digest` in lower-case hex, `name` for a person."""

    name: str
    digest: str
    new: Callable[[], Hasher]


@dataclass(frozen=True, slots=True)
class Bucket:
    """A bucket of an S3 server; `endpoint` is scheme://host[:port].

    `path_style` says that the bucket's name goes into the path, not before the host.
    """

    endpoint: str
    name: str
    region: str | None = None
    path_style: bool = True

    def url(self, key: str, version: str | None = None) -> str:
        """An object's URL, unsigned."""
        path = quote(key, safe="/~")
        query = f"?versionId={quote(version, safe='')}" if version else ""
        if self.path_style:
            return f"{self.endpoint}/{self.name}/{path}{query}"
        scheme, _, host = self.endpoint.partition("://")
        return f"{scheme}://{self.name}.{host}/{path}{query}"

    def signed_url(self, key: str, version: str | None = None) -> str | None:
        """An object's URL, signed for an hour with the ordinary AWS credentials; None without.

        The credentials are asked for anew each time, so that those that expire are renewed.
        """
        from botocore.exceptions import BotoCoreError

        wanted = {"Bucket": self.name, "Key": key}
        if version:
            wanted["VersionId"] = version
        try:
            return _client(self).generate_presigned_url("get_object", Params=wanted)
        except (BotoCoreError, ValueError):
            return None


@lru_cache(maxsize=8)
def _client(bucket: Bucket) -> S3Client:
    import boto3
    from botocore.config import Config

    return boto3.session.Session().client(
        "s3",
        endpoint_url=bucket.endpoint,
        region_name=bucket.region or "us-east-1",
        config=Config(
            signature_version="s3v4",
            s3={"addressing_style": "path" if bucket.path_style else "virtual"},
        ),
    )


@dataclass(frozen=True, slots=True)
class Address:
    """One object: its URL for anybody, and how to sign for it where that is refused."""

    url: str
    bucket: Bucket | None = None
    key: str = ""
    version: str | None = None

    def signed_url(self) -> str | None:
        """A URL with the operator's signature; None when the object or he has none."""
        if self.bucket is None:
            return None
        return self.bucket.signed_url(self.key, self.version)

    def in_region(self, region: str) -> Address | None:
        """The object asked for in the region that Amazon names; None where that can't be."""
        if self.bucket is None or self.bucket.region == region:
            return None
        host = self.bucket.endpoint.partition("://")[2]
        if not (host.endswith(".amazonaws.com") and _REGION.fullmatch(region)):
            return None
        endpoint = f"https://s3.{region}.amazonaws.com"
        bucket = replace(self.bucket, endpoint=endpoint, region=region)
        return replace(self, url=bucket.url(self.key, self.version), bucket=bucket)


@dataclass(frozen=True, slots=True)
class Place:
    """A place that may hold a file, whole or as chunks in their order.

    `name` is for a person: no query, no credentials. `address(n)` tells where chunk n lies, from
    0; all have `chunk_size` bytes but the last. A whole file is one chunk, its `chunk_size` None.
    """

    name: str
    address: Callable[[int], Address]
    count: int = 1
    chunk_size: int | None = None

    @classmethod
    def whole(cls, name: str, address: Address) -> Place:
        """A place that holds the file as one object."""
        return cls(name, lambda _: address)


@dataclass(frozen=True, slots=True)
class Wanted:
    """A file to fetch from the first of `places` that has it.

    `target` must not exist. `size` is its bytes, where that is known; it is never longer than
    `limit`.
    """

    target: Path
    places: tuple[Place, ...]
    limit: int
    size: int | None = None
    checksum: Checksum | None = None


def hashing(name: str, bits: int | None = None) -> Callable[[], Hasher] | None:
    """A maker of `hashlib`'s hash of that name, blake2 with a digest of so many bits."""
    if name in ("blake2b", "blake2s"):
        kind = hashlib.blake2b if name == "blake2b" else hashlib.blake2s
        return lambda: kind(digest_size=(bits or 0) // 8, usedforsecurity=False)
    if name not in hashlib.algorithms_available:
        return None
    return lambda: hashlib.new(name, usedforsecurity=False)
