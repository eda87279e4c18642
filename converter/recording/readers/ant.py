"""ANT Neuro recordings (.cnt): a RIFF file of a text header and compressed epochs.

Names and dates of people are in companion files, which are not opened.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from converter.contract.codes import FailureCode, RecordingError
from converter.recording.readers import raw3, spelling
from converter.recording.readers.binary import SampleFile, Scratch
from converter.recording.readers.channel_names import channel_by_label
from converter.recording.readers.claims import check_channels, damaged
from converter.recording.readers.matrix_source import MatrixSource
from converter.recording.signal import Channel, SourceFacts, distinct_labels

_MAX_HEADER_BYTES = 4 << 20  # a channel takes about 60
_MAX_EPOCH_BYTES = 256 << 20  # of unpacked samples
_SAMPLES_A_BYTE = 8  # no compression leaves less of them
_MAX_CHUNKS = 4096

Chunks = dict[bytes, tuple[int, int]]  # offset and size of each one's content


@dataclass(frozen=True, slots=True)
class _Epochs:
    """Where the epochs lie: `length` samples in each, their offsets in a table."""

    data: tuple[int, int]  # offset and size
    table: int  # where the first offset is
    number_bytes: int
    count: int
    length: int
    order: NDArray[np.int64]  # the channel of each row stored


def open_ant(path: Path, modality: str) -> MatrixSource:
    """Open an ANT recording.

    Raises RecordingError: `corrupt_or_truncated` on a header that makes no sense or that the
    file cannot hold, `unsupported_format` for other content than compressed samples,
    `empty_recording` without samples.
    """
    file = SampleFile(path)
    try:
        chunks, number_bytes = _chunks(file)
        sections = _sections(file, chunks)
        rate, n_samples, n_channels = _counts(file, sections)
        channels = _channels(file, sections.get("basic channel data", []), n_channels, modality)
        epochs = _epochs(file, chunks, number_bytes, n_channels)
        if not epochs.length * (epochs.count - 1) < n_samples <= epochs.length * epochs.count:
            raise damaged(
                file.name,
                f"has {epochs.count} epochs of {epochs.length} samples for {n_samples} samples",
            )
        facts = SourceFacts("ANT CNT", n_channels, technical={"epoch_samples": epochs.length})
        matrix = EpochFile(file, epochs, n_channels, n_samples)
        return MatrixSource(
            file.name, matrix, n_samples, rate, channels, facts, granule=epochs.length
        )
    except BaseException:
        file.close()
        raise


class EpochFile:
    """The samples of compressed epochs, as int32. Memory: one epoch, and the block returned."""

    def __init__(self, file: SampleFile, epochs: _Epochs, n_channels: int, n_samples: int) -> None:
        self._file = file
        self._epochs = epochs
        self._n_channels = n_channels
        self._n_samples = n_samples
        self._last: tuple[int, NDArray[np.int32]] | None = None
        self._out = Scratch(np.int32)

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """Samples `start:stop` as (n_channels, stop - start)."""
        out = self._out.array(self._n_channels, stop - start)
        length = self._epochs.length
        for index in range(start // length, -(-stop // length)):
            first = index * length
            begin, end = max(start, first), min(stop, first + length)
            if begin < end:
                stored = self._epoch(index)[:, begin - first : end - first]
                out[self._epochs.order, begin - start : end - start] = stored
        return out

    def _epoch(self, index: int) -> NDArray[np.int32]:
        if self._last is not None and self._last[0] == index:
            return self._last[1]
        epochs, name = self._epochs, self._file.name
        width = epochs.number_bytes
        table = self._file.bytes(epochs.table + width * index, 2 * width)
        begin = int.from_bytes(table[:width], "little")
        end = int.from_bytes(table[width:], "little")
        offset, size = epochs.data
        if index == epochs.count - 1:
            end = size
        n_samples = min(epochs.length, self._n_samples - index * epochs.length)
        most = self._n_channels * raw3.most_bytes(n_samples)
        if not begin < end <= min(size, begin + most):
            raise damaged(name, f"has epoch {index} from byte {begin} to {end}, of {size}")
        raw = np.empty(end - begin, np.uint8)
        self._file.fill(raw, offset + begin)
        try:
            samples = raw3.decode(raw, self._n_channels, n_samples)
        except raw3.DamagedEpoch as error:
            raise damaged(name, f"has an epoch {index} that {error}") from None
        self._last = index, samples
        return samples

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _chunks(file: SampleFile) -> tuple[Chunks, int]:
    """The chunks, those inside of lists too, and the bytes of a number in the file's layout."""
    number_bytes = 8 if file.bytes(0, 4) == b"RF64" else 4
    found: Chunks = {}
    at = 4 + number_bytes + 4
    for _ in range(_MAX_CHUNKS):
        raw = file.bytes(at, 4 + number_bytes)
        if len(raw) < 4 + number_bytes:
            break
        name, size = raw[:4], int.from_bytes(raw[4:], "little")
        at += len(raw)
        if name == b"LIST":
            at += 4
            continue
        if at + size > file.size:
            raise damaged(file.name, f"has {file.size} bytes, a chunk ends at byte {at + size}")
        found.setdefault(name, (at, size))
        at += size + size % 2
    return found, number_bytes


def _sections(file: SampleFile, chunks: Chunks) -> dict[str, list[str]]:
    """The lines below each [heading] of the header, headings in lower case."""
    offset, size = chunks.get(b"eeph", (0, 0))
    text = spelling.decode(file.bytes(offset, min(size, _MAX_HEADER_BYTES)))
    found: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in (line.strip() for line in text.split("\n")):
        if line.startswith("[") and line.endswith("]"):
            lines = found.setdefault(line[1:-1].lower(), [])
        elif line and not line.startswith(";"):
            lines.append(line)
    return found


def _counts(file: SampleFile, sections: dict[str, list[str]]) -> tuple[Fraction, int, int]:
    """Rate in Hz, samples a channel and channels."""
    rate, n_samples, n_channels = (
        spelling.number((sections.get(key) or [""])[0])
        for key in ("sampling rate", "samples", "channels")
    )
    if rate is None or n_samples is None or n_channels is None or rate <= 0:
        raise damaged(file.name, "has no sampling rate, no number of samples or of channels")
    check_channels(file.name, math.ceil(n_channels))
    if n_samples < 1 or n_channels < 1:
        raise RecordingError(
            FailureCode.EMPTY_RECORDING,
            f"{file.name} holds {float(n_channels):g} channels of {float(n_samples):g} samples.",
        )
    if n_samples * n_channels > _SAMPLES_A_BYTE * file.size:
        raise damaged(
            file.name,
            f"declares {float(n_channels):g} channels of {float(n_samples):g} samples, and has "
            f"{file.size} bytes",
        )
    return rate, int(n_samples), int(n_channels)


def _channels(
    file: SampleFile, lines: Sequence[str], n_channels: int, modality: str
) -> list[Channel]:
    """Channels of lines with a label, two factors to the unit, the unit and a reference."""
    if len(lines) != n_channels:
        raise damaged(file.name, f"counts {n_channels} channels and describes {len(lines)}")
    rows = [line.split() for line in lines]
    labels = distinct_labels(row[0] for row in rows)
    channels = []
    for label, row in zip(labels, rows, strict=True):
        factors = [spelling.number(cell) for cell in row[1:3]]
        if len(factors) < 2 or factors[0] is None or factors[1] is None:
            raise damaged(file.name, f"gives the channel {label[:40]} no factors")
        unit = spelling.unit(row[3]) if len(row) > 3 and ":" not in row[3] else "uV"
        try:
            gain = float(factors[0] * factors[1])
        except OverflowError:
            gain = 0.0  # no usable factor
        scaling = (gain, 0.0) if gain else None
        channel = channel_by_label(label, modality, unit, scaling, told=row[0])
        if row[0].upper().startswith("BIP"):  # bipolar inputs of any kind
            channel = replace(channel, type="MISC")
        channels.append(channel)
    return channels


def _epochs(file: SampleFile, chunks: Chunks, number_bytes: int, n_channels: int) -> _Epochs:
    if not {b"chan", b"data", b"ep  "} <= chunks.keys():
        raise RecordingError(
            FailureCode.UNSUPPORTED_FORMAT,
            f"{file.name} holds no compressed samples, those of an ANT recording were expected.",
        )
    table, size = chunks[b"ep  "]
    length = int.from_bytes(file.bytes(table, number_bytes), "little")
    if length < 1 or length * n_channels * 4 > _MAX_EPOCH_BYTES:
        raise damaged(file.name, f"has epochs of {length} samples and {n_channels} channels")
    raw = file.bytes(chunks[b"chan"][0], min(chunks[b"chan"][1], 2 * n_channels))
    order = struct.unpack(f"<{len(raw) // 2}h", raw[: len(raw) // 2 * 2])
    if sorted(order) != list(range(n_channels)):
        raise damaged(file.name, f"does not have its {n_channels} channels in an order")
    return _Epochs(
        data=chunks[b"data"],
        table=table + number_bytes,
        number_bytes=number_bytes,
        count=size // number_bytes - 1,
        length=length,
        order=np.array(order),
    )
