"""What a run reports, to a person and to machines."""

from __future__ import annotations

import msgspec

from .contract.index import FailureEntry, PendingEntry


class PlannedRecording(msgspec.Struct, frozen=True, kw_only=True):
    """A recording of a dry run's plan; `format` is None when no reader knows it."""

    path: str
    zarr: str
    format: str | None
    size_bytes: int
    action: str


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """One run. Counts are of recordings; `errors` counts those that failed in this run.

    A dry run has `plan`, and counts of what it found only.
    """

    dataset_id: str
    source_commit: str
    dry_run: bool
    discovered_count: int
    store_count: int
    failure_count: int
    pending_count: int
    converted: int
    errors: int
    seconds: float
    published_at: str | None = None
    events_row_count: int | None = None
    events_stores_without_rows: int = 0
    events_upload_failed: bool = False
    manifest_upload_failed: bool = False
    provenance_fetch_failed: bool = False
    failures: tuple[FailureEntry, ...] = ()
    pending: tuple[PendingEntry, ...] = ()
    warnings: tuple[str, ...] = ()
    plan: tuple[PlannedRecording, ...] = ()

    def to_json(self) -> bytes:
        """The summary as indented UTF-8 JSON."""
        return msgspec.json.format(msgspec.json.encode(self), indent=2) + b"\n"
