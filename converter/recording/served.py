"""A channel group at its served rate, in scratch, with what is known of it once it is there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from .native import NativeSignal
from .ordered import Workers
from .quantise import Float32, Quantiser, Range
from .rates import Geometry
from .resample import NearestSample, Resampler
from .scratch import Scratch
from .sidecars.channels import PlannedChannel
from .signal import SignalSource

# Samples of all channels in one block: 2 MB of float32, about a core's second-level cache.
BLOCK_VALUES = 1 << 19


@dataclass(frozen=True, slots=True)
class _Window:
    """What the served samples `first:last` are made of: native ones, from `start` on."""

    first: int
    last: int
    start: int
    samples: Float32


class ServedSignal:
    """The signal at its served rate, as samples relative to the baseline.

    `discrete` marks channels of codes, which are never filtered. `fill` reads the source,
    once; then `chunks` gives the samples, once. In between they wait in scratch, for which
    `folder` is.
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
        self._resampler = Resampler(ratio, n_in) if ratio != 1 else None
        self._nearest = NearestSample(ratio, n_in)
        self.discrete = np.array([channel.discrete for channel in channels], bool)
        self._waves = _selection(~self.discrete)
        baseline = self._native.baseline
        self._constant = baseline.constant / baseline.gain  # in relative units
        self._limits = Range(len(channels))
        self._scratch = Scratch(folder)

    def __enter__(self) -> ServedSignal:
        return self

    def __exit__(self, *_: object) -> None:
        self._scratch.close()

    @property
    def nonfinite(self) -> NDArray[np.int64]:
        """How many samples of each channel had to be filled."""
        return self._native.nonfinite

    @property
    def quantiser(self) -> Quantiser:
        """How the whole signal maps to int16."""
        baseline = self._native.baseline
        return Quantiser(self._limits, baseline.gain, baseline.constant)

    def fill(self, workers: Workers) -> None:
        """Read the source, and bring it to its served rate piece by piece."""
        for samples, limits in workers.in_order(self._served, self._windows()):
            self._scratch.append(samples)
            self._limits.join(limits)

    def chunks(self) -> Iterator[list[Float32]]:
        """The samples again, chunk by chunk, each in one part or more."""
        self._scratch.rewind()
        size = self._geometry.chunk
        for span in self._cuts():
            parts = [self._scratch.take() for _ in span]
            if len(parts) > 1:
                yield parts
            else:
                for at in range(0, parts[0].shape[1], size):
                    yield [parts[0][:, at : at + size]]

    def _cuts(self) -> Iterator[list[tuple[int, int]]]:
        """Bounds of the pieces of each span: whole chunks, of about BLOCK_VALUES raw samples.

        Where a chunk takes more, it is cut into pieces of as many, but of no fewer than two of
        the resampler's products.
        """
        chunk, n_samples = self._geometry.chunk, self._geometry.n_samples
        fitting = int(BLOCK_VALUES // len(self.discrete) * self._ratio)
        span = max(1, fitting // chunk) * chunk
        step = max(1 if self._resampler is None else 2 * self._resampler.multiple, fitting)
        for start in range(0, n_samples, span):
            stop = min(start + span, n_samples)
            yield [(first, min(first + step, stop)) for first in range(start, stop, step)]

    def _windows(self) -> Iterator[_Window]:
        for span in self._cuts():
            for first, last in span:
                start, stop = (
                    (first, last)
                    if self._resampler is None
                    else self._resampler.inputs(first, last)
                )
                yield _Window(first, last, start, self._native.window(start, stop))

    def _served(self, window: _Window) -> tuple[Float32, Range]:
        """Served samples and their range; calls for several windows may run side by side."""
        served = window.samples
        if self._resampler is not None:
            served = self._resampled(window, self._resampler)
        limits = Range(len(served))
        limits.include(served)
        return served, limits

    def _resampled(self, window: _Window, resampler: Resampler) -> Float32:
        native, first, last = window.samples, window.first, window.last
        if not self.discrete.any():
            return resampler.outputs(native, first, last, self._constant)
        served = np.empty((len(native), last - first), np.float32)
        nearest = self._nearest.sources(first, last) - window.start
        served[self.discrete] = native[self.discrete][:, nearest]
        if not self.discrete.all():
            waves = self._waves
            served[waves] = resampler.outputs(native[waves], first, last, self._constant[waves])
        return served


def _selection(mask: NDArray[np.bool_]) -> slice | NDArray[np.bool_]:
    """What selects the same rows, without a copy where they lie side by side."""
    rows = np.flatnonzero(mask)
    if len(rows) and rows[-1] - rows[0] + 1 == len(rows):
        return slice(int(rows[0]), int(rows[-1]) + 1)
    return mask
