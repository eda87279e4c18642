"""Everything a run can be told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from .contract.codes import FailureCode

TIMEOUT: Final = 900.0
"""Seconds that a phase of one recording may take, and again for each GB of it."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What `nemar-convert --help` explains, option by option.

    `dataset` is a folder or a dataset id, `dest` a folder or an s3:// address. `jobs` 0 stands
    for the CPUs, `memory` (bytes) 0 for what the machine has; `dask`, a scheduler's address or
    file, for the workers in their place. `retry_failures` holds failure codes, or "all".
    `repository` None stands for the archive's template, an address None for the archive's own
    or what follows from `dest`. Raises ValueError for what can't be.
    """

    dataset: str
    commit: str = "HEAD"
    dataset_id: str | None = None
    repository: str | None = None
    cache: Path | None = None
    trusted_hosts: frozenset[str] = frozenset()
    dest: str = "serving"
    endpoint_url: str | None = None
    region: str | None = None
    contract_base: str | None = None
    data_base: str | None = None
    jobs: int = 0
    memory: int = 0
    timeout: float = TIMEOUT
    dask: str | None = None
    only: Sequence[str] = ()
    clean: bool = False
    retry_pending: bool = False
    retry_failures: Sequence[str] = ()
    if_outdated: bool = False
    scratch: Path | None = None
    catalog: str = "none"
    dry_run: bool = False

    def __post_init__(self) -> None:
        if self.jobs < 0:
            raise ValueError(f"jobs is {self.jobs}, a whole number from 0 up was expected")
        if self.memory < 0:
            raise ValueError(f"memory is {self.memory}, bytes from 0 up were expected")
        if not self.timeout > 0:
            raise ValueError(f"timeout is {self.timeout}, seconds above 0 were expected")
        unknown = set(self.retry_failures) - {"all", *FailureCode}
        if unknown:
            raise ValueError(
                f"retry_failures has {min(unknown)!r}, one of {', '.join(FailureCode)} was expected"
            )
