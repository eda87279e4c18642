"""Stretches of a recording with pauses between them, on one timeline."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from converter.contract.codes import FailureCode, RecordingError
from converter.recording.readers.binary import SampleMatrix
from converter.recording.readers.gaps import gaps_between
from converter.recording.signal import Gap

LATE, EARLY = Fraction(1, 10_000), Fraction(1, 1000)
"""By what share of a stretch its clock may be ahead of its samples, and behind them.

The first is more than crystals are off; beyond it there was a pause. What the clock can't tell
from a pause it need not call one, but samples that it has no time for are no recording.
"""


def places(
    name: str, onsets: Iterable[tuple[int, Fraction]], rate: Fraction, step: Fraction
) -> Iterator[int]:
    """Where on the timeline stored samples lie whose onsets a clock of `step` seconds tells.

    `onsets` are numbers of stored samples, ascending, each with its time in seconds. A sample
    follows the one stored before it unless the clock is ahead of the samples by more than a step,
    and LATE, since the onset before or since the stretch began: then it begins a stretch, at its
    own time after the first onset. So no stretch is ever further off the clock than that. Raises
    NOT_CONTINUOUS where time goes back by as much, or EARLY over the stretch.
    """
    origin: tuple[int, Fraction] | None = None
    shift = 0  # from a stored sample to its place
    for onset in onsets:
        first, second = onset
        if origin is None:
            origin = anchor = before = onset
        jump, between = _ahead(before, onset, rate)
        off, since = _ahead(anchor, onset, rate)
        if jump > step + LATE * between or off > step + LATE * since:
            place = origin[0] + round((second - origin[1]) * rate)
            shift = max(shift, place - first)
            anchor = onset
        elif jump < -step - LATE * between or off < -step - EARLY * since:
            raise RecordingError(
                FailureCode.NOT_CONTINUOUS,
                f"{name} goes back in time by {float(-min(off, jump)):g} s at sample {first}, "
                "one continuous recording was expected.",
            )
        before = onset
        yield first + shift


def _ahead(
    start: tuple[int, Fraction], now: tuple[int, Fraction], rate: Fraction
) -> tuple[Fraction, Fraction]:
    """Seconds by which the clock is ahead of the samples since `start`, and those recorded."""
    recorded = (now[0] - start[0]) / rate
    return now[1] - start[1] - recorded, recorded


@dataclass(frozen=True, slots=True)
class Stretch:
    """`length` samples of a matrix from its sample `first` on, at `start` of a timeline."""

    start: int
    length: int
    matrix: SampleMatrix
    first: int = 0

    @property
    def stop(self) -> int:
        """Where it ends on the timeline."""
        return self.start + self.length

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """Samples `start:stop` of the timeline, which are all within."""
        shift = self.first - self.start
        return self.matrix.read(start + shift, stop + shift)


class GappedMatrix:
    """Stretches in order, which do not overlap; `gaps` between them are read as zeros."""

    def __init__(self, stretches: Sequence[Stretch]) -> None:
        self._stretches = list(stretches)
        self.gaps: tuple[Gap, ...] = gaps_between((s.start, s.stop) for s in stretches)
        self._starts = [stretch.start for stretch in stretches]

    @property
    def n_samples(self) -> int:
        """Length of the timeline."""
        return self._stretches[-1].stop

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """Samples `start:stop` of the timeline as (n_channels, stop - start)."""
        at = max(0, bisect_right(self._starts, start) - 1)
        first = self._stretches[at]
        if first.start <= start and stop <= first.stop:
            return first.read(start, stop)
        empty = first.read(first.start, first.start)
        out = np.zeros((len(empty), stop - start), empty.dtype)
        for stretch in self._stretches[at:]:
            if stretch.start >= stop:
                break
            begin, end = max(start, stretch.start), min(stop, stretch.stop)
            if begin < end:
                out[:, begin - start : end - start] = stretch.read(begin, end)
        return out

    def close(self) -> None:
        """Close the files."""
        for stretch in self._stretches:
            stretch.matrix.close()
