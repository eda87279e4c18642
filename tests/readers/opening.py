"""How tests open a file as a recording, and what they expect of one that can't be."""

from __future__ import annotations

from pathlib import Path

import pytest

from converter.contract.codes import RecordingError
from converter.recording.local import LocalRecording
from converter.recording.readers import open_recording
from converter.recording.signal import SignalSource


def opened(file: Path) -> SignalSource:
    """The recording of a file, whose suffix tells its modality."""
    modality = file.name.split(".")[0].rpartition("_")[2]
    return open_recording(LocalRecording(f"sub-01/{modality}/{file.name}", modality, file))


def failure(file: Path) -> RecordingError:
    """Why a file can't be opened; neither its place nor its patient is told."""
    with pytest.raises(RecordingError) as caught:
        opened(file)
    assert str(file.parent) not in caught.value.message
    assert "Jane" not in caught.value.message
    return caught.value
