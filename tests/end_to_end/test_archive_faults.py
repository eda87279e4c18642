"""Runs from an archive to a bucket while the network, a server or the converter itself fails.

Each begins over a copy of an older commit, of which one recording is gone by now, two have
changed and one has stayed.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.servers.dask_cluster import family, until
from tests.servers.faults import (
    ACCESS_DENIED,
    EXPIRED_TOKEN,
    INTERNAL_ERROR,
    NOT_FOUND,
    SLOW_DOWN,
    Flip,
    Gate,
    LoseAnswer,
    Reset,
    Stall,
    Truncate,
)

from .anonymous import check_readable
from .archive import RUN_SECONDS, Copy, Disturbed, finish, recording

Disturb = Callable[[Disturbed], None]
slow = pytest.mark.slow


def resets(run: Disturbed) -> None:
    run.content.inject(Reset(after=3000), method="GET", times=4)
    run.copies.inject(Reset(), method="PUT", path=r"/(events\.parquet|index\.json)", times=2)
    run.copies.inject(Reset(), share=0.1, times=8)


def silences(run: Disturbed) -> None:
    run.content.inject(Stall(1.0, after=3000), method="GET", times=4)
    run.copies.inject(Stall(1.0), share=0.2, times=6)


def storms(run: Disturbed) -> None:
    run.content.inject(SLOW_DOWN, method="GET", times=5)
    run.copies.inject(INTERNAL_ERROR, method="PUT", path=r"/index\.json", times=1)
    run.copies.inject(SLOW_DOWN, share=0.15, times=10)
    run.copies.inject(INTERNAL_ERROR, share=0.1, times=6)


def truncated_bodies(run: Disturbed) -> None:
    run.content.inject(Truncate(after=5000), method="GET", times=4)
    for name in (r"index\.json", r"events\.parquet", r"\?list-type"):
        run.copies.inject(Truncate(after=20), method="GET", path=name, times=2)


def wrong_bytes(run: Disturbed) -> None:
    run.content.inject(Flip(at=5000), method="GET", times=2)
    for name in (r"index\.json", r"events\.parquet"):
        run.copies.inject(Flip(at=200), method="GET", path=name, times=1)


def lost_answers(run: Disturbed) -> None:
    for name in (r"index\.json", r"\.claim\.json", r"manifest\.json", r"events\.parquet"):
        run.copies.inject(LoseAnswer(), method="PUT", path=name, times=1)
    run.copies.inject(LoseAnswer(), method="POST", times=1)
    run.copies.inject(LoseAnswer(), method="PUT", share=0.2, times=8)


@pytest.mark.parametrize(
    "disturb",
    [
        resets,
        pytest.param(silences, marks=slow),
        pytest.param(storms, marks=slow),
        truncated_bodies,
        pytest.param(wrong_bytes, marks=slow),
        lost_answers,
    ],
)
def test_a_fault_that_passes_costs_nothing(
    disturbed: Disturbed, undisturbed: Any, tmp_path: Path, disturb: Disturb
) -> None:
    disturb(disturbed)
    disturbed.convert()
    assert disturbed.met > 1
    check_readable(disturbed.copy)
    assert disturbed.copy.state(tmp_path) == undisturbed


def content_refused(run: Disturbed) -> None:
    run.content.inject(ACCESS_DENIED, path=run.changed.asked_for(4), times=None)


def content_wrong(run: Disturbed) -> None:
    run.content.inject(Flip(at=300), path=run.changed.asked_for(2), times=None)


def content_gone(run: Disturbed) -> None:
    run.content.inject(NOT_FOUND, path=run.changed.asked_for(2), times=None)


# All requests but those for the stores that have readers: which of them are done when the new
# store is amid its own is chance.
AMID_THE_NEW_STORE: dict[str, Any] = {"path": r"^(?!.*sub-0[0-3])", "skip": 10, "times": None}


def credentials_expire(run: Disturbed) -> None:
    run.copies.inject(EXPIRED_TOKEN, **AMID_THE_NEW_STORE)


def chunks_denied(run: Disturbed) -> None:
    run.copies.inject(ACCESS_DENIED, method="PUT", path=r"\.zarr/.*/c/", times=None)


def events_denied(run: Disturbed) -> None:
    run.copies.inject(ACCESS_DENIED, method="PUT", path=r"events\.parquet", times=None)


def manifest_denied(run: Disturbed) -> None:
    run.copies.inject(ACCESS_DENIED, method="PUT", path=r"manifest\.json", times=None)


def index_denied(run: Disturbed) -> None:
    run.copies.inject(ACCESS_DENIED, method="PUT", path=r"index\.json", times=None)


def removals_denied(run: Disturbed) -> None:
    run.copies.inject(ACCESS_DENIED, method="POST", path="delete", times=None)


def outage(run: Disturbed) -> None:
    run.copies.inject(INTERNAL_ERROR, **AMID_THE_NEW_STORE)


def outage_of_content(run: Disturbed) -> None:
    run.content.inject(Reset(after=100), times=None)


def long_silences(run: Disturbed) -> None:
    """Longer than the patience with either server."""
    run.content.inject(Stall(100.0, after=100), method="GET", times=1)
    run.copies.inject(Stall(100.0), method="PUT", path=r"\.zarr/", times=1)


@pytest.mark.parametrize(
    ("disturb", "code", "pending"),
    [
        (content_refused, 0, {4: "infra_failure"}),
        pytest.param(content_wrong, 0, {2: "infra_failure"}, marks=slow),
        pytest.param(content_gone, 0, {2: "not_attempted"}, marks=slow),
        (credentials_expire, 1, {}),
        pytest.param(chunks_denied, 0, dict.fromkeys((1, 2, 4), "infra_failure"), marks=slow),
        pytest.param(events_denied, 0, {}, marks=slow),
        pytest.param(manifest_denied, 0, {}, marks=slow),
        pytest.param(index_denied, 1, {}, marks=slow),
        pytest.param(removals_denied, 0, {}, marks=slow),
        pytest.param(outage, 1, {}, marks=slow),
        pytest.param(outage_of_content, 0, dict.fromkeys((1, 2, 4), "infra_failure"), marks=slow),
        pytest.param(long_silences, 0, {}, marks=slow),
    ],
)
def test_after_a_fault_that_lasts_the_next_run_completes(
    disturbed: Disturbed,
    undisturbed: Any,
    tmp_path: Path,
    disturb: Disturb,
    code: int,
    pending: dict[int, str],
) -> None:
    before = disturbed.copy.read("index.json")
    disturb(disturbed)
    disturbed.convert(code=code)
    assert disturbed.met
    index = check_readable(disturbed.copy)
    if code:
        assert disturbed.copy.read("index.json") == before
    else:
        assert index["source_commit"] == disturbed.changed.newer
        found = {entry["path"]: entry["reason"] for entry in index["pending"]}
        assert found == {recording(number): reason for number, reason in pending.items()}
    disturbed.heal()
    disturbed.convert()
    assert disturbed.copy.state(tmp_path) == undisturbed


# The request that is held when the converter is killed, and how many such ones go before it.
KILLED_AT = {
    "fetching": ("content", "GET", r"\.edf", 0),
    "sending a new store": ("copies", "PUT", r"sub-04.*\.zarr/.*/c/", 0),
    "ending a changed store": ("copies", "PUT", r"sub-02[^/]*\.zarr/zarr\.json", 1),
    "before the events": ("copies", "PUT", r"events\.parquet", 0),
    "between events and manifest": ("copies", "PUT", r"manifest\.json", 0),
    "before the index": ("copies", "PUT", r"index\.json", 0),
    "before the removals": ("copies", "POST", "delete", 0),
    "amid the removals": ("copies", "POST", "delete", 1),
}
AFTER_THE_INDEX = {"before the removals", "amid the removals"}
QUICK = {"sending a new store", "amid the removals"}


@pytest.mark.parametrize(
    "stage", [stage if stage in QUICK else pytest.param(stage, marks=slow) for stage in KILLED_AT]
)
def test_after_a_killed_run_the_next_one_completes(
    disturbed: Disturbed, undisturbed: Any, tmp_path: Path, stage: str
) -> None:
    server, method, path, skip = KILLED_AT[stage]
    before = disturbed.copy.read("index.json")
    gate = Gate()
    getattr(disturbed, server).inject(gate, method=method, path=path, skip=skip)
    if stage == "sending a new store":  # and nothing else: a changed one has readers
        disturbed.content.inject(Gate(), path=disturbed.changed.asked_for(2), times=None)
    kill_at(gate, disturbed)
    assert list(disturbed.copy.scratch.iterdir())
    assert (disturbed.copy.read("index.json") == before) == (stage not in AFTER_THE_INDEX)
    check_readable(disturbed.copy)
    disturbed.heal()
    disturbed.convert()
    assert disturbed.copy.state(tmp_path) == undisturbed
    assert not list(disturbed.copy.scratch.iterdir())


def test_a_store_that_a_killed_run_replaced_in_part_is_made_anew(
    disturbed: Disturbed, older_copy: Copy, tmp_path: Path
) -> None:
    gate = Gate()
    disturbed.copies.inject(gate, method="PUT", path=r"sub-02.*\.zarr/.*/view/1/c/")
    kill_at(gate, disturbed, after=r"sub-02.*\.zarr/.*hz/0/c/")
    disturbed.heal()
    disturbed.copy.run("--commit", disturbed.changed.older)
    assert disturbed.copy.state(tmp_path / "copy") == older_copy.state(tmp_path / "older")


def kill_at(gate: Gate, disturbed: Disturbed, after: str = "") -> None:
    """Kill a run when its request is at the gate, which stays shut; its workers end with it.

    Before that, wait until the bucket has taken what the regular expression `after` names.
    """
    run = disturbed.copy.start("--commit", disturbed.changed.newer)
    try:
        gate.wait_until_reached(RUN_SECONDS)
        if after:
            until(lambda: was_taken(disturbed, after), f"{after} is taken", RUN_SECONDS)
    finally:
        members = family(run.pid)
        run.kill()
        run.communicate(timeout=60)
    assert run.returncode == -signal.SIGKILL
    _, alive = psutil.wait_procs(members, timeout=60)
    assert alive == []


def was_taken(disturbed: Disturbed, path: str) -> bool:
    return any(each.status == 200 for each in disturbed.copies.exchanges("PUT", path))


def test_two_runs_at_once(disturbed: Disturbed, undisturbed: Any, tmp_path: Path) -> None:
    commit = ("--commit", disturbed.changed.newer)
    for run in [disturbed.copy.start(*commit) for _ in range(2)]:
        finish(run)
    check_readable(disturbed.copy)
    assert disturbed.copy.state(tmp_path) == undisturbed


def test_a_run_over_an_unchanged_commit_transfers_no_store(disturbed: Disturbed) -> None:
    disturbed.copy.run("--commit", disturbed.changed.older)
    assert disturbed.copies.exchanges("PUT", r"index\.json")
    assert {each.method for each in disturbed.copies.exchanges(path=r"\.zarr/")} == {"HEAD"}
    assert disturbed.content.exchanges(path=r"\.(edf|tsv)") == []


def test_only_what_changed_is_transferred(
    disturbed: Disturbed, undisturbed: Any, tmp_path: Path
) -> None:
    disturbed.convert()
    assert disturbed.copy.state(tmp_path) == undisturbed
    sent = [each.path for each in disturbed.copies.exchanges("PUT", r"\.zarr/")]
    stores = {n: [path for path in sent if f"/sub-{n:02}/" in path] for n in range(5)}
    changed = [n for n, paths in stores.items() if paths]
    with_signal = [n for n, paths in stores.items() if any("hz/0/c/" in path for path in paths)]
    assert (changed, with_signal) == ([1, 2, 4], [2, 4])
    keys = {n: disturbed.changed.asked_for(n) for n in range(1, 5)}
    assert [n for n, key in keys.items() if disturbed.content.exchanges(path=key)] == [1, 2, 4]
