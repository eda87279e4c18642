"""Runs as people and batch systems make them: partial, repeated, broken, misused."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import edfio
import numpy as np
import pytest

from converter import convert_dataset
from converter.cli import TOGETHER
from converter.pipeline import NothingPublished

from ..conftest import commit_all, git
from ..open_files import open_files

ID = "nm000001"


def write_edf(path: Path, seconds: int = 5, channels: int = 2, seed: int = 0) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    signals = [
        edfio.EdfSignal(
            rng.normal(size=500 * seconds) * 50, 500, label=f"E{i}", physical_dimension="uV"
        )
        for i in range(channels)
    ]
    edfio.Edf(signals).write(path)


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    """Three recordings, one of them with events, one that is no EDF."""
    root = tmp_path / ID
    for number in (1, 2):
        write_edf(root / f"sub-0{number}/eeg/sub-0{number}_task-rest_eeg.edf", seed=number)
    (root / "sub-01/eeg/sub-01_task-rest_events.tsv").write_text(
        "onset\tduration\ttrial_type\n1.5\t0\tgo\nn/a\t0\tgo\n", encoding="utf-8"
    )
    broken = root / "sub-03/eeg/sub-03_task-rest_eeg.edf"
    broken.parent.mkdir(parents=True)
    broken.write_bytes(b"no EDF at all")
    (root / "dataset_description.json").write_text(
        '{"Name": "Three", "License": "CC0", "DatasetDOI": "doi:10.1/x", "Authors": ["A. B."]}'
    )
    commit_all(root)
    return root


def index_of(dest: Path) -> dict:
    return json.loads((dest / ID / "zarr/index.json").read_bytes())


def command(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "converter", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_the_command_publishes_and_says_so(dataset: Path, tmp_path: Path) -> None:
    done = command(dataset, "--dest", tmp_path / "out", "--json", tmp_path / "summary.json")
    assert done.returncode == 0, done.stderr
    assert "3 recordings = 2 stores + 1 failures + 0 pending" in done.stdout
    assert "sub-03_task-rest_eeg.edf" in done.stdout
    assert len([line for line in done.stderr.splitlines() if line.startswith("[")]) == 3
    summary = json.loads((tmp_path / "summary.json").read_bytes())
    index = index_of(tmp_path / "out")
    for key in ("dataset_id", "source_commit", "discovered_count", "store_count", "errors"):
        assert summary[key] == index[key]
    assert (summary["converted"], summary["pending_count"]) == (2, 0)
    assert (index["doi"], index["license"]) == ("10.1/x", "CC0")


def test_a_dry_run_writes_nothing(dataset: Path, tmp_path: Path) -> None:
    before = sorted(tmp_path.rglob("*"))
    done = command(dataset, "--dest", tmp_path / "out", "--dry-run")
    assert done.returncode == 0
    assert "EDF" in done.stdout
    assert "3 recordings" in done.stdout
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["--commit", "nowhere"], 1, "'nowhere' names no commit"),
        (["--commit=--output=x"], 1, "names no commit"),
        (["--only", "sub-99/*"], 1, "matches none of the 3 recordings"),
        (["--dataset-id", "NM1"], 2, "two lower-case letters and six digits"),
        (["--jobs", "0"], 2, "a whole number from 1 up expected"),
        (["--no-such-option"], 2, "unrecognized arguments"),
        (["--dest", "/dev/null/x"], 1, "/dev/null/x"),
    ],
)
def test_misuse_is_one_sentence_and_an_exit_status(
    dataset: Path, tmp_path: Path, arguments: list[str], status: int, said: str
) -> None:
    if "--dest" not in arguments:
        arguments = [*arguments, "--dest", str(tmp_path / "out")]
    done = command(dataset, *arguments)
    assert done.returncode == status, done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "out").exists()


def test_no_repository_and_no_id(tmp_path: Path) -> None:
    (tmp_path / ID).mkdir()
    for path in (tmp_path / ID, tmp_path / "gone/nm000002"):
        with pytest.raises(NothingPublished, match="repository"):
            convert_dataset(path, dest=tmp_path / "out")
    with pytest.raises(NothingPublished, match="is no dataset id"):
        convert_dataset(tmp_path, dest=tmp_path / "out")


def test_the_commit_decides_not_the_work_tree(dataset: Path, tmp_path: Path) -> None:
    first = git(dataset, "rev-parse", "HEAD")
    write_edf(dataset / "sub-04/eeg/sub-04_task-rest_eeg.edf")
    assert convert_dataset(dataset, dest=tmp_path / "a").discovered_count == 3
    git(dataset, "tag", "before")
    commit_all(dataset, "add a subject")
    shutil.rmtree(dataset / "sub-01")
    assert convert_dataset(dataset, dest=tmp_path / "b").discovered_count == 4
    summary = convert_dataset(dataset, dest=tmp_path / "c", commit="before")
    assert (summary.discovered_count, summary.source_commit) == (3, first)


def test_a_bare_clone_converts_alike(dataset: Path, tmp_path: Path) -> None:
    bare = tmp_path / "bare" / f"{ID}.git"
    git(dataset, "clone", "-q", "--bare", str(dataset), str(bare))
    assert convert_dataset(bare, dest=tmp_path / "out").store_count == 2


def test_only_converts_what_matches_and_the_next_run_the_rest(
    dataset: Path, tmp_path: Path
) -> None:
    dest = tmp_path / "out"
    first = convert_dataset(dataset, dest=dest, only=["sub-01/*"])
    assert (first.converted, first.store_count, first.pending_count) == (1, 1, 2)
    assert {entry["reason"] for entry in index_of(dest)["pending"]} == {"not_attempted"}
    assert {entry["attempts"] for entry in index_of(dest)["pending"]} == {0}
    second = convert_dataset(dataset, dest=dest)
    assert (second.converted, second.store_count, second.failure_count) == (1, 2, 1)
    kept = index_of(dest)["stores"][0]
    third = convert_dataset(dataset, dest=dest)
    assert (third.converted, third.store_count, third.failure_count) == (0, 2, 1)
    assert index_of(dest)["stores"][0] == kept
    assert third.events_row_count == first.events_row_count == 2
    clean = convert_dataset(dataset, dest=dest, clean=True)
    assert (clean.converted, clean.store_count) == (2, 2)


def test_a_store_that_vanished_is_converted_again(dataset: Path, tmp_path: Path) -> None:
    convert_dataset(dataset, dest=tmp_path)
    shutil.rmtree(tmp_path / ID / "zarr/sub-02")
    assert convert_dataset(dataset, dest=tmp_path).converted == 1
    assert (tmp_path / ID / "zarr/sub-02/eeg/sub-02_task-rest_eeg.zarr/zarr.json").is_file()


def test_stores_that_are_no_longer_listed_are_removed(dataset: Path, tmp_path: Path) -> None:
    convert_dataset(dataset, dest=tmp_path)
    git(dataset, "rm", "-rq", "sub-02")
    commit_all(dataset, "withdraw a subject")
    assert convert_dataset(dataset, dest=tmp_path).store_count == 1
    assert not (tmp_path / ID / "zarr/sub-02").exists()


@pytest.mark.parametrize("damage", [b"", b"{", b'{"format": "other", "format_version": 3}'])
def test_an_index_that_is_not_ours_is_replaced_only_when_told(
    dataset: Path, tmp_path: Path, damage: bytes
) -> None:
    index = tmp_path / ID / "zarr/index.json"
    index.parent.mkdir(parents=True)
    index.write_bytes(damage)
    with pytest.raises(NothingPublished, match="--clean replaces it"):
        convert_dataset(dataset, dest=tmp_path)
    assert index.read_bytes() == damage
    assert convert_dataset(dataset, dest=tmp_path, clean=True).store_count == 2


def test_only_never_costs_another_recording_its_store(dataset: Path, tmp_path: Path) -> None:
    convert_dataset(dataset, dest=tmp_path)
    write_edf(dataset / "sub-02/eeg/sub-02_task-rest_eeg.edf", seed=9)
    commit_all(dataset, "another sub-02")
    before = index_of(tmp_path)
    with pytest.raises(NothingPublished, match=r"sub-02.*without --only"):
        convert_dataset(dataset, dest=tmp_path, only=["sub-01/*"])
    assert index_of(tmp_path) == before
    assert convert_dataset(dataset, dest=tmp_path, only=["sub-02/*"]).converted == 1


def test_a_store_that_cannot_be_placed_is_for_a_later_run(dataset: Path, tmp_path: Path) -> None:
    obstacle = tmp_path / ID / "zarr/sub-01"
    obstacle.parent.mkdir(parents=True)
    obstacle.write_bytes(b"")
    summary = convert_dataset(dataset, dest=tmp_path)
    assert (summary.store_count, summary.pending_count) == (1, 1)
    assert summary.pending[0].reason == "infra_failure"
    obstacle.unlink()
    assert convert_dataset(dataset, dest=tmp_path).store_count == 2


def test_a_store_of_a_run_that_was_cut_short_is_not_taken_for_the_published_one(
    dataset: Path, tmp_path: Path
) -> None:
    convert_dataset(dataset, dest=tmp_path)
    root = tmp_path / ID / "zarr/sub-02/eeg/sub-02_task-rest_eeg.zarr/zarr.json"
    newer = json.loads(root.read_bytes())
    newer["attributes"]["created_utc"] = "2100-01-01T00:00:00Z"
    root.write_text(json.dumps(newer))
    assert convert_dataset(dataset, dest=tmp_path).converted == 1


def test_nobody_listening_costs_no_index(dataset: Path, tmp_path: Path) -> None:
    for number, end in enumerate((">/dev/full 2>/dev/full", "2>&1 | head -n 1", ">&- 2>&-")):
        dest = tmp_path / str(number)
        line = f"{sys.executable} -m converter {dataset} --dest {dest} {end}"
        subprocess.run(["bash", "-c", line], check=False, capture_output=True, timeout=120)
        assert index_of(dest)["store_count"] == 2


def test_a_summary_without_a_place_is_found_out_before_the_work(
    dataset: Path, tmp_path: Path
) -> None:
    done = command(dataset, "--dest", tmp_path / "out", "--json", tmp_path / "no/such/file")
    assert done.returncode == 1
    assert "a writable file expected" in done.stderr
    assert not (tmp_path / "out").exists()


def test_a_lost_events_file_is_made_anew(dataset: Path, tmp_path: Path) -> None:
    convert_dataset(dataset, dest=tmp_path)
    (tmp_path / ID / "zarr/events.parquet").unlink()
    shutil.rmtree(tmp_path / ID / "zarr/sub-02")
    summary = convert_dataset(dataset, dest=tmp_path)
    assert not summary.events_upload_failed
    assert (summary.converted, summary.events_row_count) == (1, 2)
    assert index_of(tmp_path)["events_row_count"] == 2


def test_a_catalog_row_from_a_file_and_one_that_is_gone(dataset: Path, tmp_path: Path) -> None:
    row = tmp_path / "row.json"
    row.write_text('{"doi": "10.5/y", "license": "CC-BY", "citation": "C", "hed_version": "8.3"}')
    convert_dataset(dataset, dest=tmp_path / "a", catalog=str(row))
    assert index_of(tmp_path / "a")["doi"] == "10.5/y"
    summary = convert_dataset(dataset, dest=tmp_path / "b", catalog="http://127.0.0.1:9")
    assert summary.provenance_fetch_failed
    assert summary.store_count == 2
    assert index_of(tmp_path / "b")["doi"] is None


def test_a_dataset_where_everything_fails_gets_an_index(tmp_path: Path) -> None:
    root = tmp_path / ID
    (root / "sub-01/eeg").mkdir(parents=True)
    (root / "sub-01/eeg/sub-01_task-rest_eeg.edf").write_bytes(b"x" * 300)
    commit_all(root)
    summary = convert_dataset(root, dest=tmp_path / "out")
    assert (summary.store_count, summary.failure_count) == (0, 1)
    assert index_of(tmp_path / "out")["failures"][0]["reason"]


@pytest.fixture
def annexed(dataset: Path) -> Path:
    """The dataset again, its data files in a real annex."""
    if shutil.which("git-annex") is None:
        pytest.skip("git-annex is not installed")
    git(dataset, "annex", "init", "-q", "here")
    git(dataset, "config", "annex.largefiles", "include=*.edf")
    for file in dataset.glob("sub-*/eeg/*.edf"):
        git(dataset, "rm", "-q", "--cached", str(file))
        git(dataset, "annex", "add", "-q", str(file))
    commit_all(dataset, "annex")
    return dataset


def test_annexed_content_that_is_there(annexed: Path, tmp_path: Path) -> None:
    assert git(annexed, "ls-tree", "HEAD", "sub-01/eeg/").count("120000") == 1
    assert convert_dataset(annexed, dest=tmp_path / "out").store_count == 2
    manifest = json.loads((tmp_path / "out" / ID / "zarr/manifest.json").read_bytes())
    for store in manifest["stores"]:
        key = git(annexed, "annex", "lookupkey", store["path"])
        assert store["source_key"] == key
        assert store["size_bytes"] == (annexed / store["path"]).stat().st_size


def test_annexed_content_that_is_absent_is_pending_by_its_key(
    annexed: Path, tmp_path: Path
) -> None:
    clone, dest = tmp_path / "clone" / ID, tmp_path / "out"
    git(annexed, "clone", "-q", str(annexed), str(clone))
    git(clone, "remote", "set-url", "origin", str(tmp_path / "gone"))
    first = convert_dataset(clone, dest=dest)
    assert (first.store_count, first.failure_count, first.pending_count) == (0, 0, 3)
    for entry in index_of(dest)["pending"]:
        assert git(annexed, "annex", "lookupkey", entry["path"]) in entry["last_error"]
        assert entry["attempts"] == 0
    git(clone, "remote", "set-url", "origin", str(annexed))
    git(clone, "annex", "init", "-q", "clone")
    git(clone, "annex", "get", "-q", ".")
    second = convert_dataset(clone, dest=dest)
    assert (second.store_count, second.failure_count, second.pending) == (2, 1, ())


def test_annexed_content_of_another_size_is_never_served(annexed: Path, tmp_path: Path) -> None:
    content = (annexed / "sub-01/eeg/sub-01_task-rest_eeg.edf").resolve()
    content.parent.chmod(0o755)
    content.chmod(0o644)
    content.write_bytes(content.read_bytes()[:-100])
    summary = convert_dataset(annexed, dest=tmp_path / "out")
    [entry] = summary.pending
    assert entry.path.startswith("sub-01")
    assert entry.reason == "infra_failure"
    assert entry.attempts == 1
    assert summary.store_count == 1


def workers_reading(name: str, dest: Path) -> list[int]:
    """Processes of a run to `dest` that have a file of this name open, for reading only."""
    return [
        int(process.name)
        for process in Path("/proc").glob("[0-9]*")
        for file in open_files(process.name)
        if file.path.name == name and file.path.is_relative_to(dest) and not file.is_written
    ]


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc to find the worker")
def test_a_worker_killed_in_the_middle_costs_its_recording_one_attempt(
    dataset: Path, tmp_path: Path
) -> None:
    large = "sub-09/eeg/sub-09_task-rest_eeg.edf"
    write_edf(dataset / large, seconds=600, channels=64)
    commit_all(dataset, "a large one")
    run = subprocess.Popen(
        [sys.executable, "-m", "converter", str(dataset), "--dest", str(tmp_path / "out"), "-q"]
    )
    while not (workers := workers_reading(Path(large).name, tmp_path / "out")):
        assert run.poll() is None
        time.sleep(0.002)
    for worker in workers:
        os.kill(worker, signal.SIGKILL)
    assert run.wait(timeout=120) == 0
    index = index_of(tmp_path / "out")
    assert (index["store_count"], index["failure_count"], index["pending_count"]) == (2, 1, 1)
    [pending] = index["pending"]
    assert (pending["path"], pending["reason"]) == (large, "infra_failure")
    assert pending["attempts"] == 1
    assert "SIGKILL" in pending["last_error"]
    assert [p.name for p in (tmp_path / "out" / ID).iterdir()] == ["zarr"]
    again = convert_dataset(dataset, dest=tmp_path / "out")
    assert (again.converted, again.store_count, again.pending_count) == (1, 3, 0)


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc to find the worker")
@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_no_worker_outlives_the_converter(dataset: Path, tmp_path: Path, signum: int) -> None:
    large = "sub-09/eeg/sub-09_task-rest_eeg.edf"
    write_edf(dataset / large, seconds=600, channels=64)
    commit_all(dataset, "a large one")
    run = subprocess.Popen(
        [sys.executable, "-m", "converter", str(dataset), "--dest", str(tmp_path / "out"), "-q"],
        stderr=subprocess.PIPE,
        text=True,
    )
    while not (workers := workers_reading(Path(large).name, tmp_path / "out")):
        assert run.poll() is None
        time.sleep(0.002)
    if signum != signal.SIGKILL:
        for worker in workers:
            os.kill(worker, signal.SIGSTOP)  # or it might be done before the second signal
        run.send_signal(signum)
        assert run.stderr is not None
        assert "stopping" in run.stderr.readline()
        time.sleep(TOGETHER + 0.2)
    run.send_signal(signum)
    _, said = run.communicate(timeout=60)
    assert "Traceback" not in said
    assert run.returncode == (-signum if signum == signal.SIGKILL else 130)
    deadline = time.monotonic() + 20
    while workers_reading(Path(large).name, tmp_path / "out"):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert not (tmp_path / "out" / ID / "zarr/index.json").exists()
    if signum != signal.SIGKILL:
        assert {path.name for path in (tmp_path / "out" / ID).iterdir()} <= {"zarr"}
