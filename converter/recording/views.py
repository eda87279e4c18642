"""The view pyramid: exact minimum and maximum envelopes of level 0."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from . import passes
from .passes import Int16

DOWNSAMPLE = passes.FOLDED
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


def chunk_columns(length: int) -> int:
    """Columns of a chunk of a level with `length` columns."""
    return min(CHUNK_COLUMNS, length)


@dataclass(frozen=True, slots=True)
class ViewChunk:
    """A finished chunk of a level: (2, n_channels, columns), zeros beyond the level's end."""

    level: int
    index: int
    columns: Int16


class Pyramid:
    """All view levels of one group, built while level 0 passes by.

    A level is folded from whole chunks of the level below, so most of the work is done on
    level 0 as it comes.
    """

    def __init__(self, n_channels: int, n_samples: int) -> None:
        self.lengths = level_lengths(n_samples)
        self._levels = [_Level(n_channels, length) for length in self.lengths]

    def push(self, digital: Int16) -> Iterator[ViewChunk]:
        """Take the next level-0 codes (n_channels, n); give the chunks that they complete."""
        return self._push(1, digital[None])

    def _push(self, number: int, columns: Int16) -> Iterator[ViewChunk]:
        if number > len(self._levels):
            return
        level = self._levels[number - 1]
        for chunk in level.push(columns):
            yield ViewChunk(number, level.index - 1, chunk)
            yield from self._push(number + 1, chunk)

    def finish(self) -> Iterator[ViewChunk]:
        """Give the last chunk of each level."""
        for number, level in enumerate(self._levels, start=1):
            chunk, filled = level.finish()
            yield ViewChunk(number, level.index, chunk)
            yield from self._push(number + 1, chunk[:, :, :filled])


class _Level:
    """Folds four columns of the level below into one, and gathers its columns into chunks.

    The last chunk is held to the end: what is left there of the level below joins its last
    column.
    """

    def __init__(self, n_channels: int, length: int) -> None:
        self._rest: Int16 = np.empty((1, n_channels, 0), np.int16)
        self._size = chunk_columns(length)
        self._last = (length - 1) // self._size
        self._buffer: Int16 = np.zeros((2, n_channels, self._size), np.int16)
        self._filled = 0
        self.index = 0  # of the chunk that is being filled

    def push(self, columns: Int16) -> Iterator[Int16]:
        """Take columns of the level below as `fold` does; give the chunks that they complete."""
        if self._rest.size:
            columns = np.concatenate([self._rest, columns], axis=2)
        whole = columns.shape[2] // DOWNSAMPLE
        self._rest = columns[:, :, whole * DOWNSAMPLE :].copy()
        at = 0
        while at < whole:
            n = min(whole - at, self._size - self._filled)
            part = columns[:, :, at * DOWNSAMPLE : (at + n) * DOWNSAMPLE]
            fold(part, self._buffer[:, :, self._filled : self._filled + n])
            self._filled += n
            at += n
            if self._filled == self._size and self.index < self._last:
                full, self._buffer = self._buffer, np.zeros_like(self._buffer)
                self._filled = 0
                self.index += 1
                yield full

    def finish(self) -> tuple[Int16, int]:
        """The last chunk, and how many of its columns the level has."""
        low, high = self._buffer[:, :, self._filled - 1]
        for at in range(self._rest.shape[2]):
            np.minimum(low, self._rest[0, :, at], out=low)
            np.maximum(high, self._rest[-1, :, at], out=high)
        return self._buffer, self._filled


def fold(columns: Int16, out: Int16) -> None:
    """(k, n_channels, 4 n) into (2, n_channels, n): minimum of minima, maximum of maxima.

    The first of the k rows holds minima, the last one maxima; level 0 is both, with k = 1.
    """
    passes.fold(columns[0], columns[-1], out)
