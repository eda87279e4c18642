"""What is done once for all recordings, in the process that workers are forked from."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import edfio
import pytest

from converter.work.fork_server import OF_WORKERS
from converter.work.rehearsal import _recording, rehearse
from converter.work.task import CONVERSION, WARM

ROOT = Path(__file__).resolve().parents[2]
EDF = ROOT / "fixtures/nm099999/sub-01/eeg/sub-01_task-rest_eeg.edf"

SERVER = f"""
import json, sys, tempfile
from importlib import import_module
from pathlib import Path
tempfile.tempdir = sys.argv[1]
def threads():
    tasks = Path("/proc/self/task")
    return [entry.name for entry in tasks.iterdir()] if tasks.is_dir() else []
for name in {(*CONVERSION, "converter.recording.readers.edf")!r}:
    import_module(name)
started = threads()
import_module({WARM!r})
started = sorted(set(threads()) - set(started))
before = set(sys.modules)
from converter.recording.convert import convert_recording
from converter.recording.local import LocalRecording
from converter.work.rehearsal import _CONTEXT
recording = LocalRecording("sub-01/eeg/sub-01_task-rest_eeg.edf", "eeg", Path(sys.argv[2]))
convert_recording(recording, "x.zarr", Path(sys.argv[3], "s"), Path(sys.argv[3]), _CONTEXT)
late = sorted(set(sys.modules) - before)
slow = sorted(set(sys.modules) & {{"pandas", "pyarrow.compute", "pyarrow.dataset", "zarr"}})
print(json.dumps(dict(late=late, slow=slow, started=started)))
"""


def server(temporary: Path, folder: Path) -> Any:
    done = subprocess.run(
        [sys.executable, "-c", SERVER, temporary, EDF, folder],
        capture_output=True,
        text=True,
        env={**os.environ, **OF_WORKERS},
        check=True,
        timeout=120,
    )
    return json.loads(done.stdout)


def test_a_worker_imports_nothing_further(tmp_path: Path) -> None:
    """Nor anything that takes long, nor is a thread left behind: a fork takes none along."""
    folder = tmp_path / "folder"
    folder.mkdir()
    found = server(tmp_path, folder)
    assert found == {"late": [], "slow": [], "started": []}
    assert list(tmp_path.iterdir()) == [folder]  # nothing is left of it


def test_workers_start_without_a_place_for_it(tmp_path: Path) -> None:
    assert server(tmp_path / "nowhere", tmp_path)["late"]  # by each worker anew


def test_it_needs_a_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))
    with pytest.raises(FileNotFoundError):
        rehearse()


def test_its_recording_is_an_edf_file(tmp_path: Path) -> None:
    """As another library reads it."""
    edf = edfio.read_edf(_recording(tmp_path).file)
    assert [signal.label for signal in edf.signals] == [f"EEG{number}" for number in range(8)]
    assert {(signal.sampling_frequency, signal.physical_dimension) for signal in edf.signals} == {
        (500, "uV")
    }
    assert edf.duration == 8
    assert all(0.1 < signal.data.std() < 100 for signal in edf.signals)
