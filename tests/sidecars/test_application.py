"""Sidecars as a conversion applies them: to the store, and to what the index says of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

from converter.contract.codes import FailureCode, RecordingError
from converter.recording.attributes import StoreContext
from converter.recording.convert import ConvertedRecording, convert_recording
from converter.recording.local import LocalRecording, LocalSidecars
from converter.recording.sidecars.tables import MAX_COLUMNS
from tests.readers.test_eeglab import cells, fields, write_v5

FIXTURES = Path(__file__).parents[2] / "fixtures" / "nm099999"
EDF = "sub-01/eeg/sub-01_task-rest_eeg.edf"
CONTEXT = StoreContext("nm099999", "a" * 40, "0", "https://x/zarr/", "2026-01-01T00:00:00Z")


def converted(file: Path, folder: Path, **sidecars: Any) -> tuple[ConvertedRecording, zarr.Group]:
    channels = sidecars.get("channels")
    recording = LocalRecording(
        f"sub-01/eeg/{file.name}",
        "eeg",
        file,
        LocalSidecars(**sidecars),
        None if channels is None else channels.name,
    )
    done = convert_recording(recording, "a.zarr", folder / "a.zarr", folder, CONTEXT)
    return done, zarr.open_group(folder / "a.zarr", mode="r")


def test_a_channels_tsv_that_nothing_can_read(tmp_path: Path) -> None:
    table = tmp_path / "channels.tsv"
    table.write_text("name\ttype\tunits" + "\tx" * MAX_COLUMNS + "\nFp1\tMISC\tkV\n")
    done, root = converted(FIXTURES / EDF, tmp_path, channels=table)
    report = done.entry.units_report
    assert report.channels_tsv_read_error is True
    assert report.sidecar == "channels.tsv"
    assert "channels_tsv_units" not in root.attrs
    [first, *_] = root[root.attrs["channel_groups"][0]].attrs["channels"]
    assert (first["label"], first["channel_type"], first["unit"]) == ("Fp1", "EEG", "uV")
    assert any("columns are more than" in warning for warning in done.warnings)


@pytest.mark.parametrize(
    ("encoding", "end"),
    [("utf-8-sig", "\r\n"), ("utf-16", "\n"), ("cp1252", "\r"), ("latin-1", "\r\n")],
)
def test_tables_of_any_encoding(tmp_path: Path, encoding: str, end: str) -> None:
    channels, events = tmp_path / "channels.tsv", tmp_path / "events.tsv"
    rows = ["name\ttype\tunits", "fp1\tEEG\tmV", "Fp2\tEEG\tµV"]
    channels.write_bytes(end.join(rows).encode(encoding))
    rows = ["onset\tduration\ttrial_type", "1,5\tn/a\tflèche", "", "2\t0", "n/a\t0\tx\t\t"]
    events.write_bytes(end.join(rows).encode(encoding))
    done, root = converted(FIXTURES / EDF, tmp_path, channels=channels, events=events)
    units = [channel["unit"] for channel in root["eeg_250hz"].attrs["channels"]]
    assert units[:2] == ["mV", "µV"]
    assert root["events"].attrs["label_map"] == {"1": "flèche", "2": "n/a"}
    np.testing.assert_array_equal(root["events"]["onset"][:], [1.5, 2.0])
    assert (done.entry.n_events, done.entry.trial_types) == (3, {"flèche": 1, "x": 1})


def test_a_separator_inside_a_cell_is_no_line_end(tmp_path: Path) -> None:
    events = tmp_path / "events.tsv"
    events.write_text("onset\ttrial_type\n1\tone\u2028two\n2\tthree\x85four\n", "utf-8")
    _, root = converted(FIXTURES / EDF, tmp_path, events=events)
    assert root["events"].attrs["label_map"] == {"1": "one\u2028two", "2": "three\x85four"}


SAMPLES = np.random.default_rng(0).normal(0, 50, (74, 300)).astype(np.float32)


@pytest.mark.parametrize(
    "chanlocs",
    [
        {"labels": cells([f"E{n}" for n in range(74)]), "type": cells([""] * 74)},
        {"labels": "E0", "type": ""},
        np.zeros((0, 0)),
    ],
    ids=["column-wise", "one", "none"],
)
def test_of_74_channels_never_one(tmp_path: Path, chanlocs: Any) -> None:
    file = tmp_path / "sub-01_eeg.set"
    write_v5(file, fields(SAMPLES, nbchan=74, pnts=300, chanlocs=chanlocs))
    _, root = converted(file, tmp_path)
    group = root["eeg_128hz"]
    assert group["0"].shape == (74, 300)
    scale, offset = (np.array(group["0"].attrs[key])[:, None] for key in ("scale", "offset"))
    np.testing.assert_allclose(group["0"][:] * scale + offset, SAMPLES, atol=0.51 * scale.max())


def test_one_channel_where_74_are_declared(tmp_path: Path) -> None:
    file, table = tmp_path / "sub-01_eeg.set", tmp_path / "channels.tsv"
    locations = {"labels": "E0", "type": ""}
    write_v5(file, fields(SAMPLES[:1], nbchan=1, pnts=300, chanlocs=locations))
    table.write_text("name\n" + "".join(f"E{n}\n" for n in range(74)))
    with pytest.raises(RecordingError, match=r"declares 74 .* header counts 1 and 1 can") as caught:
        converted(file, tmp_path, channels=table)
    assert caught.value.code is FailureCode.CHANNEL_COUNT_MISMATCH
