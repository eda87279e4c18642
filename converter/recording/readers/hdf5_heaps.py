"""The heaps in which HDF5 files keep texts of any length, looked through before HDF5 does.

The HDF5 library goes from entry to entry by the sizes that the file gives, and never comes to an
end where one of them is 0. Layout: HDF5 File Format Specification, "Global Heap".
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from converter.contract.codes import FailureCode, RecordingError
from converter.recording.readers.binary import SampleFile

_BEGIN = b"GCOL\1"  # signature and version, then three bytes that nobody looks at
_BEGIN_FIXED = 8
_PIECE = 8 << 20
_MOST_ENTRIES = 1 << 22  # of all heaps
_ALIGNMENT = 8
_ENTRY_FIXED = 8  # number, references, reserved; then comes the size


def check_file_heaps(path: Path, opened: Any) -> None:
    """See check_heaps; `opened` is the same file as h5py has it."""
    _, size_bytes = opened.id.get_create_plist().get_sizes()
    with SampleFile(path) as file:
        check_heaps(file, size_bytes)


def check_heaps(file: SampleFile, size_bytes: int) -> None:
    """CORRUPT_OR_TRUNCATED when an entry of a heap leads back to itself.

    Reads the whole file once. `size_bytes` is how long the file's sizes are.
    """
    left = _MOST_ENTRIES
    for position in _heaps(file):
        for entry, need in _entries(file, position, size_bytes):
            left -= 1
            if need == 0 or left < 0:
                raise RecordingError(
                    FailureCode.CORRUPT_OR_TRUNCATED,
                    f"{file.name} has an entry of {need} bytes in a heap of texts, at byte "
                    f"{entry}; each takes more than 0, and all heaps hold at most "
                    f"{_MOST_ENTRIES} of them.",
                )


def _heaps(file: SampleFile) -> Iterator[int]:
    """The positions of all that looks like a heap."""
    for start in range(0, file.size, _PIECE):
        content = file.bytes(start, _PIECE + len(_BEGIN) - 1)
        at = content.find(_BEGIN)
        while at >= 0:
            yield start + at
            at = content.find(_BEGIN, at + 1)


def _entries(file: SampleFile, heap: int, size_bytes: int) -> Iterator[tuple[int, int]]:
    """Position of each entry, and how much it takes; the library counts in 64 bits."""

    def aligned(count: int) -> int:
        return -(-count // _ALIGNMENT) * _ALIGNMENT

    def number(content: bytes, place: int, count: int) -> int:
        return int.from_bytes(content[place : place + count], "little")

    head, entry_head = aligned(_BEGIN_FIXED + size_bytes), aligned(_ENTRY_FIXED + size_bytes)
    size = number(file.bytes(heap, head), _BEGIN_FIXED, size_bytes)
    content = file.bytes(heap, min(size, file.size - heap))
    at = head
    while at + entry_head <= len(content):
        count = number(content, at + _ENTRY_FIXED, size_bytes)
        need = entry_head + aligned(count) if number(content, at, 2) else count
        need %= 1 << 64
        yield heap + at, need
        at += need
