"""Real vendors' recordings, from a git commit to what readers open."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import biosigio
import jsonschema
import mne
import numpy as np
import pytest
import zarr

from converter import convert_dataset

from . import independent
from .conftest import Run

SCHEMAS = Path(__file__).resolve().parents[2] / "schemas"
# The table has one group for this file, at the rate most of its channels have. The header of
# some channels declares lower rates, and channels of different rates never share a grid.
MIXED_RATES = "sub-06/eeg/sub-06_task-rest_eeg.edf"


@pytest.fixture(scope="session")
def run(real_dataset: Path, repository_of, tmp_path_factory) -> Run:
    root = tmp_path_factory.mktemp("real")
    dataset = root / "nm000999"
    commit = repository_of(real_dataset, dataset)
    summary = convert_dataset(dataset, dest=root / "serving", jobs=2)
    return Run(dataset, commit, root / "serving" / "nm000999" / "zarr", summary)


def expected_rows() -> list[dict[str, str]]:
    path = Path(__file__).resolve().parents[3] / "shared" / "real" / "expected.tsv"
    if not path.is_file():
        return []
    with path.open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))


EXPECTED = expected_rows()
STORES = [row["path"] for row in EXPECTED if row["outcome"] == "store"]


@pytest.mark.parametrize("row", EXPECTED, ids=[row["path"].split("/")[0] for row in EXPECTED])
def test_outcome(run: Run, row: dict[str, str]) -> None:
    index = run.index
    if row["outcome"] != "store":
        failure = next(entry for entry in index["failures"] if entry["path"] == row["path"])
        assert failure["code"] == row["outcome"]
        assert str(run.dataset) not in json.dumps(failure)
        return
    entry = next(entry for entry in index["stores"] if entry["path"] == row["path"])
    assert sum(group["n_channels"] for group in entry["groups"]) == int(row["channels"])
    groups = {group["name"]: group for group in entry["groups"]}
    expected = [group.split(":") for group in row["groups"].split(";")]
    if row["path"] != MIXED_RATES:
        assert len(groups) == len(expected)
    for name, rate, samples in expected:
        assert groups[name]["rate"] == float(rate)
        about = samples.startswith("~")
        assert abs(groups[name]["n_samples"] - int(samples.lstrip("~"))) <= about
    natives = {group["source_rate_hz"] for group in entry["groups"]}
    assert {float(rate) for rate in row["native_rate_hz"].split("+")} <= natives


def test_everything_is_accounted_for(run: Run) -> None:
    index = run.index
    assert index["discovered_count"] == len(EXPECTED) == run.summary.discovered_count
    assert index["store_count"] == len(STORES) == run.summary.store_count
    assert index["source_commit"] == run.commit
    listed = [e["path"] for key in ("stores", "failures", "pending") for e in index[key]]
    assert sorted(listed) == sorted(row["path"] for row in EXPECTED)


@pytest.mark.parametrize("name", ["index", "manifest"])
def test_documents_are_valid(run: Run, name: str) -> None:
    version = {"index": "zarr-index-v3", "manifest": "zarr-manifest-v1"}[name]
    schema = json.loads((SCHEMAS / f"{version}.json").read_bytes())
    jsonschema.Draft202012Validator(schema).validate(
        json.loads((run.serving / f"{name}.json").read_bytes())
    )


def whole(run: Run, path: str) -> independent.Whole:
    file = run.dataset / path
    if path.endswith((".edf", ".bdf")):
        return independent.read_edf(file)
    if path.endswith(".set"):
        return independent.from_raw(_raw_eeglab(file))
    if path.endswith(".vhdr"):
        return independent.from_raw(_raw_brainvision(file))
    if path.endswith(".sqd"):
        return independent.from_raw(mne.io.read_raw_kit(file, stim=None))
    if path.endswith(".ds"):
        raw = mne.io.read_raw_ctf(file, system_clock="ignore")
        return independent.from_raw(raw)
    if path.endswith(".mff"):
        return independent.from_raw(mne.io.read_raw_egi(file, events_as_annotations=True))
    if path.endswith("_meg"):
        raw = mne.io.read_raw_bti(
            file / "c,rfDC", "config", None, rename_channels=False, convert=False
        )
        return independent.from_raw(raw)
    raw = mne.io.read_raw_fif(file, allow_maxshield=True)
    if raw.info.get("maxshield"):
        raw = mne.preprocessing.maxwell_filter(
            raw,
            calibration=file.parent / "sub-21_acq-calibration_meg.dat",
            cross_talk=file.parent / "sub-21_acq-crosstalk_meg.fif",
            coord_frame="meg",
        )
    return independent.from_raw(raw)


def _raw_eeglab(file: Path) -> mne.io.BaseRaw:
    # MNE wants the .fdt under the name that the header has.
    original = {"sub-01": "test_raw.fdt", "sub-02": "test_raw.fdt"}.get(file.name[:6])
    if original is not None:
        link = file.parent / original
        if not link.exists():
            link.symlink_to(file.with_suffix(".fdt"))
    return mne.io.read_raw_eeglab(file, montage_units="dm")


def _raw_brainvision(file: Path) -> mne.io.BaseRaw:
    raw = file.read_bytes()
    for kind in ("eeg", "vmrk"):
        key = {"eeg": b"DataFile=", "vmrk": b"MarkerFile="}[kind]
        start = raw.index(key) + len(key)
        end = start + min(raw[start:].index(b"\n"), (raw[start:] + b"\r").index(b"\r"))
        raw = raw[:start] + file.with_suffix(f".{kind}").name.encode() + raw[end:]
    patched = file.with_name(f"patched_{file.name}")
    patched.write_bytes(raw)
    return mne.io.read_raw_brainvision(patched)


@pytest.mark.parametrize("path", STORES, ids=[path.split("/")[0] for path in STORES])
def test_values_equal_an_independent_computation(run: Run, path: str) -> None:
    modality = "MEG" if "/meg/" in path else "EEG"
    recording = whole(run, path)
    compared = independent.check_store(run.store(path), recording, modality)
    assert compared > 0
    independent.check_views(run.store(path))


@pytest.mark.parametrize("path", STORES, ids=[path.split("/")[0] for path in STORES])
def test_opened_by_the_peers_importer(run: Run, path: str) -> None:
    store = run.store(path)
    root = zarr.open_group(store, mode="r")
    for name in root.attrs["channel_groups"]:
        group = root[name]
        peer = biosigio.Recording.from_file(str(store), group=name)
        digital = group["0"][:].astype(np.float64)
        channels = group.attrs["channels"]
        assert list(peer.signals.columns) == [channel["label"] for channel in channels]
        for row, channel in enumerate(channels):
            physical = digital[row] * channel["scale"] + channel["offset"]
            np.testing.assert_array_equal(peer.signals[channel["label"]].to_numpy(), physical)
