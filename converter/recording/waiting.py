"""The served signal between its two passes: in memory where it is short, else in a file."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Final

import numpy as np

from .passes import Float32

IN_MEMORY: Final = 96 << 20
"""Bytes of a signal that is kept in memory: twenty-five minutes of 64 channels at 250 Hz."""


class WaitingSignal:
    """Takes the pieces (n_channels, n) of a signal of `n_values`, then gives them back, once.

    What does not stay in memory goes to a file in `folder`, which has no name there. A piece is
    not to be written to after it was put.
    """

    def __init__(self, n_values: int, folder: Path) -> None:
        self._pieces: deque[Float32] = deque()
        self._shapes: deque[tuple[int, ...]] = deque()  # of pieces that are in the file
        in_memory = n_values * np.dtype(np.float32).itemsize <= IN_MEMORY
        self._file: IO[bytes] | None = None if in_memory else TemporaryFile(dir=folder)

    def put(self, piece: Float32) -> None:
        """Take the next piece. Raises OSError for a full disk."""
        if self._file is None:
            self._pieces.append(piece)
        else:
            self._file.write(np.ascontiguousarray(piece).data)
            self._shapes.append(piece.shape)

    def take(self) -> Iterator[Float32]:
        """The pieces, each forgotten as it is taken."""
        if self._file is None:
            while self._pieces:
                yield self._pieces.popleft()
            return
        self._file.seek(0)
        while self._shapes:
            shape = self._shapes.popleft()
            raw = self._file.read(math.prod(shape) * np.dtype(np.float32).itemsize)
            yield np.frombuffer(raw, np.float32).reshape(shape)

    def close(self) -> None:
        """Forget all."""
        self._pieces.clear()
        if self._file is not None:
            self._file.close()
