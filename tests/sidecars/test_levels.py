"""What events mean, in the attributes of a store's events group."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import zarr

from converter.recording.attributes import StoreContext
from converter.recording.convert import convert_recording
from converter.recording.local import LocalRecording, LocalSidecars
from converter.recording.sidecars.events import parse_events
from converter.recording.sidecars.levels import MAX_LEVELS, MAX_TEXT, Levels, levels

FIXTURES = Path(__file__).parents[2] / "fixtures" / "nm099999"
EDF = "sub-01/eeg/sub-01_task-rest_eeg.edf"
CONTEXT = StoreContext("nm099999", "a" * 40, "0", "https://x/zarr/", "2026-01-01T00:00:00Z")


def of(table: str, metadata: Any) -> Levels:
    events = parse_events(table.encode())
    return levels(events, range(len(events)), metadata)


def test_only_what_occurs_from_the_column_that_names_it() -> None:
    table = "onset\ttrial_type\tvalue\n1\tgo\t7\n2\tn/a\t7\n3\tstop\t8\n4\tn/a\tgo\n"
    metadata = {
        "trial_type": {"Levels": {"go": "press", "stop": {"Description": "hold"}, "never": "x"}},
        "value": {"Levels": {"7": "pulse", "8": "not a name here", "go": "another go"}},
        "response_time": {"Levels": {"go": "wrong column"}},
    }
    assert of(table, metadata) == Levels({"7": "pulse", "go": "press", "stop": "hold"}, {})


def test_hed_of_levels_and_of_the_column() -> None:
    table = (
        "onset\ttrial_type\tHED\n1\tgo\tBlue\n2\tgo\tBlue\n3\tstop\tRed\n4\tstop\tGreen\n"
        "5\trest\tn/a\n6\trest\tRed\n7\tcue\tRed\n"
    )
    metadata = {"trial_type": {"HED": {"cue": "Sensory-event", "rest": 5}}}
    assert of(table, metadata) == Levels({}, {"cue": "Sensory-event", "go": "Blue"})


@pytest.mark.parametrize(
    "metadata",
    [
        {},
        {"trial_type": "text"},
        {"trial_type": {"Levels": ["go"]}},
        {"trial_type": {"Levels": {"go": 5}}},
        {"trial_type": {"Levels": {"go": " "}, "HED": "Event"}},
        {"trial_type": {"Levels": {"go": {"TermURL": "https://x"}}}},
    ],
)
def test_what_explains_nothing(metadata: Any) -> None:
    assert of("onset\ttrial_type\n1\tgo\n", metadata) == Levels({}, {})


def test_names_in_another_case_and_broken_characters() -> None:
    table = "onset\tTrial_Type\n1\tgo\n"
    for name in ("Trial_Type", "TRIAL_TYPE", "trial_type"):
        assert of(table, {name: {"Levels": {"go": "a\ud800"}}}).descriptions == {"go": "a?"}


def test_texts_are_bounded() -> None:
    labels = [f"label {number}" for number in range(MAX_LEVELS + 200)]
    table = "onset\ttrial_type\n" + "".join(f"1\t{label}\n" for label in labels)
    found = of(table, {"trial_type": {"Levels": dict.fromkeys(labels, "ä" * 5000)}})
    assert len(found.descriptions) == MAX_LEVELS
    assert {len(text) for text in found.descriptions.values()} == {MAX_TEXT}


def test_the_most_specific_document_decides_for_a_column(tmp_path: Path) -> None:
    documents = [
        {"trial_type": {"Levels": {"tone": "general", "flash": "general"}, "HED": {"tone": "T"}}},
        {"trial_type": {"Levels": {"tone": "of this subject"}}, "value": {"Levels": {"1": "v"}}},
    ]
    paths = []
    for number, document in enumerate(documents):
        paths.append(tmp_path / f"{number}.json")
        paths[-1].write_text(json.dumps(document))
    events = tmp_path / "events.tsv"
    events.write_text("onset\tduration\ttrial_type\n1\t0\ttone\nn/a\t0\tflash\n2\t0\trest\n")
    sidecars = LocalSidecars(events=events, events_json=tuple(paths))
    attributes = _events_group(tmp_path, sidecars)
    assert attributes["label_map"] == {"1": "rest", "2": "tone"}
    assert attributes["value_descriptions"] == {"tone": "of this subject"}
    assert "value_hed" not in attributes


def test_the_events_of_the_fixture(tmp_path: Path) -> None:
    sidecars = LocalSidecars(
        events=FIXTURES / "sub-01/eeg/sub-01_task-rest_events.tsv",
        events_json=(FIXTURES / "task-rest_events.json",),
    )
    attributes = _events_group(tmp_path, sidecars)
    assert attributes["value_descriptions"] == {
        "flash": "A white flash",
        "rest": "Eyes open at rest",
        "tone": "A short pure tone",
    }
    assert attributes["value_hed"]["rest"] == "Experiment-control"


def test_a_broken_events_json_costs_nothing(tmp_path: Path) -> None:
    broken = tmp_path / "broken.json"
    broken.write_bytes(b'{"trial_type": ')
    sidecars = LocalSidecars(events_json=(broken,))
    recording = LocalRecording(EDF, "eeg", FIXTURES / EDF, sidecars)
    done = convert_recording(recording, "a.zarr", tmp_path / "a.zarr", tmp_path, CONTEXT)
    assert [warning[:12] for warning in done.warnings] == ["events.json:"]


def _events_group(folder: Path, sidecars: LocalSidecars) -> Any:
    recording = LocalRecording(EDF, "eeg", FIXTURES / EDF, sidecars)
    convert_recording(recording, "a.zarr", folder / "a.zarr", folder, CONTEXT)
    return zarr.open_group(folder / "a.zarr", mode="r")["events"].attrs
