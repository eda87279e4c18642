"""The anti-aliasing FIR of one ratio: how much each input sample weighs in each output.

It is the default filter of scipy.signal.resample_poly, a sinc under a Kaiser window, made
here: to import scipy.signal takes longer than a short recording. Output k lies at the time of
input k * down / up.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

Float64 = NDArray[np.float64]

KAISER_BETA = 5.0
HALF_LENGTH = 10  # zero crossings on each side

# Up to this many phases the filter is tabulated as resample_poly does it. Rates such as
# 1017.7777709960938 Hz have millions; for them the filter is interpolated between this many
# phases, with an error below 1e-8 of the largest weight.
MAX_TABULATED = 1 << 16
PHASES = 4096


class Filter(ABC):
    """What the two kinds share; `half` is the longest reach in units of 1 / up input samples."""

    def __init__(self, ratio: Fraction) -> None:
        self.up, self.down = ratio.numerator, ratio.denominator
        self.half = HALF_LENGTH * max(self.up, self.down)

    def window(self, first: int, last: int) -> tuple[int, int]:
        """Input samples [start, stop) that outputs first..last depend on; may leave the signal."""
        start = -((self.half - first * self.down) // self.up)
        stop = (last * self.down + self.half) // self.up + 1
        return start, stop

    @abstractmethod
    def weights(self, first: int, n: int) -> Float64:
        """Weights (window of inputs, n) of the `n` outputs from `first` on."""


class TabulatedFilter(Filter):
    """All weights that occur, computed beforehand."""

    def __init__(self, ratio: Fraction) -> None:
        super().__init__(ratio)
        steps = np.arange(-self.half, self.half + 1)
        cutoff = max(self.up, self.down)
        table = np.sinc(steps / cutoff) * np.kaiser(len(steps), KAISER_BETA)
        self._table = table / table.sum() * self.up

    def weights(self, first: int, n: int) -> Float64:
        """See Filter."""
        start, stop = self.window(first, first + n - 1)
        # Positions relative to the first input keep the integers small anywhere.
        outputs = np.arange(n) * self.down + (first * self.down - start * self.up)
        position = outputs - np.arange(stop - start)[:, None] * self.up
        inside = np.abs(position) <= self.half
        return np.where(inside, self._table[np.where(inside, position + self.half, 0)], 0.0)


class InterpolatedFilter(Filter):
    """Weights for outputs at any time between two inputs, linear between PHASES of them."""

    def __init__(self, ratio: Fraction) -> None:
        super().__init__(ratio)
        reach = self.half / self.up  # in input samples
        self._before = math.ceil(reach)
        # The sum of so many taps is the integral of the shape.
        grid = np.linspace(-1, 1, 2 * HALF_LENGTH * PHASES + 1)
        gain = 1 / (float(np.trapezoid(_shape(grid), grid)) * reach)
        inputs = np.arange(-self._before, self._before + 2)
        times = np.arange(PHASES + 1)[:, None] / PHASES
        self._table = gain * _shape((inputs - times) / reach)

    def weights(self, first: int, n: int) -> Float64:
        """See Filter."""
        start, stop = self.window(first, first + n - 1)
        nearest, rest = divmod(first * self.down, self.up)
        steps = rest + np.arange(n) * self.down
        phase = (steps % self.up) * (PHASES / self.up)
        row = phase.astype(np.intp)
        share = (phase - row)[:, None]
        taps = (1 - share) * self._table[row] + share * self._table[row + 1]
        # Taps beyond the window are zeros: they go to its margins.
        margin = 2
        banded = np.zeros((n, stop - start + 2 * margin))
        column = margin + nearest - start - self._before + steps // self.up
        np.put_along_axis(banded, column[:, None] + np.arange(taps.shape[1]), taps, axis=1)
        return banded[:, margin:-margin].T


def _shape(x: Float64) -> Float64:
    """Kaiser-windowed sinc over -1..1, unnormalised; 0 beyond."""
    inside = np.sqrt(np.maximum(0.0, 1 - x * x))
    shape = np.sinc(HALF_LENGTH * x) * np.i0(KAISER_BETA * inside)
    return np.where(np.abs(x) <= 1, shape, 0.0)


def filter_of(ratio: Fraction) -> Filter:
    """The filter for a ratio of served to native rate."""
    few = max(ratio.numerator, ratio.denominator) <= MAX_TABULATED
    return TabulatedFilter(ratio) if few else InterpolatedFilter(ratio)
