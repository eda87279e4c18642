"""KIT/Yokogawa/Ricoh recordings (.con, .sqd, .kdf), through MNE."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

import mne

from converter.contract.codes import FailureCode, RecordingError
from converter.recording.local import LocalRecording
from converter.recording.readers.claims import check_channels
from converter.recording.readers.mne_source import MneSource, reading, technical_facts
from converter.recording.signal import SourceFacts

_SYSTEM, _ACQUISITION, _SAMPLES = 1, 8, 9  # entries of the file's directory
_CONTINUOUS, _EVOKED, _EPOCHS = 1, 2, 3
_OLDEST_VERSION = (2, 3)


@dataclass(frozen=True, slots=True)
class _Header:
    version: tuple[int, int]
    n_channels: int
    acquisition: int
    n_samples: int
    sample_bytes: int
    data_offset: int


def open_kit(recording: LocalRecording) -> MneSource:
    """Open a KIT recording: every channel that the header counts, none derived.

    Trigger lines stay the analog channels that they are in the file. Raises RecordingError:
    `not_continuous` for averages and epochs, `unsupported_format` for headers older than
    V2R003, `corrupt_or_truncated` when the file ends before its last sample.
    """
    path, name = recording.file, recording.file.name
    with reading(name):
        header = _read_header(path)
    _check(name, header, path.stat().st_size)
    with reading(name):
        raw = mne.io.read_raw_kit(path, stim=None, preload=False, verbose="ERROR")
        facts = SourceFacts("KIT", len(raw.ch_names), technical=technical_facts(raw))
    return MneSource(raw, range(len(raw.ch_names)), facts, name)


def _read_header(path: Path) -> _Header:
    with path.open("rb") as file:

        def numbers(layout: str, offset: int) -> tuple[int, ...]:
            file.seek(offset)
            return struct.unpack(layout, file.read(struct.calcsize(layout)))

        def entry(index: int) -> tuple[int, ...]:
            return numbers("<4i", 16 * index)

        count = entry(0)[3]
        if count <= _SAMPLES:
            raise ValueError(f"a directory of {count} entries, expected more than {_SAMPLES}")
        system, acquisition = entry(_SYSTEM)[0], entry(_ACQUISITION)[0]
        version, revision = numbers("<2i", system)
        (n_channels,) = numbers("<i", system + 12 + 256)
        (kind,) = numbers("<i", acquisition)
        (n_samples,) = numbers("<i", acquisition + 16)
        offset, sample_bytes = entry(_SAMPLES)[:2]
    return _Header((version, revision), n_channels, kind, n_samples, sample_bytes, offset)


def _check(name: str, header: _Header, size: int) -> None:
    if header.version < _OLDEST_VERSION:
        raise RecordingError(
            FailureCode.UNSUPPORTED_FORMAT,
            f"{name} has the KIT header V{header.version[0]}R{header.version[1]:03d}, "
            "expected V2R003 or newer.",
        )
    if header.acquisition in (_EVOKED, _EPOCHS):
        kind = "an average" if header.acquisition == _EVOKED else "epochs"
        raise RecordingError(
            FailureCode.NOT_CONTINUOUS, f"{name} holds {kind}, expected one continuous recording."
        )
    if header.acquisition != _CONTINUOUS or header.sample_bytes not in (2, 4):
        raise RecordingError(
            FailureCode.FILE_READ_ERROR,
            f"{name} has acquisition type {header.acquisition} and {header.sample_bytes} bytes a "
            "sample, expected type 1 to 3 and 2 or 4 bytes.",
        )
    if header.n_channels < 1 or header.n_samples < 1:
        raise RecordingError(
            FailureCode.EMPTY_RECORDING,
            f"{name} holds {header.n_channels} channels of {header.n_samples} samples.",
        )
    check_channels(name, header.n_channels)
    end = header.data_offset + header.n_channels * header.n_samples * header.sample_bytes
    if header.data_offset < 0 or end > size:
        raise RecordingError(
            FailureCode.CORRUPT_OR_TRUNCATED,
            f"{name} has {size} bytes, but its header places samples up to byte {end}.",
        )
