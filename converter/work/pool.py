"""Worker processes on this machine, one recording each, forked from a process that has
imported everything once.

A process a recording means that a crash, a leak or a kill costs that recording only, and the
memory of one conversion is back before the next.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import connection, forkserver, get_context, parent_process
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")

_CONTEXT = get_context("forkserver")

# Threads of one worker: the workers themselves fill the cores.
_SINGLE_THREAD = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS"), "1"
)


class WorkerDied(Exception):
    """A worker ended without a result; the message says how."""


class WorkerPool(Generic[T, R]):
    """Runs `work(task)` in worker processes, at most `jobs` at a time.

    `work` is a module-level function; tasks and results are picklable. `preload` names the
    modules that all workers find imported.
    """

    def __init__(self, work: Callable[[T], R], jobs: int, preload: Sequence[str] = ()) -> None:
        self._work, self._jobs, self._preload = work, jobs, list(preload)
        self._running: dict[Connection, tuple[BaseProcess, T]] = {}

    def run(self, tasks: Iterable[T]) -> Iterator[tuple[T, R | WorkerDied]]:
        """Yield each task with its result as it ends. Closing the iterator kills the rest."""
        waiting = iter(tasks)
        _start_fork_server(self._preload)
        try:
            self._fill(waiting)
            while self._running:
                for ready in connection.wait(list(self._running)):
                    assert isinstance(ready, Connection)
                    yield self._collect(ready)
                self._fill(waiting)
        finally:
            self._kill_all()

    def _fill(self, waiting: Iterator[T]) -> None:
        while len(self._running) < self._jobs:
            try:
                task = next(waiting)
            except StopIteration:
                return
            receiver, sender = _CONTEXT.Pipe(duplex=False)
            process = _CONTEXT.Process(target=_worker, args=(self._work, task, sender))
            process.start()
            sender.close()  # so that the worker's death closes the pipe
            self._running[receiver] = process, task

    def _collect(self, receiver: Connection) -> tuple[T, R | WorkerDied]:
        process, task = self._running.pop(receiver)
        result: R | WorkerDied
        try:
            result = receiver.recv()
        except (EOFError, OSError):
            process.join()
            result = WorkerDied(_death(process.exitcode))
        receiver.close()
        process.join()
        process.close()
        return task, result

    def _kill_all(self) -> None:
        for process, _ in self._running.values():
            process.kill()
        for receiver, (process, _) in self._running.items():
            process.join()
            receiver.close()
        self._running.clear()


def _death(exitcode: int | None) -> str:
    if exitcode is not None and exitcode < 0:
        try:
            name = signal.Signals(-exitcode).name
        except ValueError:
            name = f"signal {-exitcode}"
        return f"the worker process was ended by {name}"
    return f"the worker process ended with exit status {exitcode} and no result"


def _worker(work: Callable[[T], R], task: T, sender: Connection) -> None:
    # Ctrl-C reaches the whole process group; the parent decides what becomes of workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    sender.send(work(task))


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)


def _start_fork_server(preload: list[str]) -> None:
    _CONTEXT.set_forkserver_preload(preload)
    with _environment(_SINGLE_THREAD):
        forkserver.ensure_running()


@contextmanager
def _environment(variables: dict[str, str]) -> Iterator[None]:
    """Environment of processes started within; variables that are set keep their value."""
    added = {name: value for name, value in variables.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            del os.environ[name]


def usable_cpus() -> int:
    """CPUs that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
