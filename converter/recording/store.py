"""A signal becomes a channel group of a store: one pass over the source, then one over that.

First pass: blocks of the source are freed of their offset, resampled, and kept as float32 at
the served rate, with each channel's range. Second pass: some chunks at a time,
quantised, compressed, appended to a shard and folded into the views. Memory is a few blocks
however long the recording is; a long one's served signal waits in scratch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..contract.codes import FailureCode, RecordingError
from . import group_attributes, views, zarr_v3
from .group_attributes import GroupFacts
from .noise import Coarse
from .ordered import Workers
from .passes import Float32, Int16
from .quantise import Quantiser
from .rates import Geometry, served_rate
from .resample import output_length
from .served import ServedSignal
from .sidecars.channels import PlannedChannel
from .signal import SignalSource


@dataclass(frozen=True, slots=True)
class WrittenGroup:
    """One channel group of a finished store; rates in Hz.

    `coarse` says which channels are stored in steps coarser than their noise, if any are.
    """

    name: str
    modality: str
    rate: float
    native_rate: float
    n_channels: int
    n_samples: int
    n_view_levels: int
    chunk_samples: int
    shard_samples: int
    coarse: str | None = None


def write_signal_group(
    source: SignalSource,
    index: int,
    channels: Sequence[PlannedChannel],
    path: Path,
    modality: str,
    scratch: Path,
    threads: int = 1,
) -> WrittenGroup:
    """Write group `index` of the source to `path` as level 0, views and attributes.

    `channels` says how each channel is published, in row order; `scratch` is a folder. The
    source is read in the caller's thread; with more than one, `threads` others compute. The
    bytes are the same with any number.
    """
    native = source.groups[index]
    rate = served_rate(native.rate, modality)
    ratio = rate / native.rate
    geometry = Geometry.of(rate, output_length(native.n_samples, ratio))
    with (
        ServedSignal(source, index, channels, ratio, geometry, scratch) as served,
        Workers(threads) as workers,
    ):
        served.fill(workers)
        quantiser = served.quantiser
        _check_scales(quantiser, channels)
        facts = GroupFacts(
            modality=modality,
            native=native,
            rate=rate,
            geometry=geometry,
            channels=channels,
            scale=quantiser.scale,
            offset=quantiser.offset,
            discrete=served.discrete,
            nonfinite=served.nonfinite,
        )
        zarr_v3.write_group(path, group_attributes.of_group(facts))
        coarse = served.coarse
        _write_arrays(path, facts, quantiser, served.runs(), workers)
    return WrittenGroup(
        name=path.name,
        modality=modality,
        rate=float(rate),
        native_rate=float(native.rate),
        n_channels=len(channels),
        n_samples=geometry.n_samples,
        n_view_levels=len(views.level_lengths(geometry.n_samples)),
        chunk_samples=geometry.chunk,
        shard_samples=geometry.shard,
        coarse=_sentence(coarse, channels) if coarse else None,
    )


def _sentence(coarse: Sequence[Coarse], channels: Sequence[PlannedChannel]) -> str:
    worst = coarse[0]
    label, unit = channels[worst.row].label[:60], channels[worst.row].unit[:20]
    return (
        f"{len(coarse)} of {len(channels)} channels are stored in steps coarser than their noise, "
        f"{label!r} most: steps of {worst.step:.3g} {unit}, noise of {worst.noise:.3g} {unit} "
        "(the spread of differences between neighbouring samples)"
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


def _write_arrays(
    path: Path,
    facts: GroupFacts,
    quantiser: Quantiser,
    runs: Iterable[Sequence[Float32]],
    workers: Workers,
) -> None:
    """Level 0 and its views, in one pass over the served signal, in runs of whole chunks."""
    shape = (len(facts.channels), facts.geometry.n_samples)
    chunk, shard = facts.geometry.chunk, facts.geometry.shard
    attributes = group_attributes.of_level_0(facts)
    levels = _view_arrays(path / "view", facts)
    pyramid = views.Pyramid(*shape)

    def encoded(digital: Int16) -> tuple[Int16, list[bytes]]:
        starts = range(0, digital.shape[1], chunk)
        return digital, [level_0.encode(digital[:, at : at + chunk]) for at in starts]

    def view_chunks() -> Iterator[views.ViewChunk]:
        for digital, frames in workers.in_order(encoded, map(quantiser.codes, runs)):
            for frame in frames:
                level_0.append(frame)
            yield from pyramid.push(digital)
        yield from pyramid.finish()

    def write(view: views.ViewChunk) -> None:
        levels[view.level - 1].write(view.index, view.columns)

    with zarr_v3.ShardedArray(path / "0", shape, chunk, shard, attributes) as level_0:
        for _ in workers.in_order(write, view_chunks()):
            pass


def _view_arrays(path: Path, facts: GroupFacts) -> list[zarr_v3.ChunkedArray]:
    n_channels = len(facts.channels)
    zarr_v3.write_group(path)
    return [
        zarr_v3.ChunkedArray(
            path / str(level),
            np.int16,
            (2, n_channels, length),
            (2, n_channels, views.chunk_columns(length)),
            group_attributes.of_view(facts, level, length),
        )
        for level, length in enumerate(views.level_lengths(facts.geometry.n_samples), start=1)
    ]
