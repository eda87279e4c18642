"""Raw samples less each channel's first one, so that an electrode offset costs no precision."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .passes import LANES, LARGEST, Float32, Float64, lane_values, to_lanes
from .sidecars.channels import PlannedChannel
from .signal import Channel


class Baseline:
    """What a channel group's samples are relative to.

    physical = relative * `gain` + `constant`, per channel in its published unit, gain above
    0. `constant` is the channel's first sample: of an electrode offset of 260 mV nothing is
    left in float32.
    """

    def __init__(
        self, raw: Sequence[Channel], channels: Sequence[PlannedChannel], first: NDArray[Any]
    ) -> None:
        raw = [
            one.waveform if one.waveform and not each.discrete else one
            for one, each in zip(raw, channels, strict=True)
        ]
        factor = np.array([channel.factor for channel in channels], np.float64)
        raw_gain = np.array([channel.gain for channel in raw], np.float64)
        raw_offset = np.array([channel.offset for channel in raw], np.float64)
        zero = -raw_offset / raw_gain  # the raw value of a physical 0
        first = first.astype(np.float64)
        usable = np.where(np.abs(first) <= LARGEST, first, zero)
        self.gain: Float64 = np.abs(raw_gain * factor)
        self.constant: Float64 = (usable * raw_gain + raw_offset) * factor
        self._first = lane_values(usable)
        self._sign = lane_values(np.sign(raw_gain * factor), np.float32)
        self._zero: Float32 = lane_values(zero - usable, np.float32) * self._sign

    def relative(self, raw: NDArray[Any], out: Float32) -> NDArray[np.bool_] | None:
        """Put raw samples (n_channels, n) into a block; give a mask of the filled ones, if any.

        What is no number, or too large to be a measured one, becomes a physical 0.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            if not to_lanes(raw, self._first, self._sign, out):
                return None
            filled = ~(np.abs(out) <= LARGEST)
        np.copyto(out, self._zeros(), where=filled)
        return filled

    def fill(self, out: Float32) -> None:
        """Make samples of a block a physical 0."""
        out[...] = self._zeros()

    def _zeros(self) -> Float32:
        return self._zero.reshape(-1, 1, LANES)
