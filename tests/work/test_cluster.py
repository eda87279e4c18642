"""Tasks on a real Dask cluster: each gets its result, whatever becomes of workers and run."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest

from converter.contract.codes import FailureCode, RecordingError
from converter.work import cluster_client, cluster_worker
from converter.work.cluster import DaskCluster
from converter.work.cluster_terms import NoCluster, Shared
from converter.work.outcome import Failed, Result
from converter.work.pool import Demand, OutOfTime, Stopped, Unfinished, WorkerDied
from converter.work.stop import Stop
from converter.work.task import CONVERSION, Task

from ..conftest import commit_all
from ..servers.dask_cluster import ROOT, DaskProcesses, is_alive, until


@dataclass(frozen=True)
class Trap:
    """Takes the place of a recording: what is asked first of it in the worker process acts."""

    path: str
    act: Callable[[Trap], object]
    folder: Path
    size: int = 0

    @property
    def refused(self) -> str:
        self.act(self)
        raise RecordingError(FailureCode.EMPTY_RECORDING, self.path)

    @property
    def begun(self) -> Path:
        return self.folder / f"{self.path}.begun"


def give(trap: Trap) -> None:
    """Nothing happens: the task ends well."""


def kill(trap: Trap) -> None:
    os.kill(os.getpid(), int(trap.path.split()[1]))


def leave(trap: Trap) -> None:
    os._exit(3)


def hang(trap: Trap) -> None:
    """With a child; tells its process number."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    (trap.folder / "new").write_text(f"{os.getpid()} {child.pid}")
    (trap.folder / "new").rename(trap.begun)
    time.sleep(600)


def hang_once(trap: Trap) -> None:
    if not trap.begun.exists():
        hang(trap)


def hold(trap: Trap) -> None:
    """For a moment, what nobody else may hold at the same time."""
    with (trap.folder / "held").open("x"):
        time.sleep(0.3)
    (trap.folder / "held").unlink()


def pause(trap: Trap) -> None:
    time.sleep(0.2)


@pytest.fixture(scope="module")
def dask(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaskProcesses]:
    with DaskProcesses(tmp_path_factory.mktemp("cluster") / "dask") as processes:
        processes.add_worker(nanny=True)
        processes.add_worker(1e9)
        processes.await_workers(2)
        yield processes


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    path = tmp_path_factory.mktemp("repository")
    return path, commit_all(path)


@dataclass
class Run:
    """A run of traps on the cluster, with what an operator is told."""

    cluster: DaskCluster
    notes: list[str]
    stop: Stop
    folder: Path

    def tasks(
        self, *traps: tuple[str, Callable[[Trap], object]], demand: Demand | None = None
    ) -> list[Task]:
        made = [
            (Trap(path, act, self.folder), None, None, None, self.folder / path, demand or Demand())
            for path, act in traps
        ]
        return [Task(*cast(Any, parts)) for parts in made]

    def results(self, tasks: Sequence[Task]) -> Iterator[tuple[str, Result | Unfinished]]:
        for task, result in self.cluster.run(tasks, [*CONVERSION, __name__], lambda _: None):
            yield task.recording.path, result


@pytest.fixture
def start(dask: DaskProcesses, repository: tuple[Path, str], tmp_path: Path) -> Callable[..., Any]:
    @contextmanager
    def started(
        scratch: Path | None = None, shared: Shared | None = None, on: DaskProcesses = dask
    ) -> Iterator[Run]:
        notes: list[str] = []
        shared, stop = shared or Shared(*repository, tmp_path), Stop()
        with closing(DaskCluster(str(on.file), stop, notes.append)) as cluster:
            cluster.prepare(shared, scratch)
            yield Run(cluster, notes, stop, tmp_path)

    return started


def is_well(result: Result | Unfinished) -> bool:
    return isinstance(result, Result) and isinstance(result.outcome, Failed)


def processes_of(begun: Path) -> list[int]:
    until(begun.exists, f"{begun.name} is there")
    return [int(number) for number in begun.read_text().split()]


def none_lives(processes: Sequence[int]) -> None:
    until(lambda: not any(map(is_alive, processes)), f"{processes} have ended")


def test_a_dead_process_costs_its_own_task_and_no_worker(start, dask: DaskProcesses) -> None:
    with start() as run:
        assert run.cluster.largest_memory() == 4_000_000_000
        tasks = run.tasks(
            ("before", give),
            *((f"kill {number}", kill) for number in (signal.SIGKILL, signal.SIGSEGV)),
            ("leave", leave),
            *((f"after {number}", give) for number in range(6)),
        )
        tasks += run.tasks(("hang", hang), demand=Demand(seconds=10))
        results = dict(run.results(tasks))
        bad = {path: results.pop(path) for path in list(results) if not is_well(results[path])}
    assert len(results) == 7
    assert all(path in ("before", *(f"after {n}" for n in range(6))) for path in results)
    assert isinstance(bad.pop("hang"), OutOfTime)
    assert all(type(result) is WorkerDied for result in bad.values())
    assert "SIGSEGV" in str(bad[f"kill {signal.SIGSEGV}"])
    assert "exit status 3" in str(bad["leave"])
    none_lives(processes_of(run.folder / "hang.begun"))
    # An operator is told where, the public is not.
    assert sum("the Dask worker at tcp://" in note for note in run.notes) == 3
    assert not any("tcp://" in str(result) for result in bad.values())
    assert all(worker.poll() is None for worker in dask.workers)


def test_memory_is_a_resource(start) -> None:
    """Tasks that only one worker has the memory for are never two at a time."""
    with start() as run:
        large = run.tasks(*((f"hold {n}", hold) for n in range(4)), demand=Demand(memory=3 * 10**9))
        small = run.tasks(*((f"give {n}", give) for n in range(4)), demand=Demand(memory=10**9))
        results = dict(run.results([*large, *small]))
    assert [path for path in results if not is_well(results[path])] == []
    assert len(results) == 8


def test_a_stop_ends_what_runs_and_begins_nothing(start) -> None:
    with start() as run:
        tasks = run.tasks(("hang", hang), *((f"give {n}", give) for n in range(20)))
        results = run.results(tasks)
        got = [next(results)]
        hanging = processes_of(run.folder / "hang.begun")
        run.stop.request()
        got += results
        none_lives(hanging)
    assert len(got) == 21
    assert isinstance(dict(got)["hang"], Stopped)
    assert all(is_well(result) or isinstance(result, Stopped) for _, result in got)


def test_nothing_is_at_work_for_a_run_that_is_gone(
    dask: DaskProcesses, repository: tuple[Path, str], tmp_path: Path
) -> None:
    script = tmp_path / "run.py"
    script.write_text(
        "from pathlib import Path\n"
        "from tests.work.test_cluster import *\n"
        f"folder = Path({str(tmp_path)!r})\n"
        f"shared = Shared(Path({str(repository[0])!r}), {repository[1]!r}, folder)\n"
        f"cluster = DaskCluster({str(dask.file)!r}, Stop(), print)\n"
        "cluster.prepare(shared, None)\n"
        "run = Run(cluster, [], Stop(), folder)\n"
        "list(run.results(run.tasks(('one', hang), ('two', hang))))\n"
    )
    process = subprocess.Popen(
        [sys.executable, script], env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    hanging = [p for name in ("one", "two") for p in processes_of(tmp_path / f"{name}.begun")]
    process.kill()
    process.wait()
    none_lives(hanging)


@pytest.mark.slow
def test_the_tasks_of_lost_workers_go_elsewhere(start, dask: DaskProcesses) -> None:
    scratch = dask.folder / "scratch"
    with start(scratch) as run, ThreadPoolExecutor() as executor:
        first = [("one", hang_once), ("two", hang_once)]
        tasks = run.tasks(*first, *((f"give {n}", give) for n in range(6)))
        results = executor.submit(lambda: dict(run.results(tasks)))
        hanging = [p for name, _ in first for p in processes_of(run.folder / f"{name}.begun")]
        for number, how in enumerate((signal.SIGKILL, signal.SIGTERM)):
            dask.end_worker(number, how)
            dask.add_worker()
        done = results.result(timeout=120)
    assert [path for path in done if not is_well(done[path])] == []
    assert len(done) == 8
    none_lives(hanging)
    assert list(scratch.iterdir()) == []
    assert sum("is gone; its tasks go to others" in note for note in run.notes) == 2


def test_an_unfit_worker_is_told(
    dask: DaskProcesses, start, repository: tuple[Path, str], tmp_path: Path, monkeypatch
) -> None:
    path, commit = repository
    with (
        pytest.raises(NoCluster, match=r"at tcp://\S+ does not see the destination"),
        start(shared=Shared(path, commit, tmp_path / "elsewhere")),
    ):
        pass
    with (
        pytest.raises(NoCluster, match=f"does not see the dataset .* '{'0' * 40}'"),
        start(shared=Shared(path, "0" * 40, None)),
    ):
        pass
    monkeypatch.setattr(cluster_worker, "_software", lambda: "Python 9.9")
    with (
        pytest.raises(
            NoCluster, match=r"nemar-convert \S+, distributed \S+; Python 9.9 was expected"
        ),
        start(),
    ):
        pass


def test_no_cluster_is_one_sentence(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(cluster_client, "_CONNECT", 1)
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{bound.getsockname()[1]}"
        with pytest.raises(NoCluster, match=f"no Dask scheduler answers at {address}"):
            DaskCluster(address, Stop(), print)
    with pytest.raises(NoCluster, match="is no file; a scheduler file or an address"):
        DaskCluster("127.0.0.1:8786", Stop(), print)


@pytest.mark.slow
def test_a_worker_that_joins_unfit_is_retired(start, dask: DaskProcesses, tmp_path: Path) -> None:
    with start() as run:
        run.cluster.largest_memory()
        tasks = run.tasks(*((f"pause {n}", pause) for n in range(60)))
        tmp_path.rename(tmp_path.with_name("unseen"))
        number = dask.add_worker()
        seen = "does not see the destination"
        until(lambda: seen in dask.log_of_worker(number), "the worker has looked")
        tmp_path.with_name("unseen").rename(tmp_path)
        results = dict(run.results(tasks))
    assert all(map(is_well, results.values()))
    assert any("does not see" in note and "it is retired" in note for note in run.notes)


@pytest.mark.slow
@pytest.mark.parametrize("end", ["silence", "stop"])
def test_a_frozen_scheduler_ends_the_wait(
    start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    monkeypatch.setattr("converter.work.cluster._SILENCE", 3.0 if end == "silence" else 600)
    with DaskProcesses(tmp_path / "frozen") as own:
        own.add_worker()
        own.await_workers(1)
        with start(on=own) as run:
            results = run.results(run.tasks(*((f"pause {n}", pause) for n in range(200))))
            first = next(results)
            assert is_well(first[1])
            own.scheduler.send_signal(signal.SIGSTOP)
            if end == "stop":
                run.stop.request()
            rest = [result for _, result in results]
        own.scheduler.send_signal(signal.SIGCONT)
    assert isinstance(rest[-1], NoCluster if end == "silence" else Stopped)
