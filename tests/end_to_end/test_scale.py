"""Runs over a dataset of 25,000 recordings that is published: what is unchanged costs little.

Seconds are printed (pytest -s shows them), and none is asserted: they vary with the machine.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from converter.contract.addresses import Addresses
from converter.contract.index import Provenance, encode_index
from converter.publish.accounting import Accounts, EventsReference, build_index
from converter.work.spool import row_schema
from scripts.benchmarks.large_dataset import EVENTS, WHEN, Name, files, names, store_entry
from scripts.benchmarks.trees import make_repository

from ..conftest import GIT_ENVIRONMENT, git
from .history import DATASET_ID, History, annex_object, edf, event_rows

pytestmark = pytest.mark.slow

COUNT = 25_000
MOST_MEMORY_KB = 1_000_000


def publish_by_hand(history: History, commit: str) -> None:
    """What a first run leaves, with stores that have no more than their root metadata."""
    entries = tuple(sorted(map(store_entry, names(COUNT)), key=lambda entry: entry.path))
    for entry in entries:
        store = history.serving / entry.zarr
        store.mkdir(parents=True)
        (store / "zarr.json").write_text(json.dumps({"attributes": {"created_utc": WHEN}}))
    addresses = Addresses.for_dataset(DATASET_ID)
    index = build_index(
        Accounts(entries, (), (), 0),
        addresses,
        dataset_id=DATASET_ID,
        commit=commit,
        updated_utc=WHEN,
        provenance=Provenance(),
        events=EventsReference(addresses.events_url, COUNT * EVENTS),
    )
    (history.serving / "index.json").write_bytes(encode_index(index))
    by_stem = sorted(names(COUNT), key=lambda name: name.stem)
    columns: dict[str, list[Any]] = {
        "store_path": [f"{name.stem}_eeg.zarr" for name in by_stem for _ in range(EVENTS)],
        "onset_s": [event / 10 for _ in by_stem for event in range(EVENTS)],
        "trial_type": ["go"] * (COUNT * EVENTS),
    }
    schema = row_schema([])
    absent = [None] * (COUNT * EVENTS)
    table = pa.Table.from_pydict(
        {field.name: columns.get(field.name, absent) for field in schema}, schema=schema
    )
    pq.write_table(table, history.serving / "events.parquet", compression="zstd")


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> History:
    history = History(tmp_path_factory.mktemp("large"))
    content = edf(0)
    commit = make_repository(history.root, files(COUNT, annex_object(content)))
    place = history.root / annex_object(content)
    place.parent.mkdir(parents=True)
    place.write_bytes(content)
    publish_by_hand(history, commit)
    return history


# A process begins with the peak of the one that it was forked from: that must be a small one.
OBSERVER = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(used.ru_utime + used.ru_stime, used.ru_maxrss)
"""


def measured(history: History, what: str, *options: str) -> dict[str, Any]:
    """Run the command in a process of its own; print its seconds and memory."""
    summary = history.dest / "summary.json"
    arguments = [str(history.root), "--dest", str(history.dest), "--json", str(summary), "-q"]
    started = time.monotonic()
    command = [sys.executable, "-m", "converter", *arguments, *options]
    done = subprocess.run(
        [sys.executable, "-c", OBSERVER, *command], stdout=subprocess.PIPE, check=True
    )
    seconds = time.monotonic() - started
    cpu, peak = map(float, done.stdout.split()[-2:])
    assert peak < MOST_MEMORY_KB
    print(f"\n{what}: {seconds:.1f} s ({cpu:.1f} s of CPU), peak {peak / 1024:.0f} MB")
    document: dict[str, Any] = json.loads(summary.read_bytes())
    return document


def test_what_is_unchanged_is_kept_and_a_changed_sidecar_converts_one(large: History) -> None:
    before = large.index
    stores = {entry["path"]: entry for entry in before["stores"]}
    done = measured(large, "nothing to do", "--if-outdated")
    assert (done["store_count"], done["converted"]) == (COUNT, 0)
    assert large.index == before

    done = measured(large, "no change")
    assert (done["store_count"], done["converted"], done["errors"]) == (COUNT, 0, 0)
    assert large.index["stores"] == before["stores"]
    assert done["events_row_count"] == COUNT * EVENTS

    changed = Name("0700", "2", "3").stem
    commit = (
        "commit refs/heads/main\ncommitter t <t@localhost> 1700000001 +0000\ndata 1\nt\n"
        f"from refs/heads/main^0\nM 100644 inline {changed}_events.tsv\n"
        "data 28\nonset\tduration\n0.1\t0\n0.2\t0\n\n\n"
    )
    subprocess.run(
        ["git", "fast-import", "--quiet"],
        cwd=large.root,
        env=GIT_ENVIRONMENT,
        input=commit.encode(),
        check=True,
    )
    assert git(large.root, "rev-parse", "main") != before["source_commit"]
    done = measured(large, "one changed sidecar, dry run", "--dry-run")
    converted = [one["path"] for one in done["plan"] if one["action"] == "convert"]
    assert converted == [f"{changed}_eeg.edf"]
    assert sum(one["action"] == "keep" for one in done["plan"]) == COUNT - 1

    done = measured(large, "one changed sidecar")
    assert (done["store_count"], done["converted"], done["errors"]) == (COUNT, 1, 0)
    assert done["events_row_count"] == (COUNT - 1) * EVENTS + 2
    after = large.entries("stores")
    assert [path for path in stores if after[path] != stores[path]] == [f"{changed}_eeg.edf"]
    rows = event_rows(large.serving)
    assert sum(row["store_path"] == f"{changed}_eeg.zarr" for row in rows) == 2
