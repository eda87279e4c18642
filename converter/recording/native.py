"""A channel group at its native rate, read once from its start to its end."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from .baseline import Baseline
from .quantise import Float32
from .sidecars.channels import PlannedChannel
from .signal import SignalSource


class NativeSignal:
    """The samples of group `index` of a source, relative to their baseline.

    `nonfinite` counts, a channel, what had to be filled so far. Memory is what one window
    needs, rounded up to the source's granule.
    """

    def __init__(
        self, source: SignalSource, index: int, channels: Sequence[PlannedChannel]
    ) -> None:
        self._source, self._index = source, index
        self._group = source.groups[index]
        self.nonfinite: NDArray[np.int64] = np.zeros(len(channels), np.int64)
        raw = source.read(index, 0, 1)
        self.baseline = Baseline(self._group.channels, channels, raw[:, 0])
        # The samples base:received.
        self._held: Float32 = np.empty((len(channels), 0), np.float32)
        self._base = self._received = 0

    def window(self, start: int, stop: int) -> Float32:
        """Samples `start:stop` (n_channels, n), for reading only.

        Neither bound may go down from one call to the next, nor may windows leave a gap.
        """
        if stop > self._received:
            granule = self._group.granule
            self._read(start, min(-(-stop // granule) * granule, self._group.n_samples))
        return self._held[:, start - self._base : stop - self._base]

    def _read(self, start: int, stop: int) -> None:
        """Hold the samples `start:stop`, of which those from `received` on are read."""
        kept = self._held[:, start - self._base :]
        raw = self._source.read(self._index, self._received, stop)
        self._held = np.empty((len(kept), stop - start), np.float32)
        self._held[:, : kept.shape[1]] = kept
        filled = self.baseline.relative(raw, self._held[:, kept.shape[1] :])
        if filled is not None:
            self.nonfinite += filled.sum(axis=1)
        self._base, self._received = start, stop
