"""The index that is published now, as the next run needs it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

import msgspec

from ..contract.index import FORMAT, FORMAT_VERSION, Entry, FailureEntry, PendingEntry, StoreEntry


class UnreadableIndexError(ValueError):
    """A published index that this version cannot build upon; one sentence says why."""


class _Heading(msgspec.Struct):
    format: str
    format_version: int


class _Common(msgspec.Struct, kw_only=True):
    """What every format version has, or lacks without harm."""

    dataset_id: str
    source_commit: str | None = None
    engine_version: str | int | None = None
    doi: str | None = None
    license: str | None = None
    citation: str | None = None
    hed_version: str | None = None
    events_parquet: str | None = None
    events_row_count: int | None = None


class _Named(msgspec.Struct):
    zarr: str


class _Older(_Common, kw_only=True):
    """Format versions 1 and 2: no pending entries, stores of other shapes."""

    stores: list[_Named] = []


class _Document(_Common, kw_only=True):
    stores: list[StoreEntry]
    failures: list[FailureEntry]
    pending: list[PendingEntry]


@dataclass(frozen=True)
class Published:
    """A published index: its entries by path, and the facts that outlive a run.

    An index of an older format has no entries that could be carried, and no engine version;
    `store_paths` names the stores of any.
    """

    dataset_id: str
    source_commit: str
    engine_version: str | None
    stores: Mapping[str, StoreEntry]
    failures: Mapping[str, FailureEntry]
    pending: Mapping[str, PendingEntry]
    store_paths: frozenset[str]
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

    def is_of(self, commit: str, engine_version: str) -> bool:
        """Whether this engine made it from this commit."""
        return (self.source_commit, self.engine_version) == (commit, engine_version)


def read_published(raw: bytes | None) -> Published | None:
    """Read a published index.json of any format version so far; None when there is none.

    Fields that this version does not know are ignored. Raises UnreadableIndexError for a
    newer version, another format and a damaged document.
    """
    if raw is None:
        return None
    try:
        heading = msgspec.json.decode(raw, type=_Heading)
        if heading.format != FORMAT or not 1 <= heading.format_version <= FORMAT_VERSION:
            raise UnreadableIndexError(
                f"The published index is {heading.format!r} version {heading.format_version}; "
                f"{FORMAT!r} version {FORMAT_VERSION} or older was expected."
            )
        if heading.format_version < FORMAT_VERSION:
            return _older(msgspec.json.decode(raw, type=_Older))
        return _current(msgspec.json.decode(raw, type=_Document))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UnreadableIndexError(f"The published index is damaged: {error}.") from error


def _older(document: _Older) -> Published:
    return _published(document, {}, {}, {}, {store.zarr for store in document.stores}, None)


def _current(document: _Document) -> Published:
    return _published(
        document,
        {entry.path: entry for entry in document.stores},
        {entry.path: entry for entry in document.failures},
        {entry.path: entry for entry in document.pending},
        {store.zarr for store in document.stores},
        None if document.engine_version is None else str(document.engine_version),
    )


def _published(
    document: _Common,
    stores: Mapping[str, StoreEntry],
    failures: Mapping[str, FailureEntry],
    pending: Mapping[str, PendingEntry],
    store_paths: Iterable[str],
    engine_version: str | None,
) -> Published:
    return Published(
        dataset_id=document.dataset_id,
        source_commit=document.source_commit or "",
        engine_version=engine_version,
        stores=stores,
        failures=failures,
        pending=pending,
        store_paths=frozenset(store_paths),
        doi=document.doi,
        license=document.license,
        citation=document.citation,
        hed_version=document.hed_version,
        events_parquet=document.events_parquet,
        events_row_count=document.events_row_count,
    )
