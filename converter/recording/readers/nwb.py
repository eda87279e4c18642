"""NWB: the ElectricalSeries of a file's acquisition, as the NWB core schema lays them out.

A number becomes volts by `data * conversion * channel_conversion + offset`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from converter.contract.codes import FailureCode, RecordingError
from converter.recording.local import LocalRecording
from converter.recording.readers.binary import SampleFile, Scratch, check_bounds
from converter.recording.readers.gaps import check_gaps
from converter.recording.readers.mne_source import parsing
from converter.recording.readers.nwb_file import NwbFile
from converter.recording.readers.nwb_series import MOST_GRANULE_VALUES, Series, SeriesReader
from converter.recording.readers.timeline import (
    Stretch,
    common_gaps,
    parts,
    shifted,
    with_unrecorded,
)
from converter.recording.signal import (
    SignalGroup,
    SourceFacts,
    by_native_rate,
    distinct_labels,
)

_VERSION = re.compile(r"\d{1,3}(\.\d{1,3}){1,2}")


class _Group:
    """Series of one rate on the timeline of the recording, below each other."""

    def __init__(
        self, rate: Fraction, series: Sequence[Series], stretches: Sequence[Sequence[Stretch]]
    ) -> None:
        self._series, self._stretches = series, stretches
        self.channels = tuple(channel for one in series for channel in one.channels)
        n_samples = max(each[-1].end for each in stretches)
        is_whole = all(
            len(each) == 1 and (each[0].place, each[0].count) == (0, n_samples)
            for each in stretches
        )
        self._direct = series[0].samples if is_whole and len(series) == 1 else None
        # Where series are shifted against each other a read begins inside their chunks.
        granule = max(one.samples.granule for one in series)
        granule = max(1, min(granule, n_samples, MOST_GRANULE_VALUES // len(self.channels)))
        gaps = common_gaps(stretches)
        each = [part for one, part in zip(series, stretches, strict=True) for _ in one.channels]
        channels = with_unrecorded(self.channels, each, n_samples, gaps)
        self.described = SignalGroup(rate, n_samples, channels, granule, gaps)
        self._zeros = np.array([-channel.offset / channel.gain for channel in self.channels])
        dtypes = [one.samples.dtype for one in series]
        if not is_whole and self._zeros.any():
            dtypes.append(np.dtype(np.float64))  # no integer is exactly 0 V
        self._out = Scratch(np.result_type(*dtypes))

    def read(self, start: int, stop: int) -> NDArray[Any]:
        if self._direct is not None:
            return self._direct.read(start, stop)
        out = self._out.array(len(self.channels), stop - start)
        out[:] = self._zeros[:, np.newaxis]
        row = 0
        for one, stretches in zip(self._series, self._stretches, strict=True):
            rows = slice(row, row + len(one.channels))
            for target, stored in parts(stretches, start, stop):
                out[rows, target] = one.samples.read(stored.start, stored.stop)
            row = rows.stop
        return out


class NwbSource:
    """An open NWB file: one group a native rate, the numbers in the file's own type.

    All groups begin with the earliest sample of any series, where a BIDS onset of 0 is. Where a
    series did not record, before, between or after its samples, its channels are 0 V. Memory:
    a band of HDF5 chunks, at most 256 MB, and the block returned.
    """

    def __init__(self, path: Path, modality: str) -> None:
        SampleFile(path).close()  # raises what it raises of a path that is no regular file
        with parsing(path.name):
            self._file = NwbFile(path)
        try:
            with parsing(path.name):
                self._check_version()
                self._open(SeriesReader(self._file, modality))
        except BaseException:
            self.close()
            raise

    def _check_version(self) -> None:
        version = _VERSION.search(self._file.text(self._file.group(), "nwb_version"))
        if version is None or not version[0].startswith("2."):
            raise RecordingError(
                FailureCode.UNSUPPORTED_FORMAT,
                f"{self._file.name} has NWB version {version[0] if version else 'unknown'}, "
                "2 was expected.",
            )
        self._version = version[0]

    def _open(self, reader: SeriesReader) -> None:
        found = list(reader.series())
        if not found:
            raise RecordingError(
                FailureCode.EMPTY_RECORDING,
                f"{self._file.name} holds no ElectricalSeries with samples in its acquisition.",
            )
        series = _distinctly_labelled(found)
        origin = min(one.grid.start for one in series)
        groups = [
            _on_timeline(self._file.name, [series[index] for index in members], rate, origin)
            for rate, members in by_native_rate([one.grid.rate for one in series])
        ]
        self._groups = sorted(groups, key=lambda group: -len(group.channels))
        self.groups = tuple(group.described for group in self._groups)
        self.facts = SourceFacts(
            format="NWB",
            header_signals=sum(len(one.channels) for one in series),
            technical=self._technical(len(series)),
        )

    def _technical(self, n_series: int) -> dict[str, Any]:
        return {"electrical_series": n_series, "nwb_version": self._version}

    def read(self, group: int, start: int, stop: int) -> NDArray[Any]:
        """Samples `start:stop` as (n_channels, stop - start)."""
        check_bounds(start, stop, self.groups[group].n_samples)
        with parsing(self._file.name):
            return self._groups[group].read(start, stop)

    def close(self) -> None:
        """Close the file; closing twice is harmless."""
        self._file.close()


def _distinctly_labelled(series: Sequence[Series]) -> list[Series]:
    labels = iter(distinct_labels(channel.label for one in series for channel in one.channels))
    return [
        replace(one, channels=tuple(replace(c, label=next(labels)) for c in one.channels))
        for one in series
    ]


def _on_timeline(name: str, series: Sequence[Series], rate: Fraction, origin: float) -> _Group:
    later = [(one.grid.start - origin) * float(rate) for one in series]
    n_recorded = sum(one.n_recorded * len(one.channels) for one in series)
    n_channels = sum(len(one.channels) for one in series)
    end = max(by + one.end for by, one in zip(later, series, strict=True))
    check_gaps(name, math.ceil(end) * n_channels, n_recorded)
    stretches = [
        shifted(one.grid.stretches, round(by)) for by, one in zip(later, series, strict=True)
    ]
    return _Group(rate, series, stretches)


def open_nwb(recording: LocalRecording) -> NwbSource:
    """Open an NWB file.

    Raises RecordingError: EMPTY_RECORDING without an ElectricalSeries in the acquisition,
    NOT_CONTINUOUS on snippets and on times that no single rate fits, FILE_READ_ERROR on what
    leads out of the file, CORRUPT_OR_TRUNCATED on what is damaged or contradicts itself,
    RECORDING_TOO_LARGE on chunks that are too large to unpack.
    """
    return NwbSource(recording.file, recording.modality)
