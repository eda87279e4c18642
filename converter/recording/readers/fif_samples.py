"""The samples of FIF files, read straight from their data buffers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from converter.recording.readers.binary import SampleFile, Scratch, native_order
from converter.recording.readers.fif_tags import FifOutline

# FIFF types of real samples, all big-endian.
_TYPES = {2: ">i2", 3: ">i4", 4: ">f4", 5: ">f8", 16: ">i2"}


class FifSamples:
    """Frames in the buffers of one file after the other, `n_samples` a channel in all.

    Memory: the block returned.
    """

    def __init__(
        self, paths: Sequence[Path], outlines: Sequence[FifOutline], coding: int, n_channels: int
    ) -> None:
        stored = np.dtype(_TYPES[coding])
        self._frame = stored.itemsize * n_channels
        self._n_channels = n_channels
        self._buffers = [
            (number, buffer.position)
            for number, outline in enumerate(outlines)
            for buffer in outline.buffers
        ]
        sizes = [buffer.size for outline in outlines for buffer in outline.buffers]
        lengths = np.array(sizes, np.int64) // self._frame
        self._bounds = np.concatenate([[0], np.cumsum(lengths)])
        self.n_samples = int(self._bounds[-1])
        self._frames = Scratch(stored)
        self._files: list[SampleFile] = []
        try:
            for path in paths:
                self._files.append(SampleFile(path))
        except BaseException:
            self.close()
            raise

    @classmethod
    def of(
        cls, paths: Sequence[Path], outlines: Sequence[FifOutline], n_channels: int
    ) -> FifSamples | None:
        """The samples of a chain of files, None where they don't simply follow one another."""
        if n_channels == 0 or any(outline.skips for outline in outlines):
            return None
        codings = {buffer.coding for outline in outlines for buffer in outline.buffers}
        if len(codings) != 1 or not codings <= _TYPES.keys():
            return None
        return cls(paths, outlines, codings.pop(), n_channels)

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """Samples `start:stop` as (n_channels, stop - start), as stored, uncalibrated."""
        frames = self._frames.array(stop - start, self._n_channels)
        at = start
        while at < stop:
            index = int(np.searchsorted(self._bounds, at, "right")) - 1
            first, end = int(self._bounds[index]), int(self._bounds[index + 1])
            until = min(end, stop)
            number, position = self._buffers[index]
            stored = frames[at - start : until - start].reshape(-1).view(np.uint8)
            self._files[number].fill(stored, position + (at - first) * self._frame)
            at = until
        return native_order(frames).T

    def close(self) -> None:
        """Close the files; closing twice is harmless."""
        for file in self._files:
            file.close()
