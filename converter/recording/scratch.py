"""Where the served signal waits between the two passes over it."""

from __future__ import annotations

import math
from collections import deque
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

import numpy as np
from numpy.typing import NDArray

Float32 = NDArray[np.float32]

IN_MEMORY = 64 << 20  # bytes: most recordings need no file


class Scratch:
    """A queue of float32 arrays: IN_MEMORY bytes are kept as they are, the rest in a file."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._room = IN_MEMORY
        self._file: IO[bytes] | None = None
        self._queue: deque[Float32 | tuple[int, ...]] = deque()  # in the file: its shape

    def append(self, block: Float32) -> None:
        """Add a block, which must not change from here on. All are added before one is taken."""
        if block.nbytes <= self._room:
            self._room -= block.nbytes
            self._queue.append(block)
            return
        if self._file is None:
            self._file = TemporaryFile(dir=self._folder)
        self._file.write(np.ascontiguousarray(block).data)
        self._queue.append(block.shape)

    def rewind(self) -> None:
        """Begin to take."""
        if self._file is not None:
            self._file.seek(0)

    def take(self) -> Float32:
        """The next block, in the order in which they were added."""
        next_one = self._queue.popleft()
        if not isinstance(next_one, tuple):
            return next_one
        assert self._file is not None
        size = 4 * math.prod(next_one)
        return np.frombuffer(self._file.read(size), np.float32).reshape(next_one)

    def close(self) -> None:
        """Let go of the memory and the file."""
        self._queue.clear()
        if self._file is not None:
            self._file.close()
