"""Raw samples less each channel's first one, so that an electrode offset costs no precision."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .quantise import Float32, Float64
from .sidecars.channels import PlannedChannel
from .signal import Channel

# Beyond it float32 overflows in sums, and no sensor measures in any unit.
LARGEST = 1e30


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
        sign = np.sign(raw_gain * factor).astype(np.float32)[:, None]
        self.gain: Float64 = np.abs(raw_gain * factor)
        self.constant: Float64 = (usable * raw_gain + raw_offset) * factor
        self._first = usable[:, None]
        self._zero = (zero - usable).astype(np.float32)[:, None]
        self._sign = sign if (sign != 1).any() else None

    def relative(self, raw: NDArray[Any], out: Float32) -> NDArray[np.bool_] | None:
        """Put a raw block into `out` as relative samples; give a mask of the filled, if any.

        What is no number, or too large to be a measured one, becomes a physical 0.
        """
        exact = np.float32 if raw.dtype in (np.int16, np.uint16, np.float32) else np.float64
        filled = None
        with np.errstate(over="ignore", invalid="ignore"):
            first = self._first.astype(exact)
            np.subtract(raw, first, out=out, dtype=exact, casting="same_kind")
            # A sum of squares within float32 has no such sample in it.
            if raw.dtype.kind == "f" and not np.isfinite(np.vecdot(out, out)).all():
                filled = ~(np.abs(out) <= LARGEST)
                np.copyto(out, self._zero, where=filled)
        if self._sign is not None:
            out *= self._sign
        return filled

    def fill(self, out: Float32) -> None:
        """Make relative samples (n_channels, n) a physical 0."""
        out[...] = self._zero if self._sign is None else self._zero * self._sign
