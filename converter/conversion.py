"""Recordings become stores in worker processes; each ends as one outcome."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

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
from .work.machine import oom_kills
from .work.need import Need, need_of
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
from .work.stop import Stop
from .work.task import CONVERSION, Task, run_task


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
    budget = MachineBudget(scratch, settings.memory)
    total = budget.total_memory if cluster is None else cluster.largest_memory()
    tasks: list[Task] = []
    for number, recording in enumerate(recordings):
        need = _need(recording, content)
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
    preload = _preload(recordings)
    if cluster is None:
        results = _converted_here(tasks, preload, settings.jobs, budget, stop, watch)
    else:
        results = cluster.run(tasks, preload, watch)
    for task, result in results:
        with suppress(OSError):
            shutil.rmtree(task.folder, ignore_errors=True)
        if isinstance(result, Result):
            yield Done(task.recording, _spooled(result, task.folder), result.effort, task.demand)
            continue
        reached = not isinstance(result, Stopped | NoCluster)
        yield Done(task.recording, _unfinished(result), Effort(), task.demand, was_reached=reached)


def _converted_here(
    tasks: Sequence[Task],
    preload: Sequence[str],
    jobs: int,
    budget: MachineBudget,
    stop: Stop,
    watch: Callable[[Census], None],
) -> Iterator[tuple[Task, Result | Unfinished]]:
    """Tasks with their results, from worker processes of this machine."""
    jobs = jobs or usable_cpus()
    pool = WorkerPool(
        run_task,
        jobs,
        ahead=jobs,
        preload=preload,
        demand=lambda task: task.demand,
        budget=budget,
        stop=stop,
        watch=watch,
    )
    kills = oom_kills()
    for task, result in pool.run(tasks):
        if isinstance(result, WorkerDied):
            was_killed, kills = oom_kills() > kills, oom_kills()
            yield task, KilledForMemory(str(result)) if was_killed else result
        else:
            yield task, result


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


def _need(recording: Recording, content: ContentSource) -> Need:
    known = source_format(recording)
    assert known is not None, "a plan converts known formats only"
    return need_of(recording, known, is_fetched=content.is_remote)


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
    return (*CONVERSION, *sorted(modules))


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
