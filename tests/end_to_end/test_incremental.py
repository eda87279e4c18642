"""A later run converts what changed, keeps the rest, and remembers what failed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from converter.contract.validation import validate_index
from converter.dataset.discovery import discover
from converter.dataset.snapshot import Snapshot
from converter.pipeline import NothingPublished
from converter.plan import Settings, make_plan
from converter.publish.published import read_published

from ..conftest import commit_all
from ..dataset.trees import listed
from .history import ARRAYS, DATASET_ID, History, check_invariant, edf, event_rows, zarr_of

REST_1 = "sub-01/eeg/sub-01_task-rest_eeg.edf"
REST_2 = "sub-02/eeg/sub-02_task-rest_eeg.edf"
NAP_2 = "sub-02/eeg/sub-02_task-nap_eeg.edf"
BROKEN = "sub-03/eeg/sub-03_task-broken_eeg.edf"
NEW = "sub-04/eeg/sub-04_task-walk_eeg.edf"
OWN_EVENTS = "sub-01/eeg/sub-01_task-rest_events.tsv"
ROOT_EVENTS = "task-rest_events.tsv"
NAP_CHANNELS = "task-nap_channels.tsv"
CHANNELS = "name\ttype\tunits\nE0\tEEG\tuV\nE1\tMISC\tuV\n"


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> History:
    """Three recordings and a broken one, published once; tests work on copies."""
    history = History(tmp_path_factory.mktemp("published"))
    for seed, path in enumerate((REST_1, REST_2, NAP_2)):
        history.record(path, seed)
    history.write(BROKEN, "no EDF at all")
    history.write(OWN_EVENTS, "onset\tduration\ttrial_type\tnote\n0.1\t0\tgo\ta\n0.2\t0\tgo\tb\n")
    history.write(ROOT_EVENTS, "onset\tduration\n0.5\t0\n")
    history.write(NAP_CHANNELS, CHANNELS)
    history.write("task-rest_eeg.json", '{"PowerLineFrequency": 50}')
    history.write("dataset_description.json", '{"Name": "N", "License": "CC0"}')
    history.commit()
    done = history.run()
    assert done.converted == {REST_1, REST_2, NAP_2}
    assert (done.summary.errors, done.summary.events_row_count) == (1, 3)
    return history


@pytest.fixture
def history(published: History, tmp_path: Path) -> History:
    return published.copy_to(tmp_path)


def rename_subject(history: History) -> None:
    for file in sorted((history.root / "sub-02/eeg").iterdir()):
        target = history.root / "sub-05/eeg" / file.name.replace("sub-02", "sub-05")
        target.parent.mkdir(parents=True, exist_ok=True)
        file.rename(target)


def move_channels(history: History) -> None:
    (history.root / NAP_CHANNELS).rename(history.root / "sub-02" / f"sub-02_{NAP_CHANNELS}")


def append(path: str, text: str) -> Callable[[History], None]:
    return lambda history: history.write(path, (history.root / path).read_text() + text)


Change = Callable[[History], Any]

# What is done, the recordings that this touches, and whether the broken one is among them.
CHANGES: dict[str, tuple[Change, set[str], bool]] = {
    "nothing": (lambda h: None, set(), False),
    "recording added": (lambda h: h.record(NEW), {NEW}, False),
    "recording changed": (lambda h: h.record(REST_1, 9), {REST_1}, False),
    "recording deleted": (lambda h: h.remove(NAP_2), set(), False),
    "subject renamed": (
        rename_subject,
        {REST_2.replace("sub-02", "sub-05"), NAP_2.replace("sub-02", "sub-05")},
        False,
    ),
    "failed recording replaced": (lambda h: h.record(BROKEN), {BROKEN}, False),
    "channels.tsv at the root": (
        lambda h: h.write("channels.tsv", CHANNELS),
        {REST_1, REST_2},
        True,
    ),
    "channels.tsv moved": (move_channels, {NAP_2}, False),
    "channels.tsv changed": (append(NAP_CHANNELS, "\n"), {NAP_2}, False),
    "own events.tsv changed": (append(OWN_EVENTS, "0.3\t0\tstop\tc\n"), {REST_1}, False),
    "inherited events.tsv changed": (append(ROOT_EVENTS, "0.6\t0\n"), {REST_2}, False),
    "inherited JSON changed": (
        lambda h: h.write("task-rest_eeg.json", '{"PowerLineFrequency": 60}'),
        {REST_1, REST_2},
        False,
    ),
    "JSON at the root": (lambda h: h.write("eeg.json", "{}"), {REST_1, REST_2, NAP_2}, True),
    "events.json at the root": (
        lambda h: h.write("task-rest_events.json", '{"trial_type": {"HED": {"go": "Event"}}}'),
        {REST_1, REST_2},
        False,
    ),
    "electrodes.tsv of a subject": (
        lambda h: h.write("sub-02/sub-02_electrodes.tsv", "name\tx\ty\tz\nE0\t0\t0\t1\n"),
        {REST_2, NAP_2},
        False,
    ),
    "files that no recording depends on": (
        lambda h: [h.write(path, "x") for path in ("README", "derivatives/sub-01_eeg.edf")],
        set(),
        False,
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_converts_the_recordings_it_touches(history: History, change: str) -> None:
    act, touched, touches_the_broken = CHANGES[change]
    before = history.entries("stores")
    act(history)
    commit = history.commit()
    done = history.run()
    assert done.converted == touched
    assert (done.summary.converted, done.summary.errors) == (len(touched), touches_the_broken)
    check_invariant(history.serving)
    assert history.index["source_commit"] == commit
    after = history.entries("stores")
    assert all(after[path] == before[path] for path in after.keys() - touched)
    assert {entry["store_path"] for entry in event_rows(history.serving)} <= {
        entry["zarr"] for entry in after.values()
    }


def test_a_conversion_that_begins_to_fail_takes_its_store_away(history: History) -> None:
    history.write(REST_1, "no EDF any more")
    history.commit()
    assert history.run().converted == set()
    assert history.entries("failures").keys() == {REST_1, BROKEN}
    check_invariant(history.serving)
    assert {row["store_path"] for row in event_rows(history.serving)} == {zarr_of(REST_2)}


def planned(before: Snapshot, after: Snapshot, paths: list[str]) -> set[str]:
    """What a run would convert after `paths` were published at `before` as stores."""
    document = {
        "format": "nemar-zarr-index",
        "format_version": 3,
        "dataset_id": DATASET_ID,
        "source_commit": before.commit,
        "engine_version": "3",
        "stores": [
            {
                "path": path,
                "zarr": path.removesuffix(".fif") + ".zarr",
                "updated_utc": "2026-01-02T03:04:05Z",
                "modalities": ["meg"],
                "groups": [],
            }
            for path in paths
        ],
        "failures": [],
        "pending": [],
    }
    published = read_published(json.dumps(document).encode())
    was = {recording.path: recording for recording in discover(before)}
    plan = make_plan(discover(after), published, was, Settings("."), lambda zarr: True)
    assert len(plan.convert) + len(plan.carry) == len(paths)
    return {recording.path for recording in plan.convert}


@pytest.mark.parametrize(
    ("added", "touched"),
    [
        ("sub-01/meg/sub-01_acq-calibration_meg.dat", {1}),
        ("sub-02/sub-02_acq-crosstalk_meg.fif", {2}),
        ("acq-calibration_meg.dat", {1, 2}),
        ("sub-01/meg/sub-01_acq-other_meg.dat.bak", set()),
    ],
)
def test_a_calibration_file_converts_the_recordings_it_applies_to(
    added: str, touched: set[int]
) -> None:
    paths = [f"sub-0{n}/meg/sub-0{n}_task-rest_meg.fif" for n in (1, 2)]
    converted = planned(listed(*paths), listed(*paths, added), paths)
    assert converted == {paths[n - 1] for n in touched}


def test_a_chain_that_grows_is_converted_again() -> None:
    paths = [f"sub-01/meg/sub-01_split-0{n}_meg.fif" for n in (1, 2, 3)]
    assert planned(listed(*paths[:2]), listed(*paths), paths[:1]) == {paths[0]}


def by_store(history: History) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for row in event_rows(history.serving):
        found.setdefault(row["store_path"], []).append(row["onset_s"])
    return found


def test_events_follow_their_files(history: History) -> None:
    first, second = zarr_of(REST_1), zarr_of(REST_2)
    assert by_store(history) == {first: [0.1, 0.2], second: [0.5]}
    history.write(OWN_EVENTS, "onset\tduration\n0.7\t0\n")
    history.commit()
    assert history.run().converted == {REST_1}
    assert by_store(history) == {first: [0.7], second: [0.5]}
    history.write(OWN_EVENTS, "onset\tduration\n")
    history.commit()
    done = history.run()
    assert (done.converted, done.summary.events_stores_without_rows) == ({REST_1}, 1)
    assert by_store(history) == {second: [0.5]}
    # Without a file of its own, the recording inherits that of the root.
    history.remove(OWN_EVENTS)
    history.commit()
    assert history.run().converted == {REST_1}
    assert by_store(history) == {first: [0.5], second: [0.5]}
    history.remove(ROOT_EVENTS)
    history.commit()
    assert history.run().converted == {REST_1, REST_2}
    assert by_store(history) == {}
    assert "events_parquet" not in history.index


@pytest.mark.parametrize("loss", ["gone", "damaged", "never written"])
def test_lost_rows_are_read_anew(history: History, loss: str) -> None:
    rows = event_rows(history.serving)
    file = history.serving / "events.parquet"
    file.unlink()
    if loss == "damaged":
        file.write_bytes(b"PAR1 and nothing else")
    elif loss == "never written":
        unsaid = ("events_parquet", "events_row_count")
        history.write_index({k: v for k, v in history.index.items() if k not in unsaid})
    history.record(NEW)
    history.commit()
    done = history.run()
    assert done.converted == {NEW}
    assert not done.summary.events_upload_failed
    assert any("read anew" in warning for warning in done.summary.warnings)
    own = [row for row in event_rows(history.serving) if row["store_path"] != zarr_of(NEW)]
    assert own == rows
    again = history.run()
    assert not again.summary.warnings
    assert [row for row in event_rows(history.serving) if row["store_path"] != zarr_of(NEW)] == rows


def test_content_that_arrives_later(history: History) -> None:
    place = history.annex(NEW, edf(4))
    history.commit()
    assert history.run().converted == set()
    waiting = history.entries("pending")[NEW]
    assert (waiting["reason"], waiting["attempts"]) == ("not_attempted", 0)
    assert history.run(retry_pending=True).summary.pending_count == 1
    place.write_bytes(edf(4))
    assert history.run(if_outdated=True).converted == {NEW}
    assert history.run().converted == set()
    assert history.index["pending"] == []


def test_five_failing_runs_and_a_fixed_file(history: History) -> None:
    content = edf(4)
    place = history.annex(NEW, content)
    place.write_bytes(content[:-10])
    history.commit()
    modes: list[dict[str, Any]] = [{}, {"retry_pending": True}, {"clean": True}, {"only": ["*"]}]
    for attempts, mode in enumerate(modes, start=1):
        done = history.run(**mode)
        assert done.summary.errors == 1 + ("clean" in mode)
        entry = history.entries("pending")[NEW]
        assert (entry["reason"], entry["attempts"]) == ("infra_failure", attempts)
        assert f"{len(content) - 10} bytes" in entry["last_error"]
        assert entry["last_attempt_utc"] == history.index["updated_utc"]
        history.run(only=["sub-01/*"])
        left = history.entries("pending")[NEW]
        assert (left["reason"], left["attempts"]) == ("not_attempted", attempts)
        assert left["last_error"] == entry["last_error"]
    history.run()
    given_up = history.entries("failures")[NEW]
    assert (given_up["code"], given_up["attempts"]) == ("retry_exhausted", 5)
    assert given_up["detail"] == entry["last_error"]
    place.write_bytes(content)
    assert history.run().converted == set()
    assert history.entries("failures")[NEW] == given_up
    assert history.run(retry_failures=["corrupt_or_truncated"]).converted == set()
    assert history.run(retry_failures=["retry_exhausted"]).converted == {NEW}


def test_a_changed_file_starts_its_count_anew(history: History) -> None:
    place = history.annex(NEW, edf(4))
    place.write_bytes(b"short")
    history.commit()
    for _ in range(2):
        history.run()
    assert history.entries("pending")[NEW]["attempts"] == 2
    history.annex(NEW, edf(5)).write_bytes(b"short too")
    history.commit()
    history.run()
    assert history.entries("pending")[NEW]["attempts"] == 1
    history.annex(NEW, edf(6)).write_bytes(edf(6))
    history.commit()
    assert history.run().converted == {NEW}


def test_failures_are_retried_when_asked(history: History) -> None:
    [failure] = history.index["failures"]
    assert failure["path"] == BROKEN
    for codes, retried in (
        ([], 0),
        (["not_continuous"], 0),
        ([failure["code"]], 1),
        (["not_continuous", failure["code"]], 1),
        (["all"], 1),
    ):
        done = history.run(retry_failures=codes)
        assert (done.converted, done.summary.errors) == (set(), retried)
        assert history.index["failures"] == [failure]


def test_retry_pending_is_for_a_current_index(history: History) -> None:
    history.record(NEW)
    history.commit()
    before = history.index
    with pytest.raises(NothingPublished, match="--retry-pending"):
        history.run(retry_pending=True)
    assert history.index == before
    history.run(only=["sub-01/*"])
    shutil.rmtree(history.serving / zarr_of(REST_2))
    done = history.run(retry_pending=True)
    assert done.converted == {NEW}
    check_invariant(history.serving)
    assert history.run().converted == {REST_2}


def test_a_part_of_a_changed_dataset_costs_no_other_store(history: History) -> None:
    history.record(REST_1, 8)
    history.record(REST_2, 9)
    history.commit()
    before = history.index
    with pytest.raises(NothingPublished, match=r"--only leaves out.*sub-02_task-rest"):
        history.run(only=["sub-01/*"])
    assert history.index == before
    assert history.run(only=["*task-rest*"]).converted == {REST_1, REST_2}
    check_invariant(history.serving)


def test_nothing_is_done_to_a_current_copy(history: History) -> None:
    index = history.serving / "index.json"
    before = index.stat()
    summary = history.run(if_outdated=True).summary
    assert (summary.store_count, summary.failure_count, summary.converted) == (3, 1, 0)
    assert index.stat().st_mtime_ns == before.st_mtime_ns
    history.record(NEW)
    history.commit()
    assert history.run(if_outdated=True).converted == {NEW}


def test_another_engine_converts_everything(history: History) -> None:
    history.edit_index(engine_version="2")
    done = history.run(if_outdated=True)
    assert done.converted == {REST_1, REST_2, NAP_2}
    assert done.summary.errors == 1
    assert history.index["engine_version"] == "3"
    assert history.run(if_outdated=True).converted == set()


def test_a_published_commit_that_is_gone_converts_everything(history: History) -> None:
    shutil.rmtree(history.root / ".git")
    commit_all(history.root, "another history")
    assert history.run().converted == {REST_1, REST_2, NAP_2}
    assert by_store(history) == {zarr_of(REST_1): [0.1, 0.2], zarr_of(REST_2): [0.5]}


def older(index: dict[str, Any], version: int) -> dict[str, Any]:
    """An index as earlier formats had it: source keys inline, no pending entries, no layout."""
    kept = ("format", "dataset_id", "source_commit", "engine_version", "updated_utc")
    facts = ("doi", "license", "citation", "hed_version")
    stores = [
        {"path": store["path"], "zarr": store["zarr"], "source_key": None, "n_events": 1}
        for store in index["stores"]
    ]
    stores.append({"path": "sub-09_eeg.edf", "zarr": "sub-09_eeg.zarr", "source_key": "MD5-s1--a"})
    document = {name: index[name] for name in kept + facts[: 4 * (version - 1)]}
    document |= {"format_version": version, "n_recordings": len(stores), "stores": stores}
    if version == 2:
        document["failures"] = [{"path": BROKEN, "reason": "It could not be read."}]
    return document


@pytest.mark.parametrize("version", [1, 2])
def test_an_older_index_is_replaced(history: History, version: int) -> None:
    history.edit_index(doi="10.1/x", hed_version="8.3.0")
    history.write_index(older(history.index, version))
    (history.serving / "sub-09_eeg.zarr").mkdir()
    done = history.run(catalog=str(history.dest / "no-such-row.json"), if_outdated=True)
    assert done.converted == {REST_1, REST_2, NAP_2}
    validate_index(history.index)
    check_invariant(history.serving)
    facts = [history.index[name] for name in ("doi", "license", "hed_version")]
    assert facts == ([None] * 3 if version == 1 else ["10.1/x", "CC0", "8.3.0"])
    assert history.run().converted == set()


def test_the_facts_of_a_dataset_outlive_its_catalog(history: History) -> None:
    facts = {"doi": "10.5/y", "license": "CC-BY", "citation": "C", "hed_version": "8.3.0"}
    row = history.dest / "row.json"
    row.write_text(json.dumps(facts))
    history.run(catalog=str(row))
    row.unlink()
    for options in ({}, {"clean": True, "only": ["sub-01/*"]}):
        summary = history.run(catalog=str(row), **options).summary
        assert summary.provenance_fetch_failed
        assert {name: history.index[name] for name in facts} == facts
    root = json.loads((history.serving / zarr_of(REST_1) / "zarr.json").read_bytes())
    assert root["attributes"]["nemar"]["doi"] == "10.5/y"


def test_the_index_of_another_dataset_is_not_replaced(history: History) -> None:
    history.edit_index(dataset_id="nm000002")
    before = history.index
    with pytest.raises(NothingPublished, match=r"'nm000002'.*--clean replaces it"):
        history.run()
    assert history.index == before
    assert history.run(clean=True).summary.converted == 3
    assert history.index["dataset_id"] == DATASET_ID


def test_an_earlier_commit_is_published_again(history: History) -> None:
    first = history.index
    history.record(REST_1, 9)
    history.record(NEW)
    history.commit()
    history.run()
    done = history.run(commit=first["source_commit"])
    assert done.converted == {REST_1}
    check_invariant(history.serving)
    paths = {array: [entry["path"] for entry in first[array]] for array in ARRAYS}
    assert {array: list(history.entries(array)) for array in ARRAYS} == paths
