"""A request to end a run early, made by a signal and seen by everything that waits."""

from __future__ import annotations

import os
from contextlib import suppress


class Stop:
    """Once requested it stays so. Its file descriptor is readable from then on.

    `is_heeded` tells that the run has come to the work that can end early.
    """

    def __init__(self) -> None:
        self.requested = self.is_heeded = False
        self._reader, self._writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)

    def request(self) -> None:
        """Ask; safe in a signal handler."""
        self.requested = True
        with suppress(BlockingIOError):
            os.write(self._writer, b"\0")

    def fileno(self) -> int:
        """A descriptor to wait for."""
        return self._reader

    def close(self) -> None:
        """Give the descriptors back."""
        os.close(self._reader)
        os.close(self._writer)
