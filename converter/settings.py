"""Everything a run can be told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Settings:
    """What `nemar-convert --help` explains, option by option.

    `jobs` 0 stands for the CPUs. `retry_failures` holds failure codes, or "all".
    """

    dataset: Path
    commit: str = "HEAD"
    dataset_id: str | None = None
    dest: Path = Path("serving")
    jobs: int = 0
    only: Sequence[str] = ()
    clean: bool = False
    retry_pending: bool = False
    retry_failures: Sequence[str] = ()
    if_outdated: bool = False
    scratch: Path | None = None
    catalog: str = "none"
    dry_run: bool = False
