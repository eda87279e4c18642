"""Processes forked from a server that imported everything once."""

from __future__ import annotations

import errno
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import forkserver, get_context, resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from types import ModuleType
from typing import Any, Final

_CONTEXT = get_context("forkserver")

# Environment of workers, where it says nothing else of these variables. The workers themselves
# fill the cores, and Arrow's own allocator begins with a gigabyte. A process forked for one
# recording touches all its memory for the first time: in huge pages, where the C library knows
# them, and from one heap that keeps what is given back, a short one takes a fifth less of its
# time. A worker that is killed leaves locks of progress bars that nobody misses.
OF_WORKERS: Final = {
    **dict.fromkeys(
        ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS"), "1"
    ),
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"
    f":glibc.malloc.mmap_threshold={32 << 20}"  # the most that it takes
    f":glibc.malloc.trim_threshold={64 << 20}",
    "PYTHONWARNINGS": "ignore:resource_tracker:UserWarning",
}

# Dask has its own workers return memory at once: one that is forked from them would ask for each
# array anew, which takes longer than all its computing.
_NOT_OF_WORKERS: Final = ("MALLOC_TRIM_THRESHOLD_",)

# One process is started at a time, by whichever thread: each changes what all of them share.
_starting = threading.Lock()

# Starts of a process, when the server dies at that moment, and seconds between them.
_TRIES: Final = 5
_PAUSE: Final = 0.2

# What multiprocessing reports of a process whose server died, and with it the true status.
STATUS_LOST: Final = 255


def start_process(
    target: Callable[..., None], arguments: Sequence[Any], preload: Sequence[str]
) -> tuple[BaseProcess, Connection]:
    """Start `target(*arguments, pipe)`; return the process and the other end of its pipe.

    The server is started when none runs, with the modules of `preload` imported. SIGTERM ends
    neither: it is for this process alone, also where a batch system sends it to all. Raises
    OSError when no process can be started.
    """
    ours, theirs = _CONTEXT.Pipe(duplex=True)
    try:
        with _starting, _environment(), _without_main(target, *arguments):
            _CONTEXT.set_forkserver_preload(list(preload))
            process = _start(target, (*arguments, theirs))
    except BaseException:
        ours.close()
        raise
    finally:
        theirs.close()  # so that the process's death closes the pipe
    return process, ours


def _start(target: Callable[..., None], arguments: Sequence[Any]) -> BaseProcess:
    for _ in range(_TRIES):
        resource_tracker.ensure_running()  # unblocks SIGTERM where it starts one
        with _without_sigterm():
            forkserver.ensure_running()
        process = _CONTEXT.Process(target=target, args=arguments)
        try:
            process.start()
        except (EOFError, ConnectionError):
            time.sleep(_PAUSE)  # until its death shows
            continue
        return process
    raise OSError(errno.ECHILD, "the server that forks workers died again and again")


@contextmanager
def _without_sigterm() -> Iterator[None]:
    """Processes started within, and theirs, have SIGTERM blocked."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _environment() -> Iterator[None]:
    """That of workers, for processes started within; variables that are set keep their value."""
    added = {name: value for name, value in OF_WORKERS.items() if name not in os.environ}
    removed = {name: os.environ.pop(name) for name in _NOT_OF_WORKERS if name in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            del os.environ[name]
        os.environ.update(removed)


@contextmanager
def _without_main(*needed: object) -> Iterator[None]:
    """Processes started within do not import this one's main module, unless it defines what
    they need: it may be a program that takes seconds to import."""
    main = sys.modules["__main__"]
    if any(getattr(each, "__module__", None) == "__main__" for each in needed):
        yield
        return
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def usable_cpus() -> int:
    """CPUs that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
