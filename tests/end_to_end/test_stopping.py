"""Runs that are stopped, killed, or not alone: readers are safe, and the next run completes."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from converter import Summary, convert_dataset
from converter.publish import claim, journal, publication

from ..open_files import open_files
from .history import ARRAYS, DATASET_ID, History, check_invariant, state

RECORDINGS = 8


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> History:
    """Recordings with events, and one that is none."""
    history = History(tmp_path_factory.mktemp("dataset"))
    history.dest.mkdir()
    for number in range(RECORDINGS):
        name = f"sub-{number:02}/eeg/sub-{number:02}_task-rest"
        history.record(f"{name}_eeg.edf", number)
        history.write(f"{name}_events.tsv", f"onset\tduration\tword\n0.{number}\t0\tw{number}\n")
    history.write("sub-99/eeg/sub-99_task-rest_eeg.edf", "no EDF at all")
    history.write("dataset_description.json", '{"Name": "N", "License": "CC0"}')
    history.commit()
    return history


@pytest.fixture(scope="module")
def undisturbed(dataset: History, tmp_path_factory: pytest.TempPathFactory) -> Any:
    dest = tmp_path_factory.mktemp("undisturbed")
    dataset.run(dest)
    return state(dest)


def differences(found: Any, expected: Any, place: str = "") -> list[str]:
    """Where two states differ, as lines that a person can read."""
    if isinstance(found, dict) and isinstance(expected, dict):
        keys = sorted(found.keys() | expected.keys())
        pairs = [(f"{place}.{key}", found.get(key), expected.get(key)) for key in keys]
    elif isinstance(found, list) and isinstance(expected, list) and len(found) == len(expected):
        pairs = [
            (f"{place}[{i}]", *pair) for i, pair in enumerate(zip(found, expected, strict=True))
        ]
    else:
        return [] if found == expected else [f"{place}: {found!r} is not {expected!r}"]
    return [line for where, a, b in pairs for line in differences(a, b, where)]


def start(dataset: History, dest: Path, *options: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "converter", str(dataset.root), "--dest", str(dest), *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def processes_of(dest: Path) -> list[str]:
    """Command lines and open files that name the destination."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        if int(process.name) == os.getpid():
            continue
        try:
            names = [(process / "cmdline").read_text()]
        except OSError:
            continue
        names += [str(file.path) for file in open_files(process.name)]
        found += [name for name in names if str(dest) in name]
    return found


def nothing_is_left(dest: Path) -> None:
    end = time.monotonic() + 60
    while processes_of(dest):
        assert time.monotonic() < end, processes_of(dest)
        time.sleep(0.05)
    assert not list(dest.rglob(".nemar-convert-*"))


def stop_after(dataset: History, dest: Path, seconds: float, number: int) -> str:
    """Stop a run by a signal; it ends in order, and says what it did."""
    run = start(dataset, dest, "--jobs", "1")
    time.sleep(seconds)
    run.send_signal(number)
    out, err = run.communicate(timeout=120)
    assert "Traceback" not in err
    if (dest / DATASET_ID / "zarr/index.json").exists():
        check_invariant(dest / DATASET_ID / "zarr")
    else:  # before there was anything to publish
        assert run.returncode in (130, -number)
    nothing_is_left(dest)
    return out


@pytest.mark.slow
def test_a_signal_at_any_moment(dataset: History, undisturbed: Any, tmp_path: Path) -> None:
    rng = random.Random(5)
    started = time.monotonic()
    start(dataset, tmp_path / "timed", "--jobs", "1").communicate(timeout=300)
    whole = time.monotonic() - started
    for number in range(10):
        dest = tmp_path / str(number)
        dest.mkdir()
        which = rng.choice((signal.SIGTERM, signal.SIGINT))
        stop_after(dataset, dest, max(0.5, rng.uniform(0.1, 1.1) * whole), which)
        dataset.run(dest)
        assert differences(state(dest), undisturbed) == []


def test_a_stopped_run_publishes_what_is_done(
    dataset: History, undisturbed: Any, tmp_path: Path
) -> None:
    run = start(dataset, tmp_path, "--jobs", "1")
    assert run.stderr is not None
    for line in run.stderr:
        if line.startswith("[1/"):
            break
    run.send_signal(signal.SIGTERM)
    out, _ = run.communicate(timeout=60)
    assert run.returncode == 0
    assert "stopped by a signal" in out
    serving = tmp_path / DATASET_ID / "zarr"
    check_invariant(serving)
    index = json.loads((serving / "index.json").read_bytes())
    assert 1 <= index["store_count"] < RECORDINGS
    for entry in index["pending"]:
        assert (entry["reason"], entry["attempts"]) == ("not_attempted", 0)
    nothing_is_left(tmp_path)
    done = dataset.run(tmp_path)
    assert len(done.converted) == RECORDINGS - index["store_count"]
    assert differences(state(tmp_path), undisturbed) == []


def test_a_stop_before_the_first_recording_leaves_the_copy_alone(
    dataset: History, tmp_path: Path
) -> None:
    from converter.pipeline import Settings, Silent, run
    from converter.work.stop import Stop

    dest = tmp_path / "serving"
    dataset.run(dest)
    before = (dest / DATASET_ID / "zarr/index.json").read_bytes()
    stop = Stop()
    stop.request()
    summary = run(Settings(str(dataset.root), dest=str(dest), clean=True), Silent(), stop)
    assert summary.was_stopped
    assert summary.converted == 0
    assert (dest / DATASET_ID / "zarr/index.json").read_bytes() == before
    check_invariant(dest / DATASET_ID / "zarr")


KILLED_AT = {
    "before the events": (publication, "_write_events"),
    "between events and manifest": (publication, "_write_manifest"),
    "before the index": (publication, "encode_index"),
    "before the removals": (publication, "_remove_old"),
    "before the journal is gone": (publication, "remove_journal"),
}

KILLER = """
import os, signal, sys
from pathlib import Path
from converter import convert_dataset
import {module} as module
calls = 0
def die(*arguments, **options):
    os.kill(os.getpid(), signal.SIGKILL)
if __name__ == "__main__":
    module.{name} = die
    convert_dataset(sys.argv[1], dest=sys.argv[2], jobs=2)
"""


@pytest.mark.parametrize("stage", KILLED_AT)
def test_a_run_killed_while_it_publishes(dataset: History, tmp_path: Path, stage: str) -> None:
    """Over an older copy, of which one store is no longer in the dataset."""
    history = dataset.copy_to(tmp_path)
    history.run()
    history.remove("sub-00/eeg/sub-00_task-rest_eeg.edf")
    history.write("sub-01/eeg/sub-01_task-rest_events.tsv", "onset\tduration\n0.5\t0\n")
    history.commit()
    module, name = KILLED_AT[stage]
    script = tmp_path / "killer.py"
    script.write_text(KILLER.format(module=module.__name__, name=name))
    done = subprocess.run(
        [sys.executable, script, history.root, history.dest], check=False, timeout=120
    )
    assert done.returncode == -signal.SIGKILL
    named = history.index["stores"]
    assert len(named) == (RECORDINGS if "journal" not in stage and "removals" not in stage else 7)
    for entry in named:
        assert (history.serving / entry["zarr"] / "zarr.json").is_file()
    history.run()
    fresh = tmp_path / "fresh"
    history.run(fresh)
    assert differences(state(history.dest), state(fresh)) == []


def test_stores_of_a_killed_run_that_no_commit_has_any_more_are_removed(
    dataset: History, tmp_path: Path
) -> None:
    history = dataset.copy_to(tmp_path)
    history.run()
    history.record("sub-50/eeg/sub-50_task-rest_eeg.edf", 50)
    history.commit()
    script = tmp_path / "killer.py"
    script.write_text(KILLER.format(module="converter.publish.publication", name="_write_events"))
    subprocess.run([sys.executable, script, history.root, history.dest], check=False, timeout=120)
    assert "sub-50/eeg/sub-50_task-rest_eeg.zarr" in history.stores()
    history.remove("sub-50/eeg/sub-50_task-rest_eeg.edf")
    history.commit()
    history.run()
    assert "sub-50/eeg/sub-50_task-rest_eeg.zarr" not in history.stores()
    check_invariant(history.serving)
    for name in (claim.NAME, journal.NAME):
        assert not (history.serving / name).exists()


def test_two_runs_at_once(dataset: History, undisturbed: Any, tmp_path: Path) -> None:
    runs = [start(dataset, tmp_path, "--jobs", "1") for _ in range(2)]
    for run in runs:
        _, err = run.communicate(timeout=300)
        assert run.returncode == 0, err
    assert differences(state(tmp_path), undisturbed) == []


def test_a_run_merges_with_what_another_published_meanwhile(
    dataset: History, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one converts half of the recordings while this one converts the other half."""
    from converter import pipeline

    undisturbed = tmp_path / "undisturbed"
    dataset.run(undisturbed)
    ours, theirs = threading.Event(), threading.Event()
    summaries: list[Summary] = []
    original = pipeline._publish

    def late(*arguments: Any) -> Any:
        if not ours.is_set():
            ours.set()
            assert theirs.wait(120)
        return original(*arguments)

    monkeypatch.setattr(pipeline, "_publish", late)
    dest = tmp_path / "dest"
    mine = ["sub-0[0-3]/*"]

    def convert() -> None:
        summaries.append(convert_dataset(dataset.root, dest=dest, jobs=1, only=mine))

    with ThreadPoolExecutor(1) as executor:
        done = executor.submit(convert)
        assert ours.wait(120)
        convert_dataset(dataset.root, dest=dest, jobs=1, only=["sub-0[4-7]/*", "sub-99/*"])
        theirs.set()
        done.result(timeout=120)
    assert differences(state(dest), state(undisturbed)) == []
    assert summaries[0].store_count == RECORDINGS
    assert {array: len(dataset_index(dest)[array]) for array in ARRAYS} == {
        "stores": RECORDINGS,
        "failures": 1,
        "pending": 0,
    }


def dataset_index(dest: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((dest / DATASET_ID / "zarr/index.json").read_bytes())
    return document


def test_an_interrupt_after_the_end_shows_no_traceback(tmp_path: Path) -> None:
    script = (
        "import atexit, os, signal, sys\n"
        "atexit.register(os.kill, os.getpid(), signal.SIGINT)\n"
        "from converter.cli import main\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert run.returncode == -signal.SIGINT
    [line] = run.stderr.splitlines()
    assert line.startswith("nemar-convert: the folder's name ")
