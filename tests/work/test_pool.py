"""The worker pool: every task gets its result, whatever happens to its worker."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from converter.work.pool import (
    Demand,
    NoMemory,
    NoScratch,
    OutOfTime,
    Stopped,
    Unfinished,
    WorkerDied,
    WorkerPool,
)
from converter.work.spares import Spares
from converter.work.stop import Stop
from converter.work.worker import Turn

Obedience = tuple[str, object]


def obey(task: Obedience, turn: Turn) -> object:
    kind, value = task
    if kind == "kill":
        os.kill(os.getpid(), int(str(value)))
    if kind == "exit":
        os._exit(int(str(value)))
    if kind == "environment":
        return dict(os.environ)
    if kind == "raise":
        raise RuntimeError("a mistake of ours")
    if kind == "large":
        return b"x" * int(str(value))
    if kind == "core":
        with turn.core() as threads:
            return threads
    if kind == "linger":
        threading.Thread(target=time.sleep, args=(600,)).start()
    if kind == "family":
        folder = Path(str(value))
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        (folder / "pids").write_text(f"{os.getpid()} {child.pid}")
        time.sleep(600)
    return value


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def until(condition, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_dead_worker_costs_its_own_task_only(jobs: int) -> None:
    tasks: list[Obedience] = [
        ("give", 1),
        ("kill", signal.SIGKILL),
        ("give", 2),
        ("kill", signal.SIGSEGV),
        ("kill", signal.SIGBUS),
        ("exit", 3),
        ("raise", 0),
        ("large", 5_000_000),
        ("give", 4),
    ]
    results = dict(WorkerPool(obey, jobs, ahead=1).run(tasks))
    assert [results[("give", number)] for number in (1, 2, 4)] == [1, 2, 4]
    assert len(results[("large", 5_000_000)]) == 5_000_000  # type: ignore[arg-type]
    deaths = {t: str(r) for t, r in results.items() if t[0] in ("kill", "exit", "raise")}
    assert len(results) == len(tasks)
    assert all(isinstance(results[task], WorkerDied) for task in deaths)
    for number in (signal.SIGKILL, signal.SIGSEGV, signal.SIGBUS):
        assert number.name in deaths[("kill", number)]
    assert "exit status 3" in deaths[("exit", 3)]
    assert "exit status 1" in deaths[("raise", 0)]


def test_workers_have_an_environment_of_their_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A process of its own, as the server of workers keeps the environment of its start."""
    script = tmp_path / "run.py"
    script.write_text(
        "import os\n"
        "from converter.work.pool import WorkerPool\n"
        "from tests.work.test_pool import obey\n"
        "if __name__ == '__main__':\n"
        "    before = dict(os.environ)\n"
        "    [(_, found)] = WorkerPool(obey, 1).run([('environment', 0)])\n"
        "    assert dict(os.environ) == before\n"
        "    assert found['OPENBLAS_NUM_THREADS'] == '1'\n"
        "    assert found['OMP_NUM_THREADS'] == '3'\n"  # what is set is kept
        "    assert 'MALLOC_TRIM_THRESHOLD_' not in found\n"
    )
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "65536")  # as Dask does
    root = Path(__file__).resolve().parents[2]
    subprocess.run([sys.executable, script], env={**os.environ, "PYTHONPATH": root}, check=True)


def test_a_lone_recording_may_use_all_cores_and_many_share_them() -> None:
    assert [r for _, r in WorkerPool(obey, 4).run([("core", 0)])] == [4]
    results = [r for _, r in WorkerPool(obey, 2, ahead=2).run([("core", n) for n in range(5)])]
    assert results[0] == 1
    assert set(results) <= {1, 2}


def test_a_worker_that_does_not_end_after_its_result_is_ended() -> None:
    started = time.monotonic()
    assert [r for _, r in WorkerPool(obey, 1).run([("linger", 7)])] == [7]
    assert time.monotonic() - started < 300


@pytest.mark.parametrize("end", ["time limit", "closed iterator", "stop"])
def test_a_worker_is_killed_with_all_that_it_started(tmp_path: Path, end: str) -> None:
    stop = Stop()
    seconds = 8.0 if end == "time limit" else 600.0
    pool: WorkerPool[Obedience, object] = WorkerPool(
        obey, 2, demand=lambda _: Demand(seconds=seconds), stop=stop
    )
    results = iter(pool.run([("family", str(tmp_path)), ("give", 1)]))
    assert next(results) == (("give", 1), 1)
    pids = tmp_path / "pids"
    if end != "time limit":
        until(lambda: pids.exists() and pids.read_text())
    if end == "closed iterator":
        results.close()
    else:
        if end == "stop":
            stop.request()
        [(_, result)] = list(results)
        assert isinstance(result, OutOfTime if end == "time limit" else Stopped)
    for pid in map(int, pids.read_text().split()):
        until(lambda pid=pid: not is_alive(pid))


def test_no_worker_outlives_a_run_that_is_killed(tmp_path: Path) -> None:
    script = tmp_path / "run.py"
    script.write_text(
        "from converter.work.pool import WorkerPool\n"
        "from tests.work.test_pool import obey\n"
        "if __name__ == '__main__':\n"
        f"    list(WorkerPool(obey, 1).run([('family', {str(tmp_path)!r})]))\n"
    )
    root = Path(__file__).resolve().parents[2]
    run = subprocess.Popen([sys.executable, script], env={**os.environ, "PYTHONPATH": str(root)})
    pids = tmp_path / "pids"
    until(lambda: pids.exists() and pids.read_text())
    run.kill()
    run.wait()
    for pid in map(int, pids.read_text().split()):
        until(lambda pid=pid: not is_alive(pid))


def hold(task: str, turn: Turn) -> str:
    """Compute for a moment; the end of the server that forks workers, where told so."""
    with turn.core():
        time.sleep(0.3)
    return task


def test_the_death_of_the_fork_server_costs_nobody_an_attempt(tmp_path: Path) -> None:
    results = iter(WorkerPool(mortal, 2).run([str(tmp_path), "a", "b", "c"]))
    got: dict[str, str | Unfinished] = dict(results)
    assert got == {str(tmp_path): str(tmp_path), "a": "a", "b": "b", "c": "c"}


def mortal(task: str, turn: Turn) -> str:
    marker = Path(task) / "killed"
    if Path(task).is_dir() and not marker.exists():
        marker.touch()
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(600)
    return task


def signalled(task: str, turn: Turn) -> str:
    """What a batch system does that signals every process of a job."""
    for pid in (os.getpid(), os.getppid()):
        os.kill(pid, signal.SIGTERM)
    return task


def test_a_sigterm_is_for_the_run_and_not_for_its_workers() -> None:
    assert dict(WorkerPool(signalled, 1).run(["a", "b"])) == {"a": "a", "b": "b"}


def test_a_stop_begins_nothing_new_and_lets_the_running_finish() -> None:
    stop = Stop()
    pool: WorkerPool[str, str] = WorkerPool(hold, 1, stop=stop)
    results = pool.run([str(number) for number in range(50)])
    first = next(results)
    stop.request()
    rest = list(results)
    assert first == ("0", "0")
    assert len(rest) == 49
    assert sum(isinstance(result, Stopped) for _, result in rest) >= 47


def whose(task: str, turn: Turn) -> int:
    """The process that has the task; "die" ends it."""
    with turn.core():
        if task == "die":
            os.kill(os.getpid(), signal.SIGKILL)
    return os.getpid()


def test_spare_workers_do_one_task_after_the_other_until_one_dies() -> None:
    with Spares() as spares:
        pool: WorkerPool[str, int] = WorkerPool(whose, 1, spares=spares)
        first = [result for _, result in pool.run(["a", "b", "die", "c"])]
        second = [result for _, result in pool.run(["d"])]
    before, also, death, after = first
    assert before == also != after
    assert isinstance(death, WorkerDied)
    assert second == [after]
    for pid in (before, after):
        assert isinstance(pid, int)
        assert not is_alive(pid)


def test_a_spare_worker_that_died_costs_nobody_an_attempt() -> None:
    with Spares() as spares:
        pool: WorkerPool[str, int] = WorkerPool(whose, 1, spares=spares)
        [(_, dead)] = pool.run(["a"])
        assert isinstance(dead, int)
        os.kill(dead, signal.SIGKILL)
        until(lambda: not is_alive(dead))
        [(_, other)] = pool.run(["b"])
    assert isinstance(other, int)
    assert other != dead


def test_without_spares_each_task_has_a_worker_of_its_own() -> None:
    closed = Spares()
    closed.close()
    for spares in (None, closed):
        pool: WorkerPool[str, int] = WorkerPool(whose, 1, spares=spares)
        [(_, first), (_, second)] = pool.run(["a", "b"])
        assert first != second


class Tight:
    """A budget of so many bytes of memory and of scratch."""

    def __init__(self, memory: int, scratch: int) -> None:
        self.memory, self.scratch = memory, scratch
        self.most = 0

    def free_memory(self, reservations, enough) -> int:
        reserved = sum(size for _, size in reservations)
        self.most = max(self.most, reserved)
        return self.memory - reserved

    def free_scratch(self, reserved: int) -> int:
        return self.scratch - reserved


def test_what_does_not_fit_waits_and_what_never_fits_is_told_so(monkeypatch) -> None:
    monkeypatch.setattr("converter.work.pool._PATIENCE", 0.5)
    demands = {
        "a": Demand(memory=60),
        "b": Demand(memory=60),
        "c": Demand(memory=40),
        "huge": Demand(memory=101),
        "wide": Demand(scratch=1001),
        "broad": Demand(scratch=900),
        "flat": Demand(scratch=200),
    }
    budget = Tight(memory=100, scratch=1000)
    pool: WorkerPool[str, str] = WorkerPool(
        hold, 3, ahead=2, demand=demands.__getitem__, budget=budget
    )
    results = dict(pool.run(demands))
    assert isinstance(results.pop("huge"), NoMemory)
    assert isinstance(results.pop("wide"), NoScratch)
    assert results == {name: name for name in ("a", "b", "c", "broad", "flat")}
    assert budget.most <= 100


class Told:
    """A budget that keeps what it is told of reservations."""

    def __init__(self) -> None:
        self.reservations: set[tuple[int, int]] = set()

    def free_memory(self, reservations: Sequence[tuple[int, int]], enough: int) -> int:
        self.reservations.update(reservations)
        return 1 << 62

    def free_scratch(self, reserved: int) -> int:
        return 1 << 62


def hand_over(task: tuple[str, Path], turn: Turn) -> None:
    role, folder = task
    if role == "second":
        until((folder / "handed over").exists)
    with turn.core():
        if role == "first":
            turn.hand_over(4_000_000)
            (folder / "handed over").touch()
            until((folder / "second computes").exists)
        else:
            (folder / "second computes").touch()


def test_memory_is_that_of_the_process_which_computes(tmp_path: Path) -> None:
    told = Told()
    pool: WorkerPool[tuple[str, Path], None] = WorkerPool(
        hand_over, 2, demand=lambda _: Demand(memory=7), budget=told
    )
    assert [result for _, result in pool.run([("first", tmp_path), ("second", tmp_path)])] == [
        None,
        None,
    ]
    assert told.reservations == {(4_000_000, 7)}
