"""The fixture dataset: what is served against the signals that were asked for."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path

import duckdb
import numpy as np
import pyarrow.parquet as pq
import pytest
import zarr

from converter import convert_dataset

from ..fixture_outcomes import (
    FIXTURE_DATASET,
    NONFINITE_SAMPLES,
    OUTCOMES,
    PULSES,
    STORED,
    WITHHELD,
    Group,
    Measured,
)
from .conftest import DATASET_ID, Run

EVENTS_TSV = {
    "sub-01/eeg/sub-01_task-rest_eeg.edf": "sub-01/eeg/sub-01_task-rest_events.tsv",
    "sub-02/eeg/sub-02_task-rest_eeg.vhdr": "sub-02/eeg/sub-02_task-rest_events.tsv",
    "sub-03/ses-01/eeg/sub-03_ses-01_task-rest_eeg.set": "sub-03/sub-03_task-rest_events.tsv",
    "sub-05/ieeg/sub-05_task-rest_ieeg.edf": "sub-05/ieeg/sub-05_task-rest_events.tsv",
    "sub-06/emg/sub-06_task-rest_emg.bdf": "sub-06/emg/sub-06_task-rest_events.tsv",
    "sub-07/meg/sub-07_task-rest_meg.fif": "sub-07/meg/sub-07_task-rest_events.tsv",
}


def test_every_recording_is_accounted_for(fixture_run: Run) -> None:
    index, summary = fixture_run.index, fixture_run.summary
    assert index["discovered_count"] == len(OUTCOMES) == summary.discovered_count
    assert {entry["path"] for entry in index["stores"]} == set(STORED)
    assert {e["path"]: e["code"] for e in index["failures"]} == {
        path: outcome.code for path, outcome in WITHHELD.items()
    }
    assert index["pending"] == []
    assert index["errors"] == summary.errors == len(WITHHELD)
    assert index["source_commit"] == fixture_run.commit


@pytest.mark.parametrize("path", STORED)
def test_groups_and_channels(fixture_run: Run, path: str) -> None:
    stored, entry = STORED[path], fixture_run.entry(path)
    root = zarr.open_group(fixture_run.store(path), mode="r")
    assert root.attrs["channel_groups"] == [group.name for group in stored.groups]
    for group, listed in zip(stored.groups, entry["groups"], strict=True):
        attributes = dict(root[group.name].attrs)
        n_samples = math.ceil(group.native_samples * group.rate / group.native_rate_hz)
        assert listed["name"] == group.name
        assert listed["rate"] == attributes["rate"] == group.rate
        assert listed["source_rate_hz"] == attributes["original_rate"] == group.native_rate_hz
        assert listed["n_samples"] == attributes["n_samples"] == n_samples
        assert listed["duration_s"] == n_samples / group.rate
        assert root[group.name]["0"].shape == (len(group.channels), n_samples)
        for key in ("n_view_levels", "view_chunk_columns"):
            assert listed[key] == attributes[key]
        for key in ("chunk_samples", "shard_samples"):
            assert listed[key] == root[group.name]["0"].attrs[key]
        labels = [(c["label"], c["channel_type"], c["unit"]) for c in attributes["channels"]]
        assert labels == [(c.label, c.type, c.unit) for c in group.channels]
        assert [c["scale"] for c in attributes["channels"]] == root[group.name]["0"].attrs["scale"]


def physical(root: zarr.Group, group: Group) -> np.ndarray:
    array = root[group.name]["0"]
    scale, offset = (np.array(array.attrs[key])[:, None] for key in ("scale", "offset"))
    return array[:] * scale + offset


def amplitude(signal: np.ndarray, rate: float, hz: int) -> float:
    """Of a sine of `hz`, over the whole seconds inside the signal."""
    whole = signal[int(rate) : int(rate) * (int(len(signal) / rate) - 1)]
    whole = whole - whole.mean()
    phase = np.exp(-2j * np.pi * hz * np.arange(len(whole)) / rate)
    return float(2 * abs(np.mean(whole * phase)))


@pytest.mark.parametrize("path", STORED)
def test_tones_are_served_with_their_amplitude_and_unit(fixture_run: Run, path: str) -> None:
    root = zarr.open_group(fixture_run.store(path), mode="r")
    for group in STORED[path].groups:
        values = physical(root, group)
        for row, channel in enumerate(group.channels):
            check_tones(channel, values[row], group.rate)


def check_tones(channel: Measured, signal: np.ndarray, rate: float) -> None:
    largest = max([abs(tone.amplitude) for tone in channel.tones], default=0.0)
    served = {tone.hz: tone.amplitude for tone in channel.tones if tone.hz < rate / 2}
    for tone in channel.tones:
        # Above half the served rate only its alias could be seen, and must not be.
        hz = tone.hz if tone.hz in served else round(abs(tone.hz - rate * round(tone.hz / rate)))
        got = amplitude(signal, rate, hz)
        assert got == pytest.approx(served.get(hz, 0.0), abs=0.03 * largest), channel.label
    if channel.type not in ("TRIG",):
        allowed = 0.05 * largest + 1e-4 * abs(channel.mean) + 1e-15
        assert np.median(signal) == pytest.approx(channel.mean, abs=allowed), channel.label


@pytest.mark.parametrize("path", PULSES)
def test_codes_of_discrete_channels_are_exact(fixture_run: Run, path: str) -> None:
    label, length, starts = PULSES[path]
    [group] = STORED[path].groups
    root = zarr.open_group(fixture_run.store(path), mode="r")
    row = [channel.label for channel in group.channels].index(label)
    channel = root[group.name].attrs["channels"][row]
    assert not channel["usable_for_inference"]
    assert not channel["anti_aliased"]
    native = np.zeros(group.native_samples)
    for start, code in starts.items():
        native[start : start + length] = code
    values = physical(root, group)[row]
    times = np.arange(len(values)) * group.native_rate_hz / group.rate
    nearest = np.minimum(np.floor(times + 0.5).astype(int), group.native_samples - 1)
    np.testing.assert_array_equal(np.rint(values), native[nearest])
    assert np.abs(values - native[nearest]).max() <= channel["scale"] / 2 + 1e-9


def test_nonfinite_samples_are_counted_and_disqualify_their_channel(fixture_run: Run) -> None:
    for path, stored in STORED.items():
        root = zarr.open_group(fixture_run.store(path), mode="r")
        for group in stored.groups:
            for channel in root[group.name].attrs["channels"]:
                count = NONFINITE_SAMPLES.get(channel["label"])
                assert channel.get("nonfinite_samples") == count
                if count is not None:
                    assert not channel["usable_for_inference"]


def test_an_all_zero_channel_and_every_chunk_have_their_object(fixture_run: Run) -> None:
    for path, stored in STORED.items():
        store = fixture_run.store(path)
        root = zarr.open_group(store, mode="r")
        for group in stored.groups:
            for array in [root[group.name]["0"], *_views(root, group.name)]:
                outer = array.shards or array.chunks
                grid = [range(-(-n // c)) for n, c in zip(array.shape, outer, strict=True)]
                for position in np.ndindex(*map(len, grid)):
                    chunk = store / array.path / "c" / "/".join(map(str, position))
                    assert chunk.stat().st_size > 0


def _views(root: zarr.Group, name: str) -> list[zarr.Array]:
    return [root[name][f"view/{level}"] for level in root[name].attrs["view_levels"]]


@pytest.mark.parametrize("path", STORED)
def test_sidecar_facts(fixture_run: Run, path: str) -> None:
    stored, entry = STORED[path], fixture_run.entry(path)
    root = zarr.open_group(fixture_run.store(path), mode="r")
    assert entry.get("power_line_frequency") == stored.power_line_frequency
    assert root.attrs.get("power_line_frequency") == stored.power_line_frequency
    assert entry.get("n_events") == stored.events
    assert entry.get("trial_types") == stored.trial_types
    nemar = root.attrs["nemar"]
    assert nemar["contract_url"] == f"https://zarr.nemar.org/{DATASET_ID}/zarr/{entry['zarr']}/"
    assert nemar["source_commit"] == fixture_run.commit
    assert root.attrs["recording_metadata"]["source_file"] == path


def expected_event_rows(run: Run) -> list[tuple[object, ...]]:
    """The rows of events.parquet, from the TSV files with the csv module."""
    rows: list[tuple[object, ...]] = []
    for path, tsv in EVENTS_TSV.items():
        entry = run.entry(path)
        lines = (FIXTURE_DATASET / tsv).read_text(encoding="utf-8-sig")
        for number, row in enumerate(csv.DictReader(lines.splitlines(), delimiter="\t")):
            onset = number_or_none(row["onset"])
            for group in sorted(entry["groups"], key=lambda group: group["name"]):
                index = None if onset is None else math.floor(onset * group["rate"] + 0.5)
                key = (entry["zarr"], onset is None, onset or 0.0, number, group["name"])
                rows.append((key, entry["zarr"], onset, index, group["name"]))
    return [row[1:] for row in sorted(rows, key=lambda row: row[0])]


def number_or_none(text: str | None) -> float | None:
    try:
        return float(text or "")
    except ValueError:
        return None


def test_events_parquet(fixture_run: Run) -> None:
    file = fixture_run.serving / "events.parquet"
    index = fixture_run.index
    expected = expected_event_rows(fixture_run)
    columns = ["store_path", "onset_s", "sample_index", "group_name"]
    table = pq.read_table(file)
    got = list(zip(*(table[name].to_pylist() for name in columns), strict=True))
    assert got == expected
    assert index["events_row_count"] == len(expected) == fixture_run.summary.events_row_count
    assert index["events_parquet"].endswith(f"/{DATASET_ID}/zarr/events.parquet")
    manifest = json.loads((fixture_run.serving / "manifest.json").read_bytes())
    assert manifest["files"] == [
        {
            "name": "events.parquet",
            "size_bytes": file.stat().st_size,
            "row_count": len(expected),
        }
    ]
    query = f"select count(*), count(distinct store_path) from read_parquet('{file}')"
    assert duckdb.sql(query).fetchall() == [(len(expected), len(EVENTS_TSV))]


def test_two_runs_give_the_same_bytes(fixture_run: Run, tmp_path: Path) -> None:
    """Stores but for created_utc; events.parquet to the byte."""
    convert_dataset(fixture_run.dataset, dest=tmp_path, jobs=1)
    again = tmp_path / DATASET_ID / "zarr"
    files = sorted(p.relative_to(again) for p in again.rglob("*") if p.is_file())
    assert files == sorted(
        p.relative_to(fixture_run.serving) for p in fixture_run.serving.rglob("*") if p.is_file()
    )
    for file in files:
        one, other = ((folder / file).read_bytes() for folder in (fixture_run.serving, again))
        if file.name in ("index.json", "manifest.json"):
            continue
        if file.name == "zarr.json":
            one, other = (without_time(document) for document in (one, other))
        assert one == other, file


def without_time(document: bytes) -> bytes:
    decoded = json.loads(document)
    decoded["attributes"].pop("created_utc", None)
    return json.dumps(decoded).encode()


def test_nothing_of_this_machine_is_published(fixture_run: Run) -> None:
    machine = {str(fixture_run.dataset), str(fixture_run.serving), str(Path.home()), "/tmp/"}
    for file in fixture_run.serving.rglob("*.json"):
        text = file.read_text(encoding="utf-8")
        assert not [path for path in machine if path in text and len(path) > 3], file
    leftovers = [p for p in fixture_run.serving.parent.iterdir() if p != fixture_run.serving]
    assert leftovers == []
