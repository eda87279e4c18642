"""A function in a process of its own, apart from what this one has open; it gives back bytes.

The process is forked, so it needs no imports and takes what it works on along.
"""

from __future__ import annotations

import gc
import os
import resource
import signal
import struct
import sys
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import connection
from pathlib import Path
from typing import BinaryIO, Final, NoReturn

from .libc import prctl

_PR_SET_PDEATHSIG: Final = 1

# Bytes that are taken at most: no account of a recording comes near.
_MOST: Final = 64 << 20
_PREFIX: Final = struct.Struct("<Q")  # the length of what follows


class DiedApart(Exception):
    """The process ended without a result; `status` is an exit status, or minus a signal."""

    def __init__(self, status: int) -> None:
        super().__init__(f"status {status}")
        self.status = status

    def repeat(self) -> NoReturn:
        """End this process in the same way."""
        if self.status < 0:
            _, hard = resource.getrlimit(resource.RLIMIT_CORE)
            resource.setrlimit(resource.RLIMIT_CORE, (0, hard))
            with suppress(OSError):  # of SIGKILL, which has none but its own
                signal.signal(-self.status, signal.SIG_DFL)
            os.kill(os.getpid(), -self.status)
        os._exit(max(1, self.status))


def run_apart(function: Callable[[], bytes], tell: Callable[[int], None]) -> bytes:
    """What `function` returns in a forked process, which ends with this one at the latest.

    The function has no file or connection that is open here, not even the standard streams: a
    terminal among them would take input from it. What it starts and leaves behind is in this
    process's group, and not waited for. It should not raise. `tell` is told the process's id.
    Raises DiedApart.
    """
    reader, writer = os.pipe2(os.O_CLOEXEC)
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        _work(function, writer, parent)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        try:
            tell(child)
            result = _received(pipe, child)
        except BaseException:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            raise
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status != 0 or result is None:
        raise DiedApart(status)
    return result


def _received(pipe: BinaryIO, child: int) -> bytes | None:
    """What a child sends, None when it ends without; others may hold the pipe's other end."""
    ended = os.pidfd_open(child)
    try:
        received = bytearray()
        while (length := _length(received)) is None or len(received) < _PREFIX.size + length:
            ready = connection.wait([pipe.fileno(), ended])
            if pipe.fileno() not in ready:
                return None
            piece = os.read(pipe.fileno(), 1 << 20)
            if not piece:
                return None
            received += piece
            if len(received) > _MOST:
                os.kill(child, signal.SIGKILL)
                return None
        return bytes(received[_PREFIX.size :])
    finally:
        os.close(ended)


def _length(received: bytearray) -> int | None:
    """Of a message that begins like this."""
    begins = received[: _PREFIX.size]
    return int(_PREFIX.unpack(begins)[0]) if len(begins) == _PREFIX.size else None


def die_with_parent() -> None:
    """Have the kernel kill this process when the one that started it is gone, on Linux."""
    if sys.platform == "linux":
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _work(function: Callable[[], bytes], writer: int, parent: int) -> NoReturn:
    status = 1
    try:
        die_with_parent()
        if os.getppid() == parent:
            gc.freeze()  # nothing of the parent's is touched, or closes what it has open
            _let_go(keep=writer)
            result = function()
            with os.fdopen(writer, "wb") as pipe:
                pipe.write(_PREFIX.pack(len(result)) + result)
            status = 0
    finally:
        os._exit(status)


def _let_go(keep: int) -> None:
    """Put nothing in the place of what is open: its numbers still belong to their owners."""
    nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for entry in list(Path("/proc/self/fd").iterdir()):
        number = int(entry.name)
        if number not in (keep, nothing):
            with suppress(OSError):
                os.fstat(number)
                os.dup2(nothing, number, inheritable=False)
    os.close(nothing)
