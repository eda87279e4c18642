"""What a run and its Dask workers say to each other."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from .outcome import Result
from .pool import Unfinished, WorkerDied

MEMORY: Final = "memory"
"""The resource, in bytes, that a Dask worker has: `dask worker --resources "memory=16e9"`."""

TOPIC: Final = "nemar-convert"
"""Under it workers tell by Dask's events which phase a task is in."""


class NoCluster(Unfinished):
    """The cluster could not be reached, or was lost, or can't do this run's tasks."""


class KilledForMemory(WorkerDied):
    """The worker process was killed as its machine ran out of memory."""


@dataclass(frozen=True, slots=True)
class Shared:
    """What all workers must see under the same paths.

    `repository` has the commit; `folder` lies in the folder that is written to, None when the
    destination is no folder.
    """

    repository: Path
    commit: str
    folder: Path | None


@dataclass(frozen=True, slots=True)
class Report:
    """What came of a task, and the address of the Dask worker that had it.

    `unfit` says why that worker could not even try.
    """

    worker: str
    result: Result | Unfinished
    unfit: str | None = None
