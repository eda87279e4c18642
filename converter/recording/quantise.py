"""int16 quantisation, a channel at a time, over that channel's own range."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]
Int16 = NDArray[np.int16]

LOWEST, STEPS = -32768, 65535


class Range:
    """Running minimum and maximum of each channel."""

    def __init__(self, n_channels: int) -> None:
        self.low: Float64 = np.full(n_channels, np.inf)
        self.high: Float64 = np.full(n_channels, -np.inf)

    def include(self, block: Float32) -> None:
        """Widen the range to the samples of a block (n_channels, n)."""
        if block.shape[1]:
            np.minimum(self.low, block.min(axis=1), out=self.low)
            np.maximum(self.high, block.max(axis=1), out=self.high)

    def join(self, other: Range) -> None:
        """Widen the range to another one."""
        np.minimum(self.low, other.low, out=self.low)
        np.maximum(self.high, other.high, out=self.high)


class Quantiser:
    """Maps each channel's range onto all 65,536 codes.

    Samples are relative: physical = sample * `gain` + `constant`, in the published unit, gain
    above 0. What is published is `scale` and `offset` with physical = digital * scale +
    offset; a constant channel has scale 1 and its value as offset.
    """

    def __init__(self, limits: Range, gain: Float64, constant: Float64) -> None:
        span = limits.high - limits.low
        # A product that overflows is caught by who publishes it.
        with np.errstate(over="ignore", invalid="ignore"):
            self._set(limits, span, gain, constant)

    def _set(self, limits: Range, span: Float64, gain: Float64, constant: Float64) -> None:
        constant_channel = span <= 0
        step = np.where(constant_channel, 1.0, span / STEPS)
        self._low = limits.low[:, None]
        self._per_step = np.where(constant_channel, 0.0, 1 / step)[:, None]
        self._lowest = np.where(constant_channel, 0, LOWEST)[:, None].astype(np.float32)
        # A range near the end of float32's own (1e-38) needs factors beyond it.
        self._dtype = np.float32 if (self._per_step < 1e30).all() else np.float64
        self._low = self._low.astype(self._dtype)
        self._per_step = self._per_step.astype(self._dtype)
        self.scale: Float64 = np.where(constant_channel, 1.0, step * gain)
        start = limits.low * gain + constant
        self.offset: Float64 = np.where(constant_channel, start, start - LOWEST * self.scale)

    def digital(self, block: Float32) -> Int16:
        """Codes of a block (n_channels, n)."""
        steps = np.subtract(block, self._low, dtype=self._dtype)
        steps *= self._per_step
        steps += self._lowest
        np.rint(steps, out=steps)
        return steps.astype(np.int16)
