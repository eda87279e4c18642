"""What headers claim is looked at in the reader, before anything is made of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest

from converter.contract.codes import FailureCode, RecordingError
from converter.recording.local import LocalRecording
from converter.recording.readers import claims, open_recording
from tests.readers import (
    test_brainvision,
    test_cnt,
    test_curry,
    test_edf,
    test_eeglab,
    test_gdf,
    test_mef,
    test_persyst,
)

THREE = np.arange(30, dtype="i2").reshape(3, 10)


def edf(folder: Path) -> Path:
    path = folder / "a_eeg.edf"
    signals = [test_edf.Signal()] * 3
    path.write_bytes(test_edf.edf_bytes(signals, [test_edf.record(np.zeros(12))]))
    return path


def gdf(folder: Path, version: str = "2.20") -> Path:
    path = folder / "a_eeg.gdf"
    columns = [test_gdf.Column(THREE[:1], unit=b"uV" if version < "2" else 4275)] * 3
    path.write_bytes(test_gdf.written(columns, version=version))
    return path


def neuroscan(folder: Path) -> Path:
    path = folder / "a_eeg.cnt"
    path.write_bytes(test_cnt.neuroscan(THREE))
    return path


def ant(folder: Path) -> Path:
    path = folder / "a_eeg.cnt"
    test_cnt.ant(path, THREE, (("a", "uV"), ("b", "uV"), ("c", "uV")))
    return path


def mef(folder: Path) -> Path:
    path = folder / "a_ieeg.mefd"
    session = test_mef.Session(path)
    for name in "abc":
        session.add(name, THREE[0])
    return path


def eeglab(folder: Path) -> Path:
    path = folder / "a_eeg.set"
    test_eeglab.write_h5(path, test_eeglab.fields())
    return path


def brainvision(folder: Path) -> Path:
    path = folder / "a_eeg.vhdr"
    path.write_text(test_brainvision.header(common={"NumberOfChannels": "3"}))
    return path


@pytest.mark.parametrize(
    "written",
    [
        *(edf, gdf, lambda folder: gdf(folder, "1.25"), neuroscan, ant, mef, eeglab, brainvision),
        lambda folder: test_curry.written(folder, np.zeros((5, 9))),
        lambda folder: test_persyst.written(folder, THREE),
    ],
)
def test_more_channels_than_any_recording_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: Callable[[Path], Path]
) -> None:
    """Found by the reader, not by the look at what it has made."""
    path = written(tmp_path)
    recording = LocalRecording(f"sub-01/eeg/{path.name}", "eeg", path)
    monkeypatch.setattr("converter.recording.readers.check_channels", lambda *_: None)
    monkeypatch.setattr(claims, "MOST_CHANNELS", 2)
    with pytest.raises(RecordingError, match="at most 2 were expected") as caught:
        open_recording(recording)
    assert caught.value.code is FailureCode.CORRUPT_OR_TRUNCATED


@pytest.mark.parametrize("times", [150, 1000, 1100])
def test_what_unpacks_to_too_much_has_one_code(tmp_path: Path, times: int) -> None:
    """A deflated matrix that claims so many times the bytes stored of it, all of one chunk."""
    path = eeglab(tmp_path)
    rows = times * (1 << 20) // 12
    with h5py.File(path, "r+") as file:
        del file["EEG/data"]
        how = {"chunks": (rows, 3), "compression": "gzip"}
        data = file["EEG"].create_dataset("data", (rows, 3), "f4", **how)
        data.id.write_direct_chunk((0, 0), bytes(1 << 20))
    with pytest.raises(RecordingError, match="unpack to") as caught:
        open_recording(LocalRecording("sub-01/eeg/a_eeg.set", "eeg", path))
    assert caught.value.code is FailureCode.FILE_READ_ERROR
