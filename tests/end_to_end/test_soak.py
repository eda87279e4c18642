"""Thousands of recordings, some of which do the worst that a reader can do to its process."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from converter.work import enclosure

from . import saboteur
from .history import DATASET_ID, History, check_invariant, edf, index_at, written
from .test_stopping import nothing_is_left

RECORDINGS, CONTENTS = 2000, 8

# What the index says of a fault: nothing where the recording became a store all the same.
EXPECTED = {
    **dict.fromkeys(("kill", "segv", "bus", "exit", "hang", "raise"), ("infra_failure", 1)),
    "balloon": ("memory_budget", 1),
    "full": ("not_attempted", 0),
    # An enclosed process starts no other; else the child ends with its worker.
    **({"fork": ("infra_failure", 1)} if enclosure.is_possible() else {}),
}
RARE = {"hang": 2, "balloon": 5, "thirst": 5}  # they take long, or are tried once more


def fates(rng: random.Random) -> list[str]:
    """What each recording's reader does; nothing, for nine in ten."""
    chosen = [name for name in saboteur.FAULTS for _ in range(RARE.get(name, RECORDINGS // 80))]
    chosen += ["rest"] * (RECORDINGS - len(chosen))
    rng.shuffle(chosen)
    return chosen


@pytest.mark.slow
def test_faults_cost_their_own_recordings_only(tmp_path: Path) -> None:
    history = History(tmp_path)
    contents = [edf(seed) for seed in range(CONTENTS)]
    expected: Counter[tuple[str, str, int]] = Counter()
    for number, fate in enumerate(fates(random.Random(6))):
        folder = history.root / f"sub-{number:04}/eeg"
        folder.mkdir(parents=True)
        name = f"sub-{number:04}_task-{fate}_eeg.edf"
        (folder / name).write_bytes(contents[number % CONTENTS])
        if fate in EXPECTED:
            expected[(fate, *EXPECTED[fate])] += 1
    history.commit()
    saboteur.run(history, seconds=15.0)
    found = Counter(
        (entry["path"].split("task-")[1].split("_")[0], entry["reason"], entry["attempts"])
        for entry in history.index["pending"]
    )
    assert found == expected
    assert history.index["store_count"] == RECORDINGS - expected.total()
    nothing_is_left(history.dest)
    before = written(history.serving)
    done = history.run()
    assert len(done.converted) == expected.total()
    assert not done.converted & before.keys()
    check_invariant(history.serving)
    assert index_at(history.serving)["store_count"] == RECORDINGS
    stores = sorted((history.dest / DATASET_ID / "zarr").rglob("*.zarr"))
    chunks = [(store / "eeg_100hz/0/c/0/0").read_bytes() for store in stores]
    assert len(set(chunks)) == CONTENTS
    assert all(chunk == chunks[number % CONTENTS] for number, chunk in enumerate(chunks))
