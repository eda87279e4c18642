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

    `nonfinite` counts, a channel, what had to be filled so far. Memory is what one window
    needs, rounded up to the source's granule.
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
        raw = self._read(1)
        self.baseline = Baseline(self._group.channels, channels, raw[:, 0])
        self._hold(0, raw)

    def window(self, start: int, stop: int) -> Float32:
        """Samples `start:stop` as a block, for reading only.

        Neither bound may go down from one call to the next, nor may windows leave a gap.
        """
        if stop > self._received:
            self._hold(start, self._read(stop))
        return self._held[:, start - self._base : stop - self._base]

    def _read(self, stop: int) -> NDArray[Any]:
        """The next raw samples, whole granules, up to `stop` or beyond."""
        stop = -(-stop // self._group.granule) * self._group.granule
        return self._source.read(self._index, self._received, min(stop, self._group.n_samples))

    def _hold(self, start: int, raw: NDArray[Any]) -> None:
        """Hold the samples from `start` on, the new ones among them, and no others."""
        kept = self._held[:, start - self._base :]
        width = kept.shape[1]
        self._held = empty_block(self._n_channels, width + raw.shape[1])
        self._held[:, :width] = kept
        new = self._held[:, width:]
        filled = self.baseline.relative(raw, new)
        for gap in self._gaps(raw.shape[1]):
            self.baseline.fill(new[:, gap])
            if filled is not None:
                filled[:, gap] = False
        if filled is not None:
            self.nonfinite += filled.sum(axis=1).reshape(-1)[: self._n_channels]
        self._base, self._received = start, self._received + raw.shape[1]

    def _gaps(self, n: int) -> Iterator[slice]:
        """Gaps among the `n` samples that follow those received, counted from there."""
        gaps, first, last = self._group.gaps, self._received, self._received + n
        for start, stop in gaps[bisect_right(gaps, first, key=_end) :]:
            if start >= last:
                break
            yield slice(max(start - first, 0), min(stop - first, n))


def _end(gap: Gap) -> int:
    return gap[1]
