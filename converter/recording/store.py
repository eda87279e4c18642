"""A signal becomes a channel group of a store: one pass over the source, then one over scratch.

First pass: blocks of the source are freed of their offset, resampled, and kept as float32 at
the served rate in a scratch file, with each channel's range. Second pass: chunk by chunk,
quantised, compressed, appended to a shard and folded into the views. Memory is a few blocks
however long the recording is; scratch is the served signal.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..contract.codes import FailureCode, RecordingError
from . import views, zarr_v3
from .quantise import Float32, Float64, Quantiser, Range
from .rates import CHUNK_SECONDS, SHARD_SECONDS, Geometry, served_rate
from .resample import NearestSample, Resampler, output_length
from .sidecars.channels import PlannedChannel
from .signal import SignalGroup, SignalSource

# Samples of all channels in one block: 2 MB of float32, about a core's second-level cache.
BLOCK_VALUES = 1 << 19

# Beyond it float32 overflows in sums, and no sensor measures in any unit.
LARGEST = 1e30

PHYSICAL_FORMULA = "physical = digital * scale + offset"


@dataclass(frozen=True, slots=True)
class WrittenGroup:
    """One channel group of a finished store; rates in Hz."""

    name: str
    modality: str
    rate: float
    native_rate: float
    n_channels: int
    n_samples: int
    n_view_levels: int
    chunk_samples: int
    shard_samples: int


def write_signal_group(
    source: SignalSource,
    index: int,
    channels: Sequence[PlannedChannel],
    path: Path,
    modality: str,
    scratch: Path,
) -> WrittenGroup:
    """Write group `index` of the source to `path` as level 0, views and attributes.

    `channels` says how each channel is published, in row order; `scratch` is a folder.
    """
    group = source.groups[index]
    rate = served_rate(group.rate, modality)
    ratio = rate / group.rate
    geometry = Geometry.of(rate, output_length(group.n_samples, ratio))
    with ServedSignal(group, channels, ratio, geometry, scratch) as served:
        for start, stop in _blocks(group):
            served.push(source.read(index, start, stop))
        quantiser = served.quantiser()
        _check_scales(quantiser, channels)
        lengths = views.level_lengths(geometry.n_samples)
        attributes = _level_0_attributes(group, rate, geometry, quantiser, served)
        zarr_v3.write_group(
            path, _group_attributes(group, channels, rate, modality, geometry, quantiser, served)
        )
        _write_arrays(path, served, geometry, quantiser, attributes, rate)
    return WrittenGroup(
        name=path.name,
        modality=modality,
        rate=float(rate),
        native_rate=float(group.rate),
        n_channels=len(channels),
        n_samples=geometry.n_samples,
        n_view_levels=len(lengths),
        chunk_samples=geometry.chunk,
        shard_samples=geometry.shard,
    )


def _check_scales(quantiser: Quantiser, channels: Sequence[PlannedChannel]) -> None:
    """No number that JSON can't hold is published."""
    usable = np.isfinite(quantiser.scale) & np.isfinite(quantiser.offset)
    for channel, is_usable in zip(channels, usable, strict=True):
        if not is_usable:
            raise RecordingError(
                FailureCode.FILE_READ_ERROR,
                f"channel {channel.label!r}: its gain makes its values larger than a number can be",
            )


def _blocks(group: SignalGroup) -> Iterator[tuple[int, int]]:
    """Bounds of blocks of about BLOCK_VALUES samples, whole granules each."""
    length = max(1, BLOCK_VALUES // len(group.channels))
    length = -(-length // group.granule) * group.granule
    for start in range(0, group.n_samples, length):
        yield start, min(start + length, group.n_samples)


class ServedSignal:
    """The signal at its served rate, in scratch, as it comes in block by block.

    Samples are relative: physical = sample * `gain` + `constant`, per channel in its published
    unit, where `constant` is the channel's first sample; so an electrode offset of 260 mV
    costs no precision in float32.
    """

    def __init__(
        self,
        group: SignalGroup,
        channels: Sequence[PlannedChannel],
        ratio: Fraction,
        geometry: Geometry,
        scratch: Path,
    ) -> None:
        self._group, self._ratio, self._geometry = group, ratio, geometry
        self._scratch = scratch
        factor = np.array([channel.factor for channel in channels], np.float64)
        self._raw_gain = np.array([raw.gain for raw in group.channels], np.float64)
        self._raw_offset = np.array([raw.offset for raw in group.channels], np.float64)
        self._sign = np.sign(self._raw_gain * factor).astype(np.float32)[:, None]
        self._factor = factor
        self.gain: Float64 = np.abs(self._raw_gain * factor)
        self.discrete = np.array([channel.discrete for channel in channels], bool)
        self.nonfinite: NDArray[np.int64] = np.zeros(len(channels), np.int64)
        self._streams: list[_Stream] = []

    def __enter__(self) -> ServedSignal:
        return self

    def __exit__(self, *_: object) -> None:
        for stream in self._streams:
            stream.close()

    @property
    def inference(self) -> NDArray[np.bool_]:
        """Channels fit for training: a waveform without a sample that had to be filled."""
        return np.logical_not(self.discrete | (self.nonfinite > 0))

    def push(self, raw: NDArray[Any]) -> None:
        """Take the next block of the source."""
        if not self._streams:
            self._start(raw[:, 0].astype(np.float64))
        relative = self._relative(raw)
        for stream in self._streams:
            stream.push(relative if len(self._streams) == 1 else relative[stream.rows])

    def _start(self, first: Float64) -> None:
        self._zero = -self._raw_offset / self._raw_gain  # the raw value of a physical 0
        self._first = np.where(np.abs(first) <= LARGEST, first, self._zero)
        self.constant: Float64 = (self._first * self._raw_gain + self._raw_offset) * self._factor
        for rows in (np.flatnonzero(~self.discrete), np.flatnonzero(self.discrete)):
            if len(rows):
                self._streams.append(self._stream(rows))

    def _stream(self, rows: NDArray[np.intp]) -> _Stream:
        filtering: Resampler | NearestSample | None = None
        if self._ratio != 1:
            n_in = self._group.n_samples
            if self.discrete[rows[0]]:
                filtering = NearestSample(self._ratio, n_in)
            else:
                constant = self.constant[rows] / self.gain[rows]
                filtering = Resampler(self._ratio, n_in, constant)
        return _Stream(rows, filtering, self._geometry, self._scratch)

    def _relative(self, raw: NDArray[Any]) -> Float32:
        """Raw samples less the first one, float32.

        What is no number, or too large to be a measured one, becomes a physical 0.
        """
        exact = np.float32 if raw.dtype in (np.int16, np.uint16, np.float32) else np.float64
        block = np.empty(raw.shape, np.float32)
        first = self._first.astype(exact)[:, None]
        with np.errstate(over="ignore", invalid="ignore"):
            np.subtract(raw, first, out=block, dtype=exact, casting="same_kind")
        if raw.dtype.kind == "f" and not (block.min() >= -LARGEST and block.max() <= LARGEST):
            finite = np.abs(block) <= LARGEST
            self.nonfinite += (~finite).sum(axis=1)
            fill = (self._zero - self._first).astype(np.float32)[:, None]
            np.copyto(block, fill, where=~finite)
        if (self._sign != 1).any():
            block *= self._sign
        return block

    def quantiser(self) -> Quantiser:
        """How the whole signal maps to int16, once all of it was pushed."""
        limits = Range(len(self.gain))
        for stream in self._streams:
            stream.finish()
            limits.low[stream.rows] = stream.limits.low
            limits.high[stream.rows] = stream.limits.high
        return Quantiser(limits, self.gain, self.constant)

    def chunks(self) -> Iterator[Float32]:
        """The served signal again, chunk by chunk."""
        if len(self._streams) == 1:
            yield from self._streams[0].chunks()
            return
        for parts in zip(*(stream.chunks() for stream in self._streams), strict=True):
            chunk = np.empty((len(self.gain), parts[0].shape[1]), np.float32)
            for stream, part in zip(self._streams, parts, strict=True):
                chunk[stream.rows] = part
            yield chunk


class _Stream:
    """Rows that are resampled alike, gathered into chunks in a scratch file."""

    def __init__(
        self,
        rows: NDArray[np.intp],
        filtering: Resampler | NearestSample | None,
        geometry: Geometry,
        scratch: Path,
    ) -> None:
        self.rows = rows
        self.limits = Range(len(rows))
        self._filtering, self._geometry = filtering, geometry
        self._buffer = np.empty((len(rows), geometry.chunk), np.float32)
        self._filled = 0
        self._file = TemporaryFile(dir=scratch)

    def push(self, block: Float32) -> None:
        served = block if self._filtering is None else self._filtering.push(block)
        self.limits.include(served)
        while served.shape[1]:
            part = served[:, : self._geometry.chunk - self._filled]
            self._buffer[:, self._filled : self._filled + part.shape[1]] = part
            self._filled += part.shape[1]
            served = served[:, part.shape[1] :]
            if self._filled == self._geometry.chunk:
                self.finish()

    def finish(self) -> None:
        """Write the chunk gathered so far."""
        self._file.write(self._buffer[:, : self._filled].tobytes())
        self._filled = 0

    def chunks(self) -> Iterator[Float32]:
        self._file.seek(0)
        for index in range(self._geometry.n_chunks):
            left = self._geometry.n_samples - index * self._geometry.chunk
            shape = (len(self.rows), min(left, self._geometry.chunk))
            data = self._file.read(4 * shape[0] * shape[1])
            yield np.frombuffer(data, np.float32).reshape(shape)

    def close(self) -> None:
        self._file.close()


def _write_arrays(
    path: Path,
    served: ServedSignal,
    geometry: Geometry,
    quantiser: Quantiser,
    attributes: dict[str, Any],
    rate: Fraction,
) -> None:
    """Level 0 and its views, in one pass over the served signal."""
    n_channels = len(served.gain)
    shape = (n_channels, geometry.n_samples)
    level_0 = zarr_v3.ShardedArray(path / "0", shape, geometry.chunk, geometry.shard, attributes)
    lengths = views.level_lengths(geometry.n_samples)
    zarr_v3.write_group(path / "view")
    levels = [
        zarr_v3.ChunkedArray(
            path / "view" / str(level),
            np.int16,
            (2, n_channels, length),
            (2, n_channels, views.chunk_columns(length)),
            _view_attributes(level, length, rate),
        )
        for level, length in enumerate(lengths, start=1)
    ]
    pyramid = views.Pyramid(
        n_channels,
        geometry.n_samples,
        lambda level, index, chunk: levels[level - 1].write((0, 0, index), chunk),
    )
    for chunk in served.chunks():
        digital = quantiser.digital(chunk)
        level_0.append(digital)
        pyramid.push(digital)
    level_0.close()
    pyramid.finish()


def _level_0_attributes(
    group: SignalGroup,
    rate: Fraction,
    geometry: Geometry,
    quantiser: Quantiser,
    served: ServedSignal,
) -> dict[str, Any]:
    return {
        "level": 0,
        "rate": float(rate),
        "source_rate_hz": float(group.rate),
        "downsample_factor": 1,
        "kind": "signal",
        "chunk_samples": geometry.chunk,
        "shard_samples": geometry.shard,
        "anti_aliased": rate != group.rate and not served.discrete.all(),
        "usable_for_inference": bool(served.inference.any()),
        "scale": quantiser.scale.tolist(),
        "offset": quantiser.offset.tolist(),
        "physical_formula": PHYSICAL_FORMULA,
    }


def _view_attributes(level: int, length: int, rate: Fraction) -> dict[str, Any]:
    factor = views.DOWNSAMPLE**level
    return {
        "level": level,
        "downsample_factor": factor,
        "rate_effective": float(rate / factor),
        "kind": "minmax_envelope",
        "axis0": ["min", "max"],
        "chunk_columns": views.chunk_columns(length),
        "usable_for_inference": False,
    }


def _group_attributes(
    group: SignalGroup,
    channels: Sequence[PlannedChannel],
    rate: Fraction,
    modality: str,
    geometry: Geometry,
    quantiser: Quantiser,
    served: ServedSignal,
) -> dict[str, Any]:
    n_levels = len(views.level_lengths(geometry.n_samples))
    return {
        "modality": modality,
        "rate": float(rate),
        "original_rate": float(group.rate),
        "n_channels": len(channels),
        "n_samples": geometry.n_samples,
        "n_view_levels": n_levels,
        "view_levels": list(range(1, n_levels + 1)),
        "view_downsample": views.DOWNSAMPLE,
        "view_chunk_columns": views.CHUNK_COLUMNS,
        "chunk_seconds": float(CHUNK_SECONDS),
        "shard_seconds": float(SHARD_SECONDS),
        "channels": [
            _channel_attributes(row, channel, group, rate, modality, quantiser, served)
            for row, channel in enumerate(channels)
        ],
    }


def _channel_attributes(
    row: int,
    channel: PlannedChannel,
    group: SignalGroup,
    rate: Fraction,
    modality: str,
    quantiser: Quantiser,
    served: ServedSignal,
) -> dict[str, Any]:
    attributes: dict[str, Any] = {
        "label": channel.label,
        "channel_type": channel.type,
        "modality": modality,
        "unit": channel.unit,
        "prefilter": channel.prefilter,
        "original_rate": float(group.rate),
        "target_rate": float(rate),
        "anti_aliased": rate != group.rate and not channel.discrete,
        "usable_for_inference": bool(served.inference[row]),
        "scale": float(quantiser.scale[row]),
        "offset": float(quantiser.offset[row]),
        "row_index": row,
    }
    if served.nonfinite[row]:
        attributes["nonfinite_samples"] = int(served.nonfinite[row])
    if channel.bids_unit is not None:
        attributes["bids_unit"] = channel.bids_unit
    return attributes
