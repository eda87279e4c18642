"""Recordings become stores in worker processes; each ends as one outcome."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from .contract.codes import FailureCode, PendingReason
from .contract.details import public_detail
from .dataset.content import ContentSource
from .dataset.recording import Recording
from .places import Source
from .plan import source_format
from .recording.attributes import StoreContext
from .settings import Settings
from .storage.destination import Destination
from .storage.local_destination import LocalDestination
from .work.budget import MachineBudget
from .work.cluster import DaskCluster
from .work.cluster_terms import KilledForMemory, NoCluster, Shared
from .work.fork_server import usable_cpus
from .work.limits import time_limit
from .work.machine import lies_in_memory, oom_kills
from .work.need import Need, declared_rate, need_of
from .work.outcome import Converted, Deferred, Effort, Failed, Outcome, Result
from .work.pool import (
    Census,
    Demand,
    NoMemory,
    NoScratch,
    Stopped,
    Unfinished,
    WorkerDied,
    WorkerPool,
)
from .work.scratch import scratch_folder
from .work.spares import Spares
from .work.stop import Stop
from .work.task import CONVERSION, WARM, Task, run_task, spare_workers

_JSON_LIMIT: Final = 1 << 16  # bytes of a sidecar that is read to estimate needs

_OF_FREE: Final = 0.9  # of the memory that is free now: other programs come and go


@dataclass(frozen=True, slots=True)
class Done:
    """A recording with its outcome; `demand` is what was reserved for it.

    `was_reached` is false for one that the run left alone because it was asked to stop.
    """

    recording: Recording
    outcome: Outcome
    effort: Effort
    demand: Demand
    was_reached: bool = True


def convert(
    recordings: Sequence[Recording],
    settings: Settings,
    content: ContentSource,
    context: StoreContext,
    destination: Destination,
    scratch: Path,
    stop: Stop,
    watch: Callable[[Census], None],
    cluster: DaskCluster | None = None,
) -> Iterator[Done]:
    """Convert recordings and place their stores; yield each as it ends.

    The work is done by this machine or by the cluster. Raises NoCluster when that never worked.
    Spools of events stay in `scratch`; everything else of a recording is gone when it ends.
    """
    if not recordings:
        return  # a worker's imports take seconds
    engine = _Engine(settings, MachineBudget(scratch, settings.memory), stop, watch, cluster)
    total = engine.largest_memory()
    rates = _declared_rates(recordings, content)
    tasks: list[Task] = []
    for number, recording in enumerate(recordings):
        need = _need(recording, content, rates.get(recording.path))
        if cluster is None and lies_in_memory(scratch):
            need = replace(need, memory=need.memory + need.scratch)
        demand = Demand(
            min(need.memory, total),
            need.scratch,
            time_limit(recording.size, settings.timeout),
        )
        if need.least > total:
            yield Done(recording, _too_large(need, total), Effort(), demand)
            continue
        folder = scratch / str(number)
        tasks.append(Task(recording, content, context, destination, folder, demand))
    again: list[Task] = []
    for done, task in _run(tasks, engine):
        if _ran_out_of_memory(done) and len(tasks) > 1:
            again.append(task)
        else:
            yield done
    # An estimate that was too low would be so in every later run: once more, with all there is.
    if again:
        memory = engine.free_memory()
        for done, _ in _run([_with_memory(task, memory) for task in again], engine):
            yield done


def _with_memory(task: Task, memory: int) -> Task:
    return replace(task, demand=replace(task.demand, memory=max(task.demand.memory, memory)))


@contextmanager
def opened_cluster(
    settings: Settings,
    source: Source,
    destination: Destination,
    stop: Stop,
    note: Callable[[str], None],
) -> Iterator[DaskCluster | None]:
    """The Dask cluster that the settings name, if they do. Raises NoCluster."""
    if settings.dask is None or settings.dry_run:
        yield None
        return
    with ExitStack() as stack:
        cluster = DaskCluster(settings.dask, stop, note)
        stack.callback(cluster.close)
        folder = None
        if isinstance(destination, LocalDestination):
            # Workers that don't see it would write to another folder of the same name.
            folder = stack.enter_context(scratch_folder(destination.root.parent))
        shared = Shared(source.repository.path, source.commit, folder)
        cluster.prepare(shared, settings.scratch and settings.scratch.absolute())
        yield cluster


@dataclass(frozen=True, slots=True)
class _Engine:
    """What runs tasks: worker processes of this machine, or the cluster."""

    settings: Settings
    budget: MachineBudget
    stop: Stop
    watch: Callable[[Census], None]
    cluster: DaskCluster | None

    def largest_memory(self) -> int:
        """Bytes that one task can have at most. Raises NoCluster."""
        return self.budget.total_memory if self.cluster is None else self.cluster.largest_memory()

    def free_memory(self) -> int:
        """Bytes that one task can have now that none is at work. Raises NoCluster."""
        if self.cluster is not None:
            return self.cluster.largest_memory()
        return int(_OF_FREE * self.budget.free_memory((), enough=self.budget.total_memory))

    def run(
        self, tasks: Sequence[Task], preload: Sequence[str]
    ) -> Iterator[tuple[Task, Result | Unfinished]]:
        """Yield each task with its result as it ends."""
        if self.cluster is not None:
            yield from self.cluster.run(tasks, preload, self.watch)
            return
        with spare_workers() as spares:
            yield from self._run_here(tasks, preload, spares)

    def _run_here(
        self, tasks: Sequence[Task], preload: Sequence[str], spares: Spares
    ) -> Iterator[tuple[Task, Result | Unfinished]]:
        jobs = self.settings.jobs or usable_cpus()
        pool: WorkerPool[Task, Result] = WorkerPool(
            run_task,
            jobs,
            ahead=jobs,
            preload=preload,
            demand=lambda task: task.demand,
            budget=self.budget,
            stop=self.stop,
            watch=self.watch,
            spares=spares,
        )
        kills = oom_kills()
        for task, result in pool.run(tasks):
            if isinstance(result, WorkerDied):
                was_killed, kills = oom_kills() > kills, oom_kills()
                yield task, KilledForMemory(str(result)) if was_killed else result
            else:
                yield task, result


def _run(tasks: Sequence[Task], engine: _Engine) -> Iterator[tuple[Done, Task]]:
    for task, result in engine.run(tasks, _preload([task.recording for task in tasks])):
        shutil.rmtree(task.folder, ignore_errors=True)
        if isinstance(result, Result):
            outcome = _spooled(result, task.folder)
            yield Done(task.recording, outcome, result.effort, task.demand), task
            continue
        reached = not isinstance(result, Stopped | NoCluster)
        done = Done(task.recording, _unfinished(result), Effort(), task.demand, reached)
        yield done, task


def _ran_out_of_memory(done: Done) -> bool:
    outcome = done.outcome
    return (
        isinstance(outcome, Deferred)
        and outcome.attempted
        and outcome.reason is PendingReason.MEMORY_BUDGET
    )


def _declared_rates(
    recordings: Sequence[Recording], content: ContentSource
) -> Mapping[str, float | None]:
    """Native rates in Hz by path, as far as JSON sidecars that lie in git tell them."""
    chains = {
        recording.path: [
            entry.blob
            for entry in recording.sidecars.json
            if entry.key is None and entry.size <= _JSON_LIMIT
        ]
        for recording in recordings
    }
    blobs = list(dict.fromkeys(blob for chain in chains.values() for blob in chain))
    texts = dict(zip(blobs, content.repository.read_blobs(blobs), strict=True))
    known: dict[tuple[str, ...], float | None] = {}
    rates: dict[str, float | None] = {}
    for path, chain in chains.items():
        if (documents := tuple(chain)) not in known:
            known[documents] = declared_rate([texts[blob] for blob in chain])
        rates[path] = known[documents]
    return rates


def _need(recording: Recording, content: ContentSource, rate: float | None) -> Need:
    known = source_format(recording)
    assert known is not None, "a plan converts known formats only"
    return need_of(recording, known, is_fetched=content.is_remote, rate=rate)


def _too_large(need: Need, total: int) -> Failed:
    return Failed(
        FailureCode.RECORDING_TOO_LARGE,
        f"at least {need.least / 1e6:,.0f} MB of memory needed, "
        f"{total / 1e6:,.0f} MB is all there is",
    )


def _preload(recordings: Sequence[Recording]) -> tuple[str, ...]:
    """What the workers of these recordings import."""
    formats = {source_format(recording) for recording in recordings}
    modules = {name for known in formats if known for name in known.modules}
    return (*CONVERSION, *sorted(modules), WARM)


def _spooled(result: Result, folder: Path) -> Outcome:
    """The outcome, with the rows of its events in a file beside the task's folder."""
    outcome = result.outcome
    if not isinstance(outcome, Converted) or result.spool is None:
        return outcome
    spool = folder.with_suffix(".arrow")
    spool.write_bytes(result.spool)
    return replace(outcome, events=spool)


def _unfinished(why: Unfinished) -> Deferred:
    """What becomes of a recording whose worker gave no result."""
    if isinstance(why, Stopped):
        return Deferred(PendingReason.NOT_ATTEMPTED, attempted=False)
    text = public_detail(str(why))
    if isinstance(why, NoScratch | NoCluster):
        return Deferred(PendingReason.NOT_ATTEMPTED, text, attempted=False)
    if isinstance(why, NoMemory):
        return Deferred(PendingReason.MEMORY_BUDGET, text, attempted=False)
    if isinstance(why, KilledForMemory):
        return Deferred(PendingReason.MEMORY_BUDGET, f"{text}, as the machine ran out of memory")
    return Deferred(PendingReason.INFRA_FAILURE, text)
