"""The files of a MEF 3 session: which channels and segments there are, and where their blocks lie.

A channel is a directory `<name>.timd` of segments, each a directory `.segd` with metadata (.tmet),
an index of blocks (.tidx) and the blocks (.tdat). Of the metadata only what describes the signal
is read: section 3, which names the subject and the place, never is.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from converter.contract.codes import FailureCode, RecordingError
from converter.recording.readers import spelling
from converter.recording.readers.binary import SampleFile
from converter.recording.readers.claims import check_channels, damaged
from converter.recording.readers.matlab import exact
from converter.recording.readers.mef_red import HEADER_BYTES
from converter.recording.readers.mef_timeline import Timeline

HEADER_SIZE = 1024  # of every file
_N_ENTRIES = 32  # the place in there of how many entries follow
INDEX = np.dtype(
    [
        ("offset", "<i8"),
        ("time", "<i8"),
        ("first_sample", "<i8"),
        ("n_samples", "<u4"),
        ("n_bytes", "<u4"),
        ("maximum", "<i4"),
        ("minimum", "<i4"),
        ("protected", "V4"),
        ("flags", "u1"),
        ("reserved", "V11"),
    ]
)
ENCRYPTED = 2 | 4  # flags of a block
ENTRIES_AT_ONCE = 1 << 14
_MOST_BLOCK_SAMPLES = 1 << 22
_MOST_SAMPLES_A_BYTE = 1500  # a flat line takes log2(256 / 255) bits a sample, at least
_NO_TIME = -(2**63)

# Fields of the metadata, by their place in the file.
_FIRST, _LAST = 8712, 8928
_NUMBER, _RATE, _FACTOR, _UNIT, _N_SAMPLES = 8712, 8720, 8760, 8768, 8920
_UNIT_BYTES = 128


@dataclass(frozen=True, slots=True)
class Metadata:
    """What a segment's metadata says of its signal; `n_samples` is below 0 where it is unknown."""

    number: int
    rate: Fraction
    factor: float
    unit: str
    n_samples: int


@dataclass(slots=True)
class Segment:
    """One segment's blocks; `first[i]` is the first sample of block `i * ENTRIES_AT_ONCE`."""

    index: Path
    data: Path
    n_blocks: int = 0
    n_samples: int = 0
    first: list[int] = field(default_factory=list)

    def entries(self, start: int, stop: int) -> Iterator[tuple[int, int, NDArray[np.void]]]:
        """Pieces of the index with blocks of samples `start:stop`.

        Each comes with the number of its first block and the first sample of that.
        """
        piece = int(np.searchsorted(self.first, start, "right")) - 1
        with SampleFile(self.index) as file:
            while piece < len(self.first) and self.first[piece] < stop:
                at = piece * ENTRIES_AT_ONCE
                count = min(ENTRIES_AT_ONCE, self.n_blocks - at)
                yield at, self.first[piece], _entries(file, at, count)
                piece += 1


@dataclass(slots=True)
class Channel:
    """A channel: its segments, one after the other, and where their samples are in time."""

    label: str
    metadata: Metadata
    timeline: Timeline
    segments: list[Segment] = field(default_factory=list)
    longest_block: int = 0

    @property
    def n_samples(self) -> int:
        """Samples that are stored."""
        return self.timeline.n_samples


def encrypted(name: str) -> RecordingError:
    """The failure of an encrypted session."""
    return RecordingError(
        FailureCode.FILE_READ_ERROR,
        f"{name} is encrypted, and can't be read without a password: a session without "
        "encryption was expected.",
    )


def channels(session: Path) -> Iterator[Channel]:
    """Every time series of a session, sorted by name; those without a sample, too."""
    directories = _directories(session, ".timd")
    check_channels(session.name, len(directories))
    for directory in directories:
        segments = _directories(directory, ".segd")
        name = os.fsencode(directory.name).decode("utf-8", "replace")
        channel = None
        for segment in segments:
            metadata = _metadata(_file(segment, ".tmet"))
            if channel is None:
                label = name[: -len(".timd")]
                channel = Channel(label, metadata, Timeline(label, metadata.rate))
            _check_alike(channel, metadata, segment.name)
            _add_segment(channel, segment, metadata)
        if channel is None:
            raise damaged(name, "has no segments")
        yield channel


def _directories(parent: Path, extension: str) -> list[Path]:
    found = []
    with os.scandir(parent) as entries:
        for entry in entries:
            if entry.name.startswith(".") or not entry.name.lower().endswith(extension):
                continue
            if entry.is_symlink():
                raise RecordingError(
                    FailureCode.FILE_READ_ERROR,
                    f"{entry.name} is a link to another directory, which is refused.",
                )
            if entry.is_dir():
                found.append(parent / entry.name)
    return sorted(found)


def _file(segment: Path, extension: str) -> Path:
    """The segment's file of a kind; its name may be an older one of the channel."""
    found = [
        path
        for path in segment.iterdir()
        if path.name.lower().endswith(extension) and not path.name.startswith(".")
    ]
    if len(found) != 1:
        raise damaged(segment.name, f"has {len(found)} {extension} files, one was expected")
    return found[0]


def _metadata(path: Path) -> Metadata:
    with SampleFile(path) as file:
        check_header(file, b"tmet")
        encryption = file.bytes(HEADER_SIZE, 1)
        content = file.bytes(_FIRST, _LAST - _FIRST)
    if len(content) < _LAST - _FIRST:
        raise damaged(path.name, "ends within its metadata")
    if int.from_bytes(encryption, signed=True) > 0:
        raise encrypted(path.name)

    def number(place: int, dtype: str) -> NDArray[Any]:
        return np.frombuffer(content, dtype, 1, place - _FIRST)

    hertz, factor = float(number(_RATE, "<f8")[0]), float(number(_FACTOR, "<f8")[0])
    rate = exact(np.float64(hertz))
    if rate is None or rate <= 0:
        raise damaged(path.name, f"gives a rate of {hertz} Hz, one above 0 was expected")
    if not np.isfinite(factor):
        raise damaged(path.name, f"gives a conversion factor of {factor}")
    text = content[_UNIT - _FIRST :][:_UNIT_BYTES].partition(b"\0")[0]
    unit = spelling.known_unit(spelling.decode(text)) if factor else "n/a"
    channel, n_samples = int(number(_NUMBER, "<i8")[0]), int(number(_N_SAMPLES, "<i8")[0])
    return Metadata(channel, rate, factor or 1.0, unit, n_samples)


def check_header(file: SampleFile, kind: bytes) -> None:
    """RecordingError unless the file is one of MEF 3, of this kind, little-endian."""
    header = file.bytes(0, 16)
    if len(header) < 16 or header[8:13] != kind + b"\0":
        raise damaged(file.name, f"is no {kind.decode()} file of MEF 3")
    version, order = header[13], header[15]
    if version != 3 or order != 1:
        raise RecordingError(
            FailureCode.UNSUPPORTED_FORMAT,
            f"{file.name} has MEF version {version} and byte order {order}, "
            "expected version 3 and order 1 (little-endian).",
        )


def _check_alike(channel: Channel, metadata: Metadata, segment: str) -> None:
    one, other = channel.metadata, metadata
    if (one.rate, one.factor, one.unit) != (other.rate, other.factor, other.unit):
        raise RecordingError(
            FailureCode.FILE_READ_ERROR,
            f"{segment} has {float(other.rate):g} Hz and a factor of {other.factor:g} "
            f"{other.unit}, the segment before it {float(one.rate):g} Hz and {one.factor:g} "
            f"{one.unit}.",
        )


def _entries(file: SampleFile, first: int, count: int) -> NDArray[np.void]:
    buffer = np.empty(count * INDEX.itemsize, np.uint8)
    file.fill(buffer, HEADER_SIZE + first * INDEX.itemsize)
    return buffer.view(INDEX)


def _add_segment(channel: Channel, directory: Path, metadata: Metadata) -> None:
    """Go through a segment's index once."""
    segment = Segment(_file(directory, ".tidx"), _file(directory, ".tdat"))
    with SampleFile(segment.data) as data:
        check_header(data, b"tdat")
        data_size = data.size
    with SampleFile(segment.index) as file:
        check_header(file, b"tidx")
        segment.n_blocks = int.from_bytes(file.bytes(_N_ENTRIES, 8), "little", signed=True)
        most = (file.size - HEADER_SIZE) // INDEX.itemsize
        if not 0 <= segment.n_blocks <= most:
            raise damaged(
                file.name,
                f"counts {segment.n_blocks} blocks, its {file.size} bytes hold entries of {most}",
            )
        n_bytes = 0
        for first in range(0, segment.n_blocks, ENTRIES_AT_ONCE):
            count = min(ENTRIES_AT_ONCE, segment.n_blocks - first)
            entries = _entries(file, first, count)
            _check_entries(file.name, entries, data_size)
            n_bytes += int(entries["n_bytes"].sum(dtype=np.int64))
            if n_bytes > data_size:
                raise damaged(
                    file.name,
                    f"has blocks of {n_bytes} bytes and more, of a file of {data_size} bytes",
                )
            segment.first.append(segment.n_samples)
            segment.n_samples += int(entries["n_samples"].sum(dtype=np.int64))
            longest = int(entries["n_samples"].max())
            channel.longest_block = max(channel.longest_block, longest)
            channel.timeline.add(entries, is_segment=first == 0)
    if segment.n_samples != metadata.n_samples >= 0:
        raise damaged(
            segment.index.name,
            f"counts {segment.n_samples} samples, the metadata {metadata.n_samples}",
        )
    channel.segments.append(segment)


def _check_entries(name: str, entries: NDArray[np.void], data_size: int) -> None:
    if (entries["flags"] & ENCRYPTED).any():
        raise encrypted(name)
    n_samples, n_bytes = entries["n_samples"].astype(np.int64), entries["n_bytes"].astype(np.int64)
    offset = entries["offset"]
    is_sound = (n_samples > 0) & (n_samples <= _MOST_BLOCK_SAMPLES)
    is_sound &= (n_bytes > HEADER_BYTES) & (n_samples <= n_bytes * _MOST_SAMPLES_A_BYTE)
    is_sound &= (offset >= HEADER_SIZE) & (offset <= data_size - n_bytes)
    is_sound &= entries["time"] != _NO_TIME
    if not is_sound.all():
        bad = entries[int(np.argmin(is_sound))]
        raise damaged(
            name,
            f"has a block of {bad['n_samples']} samples in {bad['n_bytes']} bytes from "
            f"byte {bad['offset']} on, of a file of {data_size} bytes",
        )
