"""Whole runs on a Dask cluster, of which parts are killed on the way."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ..servers.dask_cluster import DaskProcesses
from .archive import Changed, credentials
from .history import DATASET_ID, History, check_invariant, edf, index_at, state

RECORDINGS = 12


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> History:
    """Recordings with events, and one that is none."""
    history = History(tmp_path_factory.mktemp("dataset"))
    for number in range(RECORDINGS):
        name = f"sub-{number:02}/eeg/sub-{number:02}_task-rest"
        history.write(f"{name}_events.tsv", f"onset\tduration\tword\n0.{number}\t0\tw{number}\n")
        (history.root / f"{name}_eeg.edf").write_bytes(edf(number, seconds=600))
    history.write("sub-99/eeg/sub-99_task-rest_eeg.edf", "no EDF at all")
    history.commit()
    return history


@pytest.fixture(scope="module")
def made_here(dataset: History, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The state of a copy that this machine made alone."""
    dest = tmp_path_factory.mktemp("here")
    dataset.run(dest)
    return state(dest)


@pytest.fixture
def dask(tmp_path: Path) -> Iterator[DaskProcesses]:
    with DaskProcesses(tmp_path / "dask") as processes:
        processes.add_worker(nanny=True)
        processes.add_worker()
        processes.await_workers(2)
        yield processes


def start(dataset: History, dest: Path, scheduler: Path, *options: str) -> subprocess.Popen[str]:
    arguments = [dataset.root.name, "--dest", str(dest), "--dask", str(scheduler), "-v", *options]
    return subprocess.Popen(
        [sys.executable, "-m", "converter", *arguments],
        cwd=dataset.root.parent,  # the workers are elsewhere
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def until_one_is_done(run: subprocess.Popen[str]) -> None:
    assert run.stderr is not None
    assert any(line.startswith("[1/") for line in run.stderr)


def finish(run: subprocess.Popen[str], code: int = 0) -> tuple[str, str]:
    out, err = run.communicate(timeout=300)
    assert run.returncode == code, err
    assert "Traceback" not in err
    return out, err


def completed_here(dataset: History, dest: Path, done: int, made_here: Any) -> None:
    """The next run, without the cluster, does the rest and no more."""
    assert len(dataset.run(dest).converted) == RECORDINGS - done
    assert state(dest) == made_here


def test_a_scheduler_that_is_not_there_is_one_sentence(dataset: History, tmp_path: Path) -> None:
    out, err = finish(start(dataset, tmp_path / "out", tmp_path / "scheduler.json"), code=1)
    [line] = err.splitlines()
    assert "scheduler.json' is no file; a scheduler file or an address such as tcp://" in line
    assert (out, (tmp_path / "out").exists()) == ("", False)


@pytest.mark.slow
def test_a_cluster_makes_the_copy_that_one_machine_makes(
    dask: DaskProcesses, dataset: History, made_here: Any, tmp_path: Path
) -> None:
    dest = tmp_path / "serving"
    _, err = finish(start(dataset, dest, dask.file))
    assert state(dest) == made_here
    assert sum(line.startswith("[") for line in err.splitlines()) == RECORDINGS + 1
    assert list(tmp_path.rglob(".nemar-convert-*")) == []

    # A stop publishes what is done; what is not waits for the next run.
    run = start(dataset, tmp_path / "stopped", dask.file)
    until_one_is_done(run)
    run.send_signal(signal.SIGTERM)
    out, _ = finish(run)
    assert "stopped by a signal" in out
    serving = tmp_path / "stopped" / DATASET_ID / "zarr"
    check_invariant(serving)
    stores = index_at(serving)["store_count"]
    assert 1 <= stores < RECORDINGS
    completed_here(dataset, tmp_path / "stopped", stores, made_here)


@pytest.mark.slow
def test_a_worker_that_is_killed_costs_nothing(
    dask: DaskProcesses, dataset: History, made_here: Any, tmp_path: Path
) -> None:
    dest, scratch = tmp_path / "serving", tmp_path / "scratch"
    run = start(dataset, dest, dask.file, "--scratch", str(scratch))
    until_one_is_done(run)
    dask.end_worker(0, signal.SIGKILL)
    finish(run)
    assert state(dest) == made_here
    # Its folder is removed by the next task in the same place.
    dataset.run(tmp_path / "another", scratch=scratch)
    assert list(scratch.iterdir()) == []


@pytest.mark.slow
def test_the_scheduler_that_is_killed_costs_the_rest(
    dask: DaskProcesses, dataset: History, made_here: Any, tmp_path: Path
) -> None:
    dest = tmp_path / "serving"
    run = start(dataset, dest, dask.file)
    until_one_is_done(run)
    dask.scheduler.kill()
    out, _ = finish(run)
    serving = dest / DATASET_ID / "zarr"
    check_invariant(serving)
    index = index_at(serving)
    assert 1 <= index["store_count"] < RECORDINGS
    for entry in index["pending"]:
        assert (entry["reason"], entry["attempts"]) == ("not_attempted", 0)
        assert entry["last_error"] == "the Dask scheduler was lost"
    assert "the Dask scheduler was lost" in out
    completed_here(dataset, dest, index["store_count"], made_here)


@pytest.mark.slow
def test_workers_fetch_and_upload_by_themselves(
    changed: Changed, undisturbed: Any, tmp_path: Path
) -> None:
    """A dataset of the archive, whose content is in one bucket, is copied to another."""
    environment = {
        name: value
        for name, value in credentials(changed.archive.server).items()
        if value is not None
    }
    with DaskProcesses(tmp_path / "dask", environment) as dask:
        dask.add_worker()
        dask.await_workers(1)
        copy = changed.archive.copy()
        done = copy.run("--commit", changed.newer, "--dask", str(dask.file), "-v")
        assert copy.state(tmp_path / "copy") == undisturbed
        assert "no resource" not in done.err
