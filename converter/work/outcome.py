"""What came of one recording in one run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..contract.codes import FailureCode, PendingReason
from ..contract.index import StoreEntry


@dataclass(frozen=True, slots=True)
class Converted:
    """A finished store, and its spool of event rows when an events.tsv applies."""

    entry: StoreEntry
    events: Path | None
    store: Path
    seconds: float
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Failed:
    """Will not convert without a change to the data or the converter."""

    code: FailureCode
    detail: str | None = None


@dataclass(frozen=True, slots=True)
class Deferred:
    """May convert in a later run; `attempted` tells whether this run tried."""

    reason: PendingReason
    last_error: str | None = None
    attempted: bool = True


Outcome = Converted | Failed | Deferred
