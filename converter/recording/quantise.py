"""int16 quantisation, a channel at a time, over that channel's own range."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from . import passes
from .passes import Float32, Float64, Int16

LOWEST, STEPS = -32768, 65535
TINY = 1e-25  # a range whose steps have inverses beyond float32


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
        # Ranges near the end of float32's own (1e-38) are enlarged, which is exact.
        enlarge = np.exp2(np.where((span > 0) & (span < TINY), 100, 0))
        self._enlarge = enlarge.astype(np.float32)[:, None] if (enlarge > 1).any() else None
        per_step = np.where(constant_channel, 0.0, 1 / (step * enlarge))
        self._per_step = per_step.astype(np.float32)
        # Codes are counted from the middle of the range: there float32 has the finest steps.
        low = limits.low * enlarge
        self._middle = (low + span * enlarge / 2).astype(np.float32)
        middle_code = (self._middle - low) * per_step + LOWEST
        self._middle_code = np.where(constant_channel, 0.0, middle_code).astype(np.float32)
        self.scale: Float64 = np.where(constant_channel, 1.0, step * gain)
        start = limits.low * gain + constant
        self.offset: Float64 = np.where(constant_channel, start, start - LOWEST * self.scale)

    def codes(self, parts: Sequence[Float32]) -> Int16:
        """Codes (n_channels, n) of stretches of the signal that follow one another."""
        codes = np.empty((len(self._middle), sum(part.shape[1] for part in parts)), np.int16)
        at = 0
        for part in parts:
            out = codes[:, at : at + part.shape[1]]
            at += part.shape[1]
            samples = part if self._enlarge is None else part * self._enlarge
            passes.quantise(samples, self._middle, self._per_step, self._middle_code, out)
        return codes
