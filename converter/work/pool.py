"""Worker processes on this machine, one recording at a time each.

A crash, a leak or a kill costs the recording of that process only. A worker fetches, waits for a
core, computes, gives the core back and uploads: a few more workers than cores keep the cores busy
while others wait for the network.
"""

from __future__ import annotations

import math
import signal
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from multiprocessing import connection
from multiprocessing.connection import Connection
from typing import Final, Generic, Protocol, TypeVar

from .fork_server import STATUS_LOST
from .spares import Spares, WorkerProcess
from .stop import Stop
from .worker import BEGINS, GIVES_CORE_BACK, WANTS_CORE, Turn

T = TypeVar("T")
R = TypeVar("R")

# Seconds that a stopped run gives to workers that compute or upload.
GRACE: Final = 8.0

# Starts of one task, when the server that forks workers dies beside it, or its worker before it.
_STARTS: Final = 3

# Tasks that may be passed over at once for later ones that fit.
_PASSED: Final = 32

# How often room is looked for again, in seconds, and how long when nobody else takes it.
_LOOK_AGAIN: Final = 1.0
_PATIENCE: Final = 60.0


class Unfinished(Exception):
    """A task has no result; the message says why."""


class WorkerDied(Unfinished):
    """The worker ended without a result, and nobody asked it to."""


class OutOfTime(Unfinished):
    """The worker was killed at its time limit."""


class NoMemory(Unfinished):
    """The memory was not there."""


class NoScratch(Unfinished):
    """The scratch space was not there."""


class Stopped(Unfinished):
    """The run was asked to stop first."""


@dataclass(frozen=True, slots=True)
class Demand:
    """What a task needs: bytes of memory while it computes, bytes of scratch, seconds a phase."""

    memory: int = 0
    scratch: int = 0
    seconds: float = math.inf


class Budget(Protocol):
    """What the machine can give. Each is read anew at every call."""

    def free_memory(self, reservations: Sequence[tuple[int, int]], enough: int) -> int:
        """Bytes beyond the reservations, each a process id and its bytes; it may tell fewer
        than there are as long as there are `enough`."""

    def free_scratch(self, reserved: int) -> int:
        """Bytes beyond those reserved in all."""


class NoLimit:
    """A budget that is never short."""

    def free_memory(self, reservations: Sequence[tuple[int, int]], enough: int) -> int:
        """Any task fits."""
        return 1 << 62

    def free_scratch(self, reserved: int) -> int:
        """Any task fits."""
        return 1 << 62


class _Phase(StrEnum):
    FETCHING = "before it computed"
    WAITING = "while it waited for a core"
    COMPUTING = "while it computed"
    UPLOADING = "after it had computed"


@dataclass(frozen=True, slots=True)
class Census:
    """How many tasks are where."""

    queued: int
    fetching: int
    computing: int
    uploading: int


@dataclass(slots=True)
class _Worker(Generic[T]):
    task: T
    demand: Demand
    process: WorkerProcess
    starts: int
    deadline: float
    has_begun: bool = False
    phase: _Phase = _Phase.FETCHING
    threads: int = 0
    memory_pid: int = 0  # the process that computes, if it is another
    verdict: Unfinished | None = None  # why the pool killed it

    @property
    def reservation(self) -> tuple[int, int]:
        """The process that takes memory, and how much it may."""
        return self.memory_pid or self.process.pid, self.demand.memory

    def enter(self, phase: _Phase, threads: int = 0) -> None:
        self.phase, self.threads = phase, threads
        self.deadline = (
            math.inf if phase is _Phase.WAITING else time.monotonic() + self.demand.seconds
        )


class WorkerPool(Generic[T, R]):
    """Runs `work(task, turn)` in worker processes, at most `jobs` computing at a time.

    `work` is a module-level function; tasks and results are picklable. `ahead` more workers
    may fetch and upload. `preload` names the modules that all workers find imported. `demand`
    tells what a task needs, `budget` what there is; `stop` ends a run early. `watch`
    is told where the tasks are, whenever that may have changed. With `spares` a worker does one
    task after the other, as long as it gives results; without, each task has one of its own.
    """

    def __init__(
        self,
        work: Callable[[T, Turn], R],
        jobs: int,
        *,
        ahead: int = 0,
        preload: Sequence[str] = (),
        demand: Callable[[T], Demand] = lambda _: Demand(),
        budget: Budget | None = None,
        stop: Stop | None = None,
        watch: Callable[[Census], None] = lambda _: None,
        spares: Spares | None = None,
    ) -> None:
        self._work, self._jobs, self._ahead = work, jobs, ahead
        self._preload, self._demand = preload, demand
        self._budget = budget or NoLimit()
        self._stop, self._is_stopping = stop, False
        self._watch = watch
        self._spares = spares or Spares(are_kept=False)
        self._waiting: deque[tuple[T, int]] = deque()
        self._workers: list[_Worker[T]] = []
        self._ended: list[tuple[T, R | Unfinished]] = []
        self._idle_since = math.inf

    def run(self, tasks: Iterable[T]) -> Iterator[tuple[T, R | Unfinished]]:
        """Yield each task with its result as it ends. Closing the iterator kills the rest."""
        self._waiting.extend((task, 0) for task in tasks)
        try:
            while self._waiting or self._workers:
                self._heed_stop()
                self._start_workers()
                self._give_cores()
                self._watch(self._census())
                if self._workers and not self._ended:
                    self._listen()
                ended, self._ended = self._ended, []
                yield from ended
        finally:
            self._kill_all()

    def _census(self) -> Census:
        phases = Counter(worker.phase for worker in self._workers)
        return Census(
            queued=len(self._waiting) + phases[_Phase.WAITING],
            fetching=phases[_Phase.FETCHING],
            computing=phases[_Phase.COMPUTING],
            uploading=phases[_Phase.UPLOADING],
        )

    def _heed_stop(self) -> None:
        """Drop what did not start, kill what holds no core, and give the rest a little time."""
        if self._stop is None or not self._stop.requested or self._is_stopping:
            return
        self._is_stopping = True
        why = Stopped("the run was asked to stop")
        self._ended.extend((task, why) for task, _ in self._waiting)
        self._waiting.clear()
        for worker in self._workers:
            if worker.phase in (_Phase.FETCHING, _Phase.WAITING):
                self._kill(worker, why)
            else:
                worker.deadline = min(worker.deadline, time.monotonic() + GRACE)

    def _start_workers(self) -> None:
        """Start what there are places and scratch space for, in order; later ones may pass."""
        passed: list[tuple[T, int]] = []
        places = self._jobs + self._ahead
        while self._waiting and len(self._workers) < places and len(passed) < _PASSED:
            task, starts = self._waiting.popleft()
            demand = self._demand(task)
            reserved = sum(worker.demand.scratch for worker in self._workers)
            free = self._budget.free_scratch(reserved)
            if demand.scratch <= free:
                self._start(task, demand, starts)
            elif self._workers:
                passed.append((task, starts))
            else:
                self._ended.append((task, _no_scratch(demand.scratch, free)))
        self._waiting.extendleft(reversed(passed))

    def _start(self, task: T, demand: Demand, starts: int) -> None:
        try:
            process = self._spares.take() or WorkerProcess.start(self._work, self._preload)
        except OSError as error:
            self._ended.append((task, WorkerDied(f"no worker could be started: {error.strerror}")))
            return
        deadline = time.monotonic() + demand.seconds
        self._workers.append(_Worker(task, demand, process, starts + 1, deadline))
        with suppress(OSError):  # its death is heard of
            process.pipe.send(task)

    def _give_cores(self) -> None:
        """Let waiting workers compute, the first to wait first, when cores and memory are free."""
        waiting = [w for w in self._workers if w.phase is _Phase.WAITING and not w.verdict]
        for worker in waiting:
            busy = [w for w in self._workers if w.phase is _Phase.COMPUTING]
            free_cores = self._jobs - sum(w.threads for w in busy)
            if free_cores < 1:
                break
            reservations = [w.reservation for w in busy]
            free = self._budget.free_memory(reservations, worker.demand.memory)
            if worker.demand.memory > free:
                self._be_patient(worker, free, is_alone=not busy)
                continue
            self._idle_since = math.inf
            others = len(self._workers) - len(busy) + len(self._waiting)
            worker.enter(_Phase.COMPUTING, max(1, free_cores // others))
            with suppress(OSError):
                worker.process.pipe.send(worker.threads)

    def _be_patient(self, worker: _Worker[T], free: int, *, is_alone: bool) -> None:
        """Wait for memory while others compute, and some time when others outside hold it."""
        now = time.monotonic()
        self._idle_since = min(self._idle_since, now) if is_alone else math.inf
        if now - self._idle_since >= _PATIENCE:
            need = worker.demand.memory
            self._kill(worker, NoMemory(f"{_mb(need)} of memory needed, {_mb(free)} free"))

    def _listen(self) -> None:
        """Wait for messages, deaths, a stop and time limits; act on what comes first."""
        sources: list[Connection | int] = []
        for worker in self._workers:
            sources += worker.process.sources()
        if self._stop is not None and not self._is_stopping:
            sources.append(self._stop.fileno())
        ready = set(connection.wait(sources, self._patience()))
        for worker in list(self._workers):
            if not ready.isdisjoint(worker.process.sources()):
                self._hear(worker)
            elif time.monotonic() >= worker.deadline and worker.verdict is None:
                self._kill(worker, self._lateness(worker))

    def _patience(self) -> float | None:
        """Seconds until something must be looked at that sends no message."""
        deadline = min(w.deadline if w.verdict is None else math.inf for w in self._workers)
        until = max(0.0, deadline - time.monotonic())
        if self._waiting or any(w.phase is _Phase.WAITING for w in self._workers):
            until = min(until, _LOOK_AGAIN)
        return None if math.isinf(until) else until

    def _lateness(self, worker: _Worker[T]) -> Unfinished:
        if self._is_stopping:
            return Stopped("the run was asked to stop")
        seconds = worker.demand.seconds
        return OutOfTime(f"it was ended {worker.phase}, after its limit of {seconds:.0f} s")

    def _hear(self, worker: _Worker[T]) -> None:
        """Take a worker's message, or its death."""
        try:
            pipe = worker.process.pipe
            message = pipe.recv() if pipe.poll() else None
        except (EOFError, OSError):
            message = None
        if isinstance(message, tuple):
            self._workers.remove(worker)
            self._ended.append((worker.task, message[0]))
            self._spares.put(worker.process)
        elif message == BEGINS:
            worker.has_begun = True
        elif isinstance(message, int):
            worker.memory_pid = message
        elif message == WANTS_CORE:
            worker.enter(_Phase.WAITING)
            # In the order of the wait, whatever the order of the starts.
            self._workers.remove(worker)
            self._workers.append(worker)
        elif message == GIVES_CORE_BACK:
            worker.enter(_Phase.UPLOADING)
            if self._is_stopping:
                worker.deadline = time.monotonic() + GRACE
        else:
            self._mourn(worker)

    def _mourn(self, worker: _Worker[T]) -> None:
        """A worker is gone without a result: say so, or start its task again."""
        self._workers.remove(worker)
        status = worker.process.remove()
        is_beside = status == STATUS_LOST or not worker.has_begun
        if is_beside and worker.verdict is None and worker.starts < _STARTS:
            # The server died, or a worker that waited: the task has nothing to do with that.
            self._waiting.appendleft((worker.task, worker.starts))
        else:
            self._ended.append((worker.task, worker.verdict or WorkerDied(_death(status))))

    def _kill(self, worker: _Worker[T], why: Unfinished) -> None:
        worker.verdict = why
        worker.process.kill()

    def _kill_all(self) -> None:
        for worker in self._workers:
            worker.process.kill()
        for worker in self._workers:
            worker.process.remove()
        self._workers.clear()
        self._waiting.clear()


def _death(status: int | None) -> str:
    if status is not None and status < 0:
        try:
            name = signal.Signals(-status).name
        except ValueError:
            name = f"signal {-status}"
        return f"the worker process was ended by {name}"
    return f"the worker process ended with exit status {status} and no result"


def _no_scratch(need: int, free: int) -> NoScratch:
    return NoScratch(f"{_mb(need)} of scratch space needed, {_mb(free)} free")


def _mb(size: int) -> str:
    return f"{size / 1e6:,.0f} MB"
