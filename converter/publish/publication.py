"""Publishing a run: events.parquet, manifest.json, and last the index that makes them live.

Stores lie at the destination already. Each document is validated before it is written, and
the loss of events.parquet or of the manifest never costs the index.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp

import msgspec
from msgspec import UNSET

from ..contract import index as index_document
from ..contract import manifest as manifest_document
from ..contract.addresses import Addresses
from ..contract.details import public_detail
from ..contract.index import Index, Provenance, StoreEntry, encode_index
from ..contract.manifest import Manifest, ManifestFile, ManifestStore, encode_manifest
from ..contract.validation import validate_index, validate_manifest
from ..dataset.content import ContentSource
from ..dataset.recording import Recording
from ..dataset.repository import RepositoryError
from ..storage.destination import Destination, DestinationError
from ..work.outcome import Converted, Outcome
from . import events_table
from .accounting import Accounts, EventsReference, build_index
from .events_table import EventsError, EventsFile, write_events
from .journal import Journal, StaleObjects, read_journal, remove_journal, write_journal
from .published import Published
from .recovered_events import recover_events


@dataclass(frozen=True, slots=True)
class Release:
    """What one run publishes: whose copy, of which commit, and every recording's entry.

    `content` is where event rows that were lost can be read anew.
    """

    dataset_id: str
    commit: str
    updated_utc: str
    addresses: Addresses
    provenance: Provenance
    recordings: Sequence[Recording]
    outcomes: Mapping[str, Outcome]
    accounts: Accounts
    content: ContentSource


@dataclass(frozen=True, slots=True)
class Publication:
    """What was published; `events` is None when there are no rows or they were lost.

    `removed` counts the stores that the index before named, and that are gone now.
    """

    index: Index
    index_version: str
    events: EventsFile | None
    events_stores_without_rows: int
    events_upload_failed: bool
    manifest_upload_failed: bool
    removed: int
    warnings: tuple[str, ...]


def publish(
    release: Release,
    destination: Destination,
    published: Published | None,
    version: str | None,
    scratch: Path,
) -> Publication:
    """Write the documents in the order that never shows a reader what is not there.

    `published` was read at `version` of the index, both None when there was none. What the new
    index no longer names is removed after it is live. Raises Superseded when the index has
    another version by now, InvalidDocumentError or DestinationError, in each case with nothing
    changed for readers.
    """
    warnings: list[str] = []
    local = scratch / events_table.NAME
    built = _build_events(release, destination, published, local, warnings)
    events = built if built is not None and built.row_count else None
    index, manifest = _documents(release, events)
    journal = _journal(index, release, destination, published)
    if events is not None and not _write_events(local, destination, warnings):
        built = events = None
        index, manifest = _documents(release, None)
    manifest_failed = _write_manifest(manifest, destination, warnings)
    index_version = destination.write_document(
        index_document.NAME, encode_index(index), expected=version
    )
    removed = _remove_old(journal, index, destination, published, warnings)
    return Publication(
        index=index,
        index_version=index_version,
        events=events,
        events_stores_without_rows=0 if built is None else built.stores_without_rows,
        events_upload_failed=built is None,
        manifest_upload_failed=manifest_failed,
        removed=removed,
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
        try:
            prior = _prior_events(carried, destination, published, local.parent)
            return write_events(spools, prior, {store.zarr for store in carried}, local)
        except (EventsError, DestinationError) as error:
            recordings = {recording.path: recording for recording in release.recordings}
            kept = [(store, recordings[store.path]) for store in carried]
            folder = Path(mkdtemp(dir=local.parent))
            recovered = recover_events(kept, release.content, folder)
            warnings.append(f"event rows are read anew from events.tsv: {public_detail(error)}")
            return write_events([*spools, *recovered], None, set(), local)
    except (OSError, ValueError, MemoryError, RepositoryError) as error:
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
        f"events.parquet is not published: {public_detail(error)}; the next run builds it anew"
    )


def _write_manifest(manifest: Manifest, destination: Destination, warnings: list[str]) -> bool:
    """Write manifest.json; tell whether that failed."""
    try:
        destination.write_document(manifest_document.NAME, encode_manifest(manifest))
    except DestinationError as error:
        warnings.append(f"manifest.json is not published: {error}")
        return True
    return False


def _journal(
    index: Index, release: Release, destination: Destination, published: Published | None
) -> Journal:
    """What is to be removed once the index is live, and what is still being made; written down
    in case that this run is not there to see the removal."""
    found = read_journal(destination)
    before = published.store_paths if published is not None else frozenset()
    stale = {
        outcome.entry.zarr: StaleObjects(outcome.entry.updated_utc, outcome.stale)
        for outcome in release.outcomes.values()
        if isinstance(outcome, Converted) and outcome.stale
    }
    named = {store.zarr for store in index.stores}
    journal = Journal((found.stores | before) - named, {**found.stale, **stale})
    if journal not in (found, Journal()):
        write_journal(destination, journal)
    return journal


def _remove_old(
    journal: Journal,
    index: Index,
    destination: Destination,
    published: Published | None,
    warnings: list[str],
) -> int:
    """Remove what the journal names; return how many published stores that were.

    A store of a pending recording that no index ever named stays in the journal: another run
    may be about to publish it.
    """
    before = published.store_paths if published is not None else frozenset()
    left = journal.stores.intersection(entry.zarr for entry in index.pending) - before
    removed = 0
    for zarr in sorted(journal.stores - left):
        try:
            destination.remove_store(zarr)
            removed += zarr in before
        except DestinationError as error:
            left |= {zarr}
            warnings.append(f"a store that is no longer listed remains: {error}")
    try:
        for zarr, stale in journal.stale.items():
            destination.remove_objects(zarr, stale.names, stale.stamp)
        if left:
            write_journal(destination, Journal(left))
        else:
            remove_journal(destination)
    except DestinationError as error:
        warnings.append(f"parts of an older store remain: {error}")
    return removed
