"""A store never has fewer channels than channels.tsv declares."""

from __future__ import annotations

from pathlib import Path

import pytest
import zarr

from converter.contract.codes import FailureCode, RecordingError
from converter.recording.attributes import StoreContext
from converter.recording.convert import convert_recording
from converter.recording.local import LocalRecording, LocalSidecars

FIXTURES = Path(__file__).parents[2] / "fixtures" / "nm099999"
CONTEXT = StoreContext("nm099999", "a" * 40, "0", "https://x/zarr/", "2026-01-01T00:00:00Z")
# Signals that the header counts, channels that are signals, as the fixtures' writer made them.
COUNTS = {
    "sub-01/eeg/sub-01_task-rest_eeg.edf": (9, 8),  # one holds annotations
    "sub-02/eeg/sub-02_task-rest_eeg.vhdr": (6, 6),
    "sub-03/ses-01/eeg/sub-03_ses-01_task-rest_eeg.set": (7, 7),
}


def converted(path: str, folder: Path, rows: list[str]) -> zarr.Group:
    channels = folder / "channels.tsv"
    channels.write_text("".join(row + "\n" for row in rows))
    sidecars = LocalSidecars(channels=channels)
    recording = LocalRecording(path, "eeg", FIXTURES / path, sidecars, channels.name)
    convert_recording(recording, "a.zarr", folder / "a.zarr", folder, CONTEXT)
    return zarr.open_group(folder / "a.zarr", mode="r")


@pytest.mark.parametrize("path", COUNTS)
@pytest.mark.parametrize("more", [1, 3])
def test_fewer_channels_than_declared(path: str, more: int, tmp_path: Path) -> None:
    in_header, in_store = COUNTS[path]
    absent = [f"Absent{number}\tEEG\tuV" for number in range(more)]
    named = [f"{label}\tEEG\tuV" for label in _labels(path)]
    assert len(named) == in_store
    with pytest.raises(RecordingError) as caught:
        converted(path, tmp_path, ["name\ttype\tunits", *absent, *named])
    assert caught.value.code is FailureCode.CHANNEL_COUNT_MISMATCH
    assert caught.value.message == (
        f"{Path(path).name}: channels.tsv declares {in_store + more} channels, the file's header "
        f"counts {in_header} and {in_store} can be served; the file has no 'Absent0', for one"
    )
    assert not (tmp_path / "a.zarr").exists()


@pytest.mark.parametrize("path", COUNTS)
def test_as_many_or_fewer_declared(path: str, tmp_path: Path) -> None:
    """Rows in any number up to the file's own, the annotation signal's among them, are fine."""
    named = [f"{label}\tEEG\tuV" for label in _labels(path)]
    rows = ["name\ttype\tunits", *named[1:], "EDF Annotations\tMISC\tn/a"]
    if path.endswith(".edf"):
        rows.append(named[0])
    else:
        rows = rows[:-1]
    root = converted(path, tmp_path, rows)
    groups = [root[name].attrs["channels"] for name in root.attrs["channel_groups"]]
    assert sum(map(len, groups)) == COUNTS[path][1]
    assert root.attrs["recording_metadata"]["number_of_signals"] == COUNTS[path][0]


def _labels(path: str) -> list[str]:
    table = next((FIXTURES / path).parent.glob("*channels.tsv"))
    return [line.split("\t")[0] for line in table.read_text().splitlines()[1:]]
