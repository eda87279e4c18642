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
from converter.recording.readers.claims import damaged

MOST_HEADER_BYTES = 16 << 20  # thousands of channels, and comments of a month, take a few
PIECE_BYTES = 1 << 19  # a piece and its transpose stay in the caches of one core
WINDOW_BYTES = 16 << 20  # of a file that has channel after channel, read at a time


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

    def __enter__(self) -> SampleFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

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


def header_bytes(path: Path) -> bytes:
    """All of a header that is a text file; CORRUPT_OR_TRUNCATED for more than one can have."""
    with SampleFile(path) as file:
        raw = file.bytes(0, MOST_HEADER_BYTES + 1)
    if len(raw) > MOST_HEADER_BYTES:
        raise damaged(path.name, f"has {file.size} bytes, more than any header")
    return raw


class Scratch:
    """Memory that is kept from call to call and grows to the largest array asked for."""

    def __init__(self, dtype: DTypeLike) -> None:
        self.dtype = np.dtype(dtype)
        self._memory: NDArray[Any] = np.empty(0, dtype)

    def array(self, *shape: int) -> NDArray[Any]:
        """An uninitialised C-contiguous array; the next call may hand out the same memory."""
        size = math.prod(shape)
        if size > self._memory.size:
            self._memory = np.empty(size, self.dtype)
        return self._memory[:size].reshape(shape)


def check_bounds(start: int, stop: int, n_samples: int) -> None:
    """Raise ValueError unless 0 <= start <= stop <= n_samples."""
    if not 0 <= start <= stop <= n_samples:
        raise ValueError(f"samples {start}:{stop} asked for, of 0:{n_samples}")


def native_order(stored: NDArray[Any]) -> NDArray[Any]:
    """The samples in the machine's byte order, swapped where they are."""
    if stored.dtype.isnative:
        return stored
    return stored.byteswap(inplace=True).view(stored.dtype.newbyteorder("="))


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
        self._n_channels = n_channels
        self._frames = Scratch(dtype)

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """Samples `start:stop` as (n_channels, stop - start), as frames lie in the file."""
        frames = self._frames.array(stop - start, self._n_channels)
        position = start * self._n_channels * frames.itemsize
        self._file.fill(frames.reshape(-1).view(np.uint8), self._offset + position)
        return native_order(frames).T

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class BlockedFile:
    """Blocks of `block` samples of each channel, one after the other, from byte `offset` on."""

    def __init__(
        self, file: SampleFile, dtype: DTypeLike, n_channels: int, block: int, offset: int = 0
    ) -> None:
        self._file = file
        self._offset = offset
        self._stored = np.dtype(dtype)
        self._n_channels = n_channels
        self._block = block
        self._buffer = Scratch(np.uint8)
        self._out = Scratch(self._stored.newbyteorder("="))

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """Samples `start:stop` as (n_channels, stop - start) in the file's own type."""
        block, n_channels = self._block, self._n_channels
        first, last = start // block, -(-stop // block)
        out = self._out.array(n_channels, (last - first) * block)
        size = block * n_channels * self._stored.itemsize
        step = max(1, PIECE_BYTES // size)
        for at in range(first, last, step):
            count = min(step, last - at)
            raw = self._buffer.array(count * size)
            self._file.fill(raw, self._offset + at * size)
            blocks = raw.view(self._stored).reshape(count, n_channels, block)
            rows = out[:, (at - first) * block : (at - first + count) * block]
            rows.reshape(n_channels, count, block)[...] = blocks.transpose(1, 0, 2)
        return out[:, start - first * block : stop - first * block]

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class VectorizedFile:
    """All samples of one channel, then all of the next, from byte `offset` on.

    Blocks are served out of a window of WINDOW_BYTES, so that the file is read in long
    pieces whatever is asked for.
    """

    def __init__(
        self,
        file: SampleFile,
        dtype: DTypeLike,
        n_channels: int,
        n_samples: int,
        offset: int = 0,
    ) -> None:
        self._file = file
        self._offset = offset
        self._stored = np.dtype(dtype)
        self._n_channels = n_channels
        self._n_samples = n_samples
        self._memory = Scratch(self._stored)
        self._window: NDArray[Any] = np.empty((n_channels, 0), self._stored)
        self._start = 0  # of the window

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """Samples `start:stop` as (n_channels, stop - start) in the file's own type."""
        block = self.stored(start, stop)
        return block if self._stored.isnative else block.astype(self._stored.newbyteorder("="))

    def stored(self, start: int, stop: int) -> NDArray[Any]:
        """The same in the file's byte order."""
        if start < self._start or stop > self._start + self._window.shape[1]:
            self._fill(start, stop)
        return self._window[:, start - self._start : stop - self._start]

    def _fill(self, start: int, stop: int) -> None:
        """Read a window from `start` on."""
        width = self._stored.itemsize
        length = max(stop - start, WINDOW_BYTES // (width * self._n_channels))
        length = min(length, self._n_samples - start)
        self._window = self._memory.array(self._n_channels, length)
        self._start = start
        if self._window.size:
            for channel, row in enumerate(self._window):
                position = (channel * self._n_samples + start) * width
                self._file.fill(row.view(np.uint8), self._offset + position)

    def close(self) -> None:
        """Close the file."""
        self._file.close()
