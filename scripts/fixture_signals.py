"""Signals of the fixtures: sines of known frequency and a little noise, in whole steps.

Samples are integers, in steps of a channel's resolution, and come out alike on every machine:
no value depends on the last bit of a sine, and the noise is drawn from a hash.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Steps = NDArray[np.int64]


@dataclass(frozen=True)
class Channel:
    """What one channel measures.

    `tones` are (whole Hz, amplitude), amplitudes, `mean` and `step` (the resolution) in `unit`,
    which the data file is written in. `declared_unit` and `kind` go to channels.tsv; noise is
    uniform within `noise` steps.
    """

    label: str
    kind: str
    unit: str
    tones: tuple[tuple[int, float], ...]
    step: float = 0.1
    mean: float = 0.0
    noise: int = 10
    declared_unit: str | None = None

    @property
    def declared(self) -> str:
        """The unit that channels.tsv gives."""
        return self.unit if self.declared_unit is None else self.declared_unit


def steps(channel: Channel, rate: int, seconds: int, seed: str) -> Steps:
    """The channel's samples, (rate * seconds,), as multiples of its step."""
    n_samples = rate * seconds
    count = np.arange(n_samples, dtype=np.int64)
    exact = np.full(n_samples, channel.mean / channel.step)
    for hz, amplitude in channel.tones:
        turns = (count * hz) % rate / rate
        exact += amplitude / channel.step * np.sin(2 * np.pi * turns)
    # First to a billionth: sines meet the half between two steps, where a last bit would decide.
    whole = np.rint(np.round(exact, 9)).astype(np.int64)
    return whole + _noise(f"{seed} {channel.label}", n_samples, channel.noise)


def recording(channels: Sequence[Channel], rate: int, seconds: int, seed: str) -> list[Steps]:
    """Samples of each channel. Channels of one label differ in their noise."""
    return [
        steps(channel, rate, seconds, f"{seed} {index}") for index, channel in enumerate(channels)
    ]


def pulses(n_samples: int, codes: Mapping[int, int], width: int, base: int = 0) -> Steps:
    """A trigger channel: each code from its sample on, for `width` samples, above `base`."""
    line = np.full(n_samples, base, dtype=np.int64)
    for start, code in codes.items():
        line[start : start + width] += code
    return line


def _noise(seed: str, n_samples: int, limit: int) -> Steps:
    """Uniform over the whole numbers from -limit to limit."""
    drawn = hashlib.shake_256(seed.encode()).digest(2 * n_samples)
    return (np.frombuffer(drawn, "<u2").astype(np.int64) * (2 * limit + 1) >> 16) - limit
