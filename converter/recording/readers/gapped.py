"""Stretches of a recording with pauses between them, on one timeline."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from converter.recording.readers.binary import SampleMatrix
from converter.recording.readers.gaps import gaps_between
from converter.recording.signal import Gap


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
