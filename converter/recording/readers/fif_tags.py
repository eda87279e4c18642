"""The outline of a FIF file, read from its tags before anything else opens it."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np

from converter.contract.codes import FailureCode, RecordingError
from converter.recording.readers.claims import check_channels

# Tag kinds, block kinds and roles of the FIFF specification.
_FILE_ID, _DIRECTORY_POINTER, _DIRECTORY = 100, 101, 102
_BLOCK_START, _BLOCK_END, _CHANNEL, _DATA_BUFFER, _DATA_SKIP = 104, 105, 203, 300, 301
_REFERENCE_ROLE, _REFERENCE_NUMBER, _REFERENCE_NAME, _PREVIOUS_FILE = 115, 117, 118, 1
_RAW, _CONTINUOUS, _SHIELDED = 102, 112, 119
_PROCESSED, _EVOKED, _EPOCHS = 103, 104, 373

_HEADER = struct.Struct(">iIii")  # kind, type, size, next
_ENTRY = np.dtype([("kind", ">i4"), ("type", ">u4"), ("size", ">i4"), ("pos", ">i4")])
_LONGEST_NAME = 4096

# The type of a sparse matrix: how it is compressed, and of what its values are.
_BY_COLUMN, _BY_ROW, _VALUE_BYTES = 0x40100000, 0x40200000, {4: 4, 5: 8}


@dataclass(frozen=True, slots=True)
class DataBuffer:
    """Samples, frame after frame: the FIFF type, and the bytes that they take in the file."""

    coding: int
    position: int
    size: int


@dataclass(frozen=True, slots=True)
class FifOutline:
    """What a FIF file holds.

    `blocks` are the kinds of its blocks; `buffers` are its samples in order, with gaps between
    them if it `skips`; `next_files` are the names by which it refers to a following file,
    `continues` whether it does at all.
    """

    blocks: frozenset[int]
    buffers: tuple[DataBuffer, ...]
    skips: bool
    next_files: tuple[str, ...]
    continues: bool

    @property
    def data_bytes(self) -> int:
        """Bytes of all samples."""
        return sum(buffer.size for buffer in self.buffers)

    @property
    def is_raw(self) -> bool:
        """Whether a continuous recording is in the file."""
        return not self.blocks.isdisjoint({_RAW, _CONTINUOUS, _SHIELDED})

    @property
    def is_cut(self) -> bool:
        """Whether epochs or averages are in the file."""
        return not self.blocks.isdisjoint({_PROCESSED, _EVOKED, _EPOCHS})

    @property
    def is_shielded(self) -> bool:
        """Whether the recording was made with internal active shielding."""
        return _SHIELDED in self.blocks and self.blocks.isdisjoint({_RAW, _CONTINUOUS})


def read_outline(stream: BinaryIO, size: int, name: str) -> FifOutline:
    """Outline a FIF file of `size` bytes; `name` is its basename.

    Raises RecordingError: `file_read_error` when it is no FIF file; `corrupt_or_truncated` when
    it is empty, its tag directory is missing, a tag reaches beyond its end, a block is left
    open, as in every file cut short, or a sparse matrix has elements outside of it.
    """
    blocks: set[int] = set()
    names: list[str] = []
    buffers: list[DataBuffer] = []
    depth = channels = 0
    role: int | None = None
    continues = skips = False
    for kind, coding, length, position in _tags(stream, size, name):
        if kind == _BLOCK_START:
            depth, role = depth + 1, None
            blocks.add(_integer(stream, position))
        elif kind == _BLOCK_END:
            depth -= 1
        elif kind == _DATA_BUFFER:
            buffers.append(DataBuffer(coding, position + _HEADER.size, length))
        elif kind == _CHANNEL:
            channels += 1
            check_channels(name, channels)
        elif kind == _DATA_SKIP:
            skips = True
        elif kind == _REFERENCE_ROLE:
            role = _integer(stream, position)
        elif kind in (_REFERENCE_NAME, _REFERENCE_NUMBER) and role != _PREVIOUS_FILE:
            continues = True
            if kind == _REFERENCE_NAME:
                stream.seek(position + _HEADER.size)
                names.append(stream.read(min(length, _LONGEST_NAME)).decode("latin-1"))
    if depth > 0 or not blocks:
        inside = f"inside {depth} open blocks" if depth else "before its first block"
        raise _cut_short(name, f"ends {inside}")
    return FifOutline(frozenset(blocks), tuple(buffers), skips, tuple(names), continues)


def _tags(stream: BinaryIO, size: int, name: str) -> Iterator[tuple[int, int, int, int]]:
    """Kind, type, length of the content and position of every tag; all lie wholly in the file."""
    stream.seek(0)
    head = stream.read(_HEADER.size)
    if len(head) < _HEADER.size:
        raise _cut_short(name, f"has {size} bytes")
    if _HEADER.unpack(head)[:3] != (_FILE_ID, 31, 20):
        raise RecordingError(
            FailureCode.FILE_READ_ERROR,
            f"{name} is no FIF file, expected it to start with a file identifier.",
        )
    pointer = _HEADER.size + 20
    if size < pointer + _HEADER.size + 4:
        raise _cut_short(name, f"ends after {size} bytes, inside its first tags")
    stream.seek(pointer)
    if _HEADER.unpack(stream.read(_HEADER.size))[0] == _DIRECTORY_POINTER:
        directory = _integer(stream, pointer)
    else:
        directory = -1
    found = _listed(stream, size, directory, name) if directory > 0 else _walk(stream, size, name)
    for kind, length, position in found:
        coding = 0
        if 0 <= position <= size - _HEADER.size:
            stream.seek(position)
            # Readers go by this header, whatever a directory says of the tag.
            _, coding, own_length, _ = _HEADER.unpack(stream.read(_HEADER.size))
            length = own_length if own_length < 0 else max(length, own_length)
        if length < 0 or position < 0 or position + _HEADER.size + length > size:
            raise _cut_short(
                name, f"has {size} bytes, but a tag at byte {position} has {length} bytes"
            )
        if coding & 0xFFFF0000 in (_BY_COLUMN, _BY_ROW):
            _check_sparse(stream.read(own_length), coding, position, name)
        yield kind, coding, length, position


def _listed(
    stream: BinaryIO, size: int, directory: int, name: str
) -> Iterator[tuple[int, int, int]]:
    """The tags that the directory at this position lists."""
    if directory + _HEADER.size > size:
        raise _cut_short(name, f"has {size} bytes, but its directory is at byte {directory}")
    stream.seek(directory)
    kind, _, length, _ = _HEADER.unpack(stream.read(_HEADER.size))
    if kind != _DIRECTORY or length < 0 or directory + _HEADER.size + length > size:
        raise _cut_short(name, f"has no whole directory at byte {directory} of {size}")
    entries = np.frombuffer(stream.read(length - length % _ENTRY.itemsize), _ENTRY)
    for entry in entries[entries["kind"] >= 0]:
        yield int(entry["kind"]), int(entry["size"]), int(entry["pos"])


def _walk(stream: BinaryIO, size: int, name: str) -> Iterator[tuple[int, int, int]]:
    """The tags as each leads to the next, for files without a directory."""
    position = 0
    for _ in range(size // _HEADER.size + 1):
        stream.seek(position)
        head = stream.read(_HEADER.size)
        if not head:
            return
        if len(head) < _HEADER.size:
            raise _cut_short(name, f"ends inside a tag at byte {position}")
        kind, _, length, following = _HEADER.unpack(head)
        yield kind, length, position
        if following < 0:
            return
        position = following or position + _HEADER.size + length
    raise _cut_short(name, "has tags that lead in a circle")


def _check_sparse(content: bytes, coding: int, position: int, name: str) -> None:
    """Refuse a compressed matrix whose indices lead out of it: SciPy follows them unchecked."""
    counts = np.frombuffer(content[-16:], ">i4") if len(content) >= 16 else np.zeros(4, ">i4")
    n_values, n_rows, n_columns, n_dimensions = counts.tolist()
    lines, width = (n_columns, n_rows) if coding & _BY_COLUMN else (n_rows, n_columns)
    indices_at = n_values * _VALUE_BYTES.get(coding & 0xFFFF, 0)
    lines_at = indices_at + 4 * n_values
    end = lines_at + 4 * (lines + 1)
    fits = n_dimensions == 2 and min(n_values, lines, width) >= 0 and end + 16 <= len(content)
    if fits:
        starts = np.frombuffer(content[lines_at:end], ">i4")
        order = ">i4"
        if starts[-1] > n_values or (starts < 0).any():
            # Old software wrote both lists, the first numbers of one aside, in the other order.
            order = "<i4"
            starts = starts.view(order)
        listed, aside = content[indices_at:lines_at], 4 * (width + 1)
        first, rest = np.frombuffer(listed[:aside], ">i4"), np.frombuffer(listed[aside:], order)
        indices = np.concatenate([first, rest])
        steps = np.diff(starts.astype(np.int64))
        fits = starts[0] == 0 and starts[-1] <= n_values and bool((steps >= 0).all())
        fits = fits and bool(((indices >= 0) & (indices < width)).all())
    if not fits:
        raise _cut_short(name, f"has a sparse matrix at byte {position} that contradicts itself")


def _integer(stream: BinaryIO, position: int) -> int:
    stream.seek(position + _HEADER.size)
    return int.from_bytes(stream.read(4), "big", signed=True)


def _cut_short(name: str, found: str) -> RecordingError:
    return RecordingError(
        FailureCode.CORRUPT_OR_TRUNCATED, f"{name} {found}, expected a whole FIF file."
    )
