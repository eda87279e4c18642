"""The index that is published now, as the next run needs it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import msgspec

from ..contract.index import FORMAT, FORMAT_VERSION, Entry, FailureEntry, PendingEntry, StoreEntry


class UnreadableIndexError(ValueError):
    """A published index that this version cannot build upon; one sentence says why."""


class _Heading(msgspec.Struct):
    format: str
    format_version: int


class _Document(msgspec.Struct, kw_only=True):
    dataset_id: str
    source_commit: str
    engine_version: str | int
    updated_utc: str | None = None
    stores: list[StoreEntry]
    failures: list[FailureEntry]
    pending: list[PendingEntry]
    doi: str | None = None
    license: str | None = None
    citation: str | None = None
    hed_version: str | None = None
    events_parquet: str | None = None
    events_row_count: int | None = None


@dataclass(frozen=True)
class Published:
    """A published index: its entries by path, and the facts that outlive a run."""

    dataset_id: str
    source_commit: str
    engine_version: str
    updated_utc: str | None
    stores: Mapping[str, StoreEntry]
    failures: Mapping[str, FailureEntry]
    pending: Mapping[str, PendingEntry]
    doi: str | None
    license: str | None
    citation: str | None
    hed_version: str | None
    events_parquet: str | None
    events_row_count: int | None

    @cached_property
    def entries(self) -> Mapping[str, Entry]:
        """Every entry by path."""
        return {**self.pending, **self.failures, **self.stores}


def read_published(raw: bytes | None) -> Published | None:
    """Read a published index.json of format version 3; None when there is none.

    Fields that this version does not know are ignored. Raises UnreadableIndexError for
    another version and for a damaged document.
    """
    if raw is None:
        return None
    try:
        heading = msgspec.json.decode(raw, type=_Heading)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UnreadableIndexError(f"The published index is damaged: {error}.") from error
    if (heading.format, heading.format_version) != (FORMAT, FORMAT_VERSION):
        raise UnreadableIndexError(
            f"The published index is {heading.format!r} version {heading.format_version}; "
            f"{FORMAT!r} version {FORMAT_VERSION} was expected."
        )
    try:
        document = msgspec.json.decode(raw, type=_Document)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UnreadableIndexError(f"The published index is damaged: {error}.") from error
    return Published(
        dataset_id=document.dataset_id,
        source_commit=document.source_commit,
        engine_version=str(document.engine_version),
        updated_utc=document.updated_utc,
        stores={entry.path: entry for entry in document.stores},
        failures={entry.path: entry for entry in document.failures},
        pending={entry.path: entry for entry in document.pending},
        doi=document.doi,
        license=document.license,
        citation=document.citation,
        hed_version=document.hed_version,
        events_parquet=document.events_parquet,
        events_row_count=document.events_row_count,
    )
