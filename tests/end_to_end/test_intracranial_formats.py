"""NWB and MEF 3, annexed, from a commit to stores that hold the arrays that were written."""

from __future__ import annotations

import json
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import zarr

from converter import convert_dataset
from tests.readers import test_mef, test_nwb
from tests.servers.annex import AnnexDataset

from . import independent
from .conftest import Run

NWB = "sub-01/ieeg/sub-01_task-rest_ieeg.nwb"
MEFD = "sub-02/ieeg/sub-02_task-rest_ieeg.mefd"
LINKED = "sub-03/ieeg/sub-03_task-rest_ieeg.mefd"
SECRETS = (test_mef.SECRET.encode(), test_nwb.SECRET.encode())
RANDOM = np.random.default_rng(5)


def signal(n_samples: int) -> np.ndarray:
    """A drift, two waves and noise, as whole numbers within int16."""
    t = np.arange(n_samples) / n_samples
    waves = 9000 * np.sin(2 * np.pi * 40 * t) + 2000 * np.sin(2 * np.pi * 700 * t) + 9000 * t
    return np.rint(waves + RANDOM.normal(0, 60, n_samples)).astype(np.int32)


def write_nwb(path: Path) -> independent.Whole:
    """Three contacts at 2048 Hz, one at 512 Hz that begins 1.5 s later; volts."""
    whole, session = independent.Whole(), test_nwb.Session()
    fast = np.stack([signal(20_480) for _ in range(3)], axis=1).astype(np.int16)
    slow = signal(4000).astype(np.int16)
    session.add(
        test_nwb.H5DataIO(fast, chunks=(3000, 2), compression="gzip"),
        (0, 1, 2),
        name="fast",
        rate=2048.0,
        starting_time=3.0,
        conversion=1.5e-7,
        offset=2e-3,
        channel_conversion=[1.0, -1.0, 2.0],
    )
    session.add(slow, (3,), name="slow", rate=512.0, starting_time=4.5, conversion=1e-6)
    session.write(path)
    for column, (label, factor) in enumerate([("LA1", 1), ("LA2", -1), ("LB1", 2)]):
        volts = fast[:, column].astype(float) * (1.5e-7 * factor) + 2e-3
        whole.add(label, Fraction(2048), volts, "V")
    whole.add("LB2", Fraction(512), np.r_[np.zeros(768), slow * 1e-6], "V")
    return whole


def write_mef(path: Path) -> independent.Whole:
    """Two contacts at 5000 Hz, one of them with a pause, and one at 250 Hz; microvolts."""
    whole, session = independent.Whole(), test_mef.Session(path)
    first, second, slow = signal(40_000), signal(40_000) * 50, signal(2000)
    session.add("LA1", first, 5000.0, block=5000, units_conversion_factor=-0.1)
    session.add("LA2", second[:15_000], 5000.0, block=5000)
    session.add("LA2", second[15_000:30_000], 5000.0, block=5000, after=5.0, segment=1)
    session.add("DC1", slow, 250.0, block=250, units_description="mV")
    paused = np.r_[second[:15_000], np.zeros(10_000), second[15_000:30_000]]
    whole.add("LA1", Fraction(5000), first * -0.1, "uV")
    whole.add("LA2", Fraction(5000), paused * 0.5, "uV")
    whole.add("DC1", Fraction(250), slow * 0.5, "mV")
    return whole


# In 10 s: the whole group of 512 Hz begins late, one channel of another group has a pause and
# ends early. Gaps of groups, and samples that channels did not record while others did.
GAPS = {NWB: {"ieeg_512hz": [[0.0, 1.5]]}, MEFD: {}}
UNRECORDED = {NWB: {}, MEFD: {"LA2": 10_000}}
CHANNELS = {
    NWB: "name\ttype\tunits\nLA1\tSEEG\tuV\nLA2\tSEEG\tmV\nLB1\tECOG\tV\nLB2\tSEEG\tn/a\n",
    MEFD: "name\ttype\tunits\nDC1\tMISC\tmV\nLA1\tECOG\tuV\nLA2\tSEEG\tmV\n",
}


@pytest.fixture
def written(tmp_path: Path) -> dict[str, independent.Whole]:
    """What each recording holds; the dataset's files are in the folder `source`."""
    for path in (NWB, MEFD, LINKED):
        (tmp_path / "source" / path).parent.mkdir(parents=True)
    wholes = {
        NWB: write_nwb(tmp_path / "source" / NWB),
        MEFD: write_mef(tmp_path / "source" / MEFD),
    }
    write_mef(tmp_path / "source" / LINKED)
    for path, table in CHANNELS.items():
        stem = path.rpartition("_")[0]
        (tmp_path / "source" / f"{stem}_channels.tsv").write_text(table)
    return wholes


def test_stores_hold_what_was_written(
    tmp_path: Path,
    written: dict[str, independent.Whole],
    annex_dataset: Callable[..., AnnexDataset],
) -> None:
    dataset = annex_dataset(tmp_path / "source")
    annexed = list(dataset.keys())
    assert len([path for path in annexed if path.startswith(MEFD)]) == 4 * 3
    secret = tmp_path / "secret"
    secret.write_bytes(b"of this machine")
    linked = next((dataset.work / LINKED).rglob("*.tdat"))
    linked.unlink()
    linked.symlink_to(secret)
    dataset.git("add", LINKED)
    dataset.git("commit", "-q", "--no-verify", "-m", "a link out of the tree")
    summary = convert_dataset(
        dataset.work, dataset_id="nm000999", dest=tmp_path / "serving", jobs=1
    )
    (serving,) = (tmp_path / "serving").glob("*/zarr")
    run = Run(dataset.work, dataset.commit, serving, summary)

    assert {entry["path"] for entry in run.index["stores"]} == {NWB, MEFD}
    (failure,) = run.index["failures"]
    assert (failure["path"], failure["code"]) == (LINKED, "file_read_error")
    for path, whole in written.items():
        store = run.store(path)
        assert independent.check_store(store, whole, "IEEG") == len(whole.signals)
        independent.check_views(store)
        root = zarr.open_group(store, mode="r")
        names = set(root.attrs["channel_groups"])
        assert names == (
            {"ieeg_1000hz", "ieeg_512hz"} if path == NWB else {"ieeg_1000hz", "ieeg_250hz"}
        )
        found = {
            channel["label"]: (channel["channel_type"], channel["unit"])
            for name in names
            for channel in root[name].attrs["channels"]
        }
        for name in names:
            gaps = GAPS[path].get(name)
            assert root[name].attrs.get("gaps") == gaps
            assert root[name].attrs.get("gap_count") == (len(gaps) if gaps else None)
            for channel in root[name].attrs["channels"]:
                unrecorded = UNRECORDED[path].get(channel["label"])
                assert channel.get("unrecorded_samples") == unrecorded
                assert channel["usable_for_inference"] is (unrecorded is None)
        for line in CHANNELS[path].splitlines()[1:]:
            label, kind, unit = line.split("\t")
            assert found[label] == (kind, "uV" if unit == "n/a" else unit)
        assert root.attrs["recording_metadata"].keys() <= {
            *("source_file", "number_of_signals", "electrical_series", "nwb_version"),
            "mef_version",
        }
    published = [file for file in serving.rglob("*") if file.is_file()]
    assert published
    for file in published:
        content = file.read_bytes()
        assert not any(name in content for name in (*SECRETS, b"of this machine")), file
    assert str(tmp_path) not in json.dumps(run.index)
