"""Every discovered recording in exactly one of stores, failures and pending.

Pure: from outcomes and published entries to the entries and the index of this run.
Source of the rules: the index contract.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from msgspec import UNSET

from ..contract.addresses import Addresses
from ..contract.codes import REASONS, FailureCode, PendingReason
from ..contract.details import public_detail
from ..contract.index import (
    MAX_ATTEMPTS,
    Entry,
    FailureEntry,
    Index,
    PendingEntry,
    Provenance,
    StoreEntry,
)
from ..work.outcome import Converted, Deferred, Failed, Outcome

_COMMIT = re.compile(r"[0-9a-f]{40}")


class Discovered(Protocol):
    """A recording that exists at the commit: its BIDS path and its store's path."""

    @property
    def path(self) -> str:
        """BIDS path."""

    @property
    def zarr(self) -> str:
        """Path of the store, relative to the contract base."""


@dataclass(frozen=True, slots=True)
class Accounts:
    """Entries in order of path; `errors` counts the recordings that failed in this run."""

    stores: tuple[StoreEntry, ...]
    failures: tuple[FailureEntry, ...]
    pending: tuple[PendingEntry, ...]
    errors: int


@dataclass(frozen=True, slots=True)
class EventsReference:
    """Where events.parquet is read from, and its rows."""

    url: str
    row_count: int


def account(
    discovered: Iterable[Discovered],
    outcomes: Mapping[str, Outcome],
    carried: Mapping[str, Entry],
    history: Mapping[str, Entry],
    now: str,
) -> Accounts:
    """Give each discovered recording its one entry.

    `outcomes` and `carried` are by path. An outcome goes before a carried entry; a recording
    with neither was not attempted. Attempts of earlier runs come from the published entries
    in `history`, `now` is UTC as `2026-08-30T04:12:09Z`. Paths that were not discovered are
    left out.
    """
    recordings = {recording.path: recording for recording in discovered}
    not_reached = Deferred(PendingReason.NOT_ATTEMPTED, attempted=False)
    entries: list[Entry] = []
    errors = 0
    for path in sorted(recordings):
        if path in carried and path not in outcomes:
            entries.append(_given_up(carried[path]))
            continue
        outcome = outcomes.get(path, not_reached)
        errors += isinstance(outcome, Failed) or _is_attempt(outcome)
        entries.append(_entry(recordings[path], outcome, history.get(path), now))
    return Accounts(
        stores=tuple(entry for entry in entries if isinstance(entry, StoreEntry)),
        failures=tuple(entry for entry in entries if isinstance(entry, FailureEntry)),
        pending=tuple(entry for entry in entries if isinstance(entry, PendingEntry)),
        errors=errors,
    )


def build_index(
    accounts: Accounts,
    addresses: Addresses,
    *,
    dataset_id: str,
    commit: str,
    updated_utc: str,
    provenance: Provenance,
    events: EventsReference | None = None,
) -> Index:
    """The index of a run. Raises ValueError when the commit is no full hexadecimal SHA-1."""
    if _COMMIT.fullmatch(commit) is None:
        raise ValueError(f"The source commit {commit!r} is not 40 lower-case hexadecimal digits.")
    stores, failures, pending = accounts.stores, accounts.failures, accounts.pending
    return Index(
        dataset_id=dataset_id,
        contract_base=addresses.contract_base,
        data_base=addresses.data_base,
        s3_uri=addresses.s3_uri,
        s3_region=addresses.s3_region,
        source_commit=commit,
        updated_utc=updated_utc,
        discovered_count=len(stores) + len(failures) + len(pending),
        store_count=len(stores),
        n_recordings=len(stores),
        errors=accounts.errors,
        failure_count=len(failures),
        pending_count=len(pending),
        stores=stores,
        failures=failures,
        pending=pending,
        doi=provenance.doi,
        license=provenance.license,
        citation=provenance.citation,
        hed_version=provenance.hed_version,
        events_parquet=UNSET if events is None else events.url,
        events_row_count=UNSET if events is None else events.row_count,
    )


def _entry(recording: Discovered, outcome: Outcome, prior: Entry | None, now: str) -> Entry:
    attempts, last_error, last_attempt = _retries(prior)
    if isinstance(outcome, Converted):
        return outcome.entry
    if isinstance(outcome, Failed):
        return FailureEntry(
            path=recording.path,
            zarr=recording.zarr,
            code=outcome.code,
            reason=REASONS[outcome.code],
            detail=_public(outcome.detail),
            attempts=attempts,
        )
    if _is_attempt(outcome):
        attempts, last_attempt = attempts + 1, now
    if outcome.last_error is not None:
        last_error = _public(outcome.last_error)
    return _given_up(
        PendingEntry(
            path=recording.path,
            zarr=recording.zarr,
            reason=outcome.reason,
            attempts=attempts,
            last_error=last_error,
            last_attempt_utc=last_attempt,
        )
    )


def _given_up(entry: Entry) -> Entry:
    """A pending entry with all its attempts used becomes a failure; any other stays."""
    if not isinstance(entry, PendingEntry) or entry.attempts < MAX_ATTEMPTS:
        return entry
    code = FailureCode.RETRY_EXHAUSTED
    return FailureEntry(
        path=entry.path,
        zarr=entry.zarr,
        code=code,
        reason=REASONS[code],
        detail=entry.last_error,
        attempts=entry.attempts,
    )


def _is_attempt(outcome: Outcome) -> bool:
    """Whether this run tried the recording, and it failed for a reason worth a retry."""
    return (
        isinstance(outcome, Deferred)
        and outcome.attempted
        and outcome.reason is not PendingReason.NOT_ATTEMPTED
    )


def _retries(prior: Entry | None) -> tuple[int, str | None, str | None]:
    """Retryable attempts of earlier runs in a row, the last one's error and its time.

    A store or a verdict ends the row; a recording that was given up does not say when.
    """
    if isinstance(prior, PendingEntry):
        return prior.attempts, prior.last_error, prior.last_attempt_utc
    if isinstance(prior, FailureEntry) and prior.code is FailureCode.RETRY_EXHAUSTED:
        return prior.attempts, prior.detail, None
    return 0, None, None


def _public(text: str | None) -> str | None:
    return None if text is None else public_detail(text)
