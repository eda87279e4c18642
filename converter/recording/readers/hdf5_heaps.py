"""HDF5 files whose heaps, which hold texts of any length, are looked through before HDF5 does.

The HDF5 library goes from entry to entry by the sizes that the file gives, and never comes to an
end where one of them leads nowhere. It asks for its bytes here, and begins each heap at its
start, so a heap is known when it is wanted and what nobody wants is never read. Layout: HDF5
File Format Specification, "Global Heap".
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py

from converter.contract.codes import FailureCode, RecordingError

_BEGIN = b"GCOL\1"  # signature and version, then three bytes that nobody looks at
_BEGIN_FIXED = 8
_PIECE = 1 << 16
_MOST_ENTRIES, _MOST_BYTES = 1 << 22, 256 << 20  # of all heaps that are wanted
_ALIGNMENT = 8
_ENTRY_FIXED = 8  # number, references, reserved; then comes the size


class CheckedHdf5:
    """A regular file as h5py opens it.

    Whatever is read through `root` raises CORRUPT_OR_TRUNCATED where a heap that it needs has an
    entry that leads back or out of it, or all heaps so far were too large for texts.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._direct: Any = None
        source = _Source(path)
        try:
            self.root: Any = h5py.File(source, "r", locking=False)
            _, source.size_bytes = self.root.id.get_create_plist().get_sizes()
        except BaseException:
            source.close()
            raise

    def samples(self, dataset: Any) -> Any:
        """A dataset of numbers, none of which lies in a heap, as HDF5 reads it fastest.

        It must have been reached by hard links.
        """
        if self._direct is None:
            self._direct = h5py.File(self._path, "r", locking=False)
        return self._direct[dataset.name]

    def close(self) -> None:
        """Close the file; closing twice is harmless."""
        self.root.close()
        if self._direct is not None:
            self._direct.close()


class _Source(io.FileIO):
    """What HDF5 reads the file through. h5py drops it when the file is closed."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, "rb")
        self._shown = path.name
        self._size = os.fstat(self.fileno()).st_size
        self.size_bytes = 8  # how long the file's sizes are
        self._sound: set[int] = set()
        self._entries_left, self._bytes_left = _MOST_ENTRIES, _MOST_BYTES

    def __repr__(self) -> str:
        return self._shown  # HDF5's own errors name the file by it

    def readinto(self, buffer: Any) -> int:
        """Fill the buffer; with zeros beyond the end of the file, as HDF5 does itself."""
        view = memoryview(buffer)
        done = super().readinto(view)
        while done < len(view):
            count = super().readinto(view[done:])
            if count == 0:
                view[done:] = bytes(len(view) - done)
                break
            done += count
        if view[: len(_BEGIN)] == _BEGIN:
            self._check_heap(self.tell() - done)
        return len(view)

    def _check_heap(self, heap: int) -> None:
        if heap in self._sound:
            return
        head = os.pread(self.fileno(), self.size_bytes, heap + _BEGIN_FIXED)
        size = min(int.from_bytes(head, "little"), self._size - heap)
        self._bytes_left -= size
        if self._bytes_left < 0:
            raise self._damaged(f"heaps of texts of more than {_MOST_BYTES} bytes")
        for at, need in self._entries(heap, size):
            self._entries_left -= 1
            if not 0 < need <= size - at:
                raise self._damaged(
                    f"an entry of {need} bytes in a heap of texts, at byte {heap + at}; it takes "
                    f"more than 0, and {size - at} at most"
                )
            if self._entries_left < 0:
                raise self._damaged(f"more than {_MOST_ENTRIES} entries in heaps of texts")
        self._sound.add(heap)

    def _entries(self, heap: int, size: int) -> Iterator[tuple[int, int]]:
        """Place of each entry in a heap, and how much it takes."""
        head = _aligned(_BEGIN_FIXED + self.size_bytes)
        entry_head = _aligned(_ENTRY_FIXED + self.size_bytes)
        at, first, piece = head, 0, b""
        while at + entry_head <= size:
            if at + entry_head > first + len(piece):
                first, piece = at, os.pread(self.fileno(), _PIECE, heap + at)
            entry = piece[at - first :][: _ENTRY_FIXED + self.size_bytes]
            count = int.from_bytes(entry[_ENTRY_FIXED:], "little")
            # Entry 0 is free space, and counts its head.
            need = entry_head + _aligned(count) if any(entry[:2]) else count
            yield at, need
            at += need

    def _damaged(self, found: str) -> RecordingError:
        return RecordingError(FailureCode.CORRUPT_OR_TRUNCATED, f"{self._shown} has {found}.")


def _aligned(count: int) -> int:
    return -(-count // _ALIGNMENT) * _ALIGNMENT
