"""What came of one recording in one run, and what it took."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from ..contract.codes import FailureCode, PendingReason
from ..contract.index import StoreEntry


@dataclass(frozen=True, slots=True)
class Converted:
    """A store that lies at the destination.

    `events` is the spool of its event rows when an events.tsv applies; `stale` names objects
    of an older store in its place, relative to the store, that wait for removal.
    """

    entry: StoreEntry
    events: Path | None
    stale: tuple[str, ...] = ()
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


@dataclass(frozen=True, slots=True)
class Effort:
    """What one recording took: seconds by phase, bytes read and written, peak memory in bytes
    beyond what the worker began with."""

    seconds: dict[str, float] = field(default_factory=dict)
    source_bytes: int = 0
    store_bytes: int = 0
    peak_memory: int = 0

    @property
    def total_seconds(self) -> float:
        """Of all phases but the wait for a core."""
        return sum(seconds for phase, seconds in self.seconds.items() if phase != "wait")


@dataclass(frozen=True, slots=True)
class Result:
    """What a worker sends: the outcome, the spool's bytes where events apply, the effort."""

    outcome: Outcome
    spool: bytes | None
    effort: Effort
