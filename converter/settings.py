"""Everything a run can be told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .contract.codes import FailureCode


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

    def __post_init__(self) -> None:
        if self.jobs < 0:
            raise ValueError(f"jobs is {self.jobs}, a whole number from 0 up was expected")
        unknown = set(self.retry_failures) - {"all", *FailureCode}
        if unknown:
            raise ValueError(
                f"retry_failures has {min(unknown)!r}, one of {', '.join(FailureCode)} was expected"
            )
