"""Many datasets brought up to date by the script that a CI runs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from converter.contract.index import ENGINE_VERSION

from .conftest import commit_all
from .end_to_end.history import edf

SCRIPT = Path(__file__).resolve().parents[1] / "scripts" / "reconvert.py"
RECORDING = "sub-01/eeg/sub-01_task-rest_eeg.edf"
FIRST, SECOND, BROKEN = "nm000001", "nm000002", "nm000003"


@dataclass(frozen=True)
class Datasets:
    """Two datasets, one in a folder that is no id, and one that is no repository."""

    folder: Path

    @property
    def serving(self) -> Path:
        return self.folder / "serving"

    def path(self, dataset_id: str) -> Path:
        return self.folder / {SECOND: "a clone"}.get(dataset_id, dataset_id)

    def arguments(self, *options: str) -> list[str]:
        ours = ["--dest", str(self.serving), "--log", str(self.folder / "log"), *options]
        return [sys.executable, str(SCRIPT), str(self.folder / "list.txt"), *ours]

    def run(self, *options: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "GITHUB_STEP_SUMMARY": str(self.folder / "step.md")}
        return subprocess.run(
            self.arguments(*options),
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def index(self, dataset_id: str) -> Path:
        return self.serving / dataset_id / "zarr/index.json"


@pytest.fixture
def datasets(tmp_path: Path) -> Datasets:
    made = Datasets(tmp_path)
    for seed, dataset_id in enumerate((FIRST, SECOND)):
        file = made.path(dataset_id) / RECORDING
        file.parent.mkdir(parents=True)
        file.write_bytes(edf(seed))
        commit_all(made.path(dataset_id))
    made.path(BROKEN).mkdir()
    (tmp_path / "list.txt").write_text(
        f"# all that is served\n{made.path(FIRST)}  # the first\n\n{SECOND}  a clone\n{BROKEN}\n"
    )
    return made


def rows(markdown: str) -> dict[str, list[str]]:
    """Cells of a table by the first one."""
    lines = [line for line in markdown.splitlines() if line.startswith("| nm")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {first: rest for first, *rest in cells}


def test_datasets_are_converted_once_and_again_for_another_engine(datasets: Datasets) -> None:
    done = datasets.run("--at-once", "2")
    assert (done.returncode, done.stderr) == (1, "")
    summary = (datasets.folder / "step.md").read_text()
    assert done.stdout.endswith(summary)
    assert (datasets.folder / "log/summary.md").read_text() == summary
    assert "1 FAILED, 2 converted" in summary
    found = rows(summary)
    assert list(found) == [BROKEN, FIRST, SECOND]
    assert found[BROKEN][0] == "FAILED"
    assert "repository" in found[BROKEN][-1]
    assert found[FIRST][:5] == found[SECOND][:5] == ["converted", "1", "1", "0", "0"]
    assert sum(line.startswith("[") for line in done.stdout.splitlines()) == 3
    assert json.loads((datasets.folder / "log" / f"{SECOND}.json").read_bytes())["converted"] == 1

    # A copy of another engine is made anew, the one that is current is not touched.
    before = datasets.index(FIRST).stat().st_mtime_ns
    index = json.loads(datasets.index(SECOND).read_bytes())
    datasets.index(SECOND).write_text(json.dumps({**index, "engine_version": "2"}))
    commit_all(datasets.path(BROKEN), "a repository without recordings")
    done = datasets.run("--", "--jobs", "1")
    assert done.returncode == 0, done.stdout
    found = rows(done.stdout)
    assert {path: cells[0] for path, cells in found.items()} == {
        FIRST: "unchanged",
        SECOND: "converted",
        BROKEN: "unchanged",
    }
    assert datasets.index(FIRST).stat().st_mtime_ns == before
    assert json.loads(datasets.index(SECOND).read_bytes())["engine_version"] == ENGINE_VERSION
    assert (datasets.folder / "step.md").read_text().count("### ") == 2


@pytest.mark.parametrize(
    ("content", "options", "said"),
    [
        ("nm000001\n./nm000001\n", [], "line 2: nm000001 is in the list already"),
        ("some/folder\n", [], "line 1: 'some/folder' found"),
        ("nm000001\n", ["--at-once", "0"], "from 1 up"),
        (None, [], "list.txt cannot be read"),
    ],
)
def test_misuse_converts_nothing(
    tmp_path: Path, content: str | None, options: list[str], said: str
) -> None:
    if content is not None:
        (tmp_path / "list.txt").write_text(content)
    done = Datasets(tmp_path).run(*options)
    assert done.returncode == 2
    assert said in done.stderr
    assert not (tmp_path / "serving").exists()


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_what_runs_and_starts_nothing_more(datasets: Datasets, signum: int) -> None:
    # The named pipe holds the first conversion up until it is told to end.
    os.mkfifo(datasets.folder / "catalog.json")
    options = ["--", "--catalog", str(datasets.folder / "catalog.json")]
    process = subprocess.Popen(
        datasets.arguments(*options), cwd=datasets.folder, stdout=subprocess.PIPE, text=True
    )
    writer = os.open(datasets.folder / "catalog.json", os.O_WRONLY)  # returns when it is read
    process.send_signal(signum)
    try:
        said, _ = process.communicate(timeout=5)
        os.close(writer)
    except subprocess.TimeoutExpired:
        # A signal that comes just before a read begins to wait is heeded when it returns.
        os.close(writer)
        said, _ = process.communicate(timeout=60)
    assert process.returncode == 128 + signum
    assert "1 FAILED, 2 not reached" in said
    assert "interrupted" in rows(said)[FIRST][-1]
    assert not datasets.index(FIRST).exists()
    assert not datasets.index(SECOND).exists()
