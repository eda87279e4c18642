"""Whatever happens to a dataset between runs, what is published is what a first run gives."""

from __future__ import annotations

import copy
import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from converter.pipeline import NothingPublished

from .history import (
    ARRAYS,
    DATASET_ID,
    History,
    check_invariant,
    edf,
    event_rows,
    index_at,
    store_digest,
    zarr_of,
)

SUBJECTS = ("01", "02")
TASKS = ("rest", "nap")
RECORDINGS = tuple(f"sub-{s}/eeg/sub-{s}_task-{t}_eeg.edf" for s in SUBJECTS for t in TASKS)

# Places from the root down to one recording; a deeper one is nearer.
PLACES = ("", "task-rest_", "sub-01/sub-01_", "sub-01/eeg/sub-01_task-rest_", "sub-02/eeg/")
SIDECARS: dict[str, tuple[str, ...]] = {
    "events.tsv": (
        "onset\tduration\ttrial_type\tnote\n0.1\t0\tgo\ta\n0.2\t0\tstop\tb\n",
        "onset\tduration\tcolour\n0.3\t0\tred\nn/a\t0\tblue\n",
        "onset\tduration\n",
        "",
    ),
    "channels.tsv": (
        "name\ttype\tunits\nE0\tEEG\tuV\nE1\tEOG\tuV\n",
        "name\ttype\tunits\nE0\tEEG\tmV\nE1\tMISC\tn/a\n",
    ),
    "eeg.json": ('{"PowerLineFrequency": 50}', '{"PowerLineFrequency": 60}'),
    "events.json": ('{"trial_type": {"Levels": {"go": "start"}}}', "{}"),
}

_recordings = st.sampled_from(RECORDINGS)
_seeds = st.integers(0, 3)
_places = st.sampled_from(PLACES)
_sidecars = st.sampled_from(
    [(n, content) for n, contents in SIDECARS.items() for content in contents]
)

# What may happen between two runs: a method of the machine, and what it is given.
_changes = st.one_of(
    st.tuples(st.just("record"), _recordings, _seeds),
    st.tuples(st.just("annex"), _recordings, _seeds, st.sampled_from(["absent", "bad", "here"])),
    st.tuples(st.just("describe"), _places, _sidecars),
    st.tuples(st.just("undescribe"), _places, st.sampled_from(list(SIDECARS))),
    st.tuples(st.just("rename"), _recordings, _recordings),
    st.tuples(st.just("damage"), _recordings),
    st.tuples(st.just("delete"), _recordings),
    st.tuples(st.just("lose_store"), _recordings),
)

_FULL: list[dict[str, Any]] = [
    {},
    {"if_outdated": True},
    {"clean": True},
    {"retry_failures": ["all"]},
]
_PART: list[dict[str, Any]] = [{"only": ["sub-01/*"]}, {"only": ["*task-rest*"], "clean": True}]


class Runs(RuleBasedStateMachine):
    """A dataset that changes, and one serving copy that follows it."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="runs-"))
        self.history = History(self.folder)
        self.history.write("README", "a dataset")
        self.history.commit()

    @rule(changes=st.lists(_changes, min_size=1, max_size=4), options=st.sampled_from(_FULL))
    def change_and_run(self, changes: list[tuple[Any, ...]], options: dict[str, Any]) -> None:
        self._change(changes)
        believed = "if_outdated" in options and not self._has_its_stores()
        self.history.run(**options)
        # A copy that seems current is believed, and not looked through for what was lost.
        if not believed:
            self._check()

    @rule(changes=st.lists(_changes, min_size=1, max_size=4), options=st.sampled_from(_PART))
    def change_and_run_a_part(
        self, changes: list[tuple[Any, ...]], options: dict[str, Any]
    ) -> None:
        commit = self._change(changes)
        index = self.history.serving / "index.json"
        before = index.read_bytes() if index.exists() else None
        try:
            self.history.run(**options)
        except NothingPublished:
            # Nothing matches, or what is left out would lose its store.
            assert (index.read_bytes() if index.exists() else None) == before
            return
        check_invariant(self.history.serving)
        assert self.history.index["source_commit"] == commit

    def _change(self, changes: list[tuple[Any, ...]]) -> str:
        for name, *arguments in changes:
            getattr(self, name)(*arguments)
        return self.history.commit()

    def record(self, path: str, seed: int) -> None:
        self.history.record(path, seed)

    def annex(self, path: str, seed: int, state: str) -> None:
        """Content may come, and bad content be repaired; what is right stays."""
        content = edf(seed)
        place = self.history.annex(path, content)
        if state == "here":
            place.write_bytes(content)
        elif state == "bad" and not place.exists():
            place.write_bytes(content[:-1])

    def describe(self, place: str, sidecar: tuple[str, str]) -> None:
        self.history.write(f"{place}{sidecar[0]}", sidecar[1])

    def undescribe(self, place: str, name: str) -> None:
        self._remove(f"{place}{name}")

    def rename(self, old: str, new: str) -> None:
        file, place = self.history.root / old, self.history.root / new
        if old != new and file.is_file() and not file.is_symlink():
            place.parent.mkdir(parents=True, exist_ok=True)
            file.replace(place)

    def damage(self, path: str) -> None:
        self._remove(path)
        self.history.write(path, "no EDF at all")

    def delete(self, path: str) -> None:
        self._remove(path)

    def lose_store(self, path: str) -> None:
        shutil.rmtree(self.history.serving / zarr_of(path), ignore_errors=True)

    def _remove(self, path: str) -> None:
        file = self.history.root / path
        if file.is_symlink() or file.exists():
            self.history.remove(path)

    def teardown(self) -> None:
        try:
            self.history.run()
            self._check()
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _has_its_stores(self) -> bool:
        serving = self.history.serving
        if not (serving / "index.json").exists():
            return True
        return all((serving / store["zarr"]).exists() for store in self.history.index["stores"])

    def _check(self) -> None:
        check_invariant(self.history.serving)
        with tempfile.TemporaryDirectory(dir=self.folder) as fresh:
            self.history.run(dest=Path(fresh), clean=True)
            clean = Path(fresh) / DATASET_ID / "zarr"
            given_up = _given_up(self.history.serving)
            expected = _state(clean, given_up)
            assert _state(self.history.serving, given_up) == expected
            for path, entry in expected["stores"].items():
                served = store_digest(self.history.serving / entry["zarr"])
                assert served == store_digest(clean / entry["zarr"]), path


def _given_up(serving: Path) -> set[str]:
    """Recordings that failed on five runs: a first run may still try them, or fare better."""
    failures = index_at(serving)["failures"]
    return {entry["path"] for entry in failures if entry["code"] == "retry_exhausted"}


def _state(serving: Path, given_up: set[str]) -> dict[str, Any]:
    """What is published, less what tells one run from another."""
    index = copy.deepcopy(index_at(serving))
    state: dict[str, Any] = {}
    for array in ARRAYS:
        entries = {entry["path"]: entry for entry in index.pop(array)}
        for entry in entries.values():
            for name in ("updated_utc", "attempts", "last_attempt_utc"):
                entry.pop(name, None)
        state[array] = {path: e for path, e in entries.items() if path not in given_up}
    manifest = json.loads((serving / "manifest.json").read_bytes())
    zarr_given_up = {zarr_of(path) for path in given_up}
    state["sources"] = [s for s in manifest["stores"] if s["path"] not in given_up]
    rows = event_rows(serving)
    state["events"] = [row for row in rows if row["store_path"] not in zarr_given_up]
    if not given_up:
        state["index"] = {k: v for k, v in index.items() if k not in ("updated_utc", "errors")}
    return state


# pytest collects the TestCase that hypothesis makes of the machine.
TestRuns = pytest.mark.slow(Runs.TestCase)
TestRuns.settings = settings(
    max_examples=8,
    stateful_step_count=8,
    suppress_health_check=list(HealthCheck),
)
