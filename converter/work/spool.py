"""The event rows of one recording in an Arrow IPC file, from a worker to events.parquet.

A spool has the rows of one store in published order, one for each event and channel group:
the fixed columns, then every other column of events.tsv under `TSV_PREFIX` and its own name.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from ..contract.events import FIXED_COLUMNS, EventRows, sample_index
from .arrow import pa

# Keeps a column of events.tsv apart from a fixed column of the same name.
TSV_PREFIX: Final = "tsv:"

_NUMBERS = {"onset_s": pa.float64(), "duration_s": pa.float32(), "sample_index": pa.int64()}

# Beyond it a number is an infinite float32.
_LARGEST_DURATION = 3.4028234663852886e38


def row_schema(tsv_columns: Iterable[str]) -> Any:
    """The Arrow schema of rows whose events.tsv has these further columns."""
    fixed = [pa.field(name, _NUMBERS.get(name, pa.string())) for name in FIXED_COLUMNS]
    return pa.schema([*fixed, *(pa.field(TSV_PREFIX + n, pa.string()) for n in tsv_columns)])


def write_spool(path: Path, rows: EventRows) -> None:
    """Write a recording's rows; a file without rows when it has no event or no group."""
    schema = row_schema(sorted(rows.passthrough))
    table = pa.Table.from_pydict(_columns(rows), schema=schema)
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
        writer.write_table(table)


def check_spool(content: bytes, zarr: str) -> None:
    """Raise ValueError for a spool that is damaged, or of another store than `zarr`.

    Whoever reads it later trusts its offsets, and its word on whose rows they are.
    """
    try:
        with pa.ipc.open_file(content) as reader:
            table = reader.read_all()
        table.validate(full=True)
    except (pa.ArrowException, OSError) as error:
        raise ValueError("the rows of events are damaged") from error
    further = [name for name in table.schema.names if name.startswith(TSV_PREFIX)]
    expected = row_schema(name.removeprefix(TSV_PREFIX) for name in further)
    # Arrow's functions take a tenth of a second to import: `unique` is one, `repeat` is none.
    owner = pa.chunked_array([pa.repeat(zarr, len(table))])
    if table.schema != expected or table.column("store_path") != owner:
        raise ValueError("the rows of events are not those of the recording")


def _columns(rows: EventRows) -> dict[str, Any]:
    onset = [value if _is_finite(value) else None for value in rows.onset_s]
    duration = [
        value if value is not None and abs(value) <= _LARGEST_DURATION else None
        for value in rows.duration_s
    ]
    groups = sorted(rows.groups)
    order = sorted(range(len(onset)), key=lambda event: _onset_order(onset[event]))
    events = [event for event in order for _ in groups]
    count = len(events)
    per_event: dict[str, list[Any]] = {
        "onset_s": onset,
        "duration_s": duration,
        "trial_type": rows.trial_type,
        "value": rows.value,
        "hed": rows.hed,
        **{TSV_PREFIX + name: cells for name, cells in rows.passthrough.items()},
    }
    return {
        "store_path": [rows.store_path] * count,
        "subject": [rows.subject] * count,
        "session": [rows.session] * count,
        "task": [rows.task] * count,
        "run": [rows.run] * count,
        "sample_index": [
            sample_index(onset[event], rate) for event in order for _, rate, _ in groups
        ],
        "group_name": [name for name, _, _ in groups] * len(order),
        **{name: [cells[event] for event in events] for name, cells in per_event.items()},
    }


def _is_finite(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def _onset_order(onset: float | None) -> tuple[bool, float]:
    """Unknown onsets last; the sort is stable, so that ties keep the file's order."""
    return onset is None, onset or 0.0
