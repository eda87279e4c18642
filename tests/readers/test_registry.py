from __future__ import annotations

import sys
from fractions import Fraction
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from converter.contract.codes import FailureCode, RecordingError
from converter.recording import readers
from converter.recording.local import LocalRecording
from converter.recording.readers import edf, format_of, open_recording
from converter.recording.signal import SignalGroup


@pytest.mark.parametrize(
    ("name", "is_dir", "expected"),
    [
        ("sub-01_task-rest_meg.fif", False, "FIF"),
        ("sub-01_task-rest_meg.FIF.gz", False, "FIF"),
        ("sub-01_task-rest_meg.SQD", False, "KIT"),
        ("sub-01_task-rest_meg.con", False, "KIT"),
        ("sub-01_task-rest_meg.kdf", False, "KIT"),
        ("sub-01_task-rest_meg.ds", True, "CTF"),
        ("sub-01_task-rest_meg", True, "4D/BTi"),
        ("sub-01_task-rest_eeg.mff", True, "EGI MFF"),
        ("sub-01_task-rest_ieeg.mefd", True, "MEF3"),
        ("sub-01_task-rest_eeg.EDF", False, "EDF"),
        ("sub-01_task-rest_eeg.bdf", False, "BDF"),
        ("sub-01_task-rest_eeg.vhdr", False, "BrainVision"),
        ("sub-01_task-rest_eeg.ahdr", False, "BrainVision"),
        ("sub-01_task-rest_eeg.set", False, "EEGLAB"),
        ("sub-01_task-rest_eeg.gdf", False, "GDF"),
        ("sub-01_task-rest_eeg.CNT", False, "CNT"),
        ("sub-01_task-rest_ieeg.lay", False, "Persyst"),
        ("sub-01_task-rest_ieeg.EEG", False, "Nihon Kohden"),
        ("sub-01_task-rest_eeg.cdt", False, "Curry"),
        ("sub-01_task-rest_eeg.dat", False, "Curry"),
        ("sub-01_task-rest_ieeg.nwb", False, "NWB"),
    ],
)
def test_format_by_name(name: str, is_dir: bool, expected: str) -> None:
    found = format_of(f"sub-01/eeg/{name}", is_dir)
    assert found is not None
    assert found.name == expected


@pytest.mark.parametrize(
    ("name", "is_dir"),
    [
        ("a_eeg.xyz", False),
        ("a_ieeg.mefd", False),
        ("a_ieeg.nwb", True),
        ("a_meg", False),
        ("a_meg.fif", True),
        ("a_meg.ds", False),
        ("a_eeg.gz", False),
        ("a_eeg.snirf", False),
    ],
)
def test_unknown_names(name: str, is_dir: bool) -> None:
    assert format_of(name, is_dir) is None


def test_unsupported_format_names_the_extension_and_the_known_ones(tmp_path: Path) -> None:
    file = tmp_path / "sub-01_task-rest_eeg.xyz"
    file.write_bytes(b"\0" * 8)
    with pytest.raises(RecordingError) as caught:
        open_recording(LocalRecording(f"sub-01/eeg/{file.name}", "eeg", file))
    assert caught.value.code is FailureCode.UNSUPPORTED_FORMAT
    assert caught.value.message.startswith("sub-01_task-rest_eeg.xyz: ")
    assert ".xyz" in caught.value.message
    assert ".fif" in caught.value.message
    assert str(tmp_path) not in caught.value.message


def test_snirf_holds_no_electrophysiology(tmp_path: Path) -> None:
    file = tmp_path / "sub-01_task-rest_eeg.snirf"
    file.write_bytes(b"\x89HDF\r\n\x1a\n")
    with pytest.raises(RecordingError, match=r"\.snirf") as caught:
        open_recording(LocalRecording(f"sub-01/eeg/{file.name}", "eeg", file))
    assert caught.value.code is FailureCode.UNSUPPORTED_FORMAT


def test_the_reader_of_the_bids_name_is_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = ModuleType("eeglab")
    source = SimpleNamespace(groups=[])
    opened: list[LocalRecording] = []
    reader.open_eeglab = lambda asked: opened.append(asked) or source  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "converter.recording.readers.eeglab", reader)
    file = tmp_path / "content"
    file.write_bytes(b"")
    recording = LocalRecording("sub-01/eeg/sub-01_eeg.SET", "eeg", file)
    assert open_recording(recording) is source
    assert opened == [recording]


@pytest.mark.parametrize("rate", [Fraction(1, 10**7), Fraction(10**8), Fraction(10**300)])
def test_a_rate_of_no_recording_is_damage(
    rate: Fraction, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[bool] = []
    source = SimpleNamespace(groups=[SignalGroup(rate, 9, ())], close=lambda: closed.append(True))
    reader = ModuleType("converter.recording.readers.edf")
    reader.open_edf = lambda recording: source  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, reader.__name__, reader)
    with pytest.raises(RecordingError, match="sampling rate") as caught:
        open_recording(LocalRecording("sub-01_eeg.edf", "eeg", tmp_path / "sub-01_eeg.edf"))
    assert caught.value.code is FailureCode.CORRUPT_OR_TRUNCATED
    assert closed == [True]


@pytest.mark.parametrize("size", [1000, readers.SMALL + 1])
def test_a_small_file_that_asks_for_all_memory_is_damaged(
    size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large one may be too large for this machine, which says nothing of it."""
    path = tmp_path / "a_eeg.edf"
    with path.open("wb") as file:
        file.truncate(size)
    monkeypatch.setattr(edf, "open_edf", lambda recording: bytearray(1 << 60))
    if size > readers.SMALL:
        with pytest.raises(MemoryError):
            open_recording(LocalRecording(path.name, "eeg", path))
        return
    with pytest.raises(RecordingError, match="more memory than 1000 bytes can need") as caught:
        open_recording(LocalRecording(path.name, "eeg", path))
    assert caught.value.code is FailureCode.CORRUPT_OR_TRUNCATED
