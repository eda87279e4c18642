"""Runs on machines that fail them: full and read-only disks, stuck readers, a clock that steps."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from ..servers.dask_cluster import until
from . import saboteur
from .disks import Disk, disk
from .history import DATASET_ID, History, check_invariant, edf, state

RECORDINGS = 6
SECONDS = 300  # a store of 0.4 MB


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> History:
    history = History(tmp_path_factory.mktemp("dataset"))
    history.dest.mkdir()
    for number in range(RECORDINGS):
        name = f"sub-{number:02}/eeg/sub-{number:02}_task-rest"
        history.write(f"{name}_events.tsv", f"onset\tduration\tword\n0.{number}\t0\tw{number}\n")
        (history.root / f"{name}_eeg.edf").write_bytes(edf(number, SECONDS))
    history.commit()
    return history


@pytest.fixture(scope="module")
def undisturbed(dataset: History, tmp_path_factory: pytest.TempPathFactory) -> Any:
    dest = tmp_path_factory.mktemp("undisturbed")
    dataset.run(dest)
    return state(dest)


def command(
    dataset: History, dest: Path | Disk, *options: str | Path, **how: Any
) -> subprocess.Popen[str]:
    how = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **how}
    enter, place = (
        (dest.enter, dest.place) if isinstance(dest, Disk) else (how.pop("enter", ()), dest)
    )
    converter = [sys.executable, "-m", "converter", dataset.root, "--dest", place, "--jobs", "2"]
    return subprocess.Popen([*enter, *converter, *options], text=True, **how)


def ended(run: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = run.communicate(timeout=120)
    assert "Traceback" not in err
    return run.returncode, out, err


def index_of(dest: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((dest / DATASET_ID / "zarr/index.json").read_bytes())
    return document


def test_a_destination_that_fills_up(dataset: History, undisturbed: Any, tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    (tmp_path / "small").mkdir()
    with disk(tmp_path / "small", "1500k") as small:
        status, _, err = ended(command(dataset, small, "--scratch", str(scratch)))
        assert status == 0, err
        check_invariant(small.path / DATASET_ID / "zarr")
        index = index_of(small.path)
        assert 0 < index["store_count"] < RECORDINGS
        for entry in index["pending"]:
            assert (entry["reason"], entry["attempts"]) == ("not_attempted", 0)
            assert "No space left" in entry["last_error"]
        lie_there = {path.name for path in small.path.rglob("*.zarr")}
        assert lie_there == {Path(entry["zarr"]).name for entry in index["stores"]}
        assert not list(scratch.rglob("*"))
        small.remount("size=64m")
        assert ended(command(dataset, small, "--scratch", str(scratch)))[0] == 0
        assert state(small.path) == undisturbed


def test_no_room_for_the_index_leaves_the_older_one(dataset: History, tmp_path: Path) -> None:
    history = dataset.copy_to(tmp_path)
    (tmp_path / "small").mkdir()
    with disk(tmp_path / "small", "32m") as small:
        assert ended(command(history, small))[0] == 0
        before = (small.path / DATASET_ID / "zarr/index.json").read_bytes()
        history.write("sub-00/eeg/sub-00_task-rest_events.tsv", "onset\tduration\n0.5\t0\n")
        history.commit()
        ballast = small.path / "ballast"
        with suppress(OSError), ballast.open("wb") as file:
            while True:
                file.write(bytes(4096))
                file.flush()
        status, _, err = ended(command(history, small, "--scratch", str(tmp_path / "s")))
        assert status == 1, err
        assert "No space left" in err
        assert (small.path / DATASET_ID / "zarr/index.json").read_bytes() == before
        check_invariant(small.path / DATASET_ID / "zarr")
        ballast.unlink()
        assert ended(command(history, small))[0] == 0
        history.run(tmp_path / "fresh")
        assert state(small.path) == state(tmp_path / "fresh")


def test_scratch_that_holds_no_recording(
    dataset: History, undisturbed: Any, tmp_path: Path
) -> None:
    (tmp_path / "small").mkdir()
    dest = tmp_path / "dest"
    with disk(tmp_path / "small", "1m") as small:
        scratch = ("--scratch", str(small.place))
        status, _, err = ended(command(dataset, dest, *scratch, enter=small.enter))
        assert status == 0, err
        index = index_of(dest)
        assert index["pending_count"] == RECORDINGS
        for entry in index["pending"]:
            assert (entry["reason"], entry["attempts"]) == ("not_attempted", 0)
            assert "scratch" in entry["last_error"]
            assert "bytes" in entry["last_error"] or "MB" in entry["last_error"]
        assert not list(small.path.iterdir())
    dataset.run(dest)
    assert state(dest) == undisturbed


def test_a_read_only_destination_is_told_and_left(
    dataset: History, undisturbed: Any, tmp_path: Path
) -> None:
    (tmp_path / "small").mkdir()
    with disk(tmp_path / "small", "32m") as small:
        assert ended(command(dataset, small))[0] == 0
        small.remount("ro")
        status, out, err = ended(command(dataset, small, "--clean"))
        assert (status, out) == (1, "")
        assert len(err.strip().splitlines()) <= 2
        assert "Read-only file system" in err
        assert state(small.path) == undisturbed


def full_pipe() -> tuple[int, int]:
    """A pipe that takes no byte more until somebody reads."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with suppress(BlockingIOError):
        while True:
            os.write(writer, bytes(4096))
    os.set_blocking(writer, True)
    return reader, writer


@pytest.mark.parametrize("is_stopped", [False, True])
def test_a_reader_that_is_stuck_holds_nothing_up(
    dataset: History, tmp_path: Path, *, is_stopped: bool
) -> None:
    reader, writer = full_pipe()
    report = tmp_path / "report.json"
    run = command(
        dataset, tmp_path / "dest", "-v", "--callback", str(report), stdout=writer, stderr=writer
    )
    os.close(writer)
    if is_stopped:
        placed = tmp_path / "dest" / DATASET_ID / "zarr"
        until(
            lambda: run.poll() is not None or list(placed.glob("sub-*/eeg/*.zarr")),
            "a store is there",
        )
        run.send_signal(signal.SIGTERM)
        assert run.wait(60) == 0
    else:
        until(lambda: run.poll() is not None or report.exists(), "the run is done")
        with os.fdopen(reader, "rb") as file:
            said = file.read().lstrip(b"\0").decode()
        assert run.wait(60) == 0
        assert f"{RECORDINGS} recordings = {RECORDINGS} stores" in said
        assert said.count("\n[") == RECORDINGS
        assert said.rindex("\n[") < said.index(" stores"), "stdout and stderr are in order"
    check_invariant(tmp_path / "dest" / DATASET_ID / "zarr")


@pytest.mark.parametrize("compiled", [None, "int main() { return 0; }"])
def test_an_installation_whose_compiled_part_is_another(
    dataset: History, tmp_path: Path, compiled: str | None
) -> None:
    own = Path(__file__).parents[2]
    shutil.copytree(own / "schemas", tmp_path / "schemas")
    package = shutil.copytree(own / "converter", tmp_path / "converter")
    for library in package.glob("recording/libpasses*"):
        library.unlink()
        if compiled is not None:
            library.write_text(compiled)
    run = command(dataset, tmp_path / "dest", cwd=tmp_path)
    assert ended(run) == (
        1,
        "",
        "nemar-convert: this installation is not whole: libpasses.so can't be loaded, install "
        "nemar-convert again\n",
    )
    assert not (tmp_path / "dest").exists()


# Days to and fro, in every process of the run.
STEPPING = """
import itertools, time
real, steps = time.time, itertools.cycle((0.0, 9e5, -9e5, 4e4))
time.time = lambda: real() + next(steps)
"""


def test_a_clock_that_steps(dataset: History, undisturbed: Any, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(STEPPING)
    path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")]))
    run = command(dataset, tmp_path / "dest", env={**os.environ, "PYTHONPATH": path})
    assert ended(run)[0] == 0
    assert state(tmp_path / "dest") == undisturbed


def test_a_clock_that_goes_back_between_runs(
    dataset: History, undisturbed: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for now in ("2030-01-01T00:00:00Z", "2029-12-31T23:00:00Z"):
        monkeypatch.setattr("converter.pipeline._now", lambda now=now: now)
        done = dataset.run(tmp_path, clean=True)
        assert len(done.converted) == RECORDINGS
        assert index_of(tmp_path)["updated_utc"] == now
    assert not dataset.run(tmp_path).converted
    assert state(tmp_path) == undisturbed


def test_a_recording_that_needs_more_than_estimated_gets_it(tmp_path: Path) -> None:
    history = History(tmp_path)
    for task in ("rest", "thirst", "balloon"):
        history.record(f"sub-01/eeg/sub-01_task-{task}_eeg.edf")
    history.commit()
    saboteur.run(history)
    index = history.index
    assert index["store_count"] == 2
    (pending,) = index["pending"]
    assert ("task-balloon" in pending["path"], pending["reason"]) == (True, "memory_budget")
