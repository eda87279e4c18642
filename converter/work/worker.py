"""The inside of a worker process: its tasks, a turn on a core for each, an end with its family."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import connection, parent_process
from multiprocessing.connection import Connection
from typing import Protocol, TypeVar

from .apart import DiedApart, die_with_parent

T = TypeVar("T")
R = TypeVar("R")

# What a worker tells the pool, beside its result and the process that takes the memory.
BEGINS, WANTS_CORE, GIVES_CORE_BACK = "begins", "wants a core", "gives its core back"


class Turn(Protocol):
    """When a task may compute. Fetching before it and uploading after it need no core."""

    @contextmanager
    def core(self) -> Iterator[int]:
        """Wait for a core and hold it; gives the number of threads that may be used."""

    def hand_over(self, pid: int) -> None:
        """Tell that a process that this one started takes the memory, while the core is held."""


class PoolTurn:
    """A turn that the pool gives, by way of the worker's pipe."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe

    @contextmanager
    def core(self) -> Iterator[int]:
        """Hold a core from the pool's word until the end of the block."""
        self._pipe.send(WANTS_CORE)
        threads = self._pipe.recv()
        try:
            yield threads
        finally:
            self._pipe.send(GIVES_CORE_BACK)

    def hand_over(self, pid: int) -> None:
        """Have the pool count that process's memory."""
        self._pipe.send(pid)


def work_in_process(work: Callable[[T, Turn], R], pipe: Connection) -> None:
    """Run tasks as they come until the pipe is closed; the main function of a worker.

    Each is answered by a tuple of one, its result.
    """
    _leave_family()
    while True:
        try:
            task = pipe.recv()
            pipe.send(BEGINS)
        except (EOFError, ConnectionError):
            return
        try:
            result = work(task, PoolTurn(pipe))
        except DiedApart as death:
            death.repeat()
        pipe.send((result,))
        del task, result  # which may be large, while the next is waited for


def _leave_family() -> None:
    """A process group of its own, which is killed as a whole, and never outlives the run."""
    # Ctrl-C reaches the run's process group; the run decides what becomes of its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    # As it is from the start, unless something unblocked it in the process this is forked from.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    with suppress(OSError):
        os.setpgid(0, 0)
    # Native code that holds the interpreter lock would hold up the thread below.
    die_with_parent()
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        kill_group(os.getpid())
        os._exit(1)


def kill_group(pid: int) -> None:
    """Kill a worker and what it started."""
    for kill in (os.killpg, os.kill):
        with suppress(ProcessLookupError, PermissionError):
            kill(pid, signal.SIGKILL)
