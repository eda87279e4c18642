"""Publishing a run: events.parquet, manifest.json, and last the index that makes them live.

Stores lie at the destination already. Each document is validated before it is written, and
the loss of events.parquet or of the manifest never costs the index.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
from msgspec import UNSET

from ..contract import index as index_document
from ..contract import manifest as manifest_document
from ..contract.addresses import Addresses
from ..contract.details import public_detail
from ..contract.index import Index, Provenance, StoreEntry, encode_index
from ..contract.manifest import Manifest, ManifestFile, ManifestStore, encode_manifest
from ..contract.validation import validate_index, validate_manifest
from ..dataset.recording import Recording
from ..work.outcome import Converted, Outcome
from . import events_table
from .accounting import Accounts, EventsReference, build_index
from .destination import Destination, DestinationError
from .events_table import EventsError, EventsFile, write_events
from .published import Published


@dataclass(frozen=True, slots=True)
class Release:
    """What one run publishes: whose copy, of which commit, and every recording's entry."""

    dataset_id: str
    commit: str
    updated_utc: str
    addresses: Addresses
    provenance: Provenance
    recordings: Sequence[Recording]
    outcomes: Mapping[str, Outcome]
    accounts: Accounts


@dataclass(frozen=True, slots=True)
class Publication:
    """What was published; `events` is None when there are no rows or they were lost."""

    index: Index
    events: EventsFile | None
    events_stores_without_rows: int
    events_upload_failed: bool
    manifest_upload_failed: bool
    warnings: tuple[str, ...]


def publish(
    release: Release, destination: Destination, published: Published | None, scratch: Path
) -> Publication:
    """Write the documents in the order that never shows a reader what is not there.

    Stores that the new index no longer names are removed after it is live. Raises
    InvalidDocumentError or DestinationError, with nothing changed for readers.
    """
    warnings: list[str] = []
    local = scratch / events_table.NAME
    built = _build_events(release, destination, published, local, warnings)
    events = built if built is not None and built.row_count else None
    index, manifest = _documents(release, events)
    if events is not None and not _write_events(local, destination, warnings):
        built = events = None
        index, manifest = _documents(release, None)
    manifest_failed = _write_manifest(manifest, destination, warnings)
    destination.write_document(index_document.NAME, encode_index(index))
    _remove_old(index, destination, published, warnings)
    return Publication(
        index=index,
        events=events,
        events_stores_without_rows=0 if built is None else built.stores_without_rows,
        events_upload_failed=built is None,
        manifest_upload_failed=manifest_failed,
        warnings=tuple(warnings),
    )


def _documents(release: Release, events: EventsFile | None) -> tuple[Index, Manifest]:
    """The index and the manifest, valid, with or without an events file."""
    addresses = release.addresses
    reference = None
    files: tuple[ManifestFile, ...] | msgspec.UnsetType = UNSET
    if events is not None:
        reference = EventsReference(addresses.events_url, events.row_count)
        file = ManifestFile(
            name=events_table.NAME, size_bytes=events.size_bytes, row_count=events.row_count
        )
        files = (file,)
    index = build_index(
        release.accounts,
        addresses,
        dataset_id=release.dataset_id,
        commit=release.commit,
        updated_utc=release.updated_utc,
        provenance=release.provenance,
        events=reference,
    )
    sources = {recording.path: recording for recording in release.recordings}
    manifest = Manifest(
        dataset_id=release.dataset_id,
        source_commit=release.commit,
        updated_utc=release.updated_utc,
        stores=tuple(
            ManifestStore(
                path=store.path,
                zarr=store.zarr,
                source_key=sources[store.path].source_key,
                size_bytes=sources[store.path].size,
            )
            for store in index.stores
        ),
        files=files,
    )
    # Plain objects, as a reader decodes them: what is validated is what is written.
    validate_index(msgspec.json.decode(encode_index(index)))
    validate_manifest(msgspec.json.decode(encode_manifest(manifest)))
    return index, manifest


def _build_events(
    release: Release,
    destination: Destination,
    published: Published | None,
    local: Path,
    warnings: list[str],
) -> EventsFile | None:
    """Build events.parquet locally, with the rows of carried stores; None when that failed."""
    converted = [o for o in release.outcomes.values() if isinstance(o, Converted)]
    touched = {outcome.entry.zarr for outcome in converted}
    carried = [store for store in release.accounts.stores if store.zarr not in touched]
    spools = [(o.entry.zarr, o.events) for o in converted if o.events is not None]
    try:
        prior = _prior_events(carried, destination, published, local.parent)
        return write_events(spools, prior, {store.zarr for store in carried}, local)
    except (EventsError, DestinationError, OSError, ValueError, MemoryError) as error:
        _warn_events(error, warnings)
        return None


def _prior_events(
    carried: Sequence[StoreEntry],
    destination: Destination,
    published: Published | None,
    folder: Path,
) -> Path | None:
    """The published file with the rows of carried stores, None when they have none to keep.

    A file without them would say that these stores have no events: EventsError.
    """
    has_events = any(store.n_events is not UNSET and store.n_events > 0 for store in carried)
    prior = None
    if carried and published is not None and published.events_parquet is not None:
        prior = destination.fetch_file(events_table.NAME, folder)
    if prior is None and has_events:
        raise EventsError("no published one has the rows of the stores that are kept")
    return prior


def _write_events(local: Path, destination: Destination, warnings: list[str]) -> bool:
    try:
        destination.write_file(events_table.NAME, local)
    except DestinationError as error:
        _warn_events(error, warnings)
        return False
    return True


def _warn_events(error: Exception, warnings: list[str]) -> None:
    warnings.append(
        f"events.parquet is not published: {public_detail(error)}; "
        "a run with --clean builds it anew"
    )


def _write_manifest(manifest: Manifest, destination: Destination, warnings: list[str]) -> bool:
    """Write manifest.json; tell whether that failed."""
    try:
        destination.write_document(manifest_document.NAME, encode_manifest(manifest))
    except DestinationError as error:
        warnings.append(f"manifest.json is not published: {error}")
        return True
    return False


def _remove_old(
    index: Index, destination: Destination, published: Published | None, warnings: list[str]
) -> None:
    """Remove what the old index named and the new one does not."""
    named = {store.zarr for store in index.stores}
    before = published.store_paths if published is not None else frozenset()
    for zarr in sorted(before - named):
        try:
            destination.remove_store(zarr)
        except DestinationError as error:
            warnings.append(f"a store that is no longer listed remains: {error}")
