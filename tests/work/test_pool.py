"""The worker pool: every task gets its result, whatever happens to its worker."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from converter.work.pool import WorkerDied, WorkerPool


def obey(task: tuple[str, int]) -> int:
    kind, number = task
    if kind == "kill":
        os.kill(os.getpid(), number)
    if kind == "exit":
        os._exit(number)
    if kind == "threads":
        return int(os.environ["OPENBLAS_NUM_THREADS"])
    return number


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_dead_worker_costs_its_own_task_only(jobs: int) -> None:
    tasks = [
        ("give", 1),
        ("kill", signal.SIGKILL),
        ("give", 2),
        ("kill", signal.SIGSEGV),
        ("exit", 3),
        ("give", 4),
    ]
    results = dict(WorkerPool(obey, jobs).run(tasks))
    assert [results[("give", number)] for number in (1, 2, 4)] == [1, 2, 4]
    deaths = {task: str(result) for task, result in results.items() if task[0] != "give"}
    assert len(results) == len(tasks)
    assert all(isinstance(results[task], WorkerDied) for task in deaths)
    assert "SIGKILL" in deaths[("kill", signal.SIGKILL)]
    assert "SIGSEGV" in deaths[("kill", signal.SIGSEGV)]
    assert "exit status 3" in deaths[("exit", 3)]


def test_workers_use_one_thread_and_leave_our_environment_alone(monkeypatch) -> None:
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    [(_, threads)] = WorkerPool(obey, 1).run([("threads", 0)])
    assert threads == 1
    assert "OPENBLAS_NUM_THREADS" not in os.environ


def linger(task: tuple[str, str]) -> None:
    """Leave a file named by this process in a folder, and stay or go."""
    folder, kind = task
    Path(folder, f"{kind}-{os.getpid()}").touch()
    while kind == "stay":
        time.sleep(0.1)


def test_closing_the_iterator_ends_the_workers(tmp_path: Path) -> None:
    results = iter(WorkerPool(linger, 2).run([(str(tmp_path), "stay"), (str(tmp_path), "go")]))
    assert next(results)[0] == (str(tmp_path), "go")
    while not (staying := list(tmp_path.glob("stay-*"))):
        time.sleep(0.01)
    results.close()
    with pytest.raises(ProcessLookupError):
        os.kill(int(staying[0].name.removeprefix("stay-")), 0)
