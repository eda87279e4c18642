"""A channel group at its served rate, with what is known of it once all of it is there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from . import passes
from .native import NativeSignal
from .noise import LOOKS, Coarse, Look, coarse, looks
from .ordered import Workers
from .passes import LANES, OUTPUTS, Float32
from .quantise import Quantiser, Range
from .rates import Geometry
from .resample import NearestSample, Resampler
from .sidecars.channels import PlannedChannel
from .signal import SignalSource
from .waiting import WaitingSignal

# Samples of all channels in one block: 2 MB of float32, about a core's second-level cache. For a
# filter that is as long up to MOST_VALUES, as neighbouring blocks share its width.
BLOCK_VALUES, MOST_VALUES = 1 << 19, 1 << 20

# Samples of all channels that are given back at once: chunks of few channels are short.
RUN_VALUES = 1 << 17


@dataclass(frozen=True, slots=True)
class _Window:
    """What the served samples `first:last` are made of: native ones, from `start` on."""

    first: int
    last: int
    start: int
    block: Float32
    n_looks: int


class ServedSignal:
    """The signal at its served rate, as samples relative to the baseline.

    `discrete` marks channels of codes, which are never filtered. `fill` reads the source,
    once; then `runs` gives the samples, once. In between they wait, long ones in a file in
    `folder`.
    """

    def __init__(
        self,
        source: SignalSource,
        index: int,
        channels: Sequence[PlannedChannel],
        ratio: Fraction,
        geometry: Geometry,
        folder: Path,
    ) -> None:
        self._native = NativeSignal(source, index, channels)
        self._ratio, self._geometry = ratio, geometry
        n_in = source.groups[index].n_samples
        self._nearest = NearestSample(ratio, n_in)
        self.discrete = np.array([channel.discrete for channel in channels], bool)
        baseline = self._native.baseline
        constant = baseline.constant / baseline.gain  # in relative units
        self._resampler = Resampler(ratio, n_in, constant) if ratio != 1 else None
        self._limits = Range(len(channels))
        self._looks: list[Look] = []
        self._waiting = WaitingSignal(len(channels) * geometry.n_samples, folder)

    def __enter__(self) -> ServedSignal:
        return self

    def __exit__(self, *_: object) -> None:
        self._waiting.close()

    @property
    def nonfinite(self) -> NDArray[np.int64]:
        """How many samples of each channel had to be filled."""
        return self._native.nonfinite

    @property
    def quantiser(self) -> Quantiser:
        """How the whole signal maps to int16."""
        baseline = self._native.baseline
        return Quantiser(self._limits, baseline.gain, baseline.constant)

    @property
    def coarse(self) -> list[Coarse]:
        """Channels that are stored in steps coarser than their noise, the worst first."""
        found = coarse(self._looks, self._native.baseline.gain, self.quantiser.scale)
        return [channel for channel in found if not self.discrete[channel.row]]

    def fill(self, workers: Workers) -> None:
        """Read the source, and bring it to its served rate piece by piece."""
        for samples, limits, seen in workers.in_order(self._served, self._windows()):
            self._waiting.put(samples)
            self._limits.join(limits)
            self._looks += seen

    def runs(self) -> Iterator[list[Float32]]:
        """The samples again, in runs of whole chunks, each in parts that follow one another."""
        chunk = self._geometry.chunk
        run = max(1, RUN_VALUES // (len(self.discrete) * chunk)) * chunk
        parts: list[Float32] = []
        missing = run
        for piece in self._waiting.take():
            while piece.shape[1]:
                parts.append(piece[:, :missing])
                piece = piece[:, missing:]
                missing -= parts[-1].shape[1]
                if not missing:
                    yield parts
                    parts, missing = [], run
        if parts:
            yield parts

    def _pieces(self) -> Iterator[tuple[int, int]]:
        """Bounds of the pieces, which blocks of the right size are made into.

        They are whole products, and whole chunks where these are not much longer.
        """
        lanes = passes.n_blocks(len(self.discrete)) * LANES
        shared = self._resampler.width * lanes if self._resampler is not None else 0
        fitting = max(BLOCK_VALUES, min(2 * shared, MOST_VALUES)) // lanes * self._ratio
        step = round(fitting / self._geometry.chunk) * self._geometry.chunk
        if not step or step % OUTPUTS:
            step = max(1, int(fitting) // OUTPUTS) * OUTPUTS
        for first in range(0, self._geometry.n_samples, step):
            yield first, min(first + step, self._geometry.n_samples)

    def _windows(self) -> Iterator[_Window]:
        pieces = list(self._pieces())
        apart, n_looks = -(-len(pieces) // LOOKS), -(-LOOKS // len(pieces))
        for number, (first, last) in enumerate(pieces):
            start, stop = first, last
            if self._resampler is not None:
                start, stop = self._resampler.inputs(first, last)
            block = self._native.window(start, stop)
            yield _Window(first, last, start, block, 0 if number % apart else n_looks)

    def _served(self, window: _Window) -> tuple[Float32, Range, list[Look]]:
        """Served samples, their range, and what is seen of their noise.

        Calls for several windows may run side by side.
        """
        n_channels = len(self.discrete)
        if self._resampler is None:
            served = passes.to_rows(window.block, n_channels)
        else:
            served = self._resampled(window, self._resampler)
        limits = Range(n_channels)
        limits.include(served)
        return served, limits, looks(window.block, served, window.n_looks)

    def _resampled(self, window: _Window, resampler: Resampler) -> Float32:
        first, last = window.first, window.last
        served = resampler.outputs(window.block, first, last)
        if self.discrete.any():
            nearest = self._nearest.sources(first, last) - window.start
            for row in np.flatnonzero(self.discrete):
                served[row] = window.block[row // LANES, nearest, row % LANES]
        return served
