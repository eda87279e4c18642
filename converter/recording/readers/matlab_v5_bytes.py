"""The bytes of a variable in a MATLAB file of version 5 to 7, and matrices read out of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol, cast

import numpy as np
from isal import isal_zlib
from numpy.typing import NDArray

from converter.contract.codes import FailureCode, RecordingError
from converter.recording.readers.binary import (
    MultiplexedFile,
    SampleFile,
    Scratch,
    native_order,
)
from converter.recording.readers.claims import UNPACKED_FREELY, check_unpacked

INFLATED_PIECE = 1 << 20
_INFLATE_ERROR = cast(type[Exception], isal_zlib.error)


def damaged(name: str) -> RecordingError:
    """What to raise of a file whose elements make no sense."""
    return RecordingError(
        FailureCode.CORRUPT_OR_TRUNCATED,
        f"{name} ends early or its MATLAB data elements contradict each other.",
    )


class Stream(Protocol):
    """Bytes of one variable, read forward only."""

    position: int

    def read(self, count: int) -> bytes:
        """The next `count` bytes."""
        ...

    def skip(self, count: int) -> None:
        """Leave out `count` bytes."""
        ...


class Plain:
    """Bytes of the file itself."""

    def __init__(self, file: SampleFile, position: int) -> None:
        self._file = file
        self.position = position

    def read(self, count: int) -> bytes:
        """See Stream."""
        data = self._file.bytes(self.position, count) if count else b""
        if len(data) < count:
            raise damaged(self._file.name)
        self.position += count
        return data

    def skip(self, count: int) -> None:
        """See Stream."""
        self.position += count


class Inflated:
    """Bytes of a deflated variable."""

    def __init__(self, file: SampleFile, offset: int, size: int) -> None:
        self._file = file
        self._next, self._end = offset, offset + size
        self._size = size
        self._inflate = isal_zlib.decompressobj()
        self._pending = b""
        self._used = 0  # bytes of `_pending` that were handed out
        self.position = 0

    def pieces(self, count: int) -> Iterator[bytes]:
        """The next `count` bytes in pieces."""
        while count:
            if self._used == len(self._pending):
                self._pending, self._used = self._more(), 0
            if self.position > UNPACKED_FREELY:
                check_unpacked(self._file.name, self._size, self.position)
            piece = self._pending[self._used : self._used + count]
            self._used += len(piece)
            count -= len(piece)
            self.position += len(piece)
            yield piece

    def _more(self) -> bytes:
        inflated = b""
        while not inflated:
            packed = self._inflate.unconsumed_tail
            if not packed and not self._inflate.eof:
                packed = self._file.bytes(self._next, min(1 << 16, self._end - self._next))
                self._next += len(packed)
            if not packed:
                raise damaged(self._file.name)
            try:
                inflated = self._inflate.decompress(packed, INFLATED_PIECE)
            except _INFLATE_ERROR as error:
                raise damaged(self._file.name) from error
        return inflated

    def read(self, count: int) -> bytes:
        """See Stream."""
        return b"".join(self.pieces(count))

    def fill(self, target: NDArray[np.uint8]) -> None:
        """The next bytes, as many as the target takes."""
        at = 0
        for piece in self.pieces(len(target)):
            target[at : at + len(piece)] = np.frombuffer(piece, np.uint8)
            at += len(piece)

    def skip(self, count: int) -> None:
        """See Stream."""
        for _ in self.pieces(count):
            pass


class ArraySamples:
    """A matrix in memory, (n_rows, n_columns), column after column, in its stored type."""

    granule = 1

    def __init__(self, array: NDArray[Any]) -> None:
        self.shape: tuple[int, ...] = array.shape
        self._array = array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """Columns `start:stop`."""
        return self._array[:, start:stop]


class InflatedSamples:
    """A matrix that is inflated as it is read, from its start to its end.

    To go back costs inflating it anew.
    """

    granule = 1

    def __init__(
        self, stream: Callable[[], Inflated], position: int, dtype: str, shape: tuple[int, ...]
    ) -> None:
        self.shape = shape
        self._new_stream, self._position = stream, position
        self._stream: Inflated | None = None
        self._next = 0  # the column that the stream is at
        self._columns = Scratch(dtype)

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """Columns `start:stop`."""
        if self._stream is None or start < self._next:
            self._stream, self._next = self._new_stream(), 0
            self._stream.skip(self._position)
        columns = self._columns.array(stop - start, self.shape[0])
        self._stream.skip((start - self._next) * self.shape[0] * columns.itemsize)
        self._stream.fill(columns.reshape(-1).view(np.uint8))
        self._next = stop
        return native_order(columns).T


class FileSamples:
    """A matrix that lies in the file as it is, read column by column."""

    granule = 1

    def __init__(self, file: SampleFile, position: int, dtype: str, shape: tuple[int, ...]) -> None:
        self.shape = shape
        self._frames = MultiplexedFile(file, dtype, shape[0], position)

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """Columns `start:stop`."""
        return self._frames.read(start, stop)
