from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest

from converter.contract.codes import FailureCode, RecordingError
from converter.recording.local import LocalRecording
from converter.recording.readers.binary import SampleFile
from converter.recording.readers.eeglab import open_eeglab
from converter.recording.readers.hdf5_heaps import check_heaps


def write(path: Path, texts: int = 1) -> None:
    """A v7.3 .set file by h5py, whose texts of any length lie in heaps."""
    with h5py.File(path, "w") as file:
        eeg = file.create_group("EEG")
        for name, value in {"nbchan": 2.0, "pnts": 50.0, "trials": 1.0, "srate": 100.0}.items():
            eeg[name] = np.array([[value]])
        eeg["data"] = np.arange(100.0).reshape(50, 2)
        eeg["data"].attrs["MATLAB_class"] = "double"
        eeg["notes"] = [f"note {number} " * number for number in range(texts)]


def test_heaps_as_the_library_writes_them(tmp_path: Path) -> None:
    path = tmp_path / "sub-01_eeg.set"
    write(path, 300)
    with SampleFile(path) as file:
        check_heaps(file, 8)
    source = open_eeglab(LocalRecording("sub-01/eeg/sub-01_eeg.set", "eeg", path))
    np.testing.assert_array_equal(source.read(0, 0, 50), np.arange(100.0).reshape(50, 2).T)


def test_an_entry_that_leads_back_to_itself(tmp_path: Path) -> None:
    path = tmp_path / "sub-01_eeg.set"
    write(path)
    content = bytearray(path.read_bytes())
    entry = content.index(b"GCOL") + 16
    content[entry : entry + 16] = bytes(16)
    path.write_bytes(content)
    with pytest.raises(RecordingError, match="heap") as caught:
        open_eeglab(LocalRecording("sub-01/eeg/sub-01_eeg.set", "eeg", path))
    assert caught.value.code is FailureCode.CORRUPT_OR_TRUNCATED


def test_a_heap_across_two_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("converter.recording.readers.hdf5_heaps._PIECE", 100)
    path = tmp_path / "file"
    path.write_bytes(bytes(98) + b"GCOL\1\0\0\0" + (64).to_bytes(8, "little") + bytes(48))
    with SampleFile(path) as file, pytest.raises(RecordingError, match="byte 114"):
        check_heaps(file, 8)
