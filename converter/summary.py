"""What a run reports, to a person and to machines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

import msgspec

from .contract.index import FailureEntry, PendingEntry
from .publish.publication import Publication, Release
from .publish.published import Published
from .work.outcome import Converted, Outcome


class PlannedRecording(msgspec.Struct, frozen=True, kw_only=True):
    """A recording of a dry run's plan; `format` is None when no reader knows it."""

    path: str
    zarr: str
    format: str | None
    size_bytes: int
    action: str


class RecordingEffort(msgspec.Struct, frozen=True, kw_only=True):
    """What one recording took: seconds by phase, bytes in and out, memory against its estimate.

    Memory is bytes beyond what a worker process begins with.
    """

    path: str
    format: str | None
    seconds: dict[str, float]
    source_bytes: int
    store_bytes: int
    peak_memory: int
    estimated_memory: int


class EstimateError(msgspec.Struct, frozen=True, kw_only=True):
    """How true the memory estimates of a format were: peak memory as a share of the estimate."""

    recordings: int
    median: float
    largest: float


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """One run. Counts are of recordings; `errors` counts those that failed in this run.

    A dry run has `plan`, and counts of what it found only. `was_stopped` tells that a signal
    ended the run early, `has_published` that it wrote a new index, `index_version` which: its
    ETag or, in a folder, its SHA-256. `memory_estimates` has an entry a format, of the
    recordings that were converted.
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
    removed: int = 0
    was_stopped: bool = False
    has_published: bool = False
    published_at: str | None = None
    index_version: str | None = None
    events_row_count: int | None = None
    events_stores_without_rows: int = 0
    events_upload_failed: bool = False
    manifest_upload_failed: bool = False
    provenance_fetch_failed: bool = False
    failures: tuple[FailureEntry, ...] = ()
    pending: tuple[PendingEntry, ...] = ()
    warnings: tuple[str, ...] = ()
    plan: tuple[PlannedRecording, ...] = ()
    efforts: tuple[RecordingEffort, ...] = ()
    memory_estimates: dict[str, EstimateError] = {}

    def to_json(self) -> bytes:
        """The summary as indented UTF-8 JSON."""
        return msgspec.json.format(msgspec.json.encode(self), indent=2) + b"\n"


def of_dry_run(
    dataset_id: str, commit: str, plan: Sequence[PlannedRecording], seconds: float
) -> Summary:
    """Of a run that made its plan and ended."""
    return Summary(
        dataset_id=dataset_id,
        source_commit=commit,
        dry_run=True,
        discovered_count=len(plan),
        store_count=0,
        failure_count=sum(planned.action == "fail" for planned in plan),
        pending_count=0,
        converted=0,
        errors=0,
        seconds=seconds,
        plan=tuple(plan),
    )


def of_published(
    published: Published,
    location: str,
    version: str | None,
    seconds: float,
    *,
    was_stopped: bool = False,
) -> Summary:
    """Of a run that left the published copy as it was."""
    counts = len(published.stores), len(published.failures), len(published.pending)
    return Summary(
        dataset_id=published.dataset_id,
        source_commit=published.source_commit,
        dry_run=False,
        discovered_count=sum(counts),
        store_count=counts[0],
        failure_count=counts[1],
        pending_count=counts[2],
        converted=0,
        errors=0,
        seconds=seconds,
        was_stopped=was_stopped,
        published_at=location,
        index_version=version,
        events_row_count=published.events_row_count,
        failures=tuple(published.failures.values()),
        pending=tuple(published.pending.values()),
    )


def of_release(
    release: Release,
    publication: Publication,
    location: str,
    seconds: float,
    efforts: Sequence[RecordingEffort],
    *,
    provenance_fetch_failed: bool,
    was_stopped: bool,
) -> Summary:
    """Of a run that published."""
    index = publication.index
    warnings = list(publication.warnings)
    for path, outcome in release.outcomes.items():
        if isinstance(outcome, Converted):
            warnings.extend(f"{path}: {warning}" for warning in outcome.warnings)
    return Summary(
        dataset_id=release.dataset_id,
        source_commit=release.commit,
        dry_run=False,
        discovered_count=index.discovered_count,
        store_count=index.store_count,
        failure_count=index.failure_count,
        pending_count=index.pending_count,
        converted=sum(isinstance(outcome, Converted) for outcome in release.outcomes.values()),
        errors=index.errors,
        seconds=seconds,
        removed=publication.removed,
        was_stopped=was_stopped,
        has_published=True,
        published_at=location,
        index_version=publication.index_version,
        events_row_count=publication.events.row_count if publication.events else None,
        events_stores_without_rows=publication.events_stores_without_rows,
        events_upload_failed=publication.events_upload_failed,
        manifest_upload_failed=publication.manifest_upload_failed,
        provenance_fetch_failed=provenance_fetch_failed,
        failures=index.failures,
        pending=index.pending,
        warnings=tuple(warnings),
        efforts=tuple(efforts),
        memory_estimates=_estimate_errors(efforts, release.outcomes),
    )


def _estimate_errors(
    efforts: Sequence[RecordingEffort], outcomes: Mapping[str, Outcome]
) -> dict[str, EstimateError]:
    shares: dict[str, list[float]] = {}
    for effort in efforts:
        if effort.format is not None and isinstance(outcomes.get(effort.path), Converted):
            share = effort.peak_memory / effort.estimated_memory
            shares.setdefault(effort.format, []).append(share)
    return {
        name: EstimateError(
            recordings=len(found), median=round(median(found), 3), largest=round(max(found), 3)
        )
        for name, found in sorted(shares.items())
    }
