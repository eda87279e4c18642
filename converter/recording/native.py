"""A channel group at its native rate, read once from its start to its end."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .baseline import Baseline
from .passes import Float32, empty_block
from .sidecars.channels import PlannedChannel
from .signal import Gap, SignalSource


class NativeSignal:
    """The samples of group `index` of a source, relative to their baseline, in blocks.

    `nonfinite` counts, a channel, what had to be filled so far. Memory is one window, and as raw
    samples what the source gives beyond it, up to its granule.
    """

    def __init__(
        self, source: SignalSource, index: int, channels: Sequence[PlannedChannel]
    ) -> None:
        self._source, self._index = source, index
        self._group = source.groups[index]
        self.nonfinite: NDArray[np.int64] = np.zeros(len(channels), np.int64)
        self._n_channels = len(channels)
        self._held = empty_block(self._n_channels, 0)
        self._base = self._received = 0  # the samples base:received are held
        self._raw = self._read(1)  # what was read and is not held yet
        self.baseline = Baseline(self._group.channels, channels, self._raw[:, 0])

    def window(self, start: int, stop: int) -> Float32:
        """Samples `start:stop` as a block, for reading only.

        Neither bound may go down from one call to the next, nor may windows leave a gap.
        """
        if stop > self._received:
            self._hold(start, stop)
        return self._held[:, start - self._base : stop - self._base]

    def _hold(self, start: int, stop: int) -> None:
        """Hold the samples `start:stop`, the new ones among them, and no others."""
        kept = self._held[:, start - self._base :]
        self._held = empty_block(self._n_channels, stop - start)
        self._held[:, : kept.shape[1]] = kept
        self._base = start
        while self._received < stop:
            if not self._raw.shape[1]:
                self._raw = self._read(stop)
            missing = stop - self._received
            raw, self._raw = self._raw[:, :missing], self._raw[:, missing:]
            at = self._received - start
            self._put(raw, self._held[:, at : at + raw.shape[1]])
            self._received += raw.shape[1]

    def _read(self, stop: int) -> NDArray[Any]:
        """The next raw samples, whole granules, up to `stop` or beyond."""
        stop = -(-stop // self._group.granule) * self._group.granule
        return self._source.read(self._index, self._received, min(stop, self._group.n_samples))

    def _put(self, raw: NDArray[Any], block: Float32) -> None:
        """Put the next raw samples into a block, gaps and what is no number as physical 0."""
        filled = self.baseline.relative(raw, block)
        for gap in self._gaps(raw.shape[1]):
            self.baseline.fill(block[:, gap])
            if filled is not None:
                filled[:, gap] = False
        if filled is not None:
            self.nonfinite += filled.sum(axis=1).reshape(-1)[: self._n_channels]

    def _gaps(self, n: int) -> Iterator[slice]:
        """Gaps among the `n` samples that follow those received, counted from there."""
        gaps, first, last = self._group.gaps, self._received, self._received + n
        for start, stop in gaps[bisect_right(gaps, first, key=_end) :]:
            if start >= last:
                break
            yield slice(max(start - first, 0), min(stop - first, n))


def _end(gap: Gap) -> int:
    return gap[1]
