"""One recording on several threads: the same bytes, the same errors, nothing left behind.

Whether its signal waits in memory or in a file changes as little.
"""

from __future__ import annotations

import threading
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from converter.contract.codes import FailureCode, RecordingError
from converter.recording import served, waiting
from converter.recording.attributes import StoreContext
from converter.recording.convert import convert_recording
from converter.recording.local import LocalRecording
from converter.recording.sidecars.channels import plan_channels
from converter.recording.signal import Channel, SignalGroup, SourceFacts
from converter.recording.store import write_signal_group
from tests.open_files import open_files

FIXTURES = Path(__file__).parents[2] / "fixtures" / "nm099999"
MADE = [
    "sub-01/eeg/sub-01_task-rest_eeg.edf",
    "sub-03/ses-01/eeg/sub-03_ses-01_task-rest_eeg.set",
    "sub-04/eeg/sub-04_task-rest_eeg.bdf",
    "sub-06/emg/sub-06_task-rest_emg.bdf",
    "sub-07/meg/sub-07_task-rest_meg.fif",
]
REAL = [
    "sub-02/eeg/sub-02_task-rest_eeg.set",
    "sub-12/eeg/sub-12_task-rest_eeg.vhdr",
    "sub-23/meg/sub-23_task-rest_meg.ds",
    "sub-26/meg/sub-26_task-rest_meg",
]
CONTEXT = StoreContext("nm099999", "0" * 40, "0", "https://example.org/", "2020-01-01T00:00:00Z")


def content(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def check_same_bytes(root: Path, name: str, tmp_path: Path, patch: pytest.MonkeyPatch) -> None:
    modality = name.split("/")[-2]
    recording = LocalRecording(name, modality, root / name)
    stores = []
    for in_memory, threads in ((waiting.IN_MEMORY, 1), (waiting.IN_MEMORY, 2), (0, 1), (0, 4)):
        patch.setattr(waiting, "IN_MEMORY", in_memory)
        store = tmp_path / str(len(stores))
        convert_recording(recording, "a.zarr", store, tmp_path, CONTEXT, threads)
        stores.append(content(store))
    assert all(store == stores[0] for store in stores)


@pytest.mark.parametrize("name", MADE)
def test_a_made_recording_on_any_threads(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served, "BLOCK_VALUES", 4000)  # many pieces of a short recording
    check_same_bytes(FIXTURES, name, tmp_path, monkeypatch)


@pytest.mark.parametrize("name", REAL)
def test_a_real_recording_on_any_threads(
    tmp_path: Path, real_dataset: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_same_bytes(real_dataset, name, tmp_path, monkeypatch)


class Noise:
    """Three channels, one of codes, one with samples that are no number; read by one thread."""

    def __init__(self, n: int, fail_at: int | None = None) -> None:
        random = np.random.default_rng(3)
        self._raw = random.normal(size=(3, n)).astype(np.float32)
        self._raw[1] = np.arange(n) // 700 % 5
        self._raw[2, ::5000] = np.nan
        self._fail_at = fail_at
        types = ("EEG", "TRIG", "EEG")
        channels = [Channel(f"c{i}", t, "n/a", discrete=t == "TRIG") for i, t in enumerate(types)]
        self.facts = SourceFacts("noise", 3)
        self.groups = (SignalGroup(Fraction(1000), n, tuple(channels)),)
        self.readers: set[int] = set()

    def read(self, group: int, start: int, stop: int) -> NDArray[Any]:
        self.readers.add(threading.get_ident())
        if self._fail_at is not None and stop > self._fail_at:
            raise RecordingError(FailureCode.CORRUPT_OR_TRUNCATED, "noise ends early.")
        return self._raw[:, start:stop]

    def close(self) -> None:
        pass


def write(source: Noise, path: Path, threads: int) -> None:
    plan = plan_channels(source.groups[0].channels, None)
    write_signal_group(source, 0, plan.channels, path, "EEG", path.parent, threads)


def test_many_pieces_of_codes_gaps_and_waves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served, "BLOCK_VALUES", 3000)
    sources = {threads: Noise(150_000) for threads in (1, 2, 3)}
    for threads, source in sources.items():
        write(source, tmp_path / str(threads), threads)
        assert source.readers == {threading.get_ident()}
    assert content(tmp_path / "1") == content(tmp_path / "2") == content(tmp_path / "3")


def test_runs_of_any_length(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks taken one by one, some at a time and all at once are the same bytes."""
    for length in (1, 12_000, 1 << 30):
        monkeypatch.setattr(served, "RUN_VALUES", length)
        write(Noise(149_990), tmp_path / str(length), 2)
    one_by_one = content(tmp_path / "1")
    assert one_by_one == content(tmp_path / "12000") == content(tmp_path / str(1 << 30))


@pytest.mark.parametrize(("most", "share"), [(1 << 20, 0.4), (100, 0.9)])
def test_blocks_beside_a_long_filter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int, share: float
) -> None:
    """As far as they may, blocks are longer than what they have in common with their neighbours."""
    monkeypatch.setattr(served, "BLOCK_VALUES", 100)
    monkeypatch.setattr(served, "MOST_VALUES", most)
    lengths: list[int] = []
    serve = served.ServedSignal._served

    def note(self: served.ServedSignal, window: served._Window) -> Any:
        lengths.append(window.block.shape[1])
        return serve(self, window)

    monkeypatch.setattr(served.ServedSignal, "_served", note)
    n = 20_000
    write(Noise(n), tmp_path / "group", 1)
    assert abs(1 - n / sum(lengths) - share) < 0.1
    assert len(lengths) > 50


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("at", ["reader", "resampler", "disk"])
def test_an_error_reaches_the_caller_and_leaves_nothing_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, threads: int, at: str
) -> None:
    monkeypatch.setattr(served, "BLOCK_VALUES", 3000)
    error: Exception = RecordingError(FailureCode.FILE_READ_ERROR, "no")

    def fail(*_: object) -> None:
        raise error

    if at == "resampler":
        monkeypatch.setattr(served.ServedSignal, "_served", fail)
    elif at == "disk":
        error = OSError(28, "No space left on device")
        monkeypatch.setattr("converter.recording.zarr_v3.ChunkedArray.write", fail)
    source = Noise(150_000, fail_at=90_000 if at == "reader" else None)
    before = {file.path for file in open_files()}
    with pytest.raises(type(error)) as caught:
        write(source, tmp_path / "group", threads)
    assert at == "reader" or caught.value is error
    assert not [t for t in threading.enumerate() if t.name.startswith("signal")]
    assert {file.path for file in open_files()} <= before
