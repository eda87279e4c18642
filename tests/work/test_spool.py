"""Event rows on their way from an enclosed process: nothing about them is taken on trust."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from converter.contract.events import EventRows
from converter.work.spool import check_spool, row_schema, write_spool

ZARR = "sub-01/eeg/sub-01_task-rest_eeg.zarr"
ROWS = EventRows(
    store_path=ZARR,
    subject="01",
    session=None,
    task="rest",
    run=None,
    onset_s=[0.5, 1.5, None],
    duration_s=[0.0, None, 1.0],
    trial_type=["go", "stop", None],
    value=[None, "7", "x"],
    hed=[None, None, None],
    passthrough={"word": ["a", "bb", None]},
    groups=[("eeg_250hz", 250.0, 1000)],
)


@pytest.fixture(scope="module")
def spool(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path: Path = tmp_path_factory.mktemp("spool") / "events.arrow"
    write_spool(path, ROWS)
    return path.read_bytes()


def rows_in(content: bytes) -> list[dict[str, object]]:
    with pa.ipc.open_file(content) as reader:
        rows: list[dict[str, object]] = reader.read_all().to_pylist()
    return rows


def test_a_spool_as_it_was_written(spool: bytes) -> None:
    check_spool(spool, ZARR)
    assert [row["sample_index"] for row in rows_in(spool)] == [125, 375, None]


def test_rows_of_another_store(spool: bytes) -> None:
    with pytest.raises(ValueError, match="not those of the recording"):
        check_spool(spool, "sub-02/eeg/sub-02_task-rest_eeg.zarr")


@pytest.mark.parametrize("stores", [[], [ZARR], [ZARR, ZARR], [ZARR, None], [None], [ZARR, "x"]])
def test_rows_of_several_stores(stores: list[str | None]) -> None:
    schema = row_schema([])
    columns = {name: pa.nulls(len(stores), schema.field(name).type) for name in schema.names}
    table = pa.table(columns | {"store_path": pa.array(stores, pa.string())}, schema)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, schema) as writer:
        writer.write_table(table, max_chunksize=1)
    if set(stores) <= {ZARR}:
        check_spool(sink.getvalue().to_pybytes(), ZARR)
    else:
        with pytest.raises(ValueError, match="not those of the recording"):
            check_spool(sink.getvalue().to_pybytes(), ZARR)


def test_other_columns_or_types() -> None:
    schema = row_schema(["word"])
    for wrong in (schema.remove(0), schema.set(0, pa.field("store_path", pa.large_string()))):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, wrong) as writer:
            writer.write_table(wrong.empty_table())
        with pytest.raises((ValueError, KeyError)):
            check_spool(sink.getvalue().to_pybytes(), ZARR)


@settings(max_examples=200)
@given(data=st.data())
def test_damaged_bytes_are_refused_or_harmless(spool: bytes, data: st.DataObject) -> None:
    content = bytearray(spool)
    at = data.draw(st.integers(0, len(content) - 1))
    content[at] ^= 1 << data.draw(st.integers(0, 7))
    try:
        check_spool(bytes(content), ZARR)
    except ValueError:
        return
    for row in rows_in(bytes(content)):
        assert row["store_path"] == ZARR
