"""How fine a signal is, against the steps in which it is stored.

A store has 65,536 steps for a channel's whole range: a drift of hundreds of millivolts makes
them coarser than the microvolts that ride on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .passes import Float32, Float64, to_rows

LOOKS = 8  # at a signal, spread over its length
LOOK_SAMPLES = 256
# A source that is stored in steps itself, not much finer ones, loses nothing.
_OWN_STEPS = 2


@dataclass(frozen=True, slots=True)
class Look:
    """What some samples tell, a value a channel.

    `noise` is how far the differences of neighbouring samples are from their median at the served
    rate, in the median: neither spikes nor a drift change it. `step` is the smallest distance of
    any two of them at the native rate: the source's own step or, of a source without one, next
    to nothing; infinite where all are alike.
    """

    noise: Float32
    step: Float32

    @classmethod
    def at(cls, native: Float32, served: Float32) -> Look:
        """A look at all samples of both (n_channels, n)."""
        differences = _differences(served)
        differences -= _median(differences)[:, None]
        steps = _differences(np.sort(native, axis=1))
        steps[steps == 0] = np.inf
        return cls(_median(np.abs(differences)), steps.min(axis=1))


def looks(native: Float32, served: Float32, n_looks: int) -> list[Look]:
    """Looks at so many places, evenly spread over a block and (n_channels, n) made of it."""

    def at(samples: Float32, number: int) -> Float32:
        start = samples.shape[1] * number // n_looks
        return samples[:, start : start + LOOK_SAMPLES]

    return [
        Look.at(to_rows(at(native, number), len(served)), at(served, number))
        for number in range(n_looks)
    ]


@dataclass(frozen=True, slots=True)
class Coarse:
    """A channel whose step is coarser than its noise; both in its unit."""

    row: int
    step: float
    noise: float


def coarse(seen: Sequence[Look], gain: Float64, scale: Float64) -> list[Coarse]:
    """The channels that lose of their noise by steps of `scale`, the worst first.

    `gain` is what a difference of 1 is in the channel's unit. Channels without noise lose
    nothing, nor do those whose source has steps that are as coarse.
    """
    noise = np.array([look.noise for look in seen], np.float64)
    alive = (noise > 0).any(axis=0)
    noise[(noise == 0) & alive] = np.nan  # while a channel is flat it has none
    level = np.nanmedian(noise, axis=0) * gain
    own = np.min([look.step for look in seen], axis=0) * gain
    rows = np.flatnonzero(alive & (scale > level) & (scale > _OWN_STEPS * own))
    found = [Coarse(int(row), float(scale[row]), float(level[row])) for row in rows]
    return sorted(found, key=lambda channel: channel.noise / channel.step)


def _differences(samples: Float32) -> Float32:
    if samples.shape[1] < 2:
        return np.zeros((len(samples), 1), np.float32)
    return np.diff(samples, axis=1)


def _median(values: Float32) -> Float32:
    """The upper median of each row; to sort is five times as quick as numpy's own."""
    return np.sort(values, axis=1)[:, values.shape[1] // 2]
