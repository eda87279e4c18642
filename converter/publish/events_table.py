"""events.parquet: every event of the dataset with its sample index in every channel group.

Source of the rules: the index contract, "events.parquet". Rows go from the workers' spools
and the published file to the new one store by store; no more than a row group is in memory.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from ..work.arrow import pa
from ..work.spool import TSV_PREFIX
from .carried_events import CarriedEvents, EventsError, store_runs
from .event_columns import StoreColumns, published_schema

__all__ = ["NAME", "EventsError", "EventsFile", "write_events"]

NAME: Final = "events.parquet"

# A row group ends after so many rows, or with the row that fills so many bytes of cells.
ROW_GROUP_ROWS: Final = 65_536
ROW_GROUP_BYTES: Final = 1 << 26
CELL_BYTES: Final = 16  # of a cell, beside its text

# A dictionary of a full row group of long descriptions; a smaller bound would leave the
# column of free texts without one.
_DICTIONARY_BYTES = ROW_GROUP_BYTES

# A table of a few rows takes many times their bytes.
_MOST_TABLES = 1000


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
    having = StoreColumns.of(
        {store: columns for store, path in ordered if (columns := _columns(path)) is not None}
    )
    kept = carried - {store for store, _ in ordered}
    published = CarriedEvents(prior, kept) if prior is not None and kept else None
    if published is not None:
        having = having.merged(published.columns)
    usable: set[str] = set()
    tables = _merged(ordered, published.tables() if published is not None else (), usable)
    row_count = _write(dest, tables, having)
    return EventsFile(
        row_count=row_count,
        size_bytes=dest.stat().st_size if row_count else 0,
        stores_without_rows=len(ordered) - len(usable),
    )


def _columns(spool: Path) -> list[str] | None:
    """The further columns of a spool, None when it has no row."""
    with pa.ipc.open_file(spool.read_bytes()) as reader:
        if not any(reader.get_batch(i).num_rows for i in range(reader.num_record_batches)):
            return None
        names = [name for name in reader.schema.names if name.startswith(TSV_PREFIX)]
        return [name.removeprefix(TSV_PREFIX) for name in names]


def _merged(
    spools: Sequence[tuple[str, Path]], carried: Iterable[Any], usable: set[str]
) -> Iterator[tuple[Any, int]]:
    """Tables of rows ordered by store, and how many bytes each has at most.

    `usable` gets the spools' stores that have a sample index.
    """
    waiting = list(reversed(spools))
    for table in carried:
        runs = store_runs(table)
        stores = [store for store, _ in runs]
        start = 0
        while waiting and waiting[-1][0] < stores[-1]:
            stop = runs[bisect(stores, waiting[-1][0])][1]
            yield _sized(table.slice(start, stop - start))
            yield _spooled(*waiting.pop(), usable)
            start = stop
        yield _sized(table.slice(start))
    while waiting:
        yield _spooled(*waiting.pop(), usable)


def _sized(table: Any) -> tuple[Any, int]:
    return table, table.nbytes


def _spooled(store: str, path: Path, usable: set[str]) -> tuple[Any, int]:
    content = path.read_bytes()
    with pa.ipc.open_file(content) as reader:
        table = reader.read_all()
    index = table.column("sample_index")
    if index.null_count < len(index):
        usable.add(store)
    return table, len(content)


def _write(dest: Path, tables: Iterable[tuple[Any, int]], having: StoreColumns) -> int:
    """Write rows as row groups; returns how many rows."""
    schema, spooled = published_schema(having)
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


def _row_groups(tables: Iterable[tuple[Any, int]], schema: Any) -> Iterator[Any]:
    """The rows of many tables, cut into row groups without regard to where the tables end."""
    width = len(schema) * CELL_BYTES
    waiting = [schema.empty_table()]
    count = size = 0  # the bytes that wait, and at times some more
    for table, most_bytes in tables:
        waiting.append(table)
        count += table.num_rows
        size += most_bytes + table.num_rows * width
        if count >= ROW_GROUP_ROWS or size >= ROW_GROUP_BYTES:
            rows = _joined(waiting, schema)
            sizes = _sizes(rows)
            start = 0
            for end in _ends(sizes):
                yield rows.slice(start, end - start)
                start = end
            waiting = [schema.empty_table(), rows.slice(start)]
            count, size = len(sizes) - start, int(sizes[start:].sum())
        elif len(waiting) > _MOST_TABLES:
            waiting = [_joined(waiting, schema).combine_chunks()]
    if count:
        yield _joined(waiting, schema)


def _joined(tables: Sequence[Any], schema: Any) -> Any:
    return pa.concat_tables(tables, promote_options="default").select(schema.names)


def _sizes(rows: Any) -> NDArray[np.int64]:
    """Bytes of each row's cells."""
    sizes = np.full(rows.num_rows, rows.num_columns * CELL_BYTES, np.int64)
    for column in rows.columns:
        if column.type == pa.string():
            sizes += pc.fill_null(pc.binary_length(column), 0).to_numpy()
    return sizes


def _ends(sizes: NDArray[np.int64]) -> Iterator[int]:
    """Where whole row groups end; what follows the last end is none yet."""
    total = np.cumsum(sizes)
    end = 0
    while True:
        before = total[end - 1] if end else 0
        filled = int(np.searchsorted(total, before + ROW_GROUP_BYTES)) + 1
        end = min(filled, end + ROW_GROUP_ROWS)
        if end > len(sizes):
            return
        yield end


def _encoded(rows: Any, schema: Any) -> Any:
    columns = [
        column.combine_chunks().dictionary_encode()
        if pa.types.is_dictionary(field.type)
        else column
        for column, field in zip(rows.columns, schema, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=schema)
