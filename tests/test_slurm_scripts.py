"""The scripts of a site, on a real SLURM of one machine."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from .conftest import commit_all
from .end_to_end.history import check_invariant, edf, index_at
from .servers.annex import AnnexDataset
from .servers.slurm import Slurm, why_not
from .storage.web_server import web_server, whole

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(why_not() is not None, reason=why_not() or ""),
]

SCRIPTS = Path(__file__).resolve().parents[1] / "scripts" / "slurm"


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    with Slurm(tmp_path_factory.mktemp("slurm") / "one") as started:
        yield started


@pytest.fixture(scope="module")
def datasets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A list of two datasets and of one folder that is none."""
    folder = tmp_path_factory.mktemp("datasets")
    for seed, name in enumerate(("nm000001", "a clone")):
        for number in range(3):
            file = folder / name / f"sub-{number:02}/eeg/sub-{number:02}_task-rest_eeg.edf"
            file.parent.mkdir(parents=True)
            file.write_bytes(edf(10 * seed + number))
        commit_all(folder / name)
    (folder / "nm000003").mkdir()
    lines = [f"{folder}/nm000001  # the first", "", f"nm000002 {folder}/a clone", "# one more"]
    (folder / "list.txt").write_text("\n".join([*lines, f"{folder}/nm000003", ""]))
    return folder


def convert_list(
    slurm: Slurm, datasets: Path, folder: Path, array: str, *options: str
) -> list[str]:
    """Run the job array to its end; return the lines of the log that it wrote, sorted."""
    (folder / "log").mkdir(exist_ok=True)
    log = folder / "nemar-convert.log"
    log.unlink(missing_ok=True)
    command = ["sbatch", "--wait", f"--array={array}", "--cpus-per-task=1", "--mem=2000"]
    script = str(SCRIPTS / "convert_list.sbatch")
    slurm.call(
        *(*command, "--output=log/%A_%a.out", *options, script, str(datasets)),
        *("--dest", str(folder / "serving"), "--trust-host", "127.0.0.1"),
        check=False,  # its status is that of the worst
        cwd=folder,
    )
    return sorted(line.split(" ", 1)[1] for line in log.read_text().splitlines())


def test_a_job_array_brings_a_list_up_to_date(slurm: Slurm, datasets: Path, tmp_path: Path) -> None:
    lines = convert_list(slurm, datasets / "list.txt", tmp_path, "1-3", "--time=9")
    assert [line.split(":")[0] for line in lines[:2]] == ["nm000001 exit 0", "nm000002 exit 0"]
    assert all("3 recordings = 3 stores + 0 failures + 0 pending" in line for line in lines[:2])
    assert re.fullmatch(r"nm000003 exit 1: nothing is published, .* \d+_3", lines[2])
    again = convert_list(slurm, datasets / "list.txt", tmp_path, "1-2", "--time=9")
    assert all("; 0 converted in this run" in line for line in again)
    for name in ("nm000001", "nm000002"):
        check_invariant(tmp_path / "serving" / name / "zarr")


def test_a_wall_time_leaves_the_rest_to_the_next_run(
    slurm: Slurm, annex_dataset: Callable[..., AnnexDataset], tmp_path: Path
) -> None:
    """Of sixty recordings, each of which takes two seconds to fetch, in less than a minute.

    SLURM gives the warning up to half a minute earlier than it is asked to.
    """
    count, content = 60, edf(4)
    haste = threading.Event()

    def slowly(handler: BaseHTTPRequestHandler) -> None:
        haste.wait(2.0)
        whole(content)(handler)

    with web_server(slowly) as server:
        dataset = of_one_file(annex_dataset, tmp_path, content, f"{server.url}/file", count)
        (tmp_path / "list.txt").write_text(f"nm000004 {dataset}\n")
        limits = ("--time=2", "--signal=B:TERM@70")
        [line] = convert_list(slurm, tmp_path / "list.txt", tmp_path, "1", *limits)
        assert line.startswith("nm000004 exit 0: ")
        serving = tmp_path / "serving/nm000004/zarr"
        check_invariant(serving)
        index = index_at(serving)
        assert index["store_count"] + index["pending_count"] == count
        assert 0 < index["pending_count"] < count
        for entry in index["pending"]:
            assert (entry["reason"], entry["attempts"]) == ("not_attempted", 0)
        haste.set()
        [line] = convert_list(slurm, tmp_path / "list.txt", tmp_path, "1", "--time=30")
        assert f"{count} stores + 0 failures + 0 pending" in line


def of_one_file(
    annex_dataset: Callable[..., AnnexDataset], folder: Path, content: bytes, url: str, count: int
) -> Path:
    """A dataset whose recordings are one annexed file, which only the URL has."""
    source = folder / "source"
    source.mkdir()
    (source / "sub-00_task-rest_eeg.edf").write_bytes(content)
    dataset = annex_dataset(source)
    key = dataset.key("sub-00_task-rest_eeg.edf")
    dataset.git("annex", "registerurl", "--quiet", key, url)
    dataset.git("annex", "drop", "--quiet", "--force", "sub-00_task-rest_eeg.edf")
    dataset.git("rm", "-q", "sub-00_task-rest_eeg.edf")
    for number in range(count):
        link = dataset.work / f"sub-{number:02}/eeg/sub-{number:02}_task-rest_eeg.edf"
        link.parent.mkdir(parents=True)
        link.symlink_to(f"../../.git/annex/objects/00/00/{key}/{key}")
    dataset.git("add", "-A")
    dataset.git("commit", "-q", "-m", "recordings")
    return dataset.work


def test_a_giant_dataset_gets_a_cluster(slurm: Slurm, datasets: Path, tmp_path: Path) -> None:
    pytest.importorskip("dask_jobqueue")
    jobs = ["--jobs", "2", "--cores", "1", "--memory", "2GB", "--time", "0:30:00"]
    done = subprocess.run(
        [
            *(sys.executable, str(SCRIPTS / "convert_giant.py"), *jobs),
            *("--local-directory", str(tmp_path / "local"), "--log", "log", "--"),
            *(str(datasets / "nm000001"), "--dest", "serving", "--json", "summary.json", "-v"),
        ],
        cwd=tmp_path,
        env=slurm.environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert "3 recordings = 3 stores + 0 failures + 0 pending" in done.stdout
    summary: dict[str, Any] = json.loads((tmp_path / "summary.json").read_bytes())
    assert summary["converted"] == 3
    check_invariant(tmp_path / "serving/nm000001/zarr")
    assert len(list((tmp_path / "log").glob("*.err"))) >= 1
    assert slurm.call("squeue", "-h", "-t", "pending,running") == ""
