"""Neuroscan continuous files (.cnt): a header, interleaved samples, a table of events.

Layout after Bourke, "EEG data file formats: Neuroscan CNT". Patient, operator, doctor and
hospital are passed over, they are nowhere kept; nor are events read, which are in events.tsv.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np

from converter.contract.codes import FailureCode, RecordingError
from converter.recording.readers import spelling
from converter.recording.readers.binary import BlockedFile, MultiplexedFile, SampleFile
from converter.recording.readers.channel_names import channel_by_label
from converter.recording.readers.claims import check_channels, damaged
from converter.recording.readers.matrix_source import MatrixSource
from converter.recording.signal import Channel, SourceFacts, distinct_labels

SIGNATURE = b"Version 3"
_SETUP_BYTES, _CHANNEL_BYTES = 900, 75
_WIDTHS = (2, 4)
_WRAP = 1 << 32  # the position of the event table has 32 bits
_LONGEST_BLOCK = 1 << 16  # bytes of one channel; amplifiers have sent 80
# The byte in the header of the next file that tells the width of a sample.
_NEXT_FILE, _IS_32_BIT = 12, 52
_MICROVOLTS_PER_STEP = 204.8  # steps a microvolt, at a sensitivity and a calibration of 1


@dataclass(frozen=True, slots=True)
class _Header:
    rate: int
    n_channels: int
    n_samples: int
    events: int
    block_bytes: int  # a channel has side by side, 0 and 1 for a single sample
    width_told: int | None

    @property
    def data_offset(self) -> int:
        return _SETUP_BYTES + _CHANNEL_BYTES * self.n_channels

    def block(self, width: int) -> int:
        """Samples of a channel that lie side by side."""
        return max(1, self.block_bytes // width)


def open_neuroscan(path: Path, modality: str) -> MatrixSource:
    """Open a Neuroscan recording of 16-bit or 32-bit samples.

    Raises RecordingError: `corrupt_or_truncated` when the file does not hold what its header
    says, `file_read_error` when nothing tells the width of a sample, `empty_recording`
    without samples.
    """
    file = SampleFile(path)
    try:
        header = _read_header(file)
        width, n_samples = _extent(file, header)
        raw = file.bytes(_SETUP_BYTES, header.data_offset - _SETUP_BYTES)
        channels = tuple(_channels(raw, header.n_channels, modality))
        facts = SourceFacts(
            "Neuroscan CNT", header.n_channels, technical={"sample_bits": 8 * width}
        )
        return _source(file, header, width, n_samples, channels, facts)
    except BaseException:
        file.close()
        raise


def _source(
    file: SampleFile,
    header: _Header,
    width: int,
    n_samples: int,
    channels: tuple[Channel, ...],
    facts: SourceFacts,
) -> MatrixSource:
    dtype, n_channels, offset = f"<i{width}", header.n_channels, header.data_offset
    block = header.block(width)
    if n_samples == 0 or n_channels == 0 or block == 1:
        plain = MultiplexedFile(file, dtype, n_channels, offset)
        return MatrixSource(file.name, plain, n_samples, Fraction(header.rate), channels, facts)
    held = (file.size - offset) // (n_channels * width)
    if -(-n_samples // block) * block > held:
        n_samples = n_samples // block * block
    blocked = BlockedFile(file, dtype, n_channels, block, offset)
    return MatrixSource(file.name, blocked, n_samples, Fraction(header.rate), channels, facts)


def _read_header(file: SampleFile) -> _Header:
    raw = file.bytes(0, _SETUP_BYTES)
    if len(raw) < _SETUP_BYTES or not raw.startswith(SIGNATURE):
        raise damaged(file.name, f"has {len(raw)} bytes of header, {_SETUP_BYTES} were expected")
    (n_channels,) = struct.unpack_from("<H", raw, 370)
    check_channels(file.name, n_channels)
    (rate,) = struct.unpack_from("<H", raw, 376)
    (n_samples,) = struct.unpack_from("<I", raw, 864)
    (events,) = struct.unpack_from("<I", raw, 886)
    (block_bytes,) = struct.unpack_from("<i", raw, 894)
    (next_file,) = struct.unpack_from("<I", raw, _NEXT_FILE)
    if rate == 0 or block_bytes > _LONGEST_BLOCK:
        raise damaged(
            file.name,
            f"gives a sampling rate of {rate} Hz and {block_bytes} bytes a channel and block",
        )
    flag = file.bytes(next_file + _IS_32_BIT, 1) if next_file else b""
    header = _Header(
        rate=rate,
        n_channels=n_channels,
        n_samples=n_samples,
        events=events,
        block_bytes=block_bytes,
        width_told={b"\0": 2, b"\1": 4}.get(flag),
    )
    if header.data_offset > file.size:
        raise damaged(
            file.name,
            f"declares {n_channels} channels, whose header takes {header.data_offset} bytes, "
            f"and has {file.size}",
        )
    return header


def _extent(file: SampleFile, header: _Header) -> tuple[int, int]:
    """Bytes a sample and samples a channel.

    The table of events begins where the samples end. Together with the number of samples,
    which some writers leave wrong, it tells how wide a sample is.
    """
    frame, start = header.n_channels, header.data_offset
    if frame == 0:
        return _WIDTHS[0], 0
    for width in _WIDTHS:
        block = header.block(width)
        for held in {header.n_samples, -(-header.n_samples // block) * block}:
            end = start + held * frame * width
            is_told = end % _WRAP == header.events or (end == file.size and header.events == 0)
            if held and end <= file.size and is_told:
                return width, header.n_samples
    if header.width_told is None and file.size < header.events:
        raise damaged(
            file.name, f"has {file.size} bytes, its table of events begins at byte {header.events}"
        )
    if header.width_told is None:
        raise RecordingError(
            FailureCode.FILE_READ_ERROR,
            f"{file.name} tells no width of its samples: {header.n_samples} of {frame} channels "
            f"end at byte {header.events} neither as 16-bit nor as 32-bit numbers.",
        )
    width = header.width_told
    if file.size < _WRAP and start <= header.events <= file.size:
        return width, (header.events - start) // (frame * width)
    n_samples = header.n_samples
    if start + n_samples * frame * width > file.size:
        raise damaged(
            file.name,
            f"holds {(file.size - start) // (frame * width)} of the {n_samples} samples a channel "
            "that its header declares",
        )
    return width, n_samples


def _channels(raw: bytes, n_channels: int, modality: str) -> Iterator[Channel]:
    """Channels in uV, with the baseline taken off; as stored where the gain makes no sense."""
    cells = [raw[_CHANNEL_BYTES * at :][:_CHANNEL_BYTES] for at in range(n_channels)]
    names = [spelling.decode(cell[:10].split(b"\0")[0]) for cell in cells]
    labels = distinct_labels(name or f"Ch{at + 1}" for at, name in enumerate(names))
    for label, name, cell in zip(labels, names, cells, strict=True):
        (baseline,) = struct.unpack_from("<h", cell, 47)
        (sensitivity,) = struct.unpack_from("<f", cell, 59)
        (calibration,) = struct.unpack_from("<f", cell, 71)
        gain = sensitivity * calibration / _MICROVOLTS_PER_STEP
        is_usable = gain and math.isfinite(gain) and np.isfinite(np.float32(gain))
        scaling = (gain, -baseline * gain) if is_usable else None
        yield channel_by_label(label, modality, "uV", scaling, told=name)
