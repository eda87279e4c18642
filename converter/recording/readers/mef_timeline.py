"""Where the blocks of a MEF 3 channel lie on the timeline of the session."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from converter.contract.codes import FailureCode, RecordingError
from converter.recording.readers.timeline import MOST_STRETCHES, Stretch

SECOND = 10**6  # times are in microseconds
_DISCONTINUITY = 1  # flag of a block


class Timeline:
    """Where a channel's blocks lie in time, as they are added in the order of the file.

    A block begins a stretch where its time is half a sample or more behind the end of the one
    before, if it is flagged as a discontinuity or begins a segment. Times of other blocks are as
    good as the clock of a computer: a second has to be missing.
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
        bounds = [*np.flatnonzero(begins).tolist(), len(entries)]
        self._extend(int(counts[: bounds[0]].sum()))
        for first, last in itertools.pairwise(bounds):
            self._begin(int(times[first]))
            self._extend(int(counts[first:last].sum()))

    def _extend(self, count: int) -> None:
        if count:
            last = self.stretches[-1]
            self.stretches[-1] = Stretch(last.place, last.first, last.count + count)
            self.n_samples += count

    def _begin(self, time: int) -> None:
        if self.start is None:
            self.start = time
        place = (time - self.start) * self._rate / SECOND
        end = self.stretches[-1].end if self.stretches else 0
        if place < end - self._rate - 1:
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
