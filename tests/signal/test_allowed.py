"""The one list of what a header may tell."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from converter.recording import allowed
from converter.recording.attributes import StoreContext, root_attributes
from converter.recording.local import LocalRecording
from converter.recording.signal import Channel, SignalGroup, SourceFacts


def test_a_reader_that_tells_too_much() -> None:
    told: dict[str, Any] = {
        "highpass": 0.1,
        "lowpass": float("nan"),
        "patient": "Zelda",
        "subject_id": 90210,
        "data_records": "Zelda",
        "binary_format": "Zelda",
        "data_orientation": "VECTORIZED",
        "nwb_version": "2.7.0",
        "gdf_version": "Zelda 2.0",
        "sample_bits": [1, {"name": "Zelda"}],
        "samples_inside": True,
        "source_file": "/home/zelda",
        "number_of_signals": 10**6,
    }
    facts = SourceFacts("EDF", 3, technical=told)
    groups = [SignalGroup(Fraction(100), 5, (Channel("a", "EEG", "V"),))]
    recording = LocalRecording("sub-01/eeg/a_eeg.edf", "eeg", Path("/x"))
    context = StoreContext("nm099999", "a" * 40, "0", "https://x/zarr/", "2026-01-01T00:00:00Z")
    metadata = root_attributes(recording, facts, groups, ["g"], context)["recording_metadata"]
    assert metadata == {
        "source_file": "sub-01/eeg/a_eeg.edf",
        "number_of_signals": 3,
        "highpass": 0.1,
        "data_orientation": "VECTORIZED",
        "nwb_version": "2.7.0",
        "samples_inside": True,
    }


@pytest.mark.parametrize(
    "text",
    [
        *["HP:0.1Hz LP:75Hz", "HP: DC; LP: 104.0 Hz", "None", "n/a", "HP:0.016Hz LP:70Hz N:50Hz"],
        *["TC=0.3s HFF 70 Hz", "BP(0.5-35Hz)", "Notch off", "4th order Butterworth", "hp 1e-1 hz"],
    ],
)
def test_filters_pass(text: str) -> None:
    assert allowed.prefilter(text) == text


@pytest.mark.parametrize(
    "text",
    [
        *["", "HP:0.1Hz Zelda", "Zelda", "1911-03-05", "HP:19110305", "HP:0.1Hz\nZélda"],
        *["HP " * 100, "0.1-70", "Ω", "名前 hp"],
    ],
)
def test_anything_else_does_not(text: str) -> None:
    assert allowed.prefilter(text) == "n/a"
