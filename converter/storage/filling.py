"""A file that is filled from several sides and hashed in order behind them."""

from __future__ import annotations

import os
from collections.abc import Callable

from .objects import Checksum
from .transfer import WrongBytes

# Hashed at once: large enough to let other threads work meanwhile, small enough for caches.
_BLOCK = 1 << 20


class Filling:
    """An open file that takes bytes at any place; `frontier` is where its hashing has come to.

    `descriptor` stays open, and is the caller's.
    """

    def __init__(self, descriptor: int, size: int | None, checksum: Checksum | None) -> None:
        self._descriptor = descriptor
        self._size = size
        self._checksum = checksum
        self._hasher = checksum.new() if checksum else None
        self._block = memoryview(bytearray())
        self.frontier = 0

    def start_over(self) -> None:
        """Forget all that was written."""
        os.ftruncate(self._descriptor, 0)
        self._hasher = self._checksum.new() if self._checksum else None
        self.frontier = 0

    def reserve(self) -> None:
        """Give the file its length, so that any part of it can be written first."""
        if self._size is not None:
            os.ftruncate(self._descriptor, self._size)

    def append(self, data: memoryview, position: int) -> None:
        """Take the next bytes; `position` 0 starts over."""
        if position == 0 and self.frontier:
            self.start_over()
        self._write(data, position)
        if self._hasher is not None:
            self._hasher.update(data)
        self.frontier = position + len(data)

    def writer(self, offset: int) -> Callable[[memoryview, int], None]:
        """What writes bytes whose positions count from `offset`; hashing comes later."""
        return lambda data, position: self._write(data, offset + position)

    def advance(self, end: int) -> None:
        """Hash what lies between the frontier and `end`, all of it written by now."""
        if self._hasher is None:
            self.frontier = end
            return
        if not self._block:
            self._block = memoryview(bytearray(_BLOCK))
        while self.frontier < end:
            room = self._block[: min(_BLOCK, end - self.frontier)]
            count = os.preadv(self._descriptor, [room], self.frontier)
            if count == 0:
                raise OSError("A file became shorter while it was fetched.")
            self._hasher.update(room[:count])
            self.frontier += count

    def check(self) -> None:
        """Raise WrongBytes where the file's size or digest is not the one expected."""
        if self._size is not None and self.frontier != self._size:
            raise WrongBytes(f"{self.frontier} bytes", f"{self._size}")
        if self._checksum is None or self._hasher is None:
            return
        found = self._hasher.hexdigest()
        if found != self._checksum.digest:
            name = self._checksum.name
            raise WrongBytes(f"the {name} {_short(found)}", _short(self._checksum.digest))

    def _write(self, data: memoryview, position: int) -> None:
        while data:
            count = os.pwrite(self._descriptor, data, position)
            position += count
            data = data[count:]


def _short(digest: str) -> str:
    """A digest that leaves room for the rest of a sentence."""
    return digest if len(digest) <= 64 else f"{digest[:32]}..."
