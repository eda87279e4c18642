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
from converter.recording.readers.binary import SampleFile, Scratch, VectorizedFile
from converter.recording.readers.mne_source import (
    MneSource,
    reading,
    stand_in,
    technical_facts,
)
from converter.recording.signal import SourceFacts

_MEG4_HEADER = 8
_SAMPLE_BYTES = 4  # big-endian int32
_FIXED_BYTES = 1320  # of the .res4 file, up to the fields read here


@dataclass(frozen=True, slots=True)
class _Header:
    n_averaged: int
    trial_samples: int
    n_channels: int
    n_trials: int

    @property
    def trial_bytes(self) -> int:
        """Bytes of one trial in a .meg4 file."""
        return _SAMPLE_BYTES * self.n_channels * self.trial_samples


@dataclass(frozen=True, slots=True)
class _DataFile:
    path: Path
    n_trials: int


class CtfSource(MneSource):
    """A CTF recording; trials follow one another on one timeline, as in the file.

    A trial lies channel by channel, so it is read in windows: MNE reads whole trials, and a
    continuous recording is often a single one.
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
        # The file of each trial, and its place in there.
        self._places = [(file.path, trial) for file in files for trial in range(file.n_trials)]
        self._open: tuple[int, VectorizedFile] | None = None
        self._out = Scratch(np.float64)
        scales = [entry["cal"] * entry["range"] for entry in raw.info["chs"]]
        self._scales = np.array(scales, dtype=np.float64)[:, np.newaxis]

    def _read(self, start: int, stop: int) -> NDArray[Any]:
        samples = self._out.array(self._header.n_channels, stop - start)
        at = 0
        while at < stop - start:
            number, first = divmod(start + at, self._header.trial_samples)
            count = min(self._header.trial_samples - first, stop - start - at)
            stored = self._trial(number).stored(first, first + count)
            np.multiply(stored, self._scales, out=samples[:, at : at + count])
            at += count
        return samples

    def _trial(self, number: int) -> VectorizedFile:
        if self._open is None or self._open[0] != number:
            self._close_trial()
            path, place = self._places[number]
            header = self._header
            size = (header.n_channels, header.trial_samples)
            offset = _MEG4_HEADER + place * header.trial_bytes
            self._open = number, VectorizedFile(SampleFile(path), ">i4", *size, offset)
        return self._open[1]

    def _close_trial(self) -> None:
        if self._open is not None:
            self._open[1].close()
            self._open = None

    def close(self) -> None:
        """Let go of the files; a second call does nothing."""
        self._close_trial()
        super().close()


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
    trial_bytes = header.trial_bytes
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
