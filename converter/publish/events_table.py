"""events.parquet: every event of the dataset with its sample index in every channel group.

Source of the rules: the index contract, "events.parquet". Rows go from the workers' spools
and the published file to the new one store by store; no more than a row group is in memory.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ..contract.events import FIXED_COLUMNS
from ..work.spool import TSV_PREFIX, row_schema

NAME: Final = "events.parquet"
ROW_GROUP_ROWS: Final = 65_536

_FIXED_FOLDED = frozenset(name.casefold() for name in FIXED_COLUMNS)

# A dictionary of a full row group of long descriptions; a smaller bound would leave the
# column of free texts without one.
_DICTIONARY_BYTES = 1 << 26

# The metadata of a further column that tells the name that events.tsv has for it.
_TSV_NAME = b"events_tsv_column"


class EventsError(ValueError):
    """The published events.parquet cannot be carried forward; one sentence says why."""


@dataclass(frozen=True, slots=True)
class EventsFile:
    """A finished file. Without a single row, none is written and its size is 0.

    `stores_without_rows` counts the spools that have no row with a sample index.
    """

    row_count: int
    size_bytes: int
    stores_without_rows: int


def write_events(
    spools: Iterable[tuple[str, Path]],
    prior: Path | None,
    carried: AbstractSet[str],
    dest: Path,
) -> EventsFile:
    """Merge converted stores' spools with the rows that `prior` has for carried stores.

    `spools` are (store_path, file); a store that has one inherits no row. Equal input makes
    an equal file. Raises EventsError when `prior` is no sorted events.parquet, and OSError.
    """
    ordered = sorted(spools)
    kept = carried - {store_path for store_path, _ in ordered}
    published = _Published(prior, kept) if prior is not None and kept else None
    tsv_columns = _spooled_columns(path for _, path in ordered)
    if published is not None:
        tsv_columns |= published.columns_in_use()
    usable: set[str] = set()
    tables = heapq.merge(
        _spooled(ordered, usable),
        published.tables() if published is not None else (),
        key=lambda item: item[0],
    )
    row_count = _write(dest, (table for _, table in tables), tsv_columns)
    return EventsFile(
        row_count=row_count,
        size_bytes=dest.stat().st_size if row_count else 0,
        stores_without_rows=len(ordered) - len(usable),
    )


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


def _spooled_columns(paths: Iterable[Path]) -> set[str]:
    columns: set[str] = set()
    for path in paths:
        with pa.OSFile(str(path), "rb") as source, pa.ipc.open_file(source) as reader:
            if any(reader.get_batch(i).num_rows for i in range(reader.num_record_batches)):
                columns.update(_tsv_columns(reader.schema.names))
    return columns


def _tsv_columns(names: Iterable[str]) -> Iterator[str]:
    return (name.removeprefix(TSV_PREFIX) for name in names if name.startswith(TSV_PREFIX))


def _spooled(spools: Sequence[tuple[str, Path]], usable: set[str]) -> Iterator[tuple[str, Any]]:
    """The table of each spool; `usable` gets the stores that have a sample index."""
    for store_path, path in spools:
        with pa.OSFile(str(path), "rb") as source, pa.ipc.open_file(source) as reader:
            table = reader.read_all()
        index = table.column("sample_index")
        if index.null_count < len(index):
            usable.add(store_path)
        if table.num_rows:
            yield store_path, table


class _Published:
    """The rows of carried stores in the file that is published now."""

    def __init__(self, path: Path, kept: AbstractSet[str]) -> None:
        self._path = path
        self._kept = pa.array(sorted(kept), pa.string())
        with self._open() as file:
            self._names = _internal_names(file.schema_arrow, path.name)

    def _open(self) -> Any:
        try:
            return pq.ParquetFile(self._path)
        except pa.ArrowException as error:
            raise EventsError(f"{self._path.name} cannot be read as Parquet: {error}") from error

    def columns_in_use(self) -> set[str]:
        """Columns of events.tsv that a carried store may have.

        A column that has values, but none of a carried store, came with a store that is not
        carried; one without values may be anybody's.
        """
        columns = list(_tsv_columns(self._names.values()))
        filled: dict[str, int] = dict.fromkeys(columns, 0)
        kept_filled = dict(filled)
        any_kept = False
        for batch in self._batches():
            kept = batch.filter(pc.is_in(batch.column("store_path"), self._kept))
            any_kept = any_kept or kept.num_rows > 0
            for name in columns:
                column = TSV_PREFIX + name
                filled[name] += batch.num_rows - batch.column(column).null_count
                kept_filled[name] += kept.num_rows - kept.column(column).null_count
        if not any_kept:
            return set()
        return {name for name in columns if kept_filled[name] or not filled[name]}

    def tables(self) -> Iterator[tuple[str, Any]]:
        """Rows of carried stores in the file's order, cut where the store changes."""
        last = ""
        for batch in self._batches():
            kept = batch.filter(pc.is_in(batch.column("store_path"), self._kept))
            for store_path, start, stop in _runs(kept.column("store_path")):
                if store_path < last:
                    raise EventsError(
                        f"{self._path.name} has rows of {store_path} after those of {last}; "
                        "rows ordered by store_path were expected."
                    )
                last = store_path
                yield store_path, kept.slice(start, stop - start)

    def _batches(self) -> Iterator[Any]:
        """Tables with the columns and types of a spool."""
        schema = row_schema(_tsv_columns(self._names.values()))
        with self._open() as file:
            try:
                for batch in file.iter_batches(ROW_GROUP_ROWS):
                    table = pa.Table.from_batches([batch]).select(list(self._names))
                    yield table.rename_columns(list(self._names.values())).cast(schema)
            except pa.ArrowException as error:
                raise EventsError(f"{self._path.name} cannot be read: {error}") from error


def _internal_names(schema: Any, file_name: str) -> dict[str, str]:
    """The published columns, with the name that each has in a spool."""
    missing = [name for name in FIXED_COLUMNS if name not in schema.names]
    if missing:
        raise EventsError(f"{file_name} has no column {missing[0]}, which the contract requires.")
    further = [field for field in schema if field.name not in FIXED_COLUMNS]
    names = {name: name for name in FIXED_COLUMNS}
    names |= {field.name: TSV_PREFIX + _tsv_name(field) for field in further}
    if len(set(schema.names)) < len(schema.names) or len(set(names.values())) < len(names):
        raise EventsError(f"{file_name} has two columns of one name.")
    return names


def _tsv_name(field: Any) -> str:
    """A further column's name in events.tsv; for another writer's file, as far as it shows."""
    original = (field.metadata or {}).get(_TSV_NAME)
    if original is not None:
        return str(original, "utf-8", "replace")
    name = str(field.name)
    bare = name.removeprefix("x_")
    return bare if bare.casefold() in _FIXED_FOLDED else name


def _runs(column: Any) -> Iterator[tuple[str, int, int]]:
    """Stretches of one value in a column of strings: (value, start, stop)."""
    if not len(column):
        return
    codes = column.combine_chunks().dictionary_encode().indices.to_numpy()
    edges = [0, *(np.flatnonzero(np.diff(codes)) + 1).tolist(), len(codes)]
    for start, stop in pairwise(edges):
        yield column[start].as_py(), start, stop


def _write(dest: Path, tables: Iterable[Any], tsv_columns: Iterable[str]) -> int:
    """Write rows in full row groups, the last one aside; returns how many rows."""
    names = published_names(tsv_columns)
    columns = sorted(names, key=names.__getitem__)
    spooled = row_schema(columns)
    schema = _published_schema(spooled, [names[column] for column in columns])
    row_count = 0
    with ExitStack() as stack:
        writer: Any = None
        for rows in _row_groups(tables, spooled):
            # Opened late, so that no rows leave no file.
            writer = writer or stack.enter_context(
                pq.ParquetWriter(
                    dest, schema, compression="zstd", dictionary_pagesize_limit=_DICTIONARY_BYTES
                )
            )
            writer.write_table(_encoded(rows, schema), row_group_size=ROW_GROUP_ROWS)
            row_count += rows.num_rows
    return row_count


def _row_groups(tables: Iterable[Any], schema: Any) -> Iterator[Any]:
    """The rows of many small tables as tables of ROW_GROUP_ROWS rows and a last one."""
    waiting = [schema.empty_table()]
    count = 0
    for table in tables:
        waiting.append(table)
        count += table.num_rows
        if count >= ROW_GROUP_ROWS:
            rows = _joined(waiting, schema)
            whole = count - count % ROW_GROUP_ROWS
            for start in range(0, whole, ROW_GROUP_ROWS):
                yield rows.slice(start, ROW_GROUP_ROWS)
            waiting = [schema.empty_table(), rows.slice(whole)]
            count -= whole
    if count:
        yield _joined(waiting, schema)


def _joined(tables: Sequence[Any], schema: Any) -> Any:
    return pa.concat_tables(tables, promote_options="default").select(schema.names)


def _published_schema(spooled: Any, tsv_names: Sequence[str]) -> Any:
    """The file's schema; a further column's metadata tells its name in events.tsv."""
    fields = []
    for field, name in zip(spooled, [*FIXED_COLUMNS, *tsv_names], strict=True):
        further = field.name.startswith(TSV_PREFIX)
        original = field.name.removeprefix(TSV_PREFIX)
        metadata = {_TSV_NAME: original.encode()} if further else None
        is_text = field.type == pa.string()
        published = pa.dictionary(pa.int32(), pa.string()) if is_text else field.type
        fields.append(pa.field(name, published, metadata=metadata))
    return pa.schema(fields)


def _encoded(rows: Any, schema: Any) -> Any:
    columns = [
        column.combine_chunks().dictionary_encode()
        if pa.types.is_dictionary(field.type)
        else column
        for column, field in zip(rows.columns, schema, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=schema)
