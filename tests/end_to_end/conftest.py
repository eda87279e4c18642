from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from converter import Summary, convert_dataset

from ..fixture_outcomes import FIXTURE_DATASET
from .archive import changed as changed
from .archive import disturbed as disturbed
from .archive import older_copy as older_copy
from .archive import undisturbed as undisturbed

DATASET_ID = "nm099999"


@dataclass(frozen=True)
class Run:
    """A finished run: the repository, the commit, the serving copy's folder, the summary."""

    dataset: Path
    commit: str
    serving: Path
    summary: Summary

    @property
    def index(self) -> dict[str, Any]:
        return json.loads((self.serving / "index.json").read_bytes())

    def entry(self, path: str, array: str = "stores") -> dict[str, Any]:
        return next(entry for entry in self.index[array] if entry["path"] == path)

    def store(self, path: str) -> Path:
        return self.serving / self.entry(path)["zarr"]


@pytest.fixture(scope="session")
def fixture_repository(repository_of, tmp_path_factory) -> tuple[Path, str]:
    dataset = tmp_path_factory.mktemp("fixture") / DATASET_ID
    return dataset, repository_of(FIXTURE_DATASET, dataset)


@pytest.fixture(scope="session")
def fixture_run(fixture_repository, tmp_path_factory) -> Run:
    dataset, commit = fixture_repository
    dest = tmp_path_factory.mktemp("serving")
    summary = convert_dataset(dataset, dest=dest, jobs=2)
    return Run(dataset, commit, dest / DATASET_ID / "zarr", summary)
