"""Worker processes, and those of them that wait for another task."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, Final

from .fork_server import start_process
from .worker import Turn, kill_group, work_in_process

# Seconds for a process that is no longer needed to end.
_FAREWELL: Final = 5.0


@dataclass(frozen=True, slots=True)
class WorkerProcess:
    """A process that does one task after the other; `pipe` takes tasks and gives results."""

    process: BaseProcess
    pipe: Connection

    @classmethod
    def start(cls, work: Callable[[Any, Turn], Any], preload: Sequence[str]) -> WorkerProcess:
        """A new one, for tasks of `work`. Raises OSError when none can be started."""
        return cls(*start_process(work_in_process, (work,), preload))

    @property
    def pid(self) -> int:
        """Its process id, and that of its group."""
        assert self.process.pid is not None
        return self.process.pid

    def sources(self) -> tuple[Connection, int]:
        """What becomes readable when it has something to say, or has ended."""
        return self.pipe, self.process.sentinel

    def is_alive(self) -> bool:
        """Whether it can take a task: it runs, and has nothing more to say."""
        return self.process.is_alive() and not self.pipe.poll()

    def kill(self) -> None:
        """Kill it and what it started."""
        kill_group(self.pid)

    def dismiss(self) -> None:
        """Let it end by itself after its last result, soon; then remove it."""
        self.pipe.close()
        self.process.join(_FAREWELL)
        self.remove()

    def remove(self) -> int | None:
        """Kill what is left of it, wait for its end, and tell its exit status."""
        self.kill()
        self.pipe.close()
        self.process.join()
        status = self.process.exitcode
        self.process.close()
        return status


class Spares:
    """Worker processes that have done a task and are good for another of the same kind.

    For work that leaves nothing behind in its process; after other work none is kept. Threads may
    share the spares of one kind.
    """

    def __init__(self, *, are_kept: bool = True) -> None:
        self._lock = threading.Lock()
        self._waiting: list[WorkerProcess] = []
        self._are_kept = are_kept

    def take(self) -> WorkerProcess | None:
        """One that is alive, if there is any."""
        while True:
            with self._lock:
                if not self._waiting:
                    return None
                worker = self._waiting.pop()
            if worker.is_alive():
                return worker
            worker.remove()

    def put(self, worker: WorkerProcess) -> None:
        """Keep one until it is taken or all are closed, or dismiss it."""
        with self._lock:
            if self._are_kept:
                self._waiting.append(worker)
                return
        worker.dismiss()

    def close(self) -> None:
        """Remove those that wait, and those still to come when they do."""
        with self._lock:
            self._are_kept = False
            waiting, self._waiting = self._waiting, []
        for worker in waiting:
            worker.pipe.close()  # all end side by side
        for worker in waiting:
            worker.dismiss()

    def __enter__(self) -> Spares:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
