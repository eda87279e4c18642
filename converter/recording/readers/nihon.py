"""Nihon Kohden recordings (.EEG): blocks of interleaved 16-bit samples, labels in a .21E file.

Layout after the author of EDFbrowser and of MNE. Patients are in the companions .PNT and .LOG,
which are not opened, and in parts of the .EEG file that are passed over.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from fractions import Fraction
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from converter.contract.codes import FailureCode, RecordingError
from converter.recording.local import LocalRecording
from converter.recording.readers import neuroscan, spelling
from converter.recording.readers.binary import MultiplexedFile, SampleFile
from converter.recording.readers.channel_names import channel_by_label
from converter.recording.readers.claims import damaged
from converter.recording.readers.companions import same_stem
from converter.recording.readers.gapped import GappedMatrix, Stretch, places
from converter.recording.readers.gaps import check_gaps
from converter.recording.readers.matrix_source import MatrixSource
from converter.recording.signal import Channel, SourceFacts, distinct_labels

_SIGNATURES = frozenset(
    (
        *(f"EEG-1100{letter} V01.00" for letter in "ABC"),
        *("QI-403A   V01.00", "QI-403A   V02.00", "EEG-2100  V01.00", "EEG-2100  V02.00"),
        *("DAE-2100D V01.30", "DAE-2100D V02.00", "EEG-1200A V01.00"),
    )
)
_MAX_LABELS_BYTES = 1 << 20
_CLOCK_STEP = Fraction(1)  # second: what the start of a block is rounded to

# Ranges of a channel's code: from 42 on direct currents, then two of bridges and two of marks.
_DIRECT = range(42, 74)
_BRIDGES, _MARKS = range(74, 76), range(76, 78)
_STEPS = 65535
_EEG_RANGE = (Fraction("-3200"), Fraction("3199.902"))  # uV
_DIRECT_RANGE = (Fraction("-12002.9"), Fraction("12002.56"))  # mV


@dataclass(frozen=True, slots=True)
class _Block:
    start: datetime | None
    rate: int
    codes: tuple[int, ...]
    n_samples: int
    offset: int  # of the samples

    @property
    def stop(self) -> int:
        return self.offset + 2 * (len(self.codes) + 1) * self.n_samples


def open_nihon(recording: LocalRecording) -> MatrixSource:
    """Open a Nihon Kohden recording; what lies between its blocks, by their clock, is zeros.

    The clock tells seconds: blocks are joined as long as samples and clock agree within one,
    and no block lies further off its time than that. Raises
    RecordingError: `unsupported_format` for another maker's .eeg, `not_continuous` for epochs
    of Neuroscan and where blocks differ in channels or go back in time,
    `corrupt_or_truncated` on blocks that the file does not hold, `empty_recording` without
    samples.
    """
    path = recording.file
    file = SampleFile(path)
    try:
        _check_signature(file)
        blocks = [block for block in _blocks(file) if block.n_samples and block.codes]
        if not blocks:
            raise RecordingError(FailureCode.EMPTY_RECORDING, f"{path.name} holds no samples.")
        _check_blocks(file, blocks)
        channels = _channels(blocks[0].codes, _labels(path), recording.modality)
        matrix = GappedMatrix(list(_stretches(file, blocks)))
        check_gaps(path.name, matrix.n_samples, sum(block.n_samples for block in blocks))
        facts = SourceFacts("Nihon Kohden", len(channels), technical={"stretches": len(blocks)})
        rate = Fraction(blocks[0].rate)
        return MatrixSource(
            path.name, matrix, matrix.n_samples, rate, channels, facts, gaps=matrix.gaps
        )
    except BaseException:
        file.close()
        raise


class _Waveforms:
    """The samples of one block as int16: stored without a sign, a column of marks last."""

    def __init__(self, file: SampleFile, n_channels: int, offset: int) -> None:
        self._stored = MultiplexedFile(file, "<u2", n_channels + 1, offset)

    def read(self, start: int, stop: int) -> NDArray[Any]:
        samples = self._stored.read(start, stop)[:-1]
        np.bitwise_xor(samples, 0x8000, out=samples)
        return samples.view(np.int16)

    def close(self) -> None:
        self._stored.close()


def _check_signature(file: SampleFile) -> None:
    start = file.bytes(0, 16)
    if start.decode("latin-1") in _SIGNATURES:
        return
    if start.startswith(neuroscan.SIGNATURE):
        raise RecordingError(
            FailureCode.NOT_CONTINUOUS,
            f"{file.name} holds epochs of Neuroscan, one continuous recording was expected.",
        )
    if not start:
        raise RecordingError(FailureCode.EMPTY_RECORDING, f"{file.name} is empty.")
    raise RecordingError(
        FailureCode.UNSUPPORTED_FORMAT,
        f"{file.name} does not begin as files of Nihon Kohden do, and no BrainVision header "
        "is beside it.",
    )


def _blocks(file: SampleFile) -> Iterator[_Block]:
    """All data blocks of all control blocks, in the order that the file lists them in."""
    if file.bytes(0x81, 16).decode("latin-1") not in _SIGNATURES:
        raise damaged(file.name, "has no control block")
    if file.bytes(0x17FE, 1) != b"\1":
        raise damaged(file.name, "has no block of waveforms")
    (n_controls,) = _numbers(file, 0x91, "<B")
    for control in range(n_controls):
        (address,) = _numbers(file, 0x92 + 20 * control, "<I")
        (n_blocks,) = _numbers(file, address + 0x11, "<B")
        for index in range(n_blocks):
            (at,) = _numbers(file, address + 0x12 + 20 * index, "<I")
            yield _block(file, at)


def _block(file: SampleFile, at: int) -> _Block:
    clock = file.bytes(at + 0x14, 6)
    rate, tenths = _numbers(file, at + 0x1A, "<HI")
    rate &= 0x3FFF
    (n_channels,) = _numbers(file, at + 0x26, "<B")
    table = file.bytes(at + 0x27, 10 * n_channels)
    block = _Block(
        start=_clock(clock),
        rate=rate,
        codes=tuple(table[::10]),
        n_samples=tenths * rate // 10,
        offset=at + 0x27 + 10 * n_channels,
    )
    if len(table) < 10 * n_channels or block.stop > file.size:
        raise damaged(
            file.name, f"has {file.size} bytes, a block of its samples ends at byte {block.stop}"
        )
    if rate == 0:
        raise damaged(file.name, "gives a sampling rate of 0 Hz")
    return block


def _numbers(file: SampleFile, at: int, layout: str) -> tuple[int, ...]:
    raw = file.bytes(at, struct.calcsize(layout))
    if len(raw) < struct.calcsize(layout):
        raise damaged(file.name, f"has {file.size} bytes, a header at byte {at} was expected")
    return struct.unpack(layout, raw)


def _clock(raw: bytes) -> datetime | None:
    """A date and a time of six bytes with two decimals each; None when it is none."""
    digits = raw.hex()
    if not digits.isdecimal():
        return None
    try:
        return datetime.strptime(digits, "%y%m%d%H%M%S")
    except ValueError:
        return None


def _check_blocks(file: SampleFile, blocks: Sequence[_Block]) -> None:
    first = blocks[0]
    for block in blocks[1:]:
        if (block.codes, block.rate) != (first.codes, first.rate):
            raise RecordingError(
                FailureCode.NOT_CONTINUOUS,
                f"{file.name} has blocks of {len(first.codes)} channels at {first.rate} Hz and of "
                f"{len(block.codes)} others at {block.rate} Hz, one recording was expected.",
            )
    ordered = sorted(blocks, key=lambda block: block.offset)
    for before, after in pairwise(ordered):
        if before.stop > after.offset:
            raise damaged(file.name, f"has two blocks of samples at byte {after.offset}")


def _stretches(file: SampleFile, blocks: Sequence[_Block]) -> Iterator[Stretch]:
    rate = Fraction(blocks[0].rate)
    onsets = zip(
        accumulate((block.n_samples for block in blocks), initial=0),
        _seconds(file, blocks),
        strict=False,
    )
    for block, place in zip(blocks, places(file.name, onsets, rate, _CLOCK_STEP), strict=True):
        matrix = _Waveforms(file, len(block.codes), block.offset)
        yield Stretch(place, block.n_samples, matrix)


def _seconds(file: SampleFile, blocks: Sequence[_Block]) -> Iterator[Fraction]:
    """When each block begins, after the first one."""
    first = blocks[0].start
    for block in blocks:
        if len(blocks) == 1:
            yield Fraction(0)
        elif block.start is None or first is None:
            raise RecordingError(
                FailureCode.NOT_CONTINUOUS,
                f"{file.name} has several blocks, and no clock that tells the time between them.",
            )
        else:
            elapsed = block.start - first
            yield Fraction(86400 * elapsed.days + elapsed.seconds)


def _channels(codes: Sequence[int], table: Sequence[str], modality: str) -> tuple[Channel, ...]:
    labels = distinct_labels(table[code] or f"Ch{at + 1}" for at, code in enumerate(codes))
    return tuple(
        _channel(code, label, table[code], modality)
        for code, label in zip(codes, labels, strict=True)
    )


def _channel(code: int, label: str, told: str, modality: str) -> Channel:
    if code in _MARKS:
        return Channel(label, "TRIG", "n/a", discrete=True)
    is_direct = code in _DIRECT
    low, high = _DIRECT_RANGE if is_direct else _EEG_RANGE
    gain = (high - low) / _STEPS
    scaling = float(gain), float(low + 32768 * gain)
    unit = "mV" if is_direct else "uV"
    channel = channel_by_label(label, modality, unit, scaling, told=told)
    if (is_direct or code in _BRIDGES) and not channel.discrete:
        channel = replace(channel, type="MISC")
    return channel


def _labels(path: Path) -> list[str]:
    """The label of each code: the maker's own, where the .21E file has no other."""
    labels = _default_labels()
    names = same_stem(path, (".21E",))
    if names is None:
        return labels
    file = SampleFile(names)
    try:
        raw = file.bytes(0, _MAX_LABELS_BYTES)
    finally:
        file.close()
    is_listed = False
    for line in spelling.decode(raw).splitlines():
        if line.startswith("["):
            is_listed = "ELECTRODE" in line or "REFERENCE" in line
        elif is_listed and "=" in line:
            code, name = line.split("=", 1)
            if code.strip().isdecimal() and len(code) < 5 and int(code) < len(labels):
                labels[int(code)] = name.strip()
    return labels


def _default_labels() -> list[str]:
    scalp = "FP1 FP2 F3 F4 C3 C4 P3 P4 O1 O2 F7 F8 T3 T4 T5 T6 FZ CZ PZ E PG1 PG2 A1 A2 T1 T2"
    return [
        *scalp.split(),
        *(f"X{number}" for number in range(1, 12)),
        *(f"NA{number}" for number in range(1, 6)),
        *(f"DC{number:02}" for number in range(1, 33)),
        *("BN1", "BN2", "Mark1", "Mark2"),
        *(f"NA{number}" for number in range(6, 28)),
        *(f"X{number}/BP{number - 11}" for number in range(12, 16)),
        *(f"X{number}" for number in range(16, 166)),
        *("NA28", "Z"),
    ]
