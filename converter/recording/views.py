"""The view pyramid: exact minimum and maximum envelopes of level 0."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Int16 = NDArray[np.int16]

DOWNSAMPLE = 4
SMALLEST_PYRAMID_BASE = 512
MAX_LEVELS = 12
CHUNK_COLUMNS = 1024


def level_lengths(n_samples: int) -> list[int]:
    """Columns of view levels 1, 2, ...; a reader derives the same from n_samples alone."""
    lengths: list[int] = []
    below = n_samples
    while below > SMALLEST_PYRAMID_BASE and len(lengths) < MAX_LEVELS:
        below //= DOWNSAMPLE
        lengths.append(below)
    return lengths


class _Level:
    """Folds four columns of the level below into one; what is left at the end joins the last."""

    def __init__(self, n_channels: int) -> None:
        self._rest: Int16 = np.empty((2, n_channels, 0), np.int16)
        self._held: Int16 | None = None

    def push(self, columns: Int16) -> Int16:
        """Take (2, n_channels, n) columns; return those of this level that are final."""
        columns = np.concatenate([self._rest, columns], axis=2) if self._rest.size else columns
        whole = columns.shape[2] // DOWNSAMPLE * DOWNSAMPLE
        self._rest = columns[:, :, whole:].copy()
        if not whole:
            return columns[:, :, :0]
        folded = fold(columns[:, :, :whole])
        done = folded if self._held is None else np.concatenate([self._held, folded], axis=2)
        self._held = done[:, :, -1:].copy()
        return done[:, :, :-1]

    def finish(self) -> Int16:
        """The last column, with the samples beyond the last full bin in it."""
        assert self._held is not None, "a level is built over more than 512 columns"
        tail = np.concatenate([self._held, self._rest], axis=2)
        return np.stack([tail[0].min(axis=1), tail[1].max(axis=1)])[:, :, None]


def fold(columns: Int16) -> Int16:
    """(2, n_channels, 4 n) -> (2, n_channels, n): minimum of minima, maximum of maxima."""
    low, high = columns[0], columns[1]
    return np.stack(
        [
            np.minimum(
                np.minimum(low[:, 0::4], low[:, 1::4]), np.minimum(low[:, 2::4], low[:, 3::4])
            ),
            np.maximum(
                np.maximum(high[:, 0::4], high[:, 1::4]),
                np.maximum(high[:, 2::4], high[:, 3::4]),
            ),
        ]
    )


class Pyramid:
    """All view levels of one group, built while level 0 passes by.

    `write(level, chunk_index, chunk)` gets each finished chunk (2, n_channels, columns).
    """

    def __init__(
        self, n_channels: int, n_samples: int, write: Callable[[int, int, Int16], None]
    ) -> None:
        self.lengths = level_lengths(n_samples)
        self._levels = [_Level(n_channels) for _ in self.lengths]
        self._chunks = [
            _ChunkBuffer(level, n_channels, length, write)
            for level, length in enumerate(self.lengths, start=1)
        ]

    def push(self, digital: Int16) -> None:
        """Take the next level-0 codes (n_channels, n)."""
        self._cascade(0, np.broadcast_to(digital, (2, *digital.shape)))

    def _cascade(self, first: int, columns: Int16) -> None:
        for level, chunks in zip(self._levels[first:], self._chunks[first:], strict=True):
            columns = level.push(columns)
            chunks.push(columns)

    def finish(self) -> None:
        """Write what is still held."""
        for index, (level, chunks) in enumerate(zip(self._levels, self._chunks, strict=True)):
            last = level.finish()
            chunks.push(last)
            chunks.flush()
            self._cascade(index + 1, last)


class _ChunkBuffer:
    """Gathers columns into chunks of one level."""

    def __init__(
        self, level: int, n_channels: int, length: int, write: Callable[[int, int, Int16], None]
    ) -> None:
        self._level, self._write = level, write
        self._buffer = np.zeros((2, n_channels, chunk_columns(length)), np.int16)
        self._filled = self._index = 0

    def push(self, columns: Int16) -> None:
        """Add columns; write each chunk that is full."""
        size = self._buffer.shape[2]
        while columns.shape[2]:
            part = columns[:, :, : size - self._filled]
            self._buffer[:, :, self._filled : self._filled + part.shape[2]] = part
            self._filled += part.shape[2]
            columns = columns[:, :, part.shape[2] :]
            if self._filled == size:
                self.flush()

    def flush(self) -> None:
        """Write what is there, padded with zeros to a whole chunk."""
        if self._filled:
            self._buffer[:, :, self._filled :] = 0
            self._write(self._level, self._index, self._buffer)
            self._index += 1
            self._filled = 0


def chunk_columns(length: int) -> int:
    """Columns of a chunk of a level with `length` columns."""
    return min(CHUNK_COLUMNS, length)
