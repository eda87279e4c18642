"""What happens on a Dask worker: tasks have processes, which end with the run or the worker."""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from multiprocessing import process
from pathlib import Path
from typing import Any

from distributed import Reschedule, Worker, WorkerPlugin, get_worker

from ..dataset.repository import Repository
from .budget import MachineBudget
from .cluster_terms import TOPIC, KilledForMemory, Report, Shared
from .machine import oom_kills
from .outcome import Result
from .pool import Census, NoScratch, Stopped, Unfinished, WorkerDied, WorkerPool
from .scratch import scratch_folder
from .stop import Stop
from .task import Task, run_task, spare_workers


class Keeper(WorkerPlugin):
    """Keeps a run's tasks on one Dask worker, and ends them when they are no longer wanted:
    the run is over or was lost, the task went elsewhere, or the worker closes.

    On a worker that can't do the run's tasks setup() raises ValueError with one sentence.
    """

    def __init__(self, run: str, shared: Shared, scratch: Path | None) -> None:
        self.name = run
        self._software = _software()
        self._shared, self._scratch = shared, scratch

    def setup(self, worker: Worker) -> None:
        """Begin on a worker, at the start of the run or when the worker joins."""
        self._worker = worker
        self._lock = threading.Lock()
        self._stops: dict[Any, Stop] = {}
        self._spares = spare_workers()
        self._is_closing = False
        # A nanny starts its worker as a daemon, which may start no processes.
        vars(process.current_process())["_config"]["daemon"] = False
        self.unfit = self._unfitness()
        if self.unfit is not None:
            raise ValueError(self.unfit)

    def _unfitness(self) -> str | None:
        here = f"the Dask worker at {self._worker.address}"
        if self._software != _software():
            return f"{here} has {_software()}; {self._software} was expected"
        shared = self._shared
        try:
            Repository(shared.repository).resolve(shared.commit)
        except Exception as error:
            return f"{here} does not see the dataset under its path: {error}"
        if shared.folder is not None and not shared.folder.is_dir():
            return f"{here} does not see the destination under its path {shared.folder.parent}"
        return None

    def teardown(self, worker: Worker) -> None:
        """End what runs; the run is over, or the worker closes."""
        with self._lock:
            self._is_closing = True
            self._is_lost = worker.status.name != "running"
            for stop in self._stops.values():
                stop.request()
        self._spares.close()

    def transition(self, key: Any, start: str, finish: str, **_: Any) -> None:
        """End a task that the scheduler takes away, as when the run's own process is gone."""
        if finish not in ("executing", "long-running"):
            with self._lock:
                if (stop := self._stops.get(key)) is not None:
                    stop.request()

    def perform(self, task: Task, preload: Sequence[str]) -> Report:
        """Run one task. Raises Reschedule when the worker closes meanwhile."""
        key, stop = self._worker.get_current_task(), Stop()
        with self._lock:
            self._stops[key] = stop
            if self._is_closing:
                stop.request()
        try:
            result = self._contained(key, task, preload, stop)
        finally:
            with self._lock:
                del self._stops[key]
            stop.close()
        if isinstance(result, Stopped) and self._is_closing and self._is_lost:
            raise Reschedule
        return Report(self._worker.address, result)

    def _contained(
        self, key: Any, task: Task, preload: Sequence[str], stop: Stop
    ) -> Result | Unfinished:
        kills = oom_kills()
        try:
            with scratch_folder(self._scratch or Path(self._worker.local_directory)) as folder:
                pool: WorkerPool[Task, Result] = WorkerPool(
                    run_task,
                    1,
                    preload=preload,
                    demand=lambda task: task.demand,
                    budget=MachineBudget(folder),
                    stop=stop,
                    watch=_Phases(self._worker, self.name, key),
                    spares=self._spares,
                )
                [(_, result)] = pool.run([replace(task, folder=folder / "task")])
        except OSError as error:
            return NoScratch(f"no scratch space on the worker: {error.strerror or error}")
        if isinstance(result, WorkerDied) and oom_kills() > kills:
            return KilledForMemory(str(result))
        return result


def _software() -> str:
    """What must be the same on both sides: Dask is only made for that."""
    versions = ["Python {}.{}".format(*sys.version_info)]
    for name in ("nemar-convert", "distributed"):
        with suppress(PackageNotFoundError):
            versions.append(f"{name} {version(name)}")
    return ", ".join(versions)


class _Phases:
    """Tells the run when its task comes into another phase."""

    def __init__(self, worker: Worker, run: str, key: Any) -> None:
        self._worker, self._facts = worker, {"run": run, "key": key, "worker": worker.address}
        self._last = ""

    def __call__(self, census: Census) -> None:
        phases = ("fetching", "computing", "uploading")
        phase = next((name for name in phases if getattr(census, name)), "")
        if phase and phase != self._last:
            self._last = phase
            self._worker.log_event(TOPIC, {**self._facts, "phase": phase})


def perform(task: Task, run: str, preload: Sequence[str]) -> Report:
    """The function that Dask calls, in a thread of a worker."""
    worker = get_worker()
    keeper = worker.plugins.get(run)
    if not isinstance(keeper, Keeper):  # the run is over
        return Report(worker.address, Stopped("the run was asked to stop"))
    if keeper.unfit is not None:
        return Report(worker.address, Stopped(keeper.unfit), keeper.unfit)
    return keeper.perform(task, preload)
