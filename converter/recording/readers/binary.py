"""Sample files read by position: whole blocks in one system call, into reused buffers."""

from __future__ import annotations

import math
import os
import stat
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import DTypeLike, NDArray

from converter.contract.codes import FailureCode, RecordingError

PIECE_BYTES = 1 << 18  # a piece and its transpose fit into the cache of one core
FRAMES_PER_TRANSPOSE = 128  # rows of the source that one pass of a transpose touches


class SampleFile:
    """A regular file opened for reading by position.

    Raises RecordingError: CORRUPT_OR_TRUNCATED when it is absent or ends early,
    FILE_READ_ERROR when it is no regular file.
    """

    def __init__(self, path: Path) -> None:
        self.name = path.name
        try:
            self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except FileNotFoundError:
            raise RecordingError(
                FailureCode.CORRUPT_OR_TRUNCATED, f"{path.name} is not there."
            ) from None
        status = os.fstat(self._fd)
        self.size = status.st_size
        if not stat.S_ISREG(status.st_mode):
            self.close()
            raise RecordingError(FailureCode.FILE_READ_ERROR, f"{path.name} is not a regular file.")

    def fill(self, buffer: NDArray[np.uint8], offset: int) -> None:
        """Fill a contiguous `buffer` with the bytes from `offset` on."""
        view, done = buffer.data, 0
        while done < len(view):
            count = os.preadv(self._fd, [view[done:]], offset + done)
            if count == 0:
                raise RecordingError(
                    FailureCode.CORRUPT_OR_TRUNCATED,
                    f"{self.name} ends at byte {offset + done}, "
                    f"{offset + len(view)} bytes were expected.",
                )
            done += count

    def bytes(self, offset: int, count: int) -> bytes:
        """Up to `count` bytes from `offset` on; fewer at the end of the file."""
        return os.pread(self._fd, count, offset)

    def close(self) -> None:
        """Close the file; closing twice is harmless."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class Scratch:
    """Memory that is kept from call to call and grows to the largest array asked for."""

    def __init__(self, dtype: DTypeLike) -> None:
        self._memory: NDArray[Any] = np.empty(0, dtype)

    def array(self, *shape: int) -> NDArray[Any]:
        """An uninitialised C-contiguous array; the next call may hand out the same memory."""
        size = math.prod(shape)
        if size > self._memory.size:
            self._memory = np.empty(size, self._memory.dtype)
        return self._memory[:size].reshape(shape)


def check_bounds(start: int, stop: int, n_samples: int) -> None:
    """Raise ValueError unless 0 <= start <= stop <= n_samples."""
    if not 0 <= start <= stop <= n_samples:
        raise ValueError(f"samples {start}:{stop} asked for, of 0:{n_samples}")


def transpose_into(target: NDArray[Any], frames: NDArray[Any]) -> None:
    """Copy `frames` (n_samples, n_channels) into `target` (n_channels, n_samples)."""
    for row in range(0, len(frames), FRAMES_PER_TRANSPOSE):
        part = frames[row : row + FRAMES_PER_TRANSPOSE]
        target[:, row : row + len(part)] = part.T


class SampleMatrix(Protocol):
    """Samples of channels that share one grid."""

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """Samples `start:stop` as (n_channels, stop - start), valid until the next read."""
        ...

    def close(self) -> None:
        """Let go of the file; closing twice is harmless."""
        ...


class MultiplexedFile:
    """Frames of one sample a channel, one after the other, from byte `offset` on."""

    def __init__(
        self, file: SampleFile, dtype: DTypeLike, n_channels: int, offset: int = 0
    ) -> None:
        self._file = file
        self._offset = offset
        self._stored = np.dtype(dtype)
        self._frame = self._stored.itemsize * n_channels
        self._n_channels = n_channels
        self._buffer = Scratch(np.uint8)
        self._out = Scratch(self._stored.newbyteorder("="))

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """Samples `start:stop` as (n_channels, stop - start) in the file's own type."""
        out = self._out.array(self._n_channels, stop - start)
        step = max(1, PIECE_BYTES // self._frame)
        for first in range(start, stop, step):
            last = min(first + step, stop)
            raw = self._buffer.array((last - first) * self._frame)
            self._file.fill(raw, self._offset + first * self._frame)
            frames = raw.view(self._stored).reshape(last - first, self._n_channels)
            transpose_into(out[:, first - start : last - start], frames)
        return out

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class VectorizedFile:
    """All samples of one channel, then all of the next."""

    def __init__(self, file: SampleFile, dtype: DTypeLike, n_channels: int, n_samples: int) -> None:
        self._file = file
        self._stored = np.dtype(dtype)
        self._n_channels = n_channels
        self._n_samples = n_samples
        self._out = Scratch(self._stored)

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """Samples `start:stop` as (n_channels, stop - start) in the file's own type."""
        out = self._out.array(self._n_channels, stop - start)
        if out.size:
            for channel, row in enumerate(out):
                position = (channel * self._n_samples + start) * self._stored.itemsize
                self._file.fill(row.view(np.uint8), position)
        if not self._stored.isnative:
            return out.astype(self._stored.newbyteorder("="))
        return out

    def close(self) -> None:
        """Close the file."""
        self._file.close()
