"""A dataset with a history, its serving copy, and what a run did to it."""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import edfio
import numpy as np
import pyarrow.parquet as pq

from converter import Summary, convert_dataset
from converter.contract.validation import validate_index
from converter.dataset.annex import AnnexKey

from ..conftest import commit_all

DATASET_ID = "nm000001"


@dataclass(frozen=True)
class Done:
    """A finished run: its summary, and the paths of the stores it wrote."""

    summary: Summary
    converted: set[str]


class History:
    """A git repository at `root` and the destination `dest` of its runs."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / DATASET_ID
        self.dest = folder / "serving"
        self.serving = self.dest / DATASET_ID / "zarr"

    def copy_to(self, folder: Path) -> History:
        for part in (self.root, self.dest):
            shutil.copytree(part, folder / part.name, symlinks=True)
        return History(folder)

    def write(self, path: str, text: str) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")

    def record(self, path: str, seed: int = 0) -> None:
        """Write a recording: EDF, two channels at 100 Hz, one second."""
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.unlink(missing_ok=True)
        file.write_bytes(edf(seed))

    def annex(self, path: str, content: bytes) -> Path:
        """Write the link of an annexed file; return where its content belongs, nothing there."""
        target = annex_object(content)
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.unlink(missing_ok=True)
        file.symlink_to("../" * path.count("/") + target)
        place = self.root / target
        place.parent.mkdir(parents=True, exist_ok=True)
        return place

    def remove(self, path: str) -> None:
        """Remove a file, and the folders that it leaves empty."""
        file = self.root / path
        file.unlink()
        for folder in file.parents:
            if folder == self.root or any(folder.iterdir()):
                return
            folder.rmdir()

    def commit(self) -> str:
        return commit_all(self.root)

    def run(self, dest: Path | None = None, **options: Any) -> Done:
        dest = dest or self.dest
        before = written(dest / DATASET_ID / "zarr")
        summary = convert_dataset(self.root, dest=dest, jobs=2, **options)
        after = written(dest / DATASET_ID / "zarr")
        return Done(summary, {path for path, write in after.items() if write != before.get(path)})

    @property
    def index(self) -> dict[str, Any]:
        return index_at(self.serving)

    def edit_index(self, **fields: Any) -> None:
        self.write_index({**self.index, **fields})

    def write_index(self, document: dict[str, Any]) -> None:
        (self.serving / "index.json").write_text(json.dumps(document), encoding="utf-8")

    def entries(self, array: str) -> dict[str, dict[str, Any]]:
        return {entry["path"]: entry for entry in self.index[array]}

    def stores(self) -> set[str]:
        """Store folders that lie at the destination."""
        found = self.serving.rglob("*.zarr")
        return {str(folder.relative_to(self.serving)) for folder in found}


def annex_object(content: bytes) -> str:
    """Where an annex keeps content, from a work tree's root."""
    name = f"MD5E-s{len(content)}--{hashlib.md5(content).hexdigest()}.edf"
    key = AnnexKey.parse(name)
    assert key is not None
    return f".git/annex/objects/{key.hash_mixed}/{name}/{name}"


def edf(seed: int, seconds: int = 1) -> bytes:
    """Two channels of noise at 100 Hz."""
    signals = [
        edfio.EdfSignal(
            np.random.default_rng([seed, number]).normal(size=100 * seconds) * 50,
            100,
            label=f"E{number}",
            physical_dimension="uV",
            physical_range=(-500, 500),
        )
        for number in range(2)
    ]
    return bytes(edfio.Edf(signals).to_bytes())


def zarr_of(path: str) -> str:
    """The store of a recording."""
    return path.removesuffix(".edf") + ".zarr"


def index_at(serving: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((serving / "index.json").read_bytes())
    return document


def written(serving: Path) -> dict[str, tuple[int, int]]:
    """Which write of its root metadata each listed store has, by the recording's path."""
    if not (serving / "index.json").exists():
        return {}
    found = {}
    for entry in index_at(serving)["stores"]:
        file = serving / entry["zarr"] / "zarr.json"
        if "path" in entry and file.exists():
            found[entry["path"]] = (file.stat().st_ino, file.stat().st_mtime_ns)
    return found


def event_rows(serving: Path) -> list[dict[str, Any]]:
    """Rows of events.parquet without their absent values; none when the index names no file."""
    index = index_at(serving)
    assert ("events_parquet" in index) == ("events_row_count" in index)
    if "events_parquet" not in index:
        return []
    rows = pq.read_table(serving / "events.parquet").to_pylist()
    assert len(rows) == index["events_row_count"]
    return [{name: value for name, value in row.items() if value is not None} for row in rows]


def store_digest(store: Path) -> str:
    """Of all files of a store; what names the run that wrote it is left out."""
    digest = hashlib.sha256()
    for file in sorted(path for path in store.rglob("*") if path.is_file()):
        content = file.read_bytes()
        if file == store / "zarr.json":
            document = json.loads(content)
            del document["attributes"]["created_utc"]
            del document["attributes"]["nemar"]["source_commit"]
            content = json.dumps(document, sort_keys=True).encode()
        digest.update(f"{file.relative_to(store)} {len(content)}\n".encode() + content)
    return digest.hexdigest()


def state(dest: Path, dataset_id: str = DATASET_ID) -> dict[str, Any]:
    """All that readers see, without what tells when it was made."""
    serving = dest / dataset_id / "zarr"
    check_invariant(serving)
    index = index_at(serving)
    validate_index(index)
    del index["updated_utc"], index["errors"]
    for entry in index["stores"]:
        del entry["updated_utc"]
        entry["digest"] = store_digest(serving / entry["zarr"])
    files = {str(p.relative_to(dest)) for p in dest.rglob("*") if ".zarr/" not in str(p)}
    return {"index": index, "events": event_rows(serving), "files": files}


def check_invariant(serving: Path) -> None:
    """Every recording stands in one entry, and every store that is named is there."""
    index = index_at(serving)
    paths = [entry["path"] for array in ARRAYS for entry in index[array]]
    assert len(paths) == len(set(paths)) == index["discovered_count"]
    counts = (index["store_count"], index["failure_count"], index["pending_count"])
    assert counts == tuple(len(index[array]) for array in ARRAYS)
    named = {entry["zarr"] for entry in index["stores"]}
    lie_there = {str(path.relative_to(serving)) for path in serving.rglob("*.zarr")}
    assert named <= lie_there
    # A run that was stopped may have placed a store that it could no longer account for.
    assert lie_there - named <= {entry["zarr"] for entry in index["pending"]}
    manifest = json.loads((serving / "manifest.json").read_bytes())
    assert {store["zarr"] for store in manifest["stores"]} == named


ARRAYS = ("stores", "failures", "pending")
