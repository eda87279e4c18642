"""The ElectricalSeries of an NWB file: samples, channels and times of each."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from converter.contract.codes import FailureCode, RecordingError
from converter.recording.readers import spelling
from converter.recording.readers.claims import MOST_CHANNELS, check_channels
from converter.recording.readers.hdf5_samples import Hdf5Samples, open_samples
from converter.recording.readers.nwb_file import NwbFile
from converter.recording.readers.timeline import Grid, Stretch, grid_of_times
from converter.recording.signal import Channel

_SERIES = "ElectricalSeries"
_CONTAINERS = frozenset({"LFP", "FilteredEphys"})  # of several series
# Columns of the table of electrodes, the first that is there names them.
_LABEL_COLUMNS = ("label", "channel_name", "electrode_name", "name", "id")
_MOST_CHUNK_BYTES = 256 << 20  # a chunk is unpacked as a whole
MOST_GRANULE_VALUES = 1 << 23


@dataclass(frozen=True, slots=True)
class Series:
    """One ElectricalSeries: samples, and where they lie on its own grid."""

    samples: Hdf5Samples
    channels: tuple[Channel, ...]
    grid: Grid

    @property
    def end(self) -> int:
        """Samples of its grid."""
        return self.grid.stretches[-1].end

    @property
    def n_recorded(self) -> int:
        """Samples that are stored."""
        return sum(stretch.count for stretch in self.grid.stretches)


class SeriesReader:
    """Takes one file's series apart."""

    def __init__(self, file: NwbFile, modality: str) -> None:
        self._file = file
        self._modality = modality

    def series(self) -> Iterator[Series]:
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

    def _one(self, name: str, node: Any) -> Series | None:
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
        samples = open_samples(self._file.samples(data), MOST_GRANULE_VALUES // n_channels)
        return Series(samples, channels, grid)

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
        check_channels(self._file.name, n_channels)
        region = self._file.dataset(node, "electrodes")
        rows = None if region is None else self._file.numbers(region, MOST_CHANNELS)
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
