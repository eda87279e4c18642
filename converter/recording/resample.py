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

from .filters import Float64, filter_of

Float32 = NDArray[np.float32]

OUTPUTS_PER_PRODUCT = 32  # 16 to 64 cost the same; the band wastes more beyond
MAX_PRODUCTS = 1024  # weights kept for reuse: 28 MB of them at a ratio of 1 to 4
RUN = 256  # outputs whose nearest samples are found at once: the products fit 64 bits


def output_length(n_in: int, ratio: Fraction) -> int:
    """Number of samples that resample_poly makes of `n_in`."""
    return -(-n_in * ratio.numerator // ratio.denominator)


@dataclass(frozen=True, slots=True)
class _Product:
    """Outputs as `window of inputs @ weights`, plus what a constant adds to them."""

    weights: Float32
    ripple: Float64 | None

    def multiply(self, windows: Float32, out: Float32, constant: Float64) -> None:
        """Outputs (n_channels, count, n) of windows (count, n_channels, width)."""
        weights = self.weights[: windows.shape[2]]
        np.matmul(windows, weights, out=out.transpose(1, 0, 2))
        if self.ripple is not None:
            out += (constant[:, None] * self.ripple).astype(np.float32)[:, None]

    def cut(self, n: int) -> _Product:
        """The first `n` outputs alone."""
        return _Product(self.weights[:, :n], None if self.ripple is None else self.ripple[:n])


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
        self._filter = filter_of(ratio)
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
        begin, end = first // self.multiple, -(-last // self.multiple)
        out = np.empty((len(signal), end - begin, self.multiple), np.float32)
        whole = min(end, self.n_out // self.multiple) - begin
        for lead in range(min(self._period, whole)):
            product = self._product(begin + lead)
            target = out[:, lead : whole : self._period]
            at = self._start(begin + lead) - start
            windows = self._windows(signal, at, target.shape[1], len(product.weights))
            product.multiply(windows, target, constant)
        if begin + whole < end:  # the signal ends inside the last product
            product = self._product(end - 1).cut(self.n_out - (end - 1) * self.multiple)
            window = signal[None, :, self._start(end - 1) - start :]
            target = out[:, whole:, : product.weights.shape[1]]
            product.multiply(window, target, constant)
        at = first - begin * self.multiple
        return out.reshape(len(signal), -1)[:, at : at + last - first]

    def _start(self, number: int) -> int:
        """The first input of a product."""
        return self._filter.window(number * self.multiple, 0)[0]

    def _window(self, first: int, last: int) -> tuple[int, int]:
        """Input samples of the products that hold outputs `first:last`; may leave the signal."""
        begin, end = first // self.multiple, -(-last // self.multiple)
        last = min(end * self.multiple, self.n_out) - 1
        return self._filter.window(begin * self.multiple, last)

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
        weights = self._filter.weights(first, self.multiple)
        ripple = weights.sum(axis=0) - 1
        negligible = np.abs(ripple).max() < 1e-12
        return _Product(weights.astype(np.float32, order="C"), None if negligible else ripple)


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
