"""Output that never holds up a run: a reader that is slow, stuck or gone is its own affair."""

from __future__ import annotations

import io
import os
import select
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from queue import SimpleQueue
from typing import TextIO

# Pieces that may wait for a stuck reader: a live display would fill the memory in a day.
WAITING = 100_000


class Outlet(io.TextIOBase):
    """A text stream whose writes return at once; a thread passes them on, in order.

    `stream` needs a file descriptor, which is written to directly: what is stuck in it holds
    no lock that the end of the process would wait for. `error` is why the reader got no more.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream, self._descriptor = stream, stream.fileno()
        stream.flush()
        self.error: OSError | None = None
        # Its put() may be called by a signal handler that interrupts another put().
        self._waiting: SimpleQueue[str | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._pass_on, daemon=True)
        self._thread.start()

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """That of the stream behind."""
        return self._stream.encoding

    def isatty(self) -> bool:
        """Whether the stream behind is a terminal."""
        return self._stream.isatty()

    def fileno(self) -> int:
        """The descriptor behind."""
        return self._descriptor

    def writable(self) -> bool:
        """Always."""
        return True

    def write(self, text: str) -> int:
        """Take a piece of text, which is lost when too many wait."""
        if self._waiting.qsize() < WAITING:
            self._waiting.put(text)
        return len(text)

    def drain(self, patience: float | None) -> None:
        """Wait until all is passed on, `patience` seconds at most or, with None, for ever."""
        self._waiting.put(None)
        self._thread.join(patience)

    def _pass_on(self) -> None:
        while (text := self._waiting.get()) is not None:
            try:
                if self.error is None:
                    self._send(text.encode(self.encoding, "backslashreplace"))
            except OSError as error:
                self.error = error

    def _send(self, content: bytes) -> None:
        while content:
            try:
                content = content[os.write(self._descriptor, content) :]
            except BlockingIOError:
                select.select([], [self._descriptor], [])


class Readers:
    """Those of stdout and stderr; `patience` in seconds is how long the end waits for them."""

    patience: float | None = None


@contextmanager
def outlets() -> Iterator[Readers]:
    """Make outlets of sys.stdout and sys.stderr, where they have a descriptor."""
    readers, before = Readers(), (sys.stdout, sys.stderr)
    out, err = (_outlet(stream) for stream in before)
    if out is not None and err is not None and os.path.sameopenfile(out.fileno(), err.fileno()):
        err.drain(None)
        err = out  # of two threads, one would write into the other's line
    sys.stdout, sys.stderr = out or before[0], err or before[1]
    try:
        yield readers
    finally:
        sys.stdout, sys.stderr = before
        with suppress(KeyboardInterrupt):  # of a person whose terminal is stuck
            for outlet in filter(None, (out, err)):
                outlet.drain(readers.patience)
        if out is not None and out.error is not None and (err is None or err.error is None):
            print(
                f"nemar-convert: the summary could not be written: {out.error.strerror}",
                file=sys.stderr,
            )


def _outlet(stream: TextIO) -> Outlet | None:
    try:
        return Outlet(stream)
    except (OSError, ValueError):  # a stream in memory, or closed
        return None
