"""Polyphase resampling of any stretch, equal to scipy.signal.resample_poly on the whole signal.

Resampling is a banded linear map: `K` neighbouring output samples depend on one short window
of input samples, so `K` outputs are a matrix product, which BLAS does several times faster
than a polyphase loop. Beyond both ends the signal keeps its first and last sample
(`padtype="edge"`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]

KAISER_BETA = 5.0
HALF_LENGTH = 10  # zero crossings on each side: resample_poly's default filter
OUTPUTS_PER_PRODUCT = 32  # 16 to 64 cost the same; the band wastes more beyond

# Up to this many phases the filter is tabulated as resample_poly does it. Rates such as
# 1017.7777709960938 Hz have millions; their taps are evaluated where they are needed.
MAX_TABULATED = 1 << 16
MAX_PRODUCTS = 1024  # weights kept for reuse: 28 MB of them at a ratio of 1 to 4
RUN = 256  # outputs whose nearest samples are found at once: the products fit 64 bits


def output_length(n_in: int, ratio: Fraction) -> int:
    """Number of samples that resample_poly makes of `n_in`."""
    return -(-n_in * ratio.numerator // ratio.denominator)


class _Filter:
    """The anti-aliasing FIR of one ratio: `taps(k, m)` weighs input m in output k."""

    def __init__(self, ratio: Fraction) -> None:
        self.up, self.down = ratio.numerator, ratio.denominator
        self.cutoff = max(self.up, self.down)
        self.half = HALF_LENGTH * self.cutoff
        self._table: Float64 | None = None
        if self.cutoff <= MAX_TABULATED:
            # As scipy.signal.firwin does it; importing that takes longer than a short recording.
            steps = np.arange(-self.half, self.half + 1)
            table = np.sinc(steps / self.cutoff) * np.kaiser(len(steps), KAISER_BETA)
            self._table = table / table.sum() * self.up
        else:
            # firwin divides by the sum of its taps; for so many it is the integral below.
            grid = np.linspace(-1, 1, 2 * HALF_LENGTH * 4096 + 1)
            area = float(np.trapezoid(self._shape(grid), grid)) * self.half
            self._gain = self.up / area

    @staticmethod
    def _shape(x: Float64) -> Float64:
        """Kaiser-windowed sinc over -1..1, unnormalised."""
        inside = np.sqrt(np.maximum(0.0, 1 - x * x))
        return np.asarray(np.sinc(HALF_LENGTH * x) * np.i0(KAISER_BETA * inside))

    def at(self, position: NDArray[np.int64]) -> Float64:
        """Taps at integer positions from the centre, 0 beyond the ends."""
        taps = np.zeros(position.shape)
        inside = np.abs(position) <= self.half
        if self._table is not None:
            taps[inside] = self._table[position[inside] + self.half]
        else:
            taps[inside] = self._gain * self._shape(position[inside] / self.half)
        return taps

    def window(self, first: int, last: int) -> tuple[int, int]:
        """Input samples [start, stop) that outputs first..last depend on; may leave the signal."""
        start = -((self.half - first * self.down) // self.up)
        return start, (last * self.down + self.half) // self.up + 1


@dataclass(frozen=True, slots=True)
class _Product:
    """Outputs of one product as `window of inputs @ weights`, plus what a constant adds."""

    weights: Float32
    ripple: Float64 | None


class Resampler:
    """Makes any stretch of a signal at its served rate from the signal at its native rate.

    `ratio` is served / native, exact. Signals are (n_channels, n) float32. Stretches are
    computed in whole products, which begin at multiples of `multiple` outputs, so an output is
    the same number in any of them.
    """

    def __init__(self, ratio: Fraction, n_in: int) -> None:
        if not 0 < ratio < 1:
            raise ValueError(f"a served rate below the native rate is expected, not {ratio} of it")
        self.n_out = output_length(n_in, ratio)
        self._filter = _Filter(ratio)
        self._n_in = n_in
        self.multiple = _outputs_per_product(ratio.numerator)
        # Products this far apart have the same weights.
        self._period = ratio.numerator // math.gcd(ratio.numerator, self.multiple)
        self._products: dict[int, _Product] = {}

    def inputs(self, first: int, last: int) -> tuple[int, int]:
        """Bounds of the input samples that outputs `first:last` depend on."""
        start, stop = self._window(first, last)
        return max(0, start), min(stop, self._n_in)

    def outputs(self, signal: Float32, first: int, last: int, constant: Float64) -> Float32:
        """Outputs `first:last`; `signal` holds the samples that `inputs` tells.

        `constant` holds a value a channel that was subtracted from all samples before they
        came here: the filter passes a constant with a gain that differs from 1 by up to 1e-4
        from phase to phase, and the result contains what resample_poly would make of it, less
        the constant itself.
        """
        start, stop = self._window(first, last)
        if start < 0 or stop > self._n_in:
            beyond = (max(0, -start), max(0, stop - self._n_in))
            signal = np.pad(signal, ((0, 0), beyond), "edge")
        each = self.multiple
        begin, end = first // each, -(-last // each)
        out = np.empty((len(signal), end - begin, each), np.float32)
        for lead in range(min(self._period, end - begin)):
            alike = out[:, lead :: self._period]
            product = self._product(begin + lead)
            at = self._window((begin + lead) * each, (begin + lead + 1) * each)[0] - start
            windows = self._windows(signal, at, alike.shape[1], len(product.weights))
            np.matmul(windows, product.weights, out=alike.transpose(1, 0, 2))
            if product.ripple is not None:
                alike += (constant[:, None] * product.ripple).astype(np.float32)[:, None]
        whole = out.reshape(len(signal), -1)
        return whole[:, first - begin * each : last - begin * each]

    def _window(self, first: int, last: int) -> tuple[int, int]:
        """Input samples of the products that hold outputs `first:last`; may leave the signal."""
        each = self.multiple
        return self._filter.window(first // each * each, -(-last // each) * each - 1)

    def _windows(self, signal: Float32, at: int, count: int, width: int) -> Float32:
        """Inputs (count, n_channels, width) of products of one phase, from column `at` on.

        They overlap in memory, so nothing is copied before BLAS reads it.
        """
        hop = self._period * self.multiple * self._filter.down // self._filter.up
        row, column = signal.strides
        shape, strides = (count, len(signal), width), (hop * column, row, column)
        return as_strided(signal[:, at:], shape, strides, writeable=False)

    def _product(self, number: int) -> _Product:
        phase = number % self._period
        known = self._products.get(phase)
        if known is None:
            known = self._made(number * self.multiple)
            if len(self._products) < MAX_PRODUCTS:
                self._products[phase] = known
        return known

    def _made(self, first: int) -> _Product:
        """The weights of the outputs from `first` on."""
        start, stop = self._filter.window(first, first + self.multiple - 1)
        outputs = np.arange(self.multiple, dtype=np.int64)
        inputs = np.arange(stop - start, dtype=np.int64)
        # Positions relative to the block keep the integers small for any recording length.
        offset = first * self._filter.down - start * self._filter.up
        position = outputs[None, :] * self._filter.down + offset
        weights = self._filter.at(position - inputs[:, None] * self._filter.up)
        ripple = weights.sum(axis=0) - 1
        negligible = np.abs(ripple).max() < 1e-12
        return _Product(weights.astype(np.float32), None if negligible else ripple)


def _outputs_per_product(up: int) -> int:
    """A block length that gives few distinct phases: a divisor or a multiple of `up`."""
    if up <= OUTPUTS_PER_PRODUCT:
        return up * max(1, OUTPUTS_PER_PRODUCT // up)
    divisors = (k for k in range(OUTPUTS_PER_PRODUCT, OUTPUTS_PER_PRODUCT // 2, -1) if up % k == 0)
    return next(divisors, OUTPUTS_PER_PRODUCT)


class NearestSample:
    """Takes, for each output sample, the input sample nearest in time; ties go to the later.

    For trigger and status channels, whose codes a filter would destroy.
    """

    def __init__(self, ratio: Fraction, n_in: int) -> None:
        self.n_out = output_length(n_in, ratio)
        self._up, self._down = ratio.numerator, ratio.denominator
        self._n_in = n_in

    def sources(self, first: int, last: int) -> NDArray[np.int64]:
        """The input sample of each of the outputs `first:last`."""
        index = np.empty(last - first, np.int64)
        for at in range(0, len(index), RUN):
            run = index[at : at + RUN]
            base, rest = divmod(2 * (first + at) * self._down + self._up, 2 * self._up)
            whole, part = divmod(self._down, self._up)
            steps = np.arange(len(run))
            run[:] = base + steps * whole + (rest + steps * 2 * part) // (2 * self._up)
        return np.minimum(index, self._n_in - 1)
