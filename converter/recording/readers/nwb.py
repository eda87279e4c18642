"""NWB: the ElectricalSeries of a file's acquisition, as the NWB core schema lays them out.

A number becomes volts by `data * conversion * channel_conversion + offset`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from converter.contract.codes import FailureCode, RecordingError
from converter.recording.local import LocalRecording
from converter.recording.readers import spelling
from converter.recording.readers.binary import SampleFile, Scratch, check_bounds
from converter.recording.readers.hdf5_samples import Hdf5Samples, open_samples
from converter.recording.readers.mne_source import check_gaps, parsing
from converter.recording.readers.nwb_file import NwbFile
from converter.recording.readers.timeline import Grid, Stretch, grid_of_times, parts, shifted
from converter.recording.signal import (
    Channel,
    SignalGroup,
    SourceFacts,
    by_native_rate,
    distinct_labels,
)

_SERIES = "ElectricalSeries"
_CONTAINERS = frozenset({"LFP", "FilteredEphys"})  # of several series
# Columns of the table of electrodes, the first that is there names them.
_LABEL_COLUMNS = ("label", "channel_name", "electrode_name", "name", "id")
_MOST_CHANNELS = 1 << 16
_MOST_CHUNK_BYTES = 256 << 20  # a chunk is unpacked as a whole
_MOST_GRANULE_VALUES = 1 << 23
_VERSION = re.compile(r"\d{1,3}(\.\d{1,3}){1,2}")


@dataclass(frozen=True, slots=True)
class _Series:
    """One ElectricalSeries: samples, and where they lie on its own grid."""

    samples: Hdf5Samples
    channels: tuple[Channel, ...]
    grid: Grid

    @property
    def end(self) -> int:
        return self.grid.stretches[-1].end

    @property
    def n_recorded(self) -> int:
        return sum(stretch.count for stretch in self.grid.stretches)


class _Reader:
    """Takes one file's series apart."""

    def __init__(self, file: NwbFile, modality: str) -> None:
        self._file = file
        self._modality = modality

    def series(self) -> Iterator[_Series]:
        """All series of the acquisition that hold samples."""
        acquisition = self._file.group("acquisition")
        for name, node in self._file.groups(acquisition) if acquisition else ():
            kind = self._file.text(node, "neurodata_type")
            inside = self._file.groups(node) if kind in _CONTAINERS else [(name, node)]
            for inner, candidate in inside:
                if self._file.text(candidate, "neurodata_type") == _SERIES:
                    found = self._one(inner[:100], candidate)
                    if found is not None:
                        yield found

    def _one(self, name: str, node: Any) -> _Series | None:
        data = self._file.dataset(node, "data")
        if data is None or data.dtype.kind not in "iuf" or data.dtype.itemsize > 8:
            raise self._file.damaged(f"has no numbers in {name}/data")
        if len(data.shape) == 3:
            raise RecordingError(
                FailureCode.NOT_CONTINUOUS,
                f"{self._file.name} holds snippets of signal in {name}, one continuous "
                "recording was expected.",
            )
        if len(data.shape) not in (1, 2):
            raise self._file.damaged(f"has {len(data.shape)} dimensions in {name}/data")
        if not data.size:
            return None
        n_channels = data.shape[1] if len(data.shape) == 2 else 1
        _check_chunks(self._file, name, data)
        channels = self._channels(name, node, data, n_channels)
        grid = self._grid(name, node, data.shape[0])
        samples = open_samples(data, _MOST_GRANULE_VALUES // n_channels)
        return _Series(samples, channels, grid)

    def _channels(self, name: str, node: Any, data: Any, n_channels: int) -> tuple[Channel, ...]:
        labels = self._labels(name, node, data.shape, n_channels)
        gain = self._factor(data, "conversion", 1)
        offset = self._factor(data, "offset", 0)
        gains = np.full(n_channels, float(gain))
        each = self._file.dataset(node, "channel_conversion")
        if each is not None:
            factors = self._file.numbers(each, n_channels)
            if factors is None or len(factors) != n_channels:
                raise self._file.damaged(
                    f"has no channel_conversion for each of {n_channels} channels of {name}"
                )
            gains *= factors
        if not np.isfinite(gains).all() or not gains.all():
            raise self._file.damaged(f"has a conversion in {name} that is 0 or no number")
        unit = spelling.known_unit(self._file.text(data, "unit") or "volts")
        kind = spelling.default_type(self._modality, unit)
        return tuple(
            Channel(label, kind, unit, gain, float(offset))
            for label, gain in zip(labels, gains.tolist(), strict=True)
        )

    def _factor(self, data: Any, name: str, missing: int) -> Fraction:
        value = self._file.number(data, name)
        if value is None and name in data.attrs:
            raise self._file.damaged(f"has a {name} that is no number")
        return Fraction(missing) if value is None else value

    def _labels(self, name: str, node: Any, shape: tuple[int, ...], n_channels: int) -> list[str]:
        """What the table of electrodes calls the channels; their numbers where it does not."""
        if n_channels > _MOST_CHANNELS:
            raise self._file.damaged(f"claims {n_channels} channels in {name}")
        region = self._file.dataset(node, "electrodes")
        rows = None if region is None else self._file.numbers(region, _MOST_CHANNELS)
        table = None if region is None else self._file.referred(region, "table")
        if table is None:
            table = self._file.group("general", "extracellular_ephys", "electrodes")
        if rows is None or rows.dtype.kind not in "iu" or table is None:
            return [str(number) for number in range(n_channels)]
        if len(rows) != n_channels:
            raise self._file.damaged(
                f"has data of shape {shape} in {name}, one column for each of {len(rows)} "
                "electrodes was expected"
            )
        for column in _LABEL_COLUMNS:
            values = self._file.dataset(table, column)
            if values is not None and len(values.shape) == 1:
                if rows.min() < 0 or rows.max() >= len(values):
                    raise self._file.damaged(f"has no electrode {int(rows.max())} for {name}")
                texts = self._file.texts(values, rows.tolist())
                if any(texts):
                    pairs = enumerate(texts)
                    return [text or str(number) for number, text in pairs]
        return [str(row) for row in rows.tolist()]

    def _grid(self, name: str, node: Any, n_samples: int) -> Grid:
        timestamps = self._file.dataset(node, "timestamps")
        if timestamps is None:
            start = self._file.dataset(node, "starting_time")
            seconds = None if start is None else self._file.scalar(start)
            rate = None if start is None else self._file.number(start, "rate")
            if seconds is None or rate is None or rate <= 0:
                raise self._file.damaged(f"gives {name} neither a rate above 0 Hz nor timestamps")
            return Grid(rate, float(seconds), (Stretch(0, 0, n_samples),))
        if timestamps.shape != (n_samples,) or timestamps.dtype.kind != "f":
            raise self._file.damaged(f"has no timestamp for each of {n_samples} samples of {name}")
        if n_samples < 2:
            raise self._file.damaged(f"has a single sample in {name}, and no rate")
        _check_chunks(self._file, name, timestamps)

        def times(first: int, last: int) -> NDArray[np.float64]:
            found: NDArray[np.float64] = timestamps[first:last].astype(np.float64)
            return found

        return grid_of_times(f"{self._file.name}: {name}", times, n_samples)


def _check_chunks(file: NwbFile, name: str, data: Any) -> None:
    size = math.prod(data.chunks or (0,)) * data.dtype.itemsize
    if size > _MOST_CHUNK_BYTES:
        raise RecordingError(
            FailureCode.RECORDING_TOO_LARGE,
            f"{file.name} has chunks of {size} bytes in {name}, at most {_MOST_CHUNK_BYTES} "
            "can be unpacked at a time.",
        )


class _Group:
    """Series of one rate on the timeline of the recording, below each other."""

    def __init__(
        self, rate: Fraction, series: Sequence[_Series], stretches: Sequence[Sequence[Stretch]]
    ) -> None:
        self._series, self._stretches = series, stretches
        self.channels = tuple(channel for one in series for channel in one.channels)
        n_samples = max(each[-1].end for each in stretches)
        is_whole = all(
            len(each) == 1 and (each[0].place, each[0].count) == (0, n_samples)
            for each in stretches
        )
        self._direct = series[0].samples if is_whole and len(series) == 1 else None
        most = max(1, _MOST_GRANULE_VALUES // len(self.channels))
        granule = min(series[0].samples.granule, most) if is_whole else 1
        self.described = SignalGroup(rate, n_samples, self.channels, granule)
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
                self._open(_Reader(self._file, modality))
        except BaseException:
            self.close()
            raise

    def _open(self, reader: _Reader) -> None:
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
        facts: dict[str, Any] = {"electrical_series": n_series}
        version = _VERSION.match(self._file.text(self._file.group(), "nwb_version"))
        return facts | ({"nwb_version": version[0]} if version else {})

    def read(self, group: int, start: int, stop: int) -> NDArray[Any]:
        """Samples `start:stop` as (n_channels, stop - start)."""
        check_bounds(start, stop, self.groups[group].n_samples)
        with parsing(self._file.name):
            return self._groups[group].read(start, stop)

    def close(self) -> None:
        """Close the file; closing twice is harmless."""
        self._file.close()


def _distinctly_labelled(series: Sequence[_Series]) -> list[_Series]:
    labels = iter(distinct_labels(channel.label for one in series for channel in one.channels))
    return [
        replace(one, channels=tuple(replace(c, label=next(labels)) for c in one.channels))
        for one in series
    ]


def _on_timeline(name: str, series: Sequence[_Series], rate: Fraction, origin: float) -> _Group:
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
