"""Recorded stretches and the gaps between them, on one grid of samples.

Time in a store is what events' onsets mean: the time of the file. Where nothing was recorded
the file's own timeline has a gap, in the store samples of a physical 0. Formats that join their
pieces and count samples across the joints (BrainVision) have none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate

import numpy as np

from converter.contract.codes import FailureCode, RecordingError
from converter.recording.signal import Gap

_LONGEST = 100  # times the recorded samples


def check_gaps(name: str, n_samples: int, n_recorded: int) -> None:
    """RecordingError when a timeline of `n_samples` is almost all gap.

    Gaps are written out as zeros, so a header could claim any size with a single number.
    """
    if n_samples > _LONGEST * n_recorded:
        raise RecordingError(
            FailureCode.FILE_READ_ERROR,
            f"{name} spreads {n_recorded} recorded samples over {n_samples}, expected at most "
            f"{_LONGEST} times as many.",
        )


def gaps_between(stretches: Iterable[tuple[int, int]]) -> tuple[Gap, ...]:
    """What no stretch covers, given by its bounds, from the start of the first one on."""
    gaps = []
    end: int | None = None
    for start, stop in sorted(stretches):
        if end is not None and start > end:
            gaps.append((end, start))
        end = stop if end is None else max(end, stop)
    return tuple(gaps)


class Timeline:
    """Where on the timeline `n_recorded` samples lie that have `gaps` in between.

    Gaps are bounds on the timeline, in order, none empty and none overlapping another.
    """

    def __init__(self, n_recorded: int, gaps: Sequence[Gap]) -> None:
        self.gaps = tuple(gaps)
        lengths = [stop - start for start, stop in gaps]
        self.n_samples = n_recorded + sum(lengths)
        # Stretch k begins at `_starts[k]` and ends at `_ends[k]`, after `_before[k]` gap samples.
        self._starts = np.array([0, *(stop for _, stop in gaps)], np.int64)
        self._ends = np.array([*(start for start, _ in gaps), self.n_samples], np.int64)
        self._before = np.array(list(accumulate(lengths, initial=0)), np.int64)

    def recorded(self, start: int, stop: int) -> Iterator[tuple[int, int, int]]:
        """What was recorded of `start:stop` on the timeline.

        Gives, stretch by stretch, the place after `start` and the bounds among the recorded
        samples.
        """
        at = int(np.searchsorted(self._ends, start, "right"))
        while at < len(self._ends) and self._starts[at] < stop:
            first, last = max(start, int(self._starts[at])), min(stop, int(self._ends[at]))
            if first < last:
                before = int(self._before[at])
                yield first - start, first - before, last - before
            at += 1
