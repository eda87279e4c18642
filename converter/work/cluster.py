"""The same tasks on a Dask cluster, through `distributed`.

A Dask worker runs its tasks in processes apart, as the local pool does: a crash costs the
recording and no worker, and a worker that is lost costs nothing, as its tasks go to others.
Workers fetch and upload by themselves. The repository, and a folder destination, must be visible
to all of them under the same path.
"""

from __future__ import annotations

import math
import queue
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from .cluster_client import ClusterClient, Workers
from .cluster_terms import MEMORY, NoCluster, Report, Shared
from .outcome import Result
from .pool import GRACE, Census, Stopped, Unfinished, WorkerDied
from .stop import Stop
from .task import Task

if TYPE_CHECKING:
    from distributed import Future

# Seconds between looks at a stop request, and at the workers that there are.
_LOOK, _LOOK_AT_WORKERS = 0.5, 5.0

# Seconds without any worker that could take a task, after which a run gives up.
_PATIENCE: Final = 600.0

# Seconds without an answer of the scheduler, after which it counts as lost.
_SILENCE: Final = 120.0

# Tasks that the scheduler has, for each thread of its workers: one in work and one in wait. Those
# of a lost worker go elsewhere, but only a few times; more of them would suffer for one.
_AHEAD: Final = 2


@dataclass(slots=True)
class _Given:
    """A task that the scheduler has; `phase` and `worker` are empty while it waits."""

    task: Task
    number: int
    future: Future[Report]
    phase: str = ""
    worker: str = ""


class DaskCluster:
    """The cluster whose scheduler is at `address`: `tcp://...`, or the path of a scheduler file.

    `note` is told what an operator should know. To be prepared before anything else, and closed.
    Raises NoCluster when there is none.
    """

    def __init__(self, address: str, stop: Stop, note: Callable[[str], None]) -> None:
        self._client = ClusterClient(address)
        self._stop, self._note = stop, note
        self._inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._given: dict[str, _Given] = {}
        self._workers = Workers(0, 0, 0)
        self._looked_at = -math.inf
        self._idle_since, self._silent_since = time.monotonic(), math.inf
        self._loss: NoCluster | None = None
        self._client.listen(self._inbox.put)

    def prepare(self, shared: Shared, scratch: Path | None) -> None:
        """Prepare the workers that there are and will be for a run's tasks.

        `scratch` is for the temporary files of every worker, by default its own local directory.
        Raises NoCluster when a worker that is there can't do the tasks.
        """
        from .cluster_worker import Keeper

        self._keeper = Keeper(self._client.name, shared, scratch)
        self._client.keep(self._keeper)

    def close(self) -> None:
        """Leave the cluster, with nothing of this run at work on it."""
        self._client.close(given.future for given in self._given.values())

    def largest_memory(self) -> int:
        """Bytes that one task can have at most; waits for a worker. Raises NoCluster."""
        self._look_at_workers()
        if not self._workers.threads:
            self._note("waiting for a Dask worker")
            while not self._workers.threads and not self._is_over():
                time.sleep(_LOOK)
                self._look_at_workers()
            self._client.keep(self._keeper)  # it may be one that can't do it
        if self._loss is not None:
            raise self._loss
        if not self._workers.are_limited:
            self._note(
                f"the Dask workers declare no resource {MEMORY!r}: each has a task a thread, "
                "whatever memory that needs"
            )
        elif self._workers.unlimited:
            self._note(f"Dask workers that declare no resource {MEMORY!r} get no task")
        return self._workers.largest

    def run(
        self, tasks: Iterable[Task], preload: Sequence[str], watch: Callable[[Census], None]
    ) -> Iterator[tuple[Task, Result | Unfinished]]:
        """Yield each task with its result as it ends; they are begun in their order."""
        waiting = deque(enumerate(tasks))
        while (waiting or self._given) and not self._is_over():
            self._look_at_workers()
            while waiting and len(self._given) < _AHEAD * self._workers.threads:
                self._give(*waiting.popleft(), preload)
            watch(self._census(len(waiting)))
            yield from self._ended(waiting)
        if self._stop.requested and self._loss is None:
            yield from self._wind_up(waiting)
        why = self._loss or Stopped("the run was asked to stop")
        for task in [*(given.task for given in self._given.values()), *(t for _, t in waiting)]:
            yield task, why

    def _is_over(self) -> bool:
        return self._stop.requested or self._loss is not None

    def _give(self, number: int, task: Task, preload: Sequence[str]) -> None:
        from .cluster_worker import perform

        memory = task.demand.memory if self._workers.are_limited else 0
        arguments = (task, self._client.name, preload)
        future = self._client.submit(perform, arguments, number, memory)
        self._given[str(future.key)] = _Given(task, number, future)
        future.add_done_callback(self._inbox.put)

    def _ended(
        self, waiting: deque[tuple[int, Task]]
    ) -> Iterator[tuple[Task, Result | Unfinished]]:
        """Wait a moment for news; yield the tasks that are done."""
        for item in self._news():
            if isinstance(item, dict):
                self._heed(item)
                continue
            given = self._given.pop(str(item.key), None)
            if given is None:
                continue
            report = self._client.report(given.future)
            if report.unfit is not None:
                self._note(f"{report.unfit}; it is retired")
                self._client.retire(report.worker)
                waiting.appendleft((given.number, given.task))
                continue
            if isinstance(report.result, NoCluster):
                self._loss = report.result
            elif isinstance(report.result, WorkerDied) and report.worker:
                path = given.task.recording.path
                self._note(f"{path}: {report.result} (the Dask worker at {report.worker})")
            yield given.task, report.result

    def _news(self) -> Iterator[Any]:
        """Events and futures that are done, after a wait for the first."""
        with suppress(queue.Empty):
            yield self._inbox.get(timeout=_LOOK)
            while True:
                yield self._inbox.get_nowait()

    def _heed(self, event: dict[str, Any]) -> None:
        """An event: a task comes into another phase, or a worker is gone."""
        worker = str(event.get("worker"))
        if event.get("run") == self._client.name:
            given = self._given.get(event["key"])
            if given is not None:
                given.phase, given.worker = event["phase"], worker
        elif event.get("action") == "remove-worker":
            self._looked_at = -math.inf
            here = [given for given in self._given.values() if given.worker == worker]
            for given in here:
                given.phase = given.worker = ""
            if here:
                self._note(f"the Dask worker at {worker} is gone; its tasks go to others")

    def _census(self, queued: int) -> Census:
        phases = Counter(given.phase for given in self._given.values())
        return Census(
            queued=queued + phases[""],
            fetching=phases["fetching"],
            computing=phases["computing"],
            uploading=phases["uploading"],
        )

    def _look_at_workers(self) -> None:
        """See what workers there are, once in a while; give up when none can do anything."""
        now = time.monotonic()
        if now - self._looked_at < _LOOK_AT_WORKERS:
            return
        self._looked_at = now
        workers = self._client.workers()
        if workers is None:
            self._silent_since = min(self._silent_since, now)
            if time.monotonic() - self._silent_since >= _SILENCE:
                self._loss = NoCluster(f"the Dask scheduler gave no answer for {_SILENCE:.0f} s")
            return
        self._workers, self._silent_since = workers, math.inf
        needs = [given.task.demand.memory for given in self._given.values()]
        if workers.threads and min(needs, default=0) <= workers.largest:
            self._idle_since = now
        elif now - self._idle_since >= _PATIENCE:
            self._loss = NoCluster(
                f"the Dask cluster had no worker that could take a task for {_PATIENCE:.0f} s"
            )

    def _wind_up(
        self, waiting: deque[tuple[int, Task]]
    ) -> Iterator[tuple[Task, Result | Unfinished]]:
        """After a stop: what is nearly done may finish, as in the local pool."""
        self._client.dismiss()
        end = time.monotonic() + GRACE + 2
        while self._given and self._loss is None and time.monotonic() < end:
            yield from self._ended(waiting)
