"""Stretches of recorded samples on the timeline of a recording, with zeros in between.

The timeline is a regular grid. A stretch begins at the sample of it that is nearest in time, and
its samples follow without a break. What no stretch covers was not recorded.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from converter.contract.codes import FailureCode, RecordingError
from converter.recording.readers.gaps import gaps_between
from converter.recording.signal import Channel, Gap

TIMES_AT_ONCE = 1 << 17
MOST_STRETCHES = 1 << 17
# A step of less, or of more, than these shares of the usual one is no jitter of the clock.
SHORTEST_STEP, LONGEST_STEP = 0.5, 1.5
# By how many samples what is recorded may be off the grid, over a whole recording.
_RATE_DRIFT, _LARGEST_DRIFT = 0.01, 1.0


@dataclass(frozen=True, slots=True)
class Stretch:
    """`count` samples from the stored sample `first` on, at the grid's sample `place`."""

    place: int
    first: int
    count: int

    @property
    def end(self) -> int:
        """The first sample of the grid after it."""
        return self.place + self.count


@dataclass(frozen=True, slots=True)
class Grid:
    """What irregularly stored times come to: `start` in seconds is the time of sample 0."""

    rate: Fraction
    start: float
    stretches: tuple[Stretch, ...]


def parts(stretches: Sequence[Stretch], start: int, stop: int) -> Iterator[tuple[slice, slice]]:
    """Where samples `start:stop` are stored: slices of the asked for, and of the stored.

    `stretches` are in order and do not overlap.
    """
    index = max(0, bisect_right(stretches, start, key=lambda stretch: stretch.place) - 1)
    for stretch in stretches[index:]:
        if stretch.place >= stop:
            return
        first, last = max(start, stretch.place), min(stop, stretch.end)
        if first < last:
            shift = stretch.first - stretch.place
            yield slice(first - start, last - start), slice(first + shift, last + shift)


def simplest_rate(rate: float, n_samples: int) -> Fraction:
    """The simplest fraction whose drift from `rate` stays far below one sample."""
    drift = Fraction(_RATE_DRIFT) / max(n_samples, 1)
    exact = Fraction(rate)
    for power in range(13):
        simple = exact.limit_denominator(10**power)
        if abs(simple / exact - 1) <= drift:
            return simple
    return exact


def grid_of_times(
    name: str, times: Callable[[int, int], NDArray[np.float64]], n_samples: int
) -> Grid:
    """The grid that sample times (seconds, ascending) lie on; `times(first, last)` reads them.

    A step of more than LONGEST_STEP is a gap. Raises NOT_CONTINUOUS on times that go back,
    repeat or drift away from one rate, which no grid can hold; `name` is what errors name.
    """
    head = np.diff(times(0, min(n_samples, TIMES_AT_ONCE)))
    step = float(np.median(head)) if head.size else 0.0
    if not (np.isfinite(step) and step > 0):
        raise _irregular(name, "times that do not ascend")
    starts, begins, ends = _runs(name, times, n_samples, step)
    counts = np.diff([*starts, n_samples])
    seconds = sum(ends) - sum(begins)
    rate = simplest_rate(int((counts - 1).sum()) / seconds, n_samples)
    drift = _drift(times, n_samples, float(rate), np.array(starts), np.array(begins))
    if not drift <= _LARGEST_DRIFT:
        raise _irregular(name, f"times up to {drift:.1f} samples off one rate")
    return Grid(rate, begins[0], _placed(rate, starts, begins, counts))


def _blocks(n_samples: int) -> Iterator[tuple[int, int]]:
    for first in range(0, n_samples, TIMES_AT_ONCE):
        yield first, min(first + TIMES_AT_ONCE, n_samples)


def _runs(
    name: str, times: Callable[[int, int], NDArray[np.float64]], n_samples: int, step: float
) -> tuple[list[int], list[float], list[float]]:
    """The first sample of each run without a gap, and the times of its first and last one."""
    starts, begins, ends = [0], [float(times(0, 1)[0])], []
    for first, last in _blocks(n_samples):
        # One sample from the block before, so that no step is left out.
        block = times(max(first - 1, 0), last)
        steps = np.diff(block)
        if not (steps >= SHORTEST_STEP * step).all():
            raise _irregular(name, "times that repeat, go back or come too early")
        for gap in np.flatnonzero(steps > LONGEST_STEP * step).tolist():
            ends.append(float(block[gap]))
            starts.append(max(first - 1, 0) + gap + 1)
            begins.append(float(block[gap + 1]))
        if len(starts) > MOST_STRETCHES:
            raise _irregular(name, f"more than {MOST_STRETCHES} gaps")
    ends.append(float(times(n_samples - 1, n_samples)[0]))
    return starts, begins, ends


def _drift(
    times: Callable[[int, int], NDArray[np.float64]],
    n_samples: int,
    rate: float,
    starts: NDArray[np.int64],
    begins: NDArray[np.float64],
) -> float:
    """By how many samples a sample is off the grid that its run begins, at most."""
    most = 0.0
    for first, last in _blocks(n_samples):
        samples = np.arange(first, last)
        run = np.searchsorted(starts, samples, "right") - 1
        off = (times(first, last) - begins[run]) * rate - (samples - starts[run])
        most = max(most, float(np.abs(off).max()))
    return most


def _placed(
    rate: Fraction, starts: Sequence[int], begins: Sequence[float], counts: NDArray[np.int64]
) -> tuple[Stretch, ...]:
    stretches: list[Stretch] = []
    end = 0
    for first, begin, count in zip(starts, begins, counts.tolist(), strict=True):
        place = max(end, round((begin - begins[0]) * float(rate)))
        stretches.append(Stretch(place, first, count))
        end = place + count
    return tuple(stretches)


def _irregular(name: str, what: str) -> RecordingError:
    return RecordingError(
        FailureCode.NOT_CONTINUOUS,
        f"{name} has samples at {what}, one sampling rate was expected.",
    )


def common_gaps(stretches: Iterable[Sequence[Stretch]]) -> tuple[Gap, ...]:
    """What no channel's stretches cover, from sample 0 of the grid on."""
    bounds = {(stretch.place, stretch.end) for each in stretches for stretch in each}
    return gaps_between({(0, 0), *bounds})


def with_unrecorded(
    channels: Sequence[Channel],
    stretches: Sequence[Sequence[Stretch]],
    n_samples: int,
    gaps: Sequence[Gap],
) -> tuple[Channel, ...]:
    """Channels that know what they did not record; `stretches` has those of each.

    They share a timeline of `n_samples` with these common gaps.
    """
    recorded = n_samples - sum(stop - start for start, stop in gaps)
    return tuple(
        replace(channel, unrecorded=recorded - sum(stretch.count for stretch in each))
        for channel, each in zip(channels, stretches, strict=True)
    )


def shifted(stretches: Sequence[Stretch], by: int) -> tuple[Stretch, ...]:
    """The same stretches, later on the grid."""
    return tuple(Stretch(s.place + by, s.first, s.count) for s in stretches)
