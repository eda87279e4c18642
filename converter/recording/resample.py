"""Polyphase resampling of any stretch, equal to scipy.signal.resample_poly on the whole signal.

Resampling is a banded linear map: a few neighbouring output samples depend on one short window
of input samples, so they are a product of that window and a small matrix of weights. Beyond
both ends the signal keeps its first and last sample (`padtype="edge"`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from . import passes
from .filters import filter_of
from .passes import OUTPUTS, Float32, Float64, Int64

MOST_WEIGHTS = 1 << 18  # held at a time: 2 MB of float64 while they are computed
RUN = 256  # that are divided at once: the products fit 64 bits


def output_length(n_in: int, ratio: Fraction) -> int:
    """Number of samples that resample_poly makes of `n_in`."""
    return -(-n_in * ratio.numerator // ratio.denominator)


@dataclass(frozen=True, slots=True)
class _Weights:
    """Of some products: (n, width, OUTPUTS), and what (n, OUTPUTS) they add to a constant of 1."""

    weights: Float32
    ripple: Float32

    @classmethod
    def of(cls, weights: Float64) -> _Weights:
        ripple = weights.sum(axis=1) - 1
        ripple[np.abs(ripple) < 1e-12] = 0  # of rounding
        return cls(weights.astype(np.float32), ripple.astype(np.float32))


class Resampler:
    """Makes any stretch of a signal at its served rate from the signal at its native rate.

    `ratio` is served / native, exact; a product reads `width` input samples. Signals come as
    blocks (see `passes`) and are made as (n_channels, n). An output is the same number in any
    stretch.

    `constant` holds a value a channel that was subtracted from all samples before they come
    here: the filter passes a constant with a gain that differs from 1 by up to 1e-4 from phase
    to phase, and the result contains what resample_poly would make of it, less the constant
    itself.
    """

    def __init__(self, ratio: Fraction, n_in: int, constant: Float64) -> None:
        if not 0 < ratio < 1:
            raise ValueError(f"a served rate below the native rate is expected, not {ratio} of it")
        self.n_out = output_length(n_in, ratio)
        self._filter = filter_of(ratio)
        self._n_in, self._n_channels = n_in, len(constant)
        bounded = np.clip(constant, -passes.LARGEST, passes.LARGEST)
        self._constant = passes.lane_values(bounded, np.float32)
        self.width = self._filter.width(OUTPUTS)
        # Products this far apart have the same weights.
        self._period = ratio.numerator // math.gcd(ratio.numerator, OUTPUTS)
        self._at_once = max(1, MOST_WEIGHTS // (self.width * OUTPUTS))
        self._kept: _Weights | None = None
        if self._period <= self._at_once:
            self._starts, offsets = self._places(0, self._period)
            self._kept = _Weights.of(self._filter.weights(offsets, OUTPUTS))

    def inputs(self, first: int, last: int) -> tuple[int, int]:
        """Bounds of the input samples that outputs `first:last` depend on."""
        start, stop = self._window(first, last)
        return max(0, start), min(stop, self._n_in)

    def outputs(self, block: Float32, first: int, last: int) -> Float32:
        """Outputs `first:last`; `block` holds the samples that `inputs` tells."""
        start, stop = self._window(first, last)
        if start < 0 or stop > self._n_in:
            beyond = (max(0, -start), max(0, stop - self._n_in))
            block = np.pad(block, ((0, 0), beyond, (0, 0)), "edge")
        begin, end = first // OUTPUTS, -(-last // OUTPUTS)
        out = np.empty((self._n_channels, (end - begin) * OUTPUTS), np.float32)
        for at, starts, which, kept in self._products(begin, end):
            made = out[:, at * OUTPUTS : (at + len(starts)) * OUTPUTS]
            own = (kept.weights, kept.ripple, self._constant)
            passes.resample(block, starts - start, which, *own, made)
        return out[:, first - begin * OUTPUTS : last - begin * OUTPUTS]

    def _window(self, first: int, last: int) -> tuple[int, int]:
        """Input samples of the products that hold outputs `first:last`; may leave the signal."""
        begin, end = first // OUTPUTS, -(-last // OUTPUTS)
        start = self._filter.start(begin * OUTPUTS)
        return start, self._filter.start((end - 1) * OUTPUTS) + self.width

    def _products(self, begin: int, end: int) -> Iterator[tuple[int, Int64, Int64, _Weights]]:
        """Products `begin:end`: their place among these, first inputs, and weights by number."""
        if self._kept is not None:
            rounds, which = np.divmod(np.arange(begin, end), self._period)
            hop = self._period * OUTPUTS * self._filter.down // self._filter.up
            yield 0, self._starts[which] + rounds * hop, which, self._kept
            return
        for at in range(begin, end, self._at_once):
            starts, offsets = self._places(at, min(at + self._at_once, end))
            weights = _Weights.of(self._filter.weights(offsets, OUTPUTS))
            yield at - begin, starts, np.arange(len(starts)), weights

    def _places(self, begin: int, end: int) -> tuple[Int64, Int64]:
        """First inputs of products `begin:end`, and offsets as `Filter.weights` takes them."""
        up, down, half = self._filter.up, self._filter.down, self._filter.half
        before = half - up + 1  # up to it a sample may lie before an output's reach
        first, step = begin * OUTPUTS * down - before, OUTPUTS * down
        starts, rests = _divided(first, step, up, end - begin)
        return starts, rests + before


class NearestSample:
    """Takes, for each output sample, the input sample nearest in time; ties go to the later.

    For trigger and status channels, whose codes a filter would destroy.
    """

    def __init__(self, ratio: Fraction, n_in: int) -> None:
        self.n_out = output_length(n_in, ratio)
        self._up, self._down = ratio.numerator, ratio.denominator
        self._n_in = n_in

    def sources(self, first: int, last: int) -> Int64:
        """The input sample of each of the outputs `first:last`."""
        twice = 2 * first * self._down + self._up
        index, _ = _divided(twice, 2 * self._down, 2 * self._up, last - first)
        return np.minimum(index, self._n_in - 1)


def _divided(first: int, step: int, divisor: int, n: int) -> tuple[Int64, Int64]:
    """Quotients and rests of `first`, `first + step`, ..., exact however large these are."""
    quotients, rests = np.empty((2, n), np.int64)
    whole, part = divmod(step, divisor)
    for at in range(0, n, RUN):
        base, rest = divmod(first + at * step, divisor)
        steps = np.arange(min(RUN, n - at))
        more, rests[at : at + RUN] = np.divmod(rest + steps * part, divisor)
        quotients[at : at + RUN] = base + steps * whole + more
    return quotients, rests
