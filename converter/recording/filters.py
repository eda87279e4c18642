"""The anti-aliasing FIR of one ratio: how much each input sample weighs in each output.

It is the default filter of scipy.signal.resample_poly, a sinc under a Kaiser window, made
here: to import scipy.signal takes longer than a short recording. Output k lies at the time of
input k * down / up.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from fractions import Fraction

import numpy as np

from .passes import Float64, Int64

KAISER_BETA = 5.0
HALF_LENGTH = 10  # zero crossings on each side

# Up to this many phases the filter is tabulated as resample_poly does it. Rates such as
# 1017.7777709960938 Hz have millions; for them the filter is interpolated between this many
# points from one zero crossing to the next, with an error below 1e-8 of the largest weight.
MAX_TABULATED = 1 << 16
POINTS = 8192


class Filter(ABC):
    """What the two kinds share. Times are whole numbers, in units of 1 / up input samples.

    `half` is how far an output reaches to either side.
    """

    def __init__(self, ratio: Fraction) -> None:
        self.up, self.down = ratio.numerator, ratio.denominator
        self.half = HALF_LENGTH * max(self.up, self.down)

    def start(self, output: int) -> int:
        """The first input sample that an output depends on; may lie before the signal."""
        return -((self.half - output * self.down) // self.up)

    def width(self, n: int) -> int:
        """How many input samples, at most, `n` neighbouring outputs depend on."""
        return ((n - 1) * self.down + 2 * self.half) // self.up + 1

    def weights(self, offsets: Int64, n: int) -> Float64:
        """Weights (n_products, width, n) of inputs in `n` outputs each.

        An offset is the time of a product's first output after that of its first input.
        """
        outputs = np.arange(n) * self.down
        inputs = np.arange(self.width(n))[:, None] * self.up
        return self._at(offsets[:, None, None] + (outputs - inputs))

    @abstractmethod
    def _at(self, times: Int64) -> Float64:
        """Weights of inputs that lie so long before an output."""


class TabulatedFilter(Filter):
    """All weights that occur, computed beforehand."""

    def __init__(self, ratio: Fraction) -> None:
        super().__init__(ratio)
        steps = np.arange(-self.half, self.half + 1)
        cutoff = max(self.up, self.down)
        table = np.sinc(steps / cutoff) * np.kaiser(len(steps), KAISER_BETA)
        self._table: Float64 = np.append(table / table.sum() * self.up, 0.0)

    def _at(self, times: Int64) -> Float64:
        beyond = len(self._table) - 1
        inside = np.abs(times) <= self.half
        return self._table[np.where(inside, times + self.half, beyond)]


class InterpolatedFilter(Filter):
    """Weights at any time, linear between points of the filter."""

    def __init__(self, ratio: Fraction) -> None:
        super().__init__(ratio)
        grid = np.linspace(-1, 1, 2 * HALF_LENGTH * POINTS + 1)
        shape = _shape(grid)
        # The sum of so many taps is the integral of the shape.
        self._table: Float64 = shape * (self.up / (float(np.trapezoid(shape, grid)) * self.half))

    def _at(self, times: Int64) -> Float64:
        place = (np.clip(times / self.half, -1, 1) + 1) * (HALF_LENGTH * POINTS)
        point = np.minimum(place.astype(np.intp), len(self._table) - 2)
        share = place - point
        weights: Float64 = (1 - share) * self._table[point] + share * self._table[point + 1]
        return weights


def _shape(x: Float64) -> Float64:
    """Kaiser-windowed sinc over -1..1, unnormalised."""
    return np.sinc(HALF_LENGTH * x) * np.i0(KAISER_BETA * np.sqrt(1 - x * x))


def filter_of(ratio: Fraction) -> Filter:
    """The filter for a ratio of served to native rate."""
    few = max(ratio.numerator, ratio.denominator) <= MAX_TABULATED
    return TabulatedFilter(ratio) if few else InterpolatedFilter(ratio)
