"""Where the blocks of a MEF 3 channel lie on the timeline of the session."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from converter.contract.codes import FailureCode, RecordingError
from converter.recording.readers.gapped import EARLY, LATE
from converter.recording.readers.timeline import MOST_STRETCHES, Stretch

SECOND = 10**6  # times are in microseconds
_DISCONTINUITY = 1  # flag of a block
_FEW_BLOCKS = 64  # to look at where the next may begin a stretch


class Timeline:
    """Where a channel's blocks lie in time, as they are added in the order of the file.

    A block begins a stretch where its time is half a sample or more behind the end of the one
    before, if it is flagged as a discontinuity or begins a segment. Times of other blocks are as
    good as the clock of a computer: a second has to be missing, since the block before or since
    the stretch began, and LATE of that.
    """

    def __init__(self, label: str, rate: Fraction) -> None:
        self._label, self._rate = label, float(rate)
        self.start: int | None = None  # in microseconds
        self.stretches: list[Stretch] = []
        self.n_samples = 0
        self._expected = 0.0  # the time of the next block

    def add(self, entries: NDArray[np.void], *, is_segment: bool) -> None:
        """Add blocks by their entries of an index, the first of a segment or more of them."""
        # Below 0 where the time of the recording was made relative to a secret one.
        times = np.abs(entries["time"])
        counts = entries["n_samples"].astype(np.int64)
        lasts = times + counts * (SECOND / self._rate)
        jumps = times - np.concatenate([[self._expected], lasts[:-1]])
        begins = (entries["flags"] & _DISCONTINUITY > 0) | (np.abs(jumps) > SECOND)
        begins[0] |= is_segment
        self._expected = float(lasts[-1])
        self.start = int(times[0]) if self.start is None else self.start
        clock = (times - self.start) * (self._rate / SECOND)
        stored = self.n_samples + np.concatenate([[0], np.cumsum(counts)])
        told = [*np.flatnonzero(begins).tolist(), len(entries)]
        at = 0
        for first in told:
            while at < first:
                end = at + self._agreeing(clock[at:first], stored[at:first])
                self._extend(int(stored[end] - stored[at]))
                at = end
                if end < first:
                    self._begin(float(clock[end]), int(counts[end]))
                    at += 1
            if first < len(entries):
                self._begin(float(clock[first]), int(counts[first]))
                at = first + 1

    def _agreeing(self, clock: NDArray[np.float64], stored: NDArray[np.int64]) -> int:
        """How many of the blocks that go on a stretch lie where their time says.

        `clock` and `stored` are those of their first samples.
        """
        stretch = self.stretches[-1]
        first, width = 0, _FEW_BLOCKS
        while first < len(clock):
            places = stored[first : first + width] + (stretch.place - stretch.first)
            ahead = clock[first : first + width] - places
            since = places - stretch.place
            late = ahead > self._rate + float(LATE) * since
            early = ahead < -self._rate - 1 - float(EARLY) * since
            if (off := np.flatnonzero(late | early)).size:
                return first + int(off[0])
            first, width = first + width, 2 * width
        return len(clock)

    def _extend(self, count: int) -> None:
        if count:
            last = self.stretches[-1]
            self.stretches[-1] = Stretch(last.place, last.first, last.count + count)
            self.n_samples += count

    def _begin(self, place: float, count: int) -> None:
        """Add a block of `count` samples where its time says."""
        last = self.stretches[-1] if self.stretches else Stretch(0, 0, 0)
        end = last.end
        if place < end - self._rate - 1 - float(EARLY) * last.count:
            raise RecordingError(
                FailureCode.CORRUPT_OR_TRUNCATED,
                f"{self._label}: a block begins {(end - place) / self._rate:.3f} s before the end "
                "of the one before it.",
            )
        if not self.stretches or place - end >= 0.5:
            self.stretches.append(Stretch(round(place), self.n_samples, 0))
        if len(self.stretches) > MOST_STRETCHES:
            raise RecordingError(
                FailureCode.NOT_CONTINUOUS,
                f"{self._label}: more than {MOST_STRETCHES} gaps, one recording was expected.",
            )
        self._extend(count)
