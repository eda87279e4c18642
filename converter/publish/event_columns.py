"""The columns of events.parquet: their order, names and types, and whose events.tsv has them.

Source of the rules: the index contract, "events.parquet". A further column belongs to the file
when the events.tsv of one of its stores has it, with or without a value in it. The column's
metadata tells which stores these are, so that a run which carries some of them forward ends
with the columns that a run over all of them has.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..contract.events import FIXED_COLUMNS
from ..work.arrow import pa
from ..work.spool import TSV_PREFIX, row_schema

# Metadata of a further column: its name in events.tsv; and the stores that have it, counted
# from 0 in the file's order, as in `0-41,43`.
_NAME, _STORES = b"events_tsv_column", b"events_tsv_stores"

_FIXED_FOLDED = frozenset(name.casefold() for name in FIXED_COLUMNS)

Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class StoreColumns:
    """Stores in order, and for each further column of events.tsv which of them have it."""

    stores: Sequence[str]
    columns: Mapping[str, Flags]

    @classmethod
    def of(cls, columns: Mapping[str, Iterable[str]]) -> StoreColumns:
        """From each store's columns."""
        stores = sorted(columns)
        flags: dict[str, Flags] = {}
        for number, store in enumerate(stores):
            for column in columns[store]:
                flags.setdefault(column, np.zeros(len(stores), np.bool_))[number] = True
        return cls(stores, flags)

    def merged(self, other: StoreColumns) -> StoreColumns:
        """These stores and others; none is in both."""
        stores = sorted([*self.stores, *other.stores])
        numbers = {store: number for number, store in enumerate(stores)}
        flags: dict[str, Flags] = {}
        for part in (self, other):
            places = [numbers[store] for store in part.stores]
            for column, has in part.columns.items():
                flags.setdefault(column, np.zeros(len(stores), np.bool_))[places] = has
        return StoreColumns(stores, flags)

    def only(self, kept: Flags) -> StoreColumns:
        """Some of the stores, with the columns that one of them has."""
        stores = [store for store, keep in zip(self.stores, kept, strict=True) if keep]
        columns = {column: has[kept] for column, has in self.columns.items()}
        return StoreColumns(stores, {column: has for column, has in columns.items() if has.any()})


def published_names(tsv_columns: Iterable[str]) -> dict[str, str]:
    """Under which name each further column of events.tsv is published.

    Its own, or `x_` before it where a fixed column, or another one, has that name in any
    case: query engines tell no `Value` from `value`. Own names are given first.
    """
    taken = set(_FIXED_FOLDED)
    names: dict[str, str] = {}
    for column in sorted(tsv_columns, key=lambda name: (name.casefold() in _FIXED_FOLDED, name)):
        name = column or "x_"
        while name.casefold() in taken:
            name = f"x_{name}"
        taken.add(name.casefold())
        names[column] = name
    return names


def published_schema(having: StoreColumns) -> tuple[Any, Any]:
    """The file's schema, and that of its rows as spools have them, column by column the same."""
    names = published_names(having.columns)
    tsv_columns = sorted(names, key=names.__getitem__)
    spooled = row_schema(tsv_columns)
    fields = []
    for field in spooled:
        kind = pa.dictionary(pa.int32(), pa.string()) if field.type == pa.string() else field.type
        name, metadata = field.name, None
        if name.startswith(TSV_PREFIX):
            column = name.removeprefix(TSV_PREFIX)
            metadata = {_NAME: column.encode(), _STORES: _spelled(having.columns[column]).encode()}
            name = names[column]
        fields.append(pa.field(name, kind, metadata=metadata))
    return pa.schema(fields), spooled


def tsv_name(field: Any) -> str:
    """A further column's name in events.tsv; for another writer's file, as far as it shows."""
    original = (field.metadata or {}).get(_NAME)
    if original is not None:
        return str(original, "utf-8", "replace")
    name = str(field.name)
    bare = name.removeprefix("x_")
    return bare if bare.casefold() in _FIXED_FOLDED else name


def stores_having(field: Any, count: int) -> Flags | None:
    """Which of a file's stores have a further column; None where its metadata does not tell."""
    spelled = (field.metadata or {}).get(_STORES)
    if spelled is None:
        return None
    has = np.zeros(count, np.bool_)
    try:
        for stretch in filter(None, str(spelled, "ascii").split(",")):
            first, _, last = stretch.partition("-")
            has[int(first) : int(last or first) + 1] = True
    except ValueError:
        return None
    return has


def _spelled(has: Flags) -> str:
    edges = np.flatnonzero(np.diff(has, prepend=False, append=False)).tolist()
    stretches = zip(edges[::2], edges[1::2], strict=True)
    return ",".join(f"{a}" if a + 1 == b else f"{a}-{b - 1}" for a, b in stretches)
