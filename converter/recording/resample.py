"""Polyphase resampling in blocks, equal to scipy.signal.resample_poly on the whole signal.

Resampling is a banded linear map: `K` neighbouring output samples depend on one short window
of input samples, so a block of outputs is a matrix product, which BLAS does several times
faster than a polyphase loop. The windows carry over from block to block, and beyond both
ends of the signal they hold its first and last sample (`padtype="edge"`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray
from scipy.signal import firwin
from scipy.special import i0

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]

KAISER_BETA = 5.0
HALF_LENGTH = 10  # zero crossings on each side: resample_poly's default filter
OUTPUTS_PER_PRODUCT = 32  # 16 to 64 cost the same; the band wastes more beyond

# Up to this many phases the filter is tabulated as resample_poly does it. Rates such as
# 1017.7777709960938 Hz have millions; their taps are evaluated where they are needed.
MAX_TABULATED = 1 << 16


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
            window = ("kaiser", KAISER_BETA)
            self._table = firwin(2 * self.half + 1, 1 / self.cutoff, window=window) * self.up
        else:
            # firwin divides by the sum of its taps; for so many it is the integral below.
            grid = np.linspace(-1, 1, 2 * HALF_LENGTH * 4096 + 1)
            area = float(np.trapezoid(self._shape(grid), grid)) * self.half
            self._gain = self.up / area

    @staticmethod
    def _shape(x: Float64) -> Float64:
        """Kaiser-windowed sinc over -1..1, unnormalised."""
        inside = np.sqrt(np.maximum(0.0, 1 - x * x))
        return np.asarray(np.sinc(HALF_LENGTH * x) * i0(KAISER_BETA * inside))

    def at(self, position: NDArray[np.int64]) -> Float64:
        """Taps at integer positions from the centre, 0 beyond the ends."""
        inside = np.abs(position) <= self.half
        if self._table is not None:
            clipped = np.where(inside, position + self.half, 0)
            return np.where(inside, self._table[clipped], 0.0)
        return np.where(inside, self._gain * self._shape(position / self.half), 0.0)

    def window(self, first: int, last: int) -> tuple[int, int]:
        """Input samples [start, stop) that outputs first..last depend on; may leave the signal."""
        start = -((self.half - first * self.down) // self.up)
        return start, (last * self.down + self.half) // self.up + 1


@dataclass(frozen=True, slots=True)
class _Product:
    """Outputs `first`.. as `input[:, start:start + len(weights)] @ weights`."""

    start: int
    weights: Float32
    ripple: Float64 | None


class Resampler:
    """Carries one channel group from its native to its served rate, block by block.

    `ratio` is served / native, exact. `constant` holds a value a channel that was subtracted
    from all samples before they came here: the filter passes a constant with a gain that
    differs from 1 by up to 1e-4 from phase to phase, and the result contains what
    resample_poly would make of it, less the constant itself. Blocks are (n_channels, n)
    float32, and so are results.
    """

    def __init__(self, ratio: Fraction, n_in: int, constant: Float64) -> None:
        if not 0 < ratio < 1:
            raise ValueError(f"a served rate below the native rate is expected, not {ratio} of it")
        self.n_out = output_length(n_in, ratio)
        self._filter = _Filter(ratio)
        self._constant = constant
        self._per_product = _outputs_per_product(ratio.numerator)
        self._products: dict[int, _Product] = {}
        self._n_in, self._received, self._next = n_in, 0, 0
        # Input samples [_base, _base + width) of the edge-extended signal.
        self._base = self._filter.window(0, 0)[0]
        self._carry: Float32 = np.empty((len(constant), 0), np.float32)

    def push(self, block: Float32) -> Float32:
        """Take the next input samples; return the output samples they complete."""
        parts = [self._carry, block]
        if self._received == 0:
            parts.insert(1, np.repeat(block[:, :1], -self._base, axis=1))
        self._received += block.shape[1]
        if self._received == self._n_in:
            beyond = self._filter.window(self.n_out - 1, self.n_out - 1)[1] - self._n_in
            parts.append(np.repeat(block[:, -1:], max(0, beyond), axis=1))
        signal = np.concatenate(parts, axis=1)
        ready = self._ready(self._base + signal.shape[1])
        out = np.empty((signal.shape[0], ready - self._next), np.float32)
        for first, last in self._blocks(ready):
            self._multiply(signal, first, last, out[:, first - self._next : last - self._next])
        self._next = ready
        keep = min(self._filter.window(ready, ready)[0] - self._base, signal.shape[1])
        self._carry = signal[:, keep:].copy()
        self._base += keep
        return out

    def _ready(self, available: int) -> int:
        """The first output that input samples below `available` can't complete."""
        if self._received == self._n_in:
            return self.n_out
        complete = (available * self._filter.up - self._filter.half - 1) // self._filter.down + 1
        return max(self._next, complete // self._per_product * self._per_product)

    def _blocks(self, ready: int) -> Iterator[tuple[int, int]]:
        for first in range(self._next, ready, self._per_product):
            yield first, min(first + self._per_product, ready)

    def _multiply(self, signal: Float32, first: int, last: int, out: Float32) -> None:
        product = self._product(first)
        start = product.start - self._base
        weights = product.weights[:, : last - first]
        window = signal[:, start : start + len(weights)]
        np.matmul(window, weights[: window.shape[1]], out=out)
        if product.ripple is not None:
            out += np.outer(self._constant, product.ripple[: last - first]).astype(np.float32)

    def _product(self, first: int) -> _Product:
        """The weights of the outputs from `first` on; blocks of one phase share them."""
        phase = first * self._filter.down % self._filter.up
        known = self._products.get(phase)
        start, stop = self._filter.window(first, first + self._per_product - 1)
        if known is not None:
            return _Product(start, known.weights, known.ripple)
        outputs = np.arange(first, first + self._per_product, dtype=np.int64)
        inputs = np.arange(start, stop, dtype=np.int64)
        # Positions relative to the block keep the integers small for any recording length.
        offset = first * self._filter.down - start * self._filter.up
        position = (outputs - first)[None, :] * self._filter.down + offset
        weights = self._filter.at(position - (inputs - start)[:, None] * self._filter.up)
        ripple = weights.sum(axis=0) - 1
        negligible = np.abs(ripple).max() < 1e-12
        made = _Product(start, weights.astype(np.float32), None if negligible else ripple)
        if self._filter.cutoff <= MAX_TABULATED:
            self._products[phase] = made
        return made


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
        self._n_in, self._received, self._next = n_in, 0, 0

    def _source(self, output: int) -> int:
        return (2 * output * self._down + self._up) // (2 * self._up)

    def push(self, block: Float32) -> Float32:
        """Take the next input samples; return the output samples they hold."""
        start, self._received = self._received, self._received + block.shape[1]
        if self._received == self._n_in:
            ready = self.n_out
        else:
            # The largest count of outputs whose sources all lie below what was received.
            ready = -(-(2 * self._received * self._up - self._up) // (2 * self._down))
            ready = max(ready, self._next)
        sources = [self._source(k) for k in range(self._next, ready)]
        self._next = ready
        index = np.minimum(np.array(sources, dtype=np.int64), self._n_in - 1) - start
        return block[:, index]
