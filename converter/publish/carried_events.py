"""The published events.parquet, as the source of the rows that a run carries forward."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ..contract.events import FIXED_COLUMNS
from ..work.arrow import pa
from ..work.spool import TSV_PREFIX, row_schema
from .event_columns import Flags, StoreColumns, stores_having, tsv_name

# What is read at a time: a number of rows, fewer of a table with many columns.
_BATCH_ROWS, _BATCH_CELLS = 1 << 16, 1 << 21


class EventsError(ValueError):
    """The published events.parquet cannot be carried forward; one sentence says why."""


class CarriedEvents:
    """The rows that a published file has of the stores in `kept`.

    `columns` tells which of these stores have which further columns. Raises EventsError when
    the file is damaged or not ordered by store.
    """

    def __init__(self, path: Path, kept: AbstractSet[str]) -> None:
        self._path = path
        self._kept = pa.array(sorted(kept), pa.string())
        with self._open() as file:
            schema = file.schema_arrow
        self._names = _internal_names(schema, path.name)
        self.columns = self._columns(schema, kept)

    def tables(self) -> Iterator[Any]:
        """Rows in the file's order, with the columns and types of a spool."""
        for batch in self._batches(list(self._names)):
            kept = batch.filter(pc.is_in(batch.column("store_path"), self._kept))
            if kept.num_rows:
                yield kept

    def _columns(self, schema: Any, kept: AbstractSet[str]) -> StoreColumns:
        stores = self._stores()
        columns: dict[str, Flags] = {}
        untold: list[str] = []
        for field in schema:
            if field.name not in FIXED_COLUMNS:
                has = stores_having(field, len(stores))
                if has is None:
                    untold.append(field.name)
                else:
                    columns[tsv_name(field)] = has
        columns |= self._filled(untold, stores)
        is_kept = np.array([store in kept for store in stores], np.bool_)
        return StoreColumns(stores, columns).only(is_kept)

    def _stores(self) -> list[str]:
        """Every store with rows in the file, in its order."""
        stores: list[str] = []
        for batch in self._batches(["store_path"]):
            for store, _ in store_runs(batch):
                if stores and store < stores[-1]:
                    raise EventsError(
                        f"{self._path.name} has rows of {store} after those of {stores[-1]}; "
                        "rows ordered by store_path were expected."
                    )
                if not stores or store != stores[-1]:
                    stores.append(store)
        return stores

    def _filled(self, names: Sequence[str], stores: Sequence[str]) -> dict[str, Flags]:
        """Which stores have a value in a column; where none has, any of them may have it."""
        numbers = {store: number for number, store in enumerate(stores)}
        internal = [self._names[name] for name in names]
        filled = {name: np.zeros(len(stores), np.bool_) for name in internal}
        for batch in self._batches(["store_path", *names]) if names else ():
            counts = batch.group_by("store_path").aggregate([(name, "count") for name in internal])
            places = [numbers[store] for store in counts.column("store_path").to_pylist()]
            for name, has in filled.items():
                has[places] |= counts.column(f"{name}_count").to_numpy() > 0
        return {
            name.removeprefix(TSV_PREFIX): has if has.any() else ~has
            for name, has in filled.items()
        }

    def _open(self) -> Any:
        try:
            return pq.ParquetFile(self._path)
        except pa.ArrowException as error:
            raise EventsError(f"{self._path.name} cannot be read as Parquet: {error}") from error

    def _batches(self, names: Sequence[str]) -> Iterator[Any]:
        """Tables of these columns, with the names and types that they have in a spool."""
        internal = [self._names[name] for name in names]
        types = row_schema(name.removeprefix(TSV_PREFIX) for name in self._further())
        schema = pa.schema([types.field(name) for name in internal])
        rows = max(1, min(_BATCH_ROWS, _BATCH_CELLS // len(names)))
        with self._open() as file:
            try:
                for batch in file.iter_batches(rows, columns=list(names)):
                    table = pa.Table.from_batches([batch]).select(list(names))
                    yield table.rename_columns(internal).cast(schema)
            except pa.ArrowException as error:
                raise EventsError(f"{self._path.name} cannot be read: {error}") from error

    def _further(self) -> Iterator[str]:
        return (name for name in self._names.values() if name.startswith(TSV_PREFIX))


def store_runs(table: Any) -> list[tuple[str, int]]:
    """Where the store changes in a table's rows: each stretch's store and first row."""
    column = table.column("store_path")
    if not len(column):
        return []
    paths = column.combine_chunks()
    codes = paths.dictionary_encode().indices.to_numpy()
    starts = [0, *(np.flatnonzero(np.diff(codes)) + 1).tolist()]
    return list(zip(paths.take(pa.array(starts)).to_pylist(), starts, strict=True))


def _internal_names(schema: Any, file_name: str) -> dict[str, str]:
    """The published columns, with the name that each has in a spool."""
    missing = [name for name in FIXED_COLUMNS if name not in schema.names]
    if missing:
        raise EventsError(f"{file_name} has no column {missing[0]}, which the contract requires.")
    further = [field for field in schema if field.name not in FIXED_COLUMNS]
    names = {name: name for name in FIXED_COLUMNS}
    names |= {field.name: TSV_PREFIX + tsv_name(field) for field in further}
    if len(set(schema.names)) < len(schema.names) or len(set(names.values())) < len(names):
        raise EventsError(f"{file_name} has two columns of one name.")
    return names
