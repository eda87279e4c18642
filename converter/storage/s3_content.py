"""What an object of S3 shall hold: where its bytes are, how many, and their checksum."""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Final

LARGEST_SINGLE: Final = 1 << 30
"""Bytes of an object that one request sends; a larger one goes in parts."""

PART: Final = 64 << 20
BLOCK: Final = 1 << 20  # bytes that are read, hashed and sent at once

_MD5_ETAG: Final = re.compile(r"[0-9a-f]{32}(-\d+)?")


@dataclass(frozen=True, slots=True)
class Stored:
    """An object as S3 lists it; the ETag is without its quotes."""

    size: int
    etag: str


class Body:
    """Bytes that an HTTP client sends in large blocks, whatever size it asks for."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self._file = file
        self._size = size

    def __enter__(self) -> Body:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()

    def __len__(self) -> int:
        return self._size

    def tell(self) -> int:
        """The position of the next block."""
        return self._file.tell()

    def seek(self, position: int) -> int:
        """Go to a position, counted from the start."""
        return self._file.seek(position)

    def read(self, _: int = -1) -> bytes:
        """The next block, empty at the end."""
        return self._file.read(BLOCK)


@dataclass(frozen=True, slots=True)
class Content:
    """Bytes, or a file that must not change, and the ETag that S3 gives to their object.

    The ETag of what goes in parts is the MD5 of the parts' MD5s, with their number; that of
    what S3 encrypts by KMS is another.
    """

    source: bytes | Path
    stored: Stored
    md5: bytes

    @classmethod
    def of_bytes(cls, content: bytes) -> Content:
        """Of bytes that one request sends."""
        digest = hashlib.md5(content, usedforsecurity=False)
        return cls(content, Stored(len(content), digest.hexdigest()), digest.digest())

    @classmethod
    def of_file(cls, path: Path) -> Content:
        """Of a file; a small one is read."""
        with path.open("rb", buffering=0) as file:
            size = file.seek(0, io.SEEK_END)
            file.seek(0)
            if size < BLOCK:
                return cls.of_bytes(file.readall())
            if size <= LARGEST_SINGLE:
                digest = _md5(file, size)
                return cls(path, Stored(size, digest.hex()), digest)
            parts = [_md5(file, PART) for _ in range(0, size, PART)]
        digest = hashlib.md5(b"".join(parts), usedforsecurity=False).digest()
        return cls(path, Stored(size, f"{digest.hex()}-{len(parts)}"), digest)

    def open(self) -> Body:
        """The bytes to be sent, from the start; to be closed."""
        if isinstance(self.source, bytes):
            return Body(io.BytesIO(self.source), self.stored.size)
        return Body(self.source.open("rb", buffering=0), self.stored.size)

    def may_have(self, headers: Mapping[str, str]) -> bool:
        """Whether an object with these headers may hold this: no, when its ETag is another MD5."""
        etag = etag_of(headers)
        has_md5 = _MD5_ETAG.fullmatch(etag) is not None
        if not has_md5 or "kms" in headers.get("x-amz-server-side-encryption", ""):
            return True
        same_parts = etag.partition("-")[2] == self.stored.etag.partition("-")[2]
        return etag == self.stored.etag or not same_parts


def etag_of(headers: Mapping[str, str]) -> str:
    """The ETag that an answer has, without its quotes; empty when it has none."""
    return headers.get("etag", "").strip('"')


def _md5(file: BinaryIO, size: int) -> bytes:
    """The digest of the next `size` bytes, fewer at the end of the file."""
    digest = hashlib.md5(usedforsecurity=False)
    while size > 0 and (block := file.read(min(size, BLOCK))):
        digest.update(block)
        size -= len(block)
    return digest.digest()
