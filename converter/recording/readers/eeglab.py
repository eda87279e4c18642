"""EEGLAB: a MATLAB header (.set) with the samples inside or in a .fdt file beside it.

Fields as EEGLAB's eeg_checkset describes them. Numbers are microvolts by its convention.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
from numpy.typing import NDArray

from converter.contract.codes import FailureCode, RecordingError
from converter.recording.local import LocalRecording
from converter.recording.readers.binary import (
    MultiplexedFile,
    SampleFile,
    SampleMatrix,
    VectorizedFile,
    check_bounds,
)
from converter.recording.readers.channel_names import channel_by_label
from converter.recording.readers.claims import check_channels, damaged
from converter.recording.readers.companions import named_file, same_stem
from converter.recording.readers.matlab import MatlabFile, Samples
from converter.recording.readers.matlab_hdf5 import Hdf5File
from converter.recording.readers.matlab_v5 import Mat5File
from converter.recording.readers.mne_source import parsing
from converter.recording.signal import Channel, SignalGroup, SourceFacts, distinct_labels

_FIELDS = ("nbchan", "pnts", "trials", "srate", "data", "datfile", "chanlocs", "labels", "type")
_VOLTS = 1e-6
_SAMPLE_BYTES = 4  # .fdt and .dat files hold little-endian float32

# chanlocs.type is free text; EEGLAB's own menus and BIDS exporters write these.
_TYPES = {
    **{name.casefold(): name for name in ("EEG", "EOG", "HEOG", "VEOG", "ECG", "EMG", "MISC")},
    **{name.casefold(): name for name in ("SEEG", "ECOG", "DBS", "REF", "RESP", "GSR", "PPG")},
    **{name.casefold(): name for name in ("TEMP", "AUDIO", "EYEGAZE", "PUPIL", "TRIG")},
    "ekg": "ECG",
    "stim": "TRIG",
    "trigger": "TRIG",
}


def _channels(mat: MatlabFile, n_channels: int, modality: str) -> tuple[Channel, ...]:
    """All channels of the data; those that chanlocs does not name are numbered from 000."""
    labels = mat.column("chanlocs", "labels")[:n_channels]
    types = mat.column("chanlocs", "type")[:n_channels]
    labels += [""] * (n_channels - len(labels))
    types += [""] * (n_channels - len(types))
    names = distinct_labels(label or f"EEG {index:03d}" for index, label in enumerate(labels))
    return tuple(_channel(*each, modality) for each in zip(names, labels, types, strict=True))


def _channel(label: str, told: str, declared: str, modality: str) -> Channel:
    kind = _TYPES.get(declared.casefold())
    if kind is None:
        return channel_by_label(label, modality, "V", (_VOLTS, 0.0), told=told)
    if kind == "TRIG":
        return Channel(label, kind, "n/a", discrete=True)
    return Channel(label, kind, "V", gain=_VOLTS)


class _Inline:
    """Samples inside the .set file."""

    def __init__(self, name: str, samples: Samples, mat: MatlabFile) -> None:
        self._name = name
        self._samples = samples
        self._mat = mat

    def read(self, start: int, stop: int) -> NDArray[Any]:
        with parsing(self._name):
            return self._samples.read(start, stop)

    def close(self) -> None:
        self._mat.close()


class EeglabSource:
    """An open EEGLAB data set: one group, samples in the type of the file.

    Memory: a fraction of a megabyte and the block returned; with samples inside, for v7.3
    one band of HDF5 chunks more, for a compressed v5 file up to 64 MB of samples.
    """

    def __init__(self, path: Path, modality: str) -> None:
        self._name = path.name
        with parsing(path.name):
            mat = _open_matlab(path)
        try:
            with parsing(path.name):
                self._open(path, mat, modality)
        except BaseException:
            mat.close()
            raise

    def _open(self, path: Path, mat: MatlabFile, modality: str) -> None:
        n_channels, n_trials = self._count(mat, "nbchan"), self._count(mat, "trials", 1)
        check_channels(path.name, n_channels)
        rate = mat.number("srate")
        if rate is None or rate <= 0:
            raise damaged(self._name, f"gives srate {rate}, a rate above 0 Hz was expected")
        if n_trials > 1:
            raise RecordingError(
                FailureCode.NOT_CONTINUOUS,
                f"{path.name} holds {n_trials} trials, one continuous recording was expected.",
            )
        inline = mat.samples("data")
        n_samples = inline.shape[-1] if inline else self._count(mat, "pnts")
        if n_channels == 0 or n_samples == 0:
            raise RecordingError(
                FailureCode.EMPTY_RECORDING,
                f"{path.name} holds {n_channels} channels of {n_samples} samples.",
            )
        self._matrix: SampleMatrix
        if inline:
            self._check_shape(inline, n_channels)
            self._matrix = _Inline(path.name, inline, mat)
        else:
            self._matrix = self._external(path, mat, n_channels, n_samples)
        channels = _channels(mat, n_channels, modality)
        if not inline:
            mat.close()
        granule = inline.granule if inline else 1
        self.groups: tuple[SignalGroup, ...] = (SignalGroup(rate, n_samples, channels, granule),)
        self.facts = SourceFacts(
            format="EEGLAB",
            header_signals=n_channels,
            technical={"samples_inside": inline is not None},
        )

    def _count(self, mat: MatlabFile, field: str, missing: int | None = None) -> int:
        value = mat.number(field)
        if value is None and missing is not None:
            return missing
        if value is None or value.denominator != 1 or value < 0:
            raise damaged(self._name, f"gives {field} {value}, a whole number was expected")
        return int(value)

    def _check_shape(self, samples: Samples, n_channels: int) -> None:
        if len(samples.shape) > 2:
            raise RecordingError(
                FailureCode.NOT_CONTINUOUS,
                f"{self._name} holds samples of shape {samples.shape}, "
                "one continuous recording was expected.",
            )
        if len(samples.shape) != 2 or samples.shape[0] != n_channels:
            raise damaged(
                self._name,
                f"holds samples of shape {samples.shape}, {n_channels} rows were expected",
            )

    def _external(
        self, path: Path, mat: MatlabFile, n_channels: int, n_samples: int
    ) -> SampleMatrix:
        reference = mat.text("data") or mat.text("datfile")
        if not reference:
            raise damaged(self._name, "has no samples and names no file that holds them")
        # Up to EEGLAB 4 a .dat file held one channel after the other.
        by_channel = reference.casefold().endswith(".dat")
        suffixes = (".dat",) if by_channel else (".fdt",)
        file = SampleFile(same_stem(path, suffixes) or named_file(path, reference))
        expected = n_channels * n_samples * _SAMPLE_BYTES
        if file.size != expected:
            file.close()
            raise damaged(
                self._name,
                f"describes {n_channels} channels of {n_samples} samples, {expected} bytes, "
                f"and {file.name} has {file.size}",
            )
        if by_channel:
            return VectorizedFile(file, "<f4", n_channels, n_samples)
        return MultiplexedFile(file, "<f4", n_channels)

    def read(self, group: int, start: int, stop: int) -> NDArray[Any]:
        """Samples `start:stop` as (n_channels, stop - start)."""
        check_bounds(start, stop, self.groups[group].n_samples)
        return self._matrix.read(start, stop)

    def close(self) -> None:
        """Close the files; closing twice is harmless."""
        self._matrix.close()


def _open_matlab(path: Path) -> MatlabFile:
    SampleFile(path).close()  # raises what it raises of a path that is no regular file
    return Hdf5File(path, "EEG") if h5py.is_hdf5(path) else Mat5File(path, "EEG", _FIELDS)


def open_eeglab(recording: LocalRecording) -> EeglabSource:
    """Open an EEGLAB data set by its .set file.

    Raises RecordingError: NOT_CONTINUOUS on trials, CORRUPT_OR_TRUNCATED on a file that
    is no MATLAB file, lacks the fields that count or has samples of another size,
    FILE_READ_ERROR on references that leave the directory or file, EMPTY_RECORDING without data.
    """
    return EeglabSource(recording.file, recording.modality)
