"""Processes forked from a server that imported everything once."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import forkserver, get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from types import ModuleType
from typing import Any, Final

_CONTEXT = get_context("forkserver")

# Threads of one worker's libraries: the workers themselves fill the cores.
_SINGLE_THREAD = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS"), "1"
)

# One process is started at a time, by whichever thread: each changes what all of them share.
_starting = threading.Lock()

# What multiprocessing reports of a process whose server died, and with it the true status.
STATUS_LOST: Final = 255


def start_process(
    target: Callable[..., None], arguments: Sequence[Any], preload: Sequence[str]
) -> tuple[BaseProcess, Connection]:
    """Start `target(*arguments, pipe)`; return the process and the other end of its pipe.

    The server is started when none runs, with the modules of `preload` imported.
    """
    ours, theirs = _CONTEXT.Pipe(duplex=True)
    try:
        with _starting, _environment(_SINGLE_THREAD), _without_main(target, *arguments):
            _CONTEXT.set_forkserver_preload(list(preload))
            forkserver.ensure_running()
            process = _CONTEXT.Process(target=target, args=(*arguments, theirs))
            process.start()
    except BaseException:
        ours.close()
        raise
    finally:
        theirs.close()  # so that the process's death closes the pipe
    return process, ours


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
