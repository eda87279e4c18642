"""CTF recordings (.ds directories): the header through MNE, the samples in blocks."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mne
import numpy as np
from numpy.typing import NDArray

from converter.contract.codes import FailureCode, RecordingError
from converter.recording.local import LocalRecording
from converter.recording.readers.mne_source import (
    MneSource,
    reading,
    stand_in,
    technical_facts,
)
from converter.recording.signal import SourceFacts

_MEG4_HEADER = 8
_FIXED_BYTES = 1320  # of the .res4 file, up to the fields read here


@dataclass(frozen=True, slots=True)
class _Header:
    n_averaged: int
    trial_samples: int
    n_channels: int
    n_trials: int


@dataclass(frozen=True, slots=True)
class _DataFile:
    path: Path
    n_trials: int


class CtfSource(MneSource):
    """A CTF recording; trials follow one another on one timeline, as in the file.

    A trial lies channel by channel, so a block is read row by row: MNE reads whole trials,
    and a continuous recording is often a single one.
    """

    def __init__(
        self,
        raw: Any,
        facts: SourceFacts,
        name: str,
        header: _Header,
        files: Sequence[_DataFile],
        release: Callable[[], None] | None,
    ) -> None:
        super().__init__(raw, range(len(raw.ch_names)), facts, name, release=release)
        self._header = header
        self._files = files
        scales = [entry["cal"] * entry["range"] for entry in raw.info["chs"]]
        self._scales = np.array(scales, dtype=np.float64)

    def _read(self, start: int, stop: int) -> NDArray[Any]:
        n_channels, length = self._header.n_channels, self._header.trial_samples
        samples = np.empty((n_channels, stop - start))
        at = 0
        for file in self._files:
            n_samples = file.n_trials * length
            with file.path.open("rb") as stream:
                first, last = max(start - at, 0), min(stop - at, n_samples)
                while first < last:
                    trial, offset = divmod(first, length)
                    count = min(length - offset, last - first)
                    column = at + first - start
                    for row in range(n_channels):
                        position = (trial * n_channels + row) * length + offset
                        stream.seek(_MEG4_HEADER + 4 * position)
                        values = np.frombuffer(stream.read(4 * count), ">i4")
                        if values.size < count:
                            raise EOFError(f"{file.path.name} ends in trial {trial + 1}")
                        samples[row, column : column + count] = values
                    first += count
            at += n_samples
        samples *= self._scales[:, np.newaxis]
        return samples


def open_ctf(recording: LocalRecording) -> CtfSource:
    """Open a CTF directory: every channel of its header, every sample of its .meg4 files.

    The members may carry another name than the directory, as in a renamed dataset. Samples
    after a stop of the system clock are kept. Raises RecordingError: `not_continuous` for an
    average of trials, `file_read_error` when the .res4 or .meg4 file is missing,
    `corrupt_or_truncated` when fewer trials are there than the header counts.
    """
    directory, name = recording.file, recording.file.name
    stem = _member_stem(directory)
    with reading(f"{stem}.res4"):
        header = _read_header(directory / f"{stem}.res4")
    files = _data_files(directory, stem, header)
    if name == f"{stem}.ds":
        return _open(directory, name, header, files)
    members = [path for path in directory.iterdir() if path.is_file()]
    holder = stand_in(directory, f"{stem}.ds", members)
    try:
        return _open(Path(holder.name) / f"{stem}.ds", name, header, files, holder.cleanup)
    except BaseException:
        holder.cleanup()
        raise


def _open(
    source: Path,
    name: str,
    header: _Header,
    files: Sequence[_DataFile],
    release: Callable[[], None] | None = None,
) -> CtfSource:
    with reading(name):
        raw = mne.io.read_raw_ctf(source, system_clock="ignore", preload=False, verbose="ERROR")
        facts = SourceFacts("CTF", header.n_channels, technical=technical_facts(raw))
    expected = (header.n_channels, header.trial_samples * sum(file.n_trials for file in files))
    if (len(raw.ch_names), raw.n_times) != expected:
        raise RecordingError(
            FailureCode.FILE_READ_ERROR,
            f"{name} opened with {len(raw.ch_names)} channels of {raw.n_times} samples, "
            f"expected {expected[0]} of {expected[1]} from its files.",
        )
    return CtfSource(raw, facts, name, header, files, release)


def _member_stem(directory: Path) -> str:
    headers = [
        path
        for path in sorted(directory.glob("*.res4"))
        if path.is_file() and not path.name.startswith(".")
    ]
    stems = [path.stem for path in headers]
    if directory.stem in stems:
        return directory.stem
    if len(stems) != 1:
        raise RecordingError(
            FailureCode.FILE_READ_ERROR,
            f"{directory.name} has {len(stems)} .res4 files under other names, expected "
            f"{directory.stem}.res4.",
        )
    return stems[0]


def _read_header(path: Path) -> _Header:
    with path.open("rb") as file:
        block = file.read(_FIXED_BYTES)
    if not block.startswith(b"MEG4"):
        raise ValueError("no CTF resource file, expected it to start with MEG4")
    if len(block) < _FIXED_BYTES:
        raise EOFError(f"a header of {len(block)} bytes")
    (n_averaged,) = struct.unpack_from(">h", block, 776)
    trial_samples, n_channels = struct.unpack_from(">ih", block, 1288)
    (n_trials,) = struct.unpack_from(">h", block, 1312)
    return _Header(n_averaged, trial_samples, n_channels, n_trials)


def _data_files(directory: Path, stem: str, header: _Header) -> list[_DataFile]:
    """The .meg4 file and its continuations, each with the number of whole trials in it."""
    name = directory.name
    if header.n_averaged > 0:
        raise RecordingError(
            FailureCode.NOT_CONTINUOUS,
            f"{name} is an average of {header.n_averaged} trials, expected a raw recording.",
        )
    if header.n_channels < 1 or header.trial_samples < 1:
        raise RecordingError(
            FailureCode.EMPTY_RECORDING,
            f"{name} holds {header.n_channels} channels of {header.trial_samples} samples.",
        )
    trial_bytes = 4 * header.n_channels * header.trial_samples
    files: list[_DataFile] = []
    while (path := directory / f"{stem}.{f'{len(files)}_' if files else ''}meg4").is_file():
        n_trials, rest = divmod(path.stat().st_size - _MEG4_HEADER, trial_bytes)
        if rest or n_trials < 1:
            raise RecordingError(
                FailureCode.CORRUPT_OR_TRUNCATED,
                f"{path.name} has {path.stat().st_size} bytes, expected {_MEG4_HEADER} and a "
                f"multiple of {trial_bytes} (one trial).",
            )
        files.append(_DataFile(path, n_trials))
    if not files:
        raise RecordingError(
            FailureCode.FILE_READ_ERROR, f"{name} has no {stem}.meg4, the file of its samples."
        )
    found = sum(file.n_trials for file in files)
    if found < header.n_trials:
        raise RecordingError(
            FailureCode.CORRUPT_OR_TRUNCATED,
            f"{name} holds {found} trials, but its header counts {header.n_trials}.",
        )
    return files
