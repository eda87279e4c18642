"""Event rows of stores that are kept, read anew where the published events.parquet is lost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from msgspec import UNSET

from ..contract.index import StoreEntry
from ..dataset.content import ContentSource, read_small
from ..dataset.recording import Entry, Recording
from ..recording.event_rows import event_rows
from ..recording.sidecars.events import parse_events
from ..work.spool import write_spool
from .carried_events import EventsError

LARGEST: Final = 1 << 28
"""Bytes of an events.tsv: more would not be read beside everything that a run holds."""


def recover_events(
    kept: Sequence[tuple[StoreEntry, Recording]], content: ContentSource, folder: Path
) -> list[tuple[str, Path]]:
    """Write a spool for each store that has events, in an empty `folder`; (store path, file).

    A store is kept while the inputs of its recording are as they were, events.tsv among them:
    the rows are those that its conversion gave. Raises EventsError when one can't be had.
    """
    having = [
        (store, recording, recording.sidecars.events)
        for store, recording in kept
        if store.n_events is not UNSET and store.n_events > 0
    ]
    entries = [entry for _, _, entry in having if entry is not None]
    if len(entries) < len(having):
        raise EventsError("a store has events, but no events.tsv applies to its recording")
    spools = []
    for number, ((store, recording, _), raw) in enumerate(
        zip(having, _contents(entries, content), strict=True)
    ):
        events = parse_events(raw)
        path = folder / f"{number}.arrow"
        write_spool(path, event_rows(events, store.zarr, recording.entities, store.groups))
        spools.append((store.zarr, path))
    return spools


def _contents(entries: Sequence[Entry], content: ContentSource) -> Iterator[bytes]:
    """What the files hold; those in git without a round trip for each."""
    in_git = content.repository.read_blobs([e.blob for e in entries if e.key is None])
    for entry in entries:
        raw = next(in_git) if entry.key is None else read_small(entry, content, LARGEST)
        if raw is None:
            raise EventsError(f"{entry.path} can't be had")
        yield raw
