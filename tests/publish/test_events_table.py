from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from converter.contract.events import EventRows, sample_index
from converter.publish import events_table
from converter.publish.event_columns import published_names
from converter.publish.events_table import EventsError, EventsFile, write_events
from converter.work.spool import write_spool

TEXT = pa.dictionary(pa.int32(), pa.string())
FIXED = [
    ("store_path", TEXT),
    ("subject", TEXT),
    ("session", TEXT),
    ("task", TEXT),
    ("run", TEXT),
    ("onset_s", pa.float64()),
    ("duration_s", pa.float32()),
    ("sample_index", pa.int64()),
    ("group_name", TEXT),
    ("trial_type", TEXT),
    ("value", TEXT),
    ("hed", TEXT),
]


def rows(
    store: str,
    onsets: list[float | None],
    groups: tuple[tuple[str, float, int], ...] = (("eeg_250hz", 250.0, 1000),),
    passthrough: dict[str, list[str | None]] | None = None,
) -> EventRows:
    numbers = range(len(onsets))
    return EventRows(
        store_path=store,
        subject="01",
        session=None,
        task="rest",
        run=None,
        onset_s=onsets,
        duration_s=[0.1 * n for n in numbers],
        trial_type=[f"event {n}" for n in numbers],
        value=[None for _ in numbers],
        hed=[None for _ in numbers],
        passthrough=passthrough or {},
        groups=list(groups),
    )


def build(
    folder: Path,
    events: list[EventRows],
    prior: Path | None = None,
    carried: set[str] | None = None,
    name: str = "events.parquet",
) -> tuple[EventsFile, Path]:
    spools = []
    for number, one in enumerate(events):
        path = folder / f"{name}-{number}.arrow"
        write_spool(path, one)
        spools.append((one.store_path, path))
    return write_events(spools, prior, carried or set(), folder / name), folder / name


def read(path: Path) -> dict[str, list[Any]]:
    columns: dict[str, list[Any]] = pq.read_table(path).to_pydict()
    return columns


def test_columns_order_and_types(tmp_path: Path) -> None:
    made, path = build(
        tmp_path,
        [
            rows("b.zarr", [1.0], passthrough={"zeta": ["z"], "Onset_S": ["o"], "a.b": ["dotted"]}),
            rows("a.zarr", [2.0], passthrough={"value_2": [None], "x_onset_s": ["own"]}),
        ],
    )
    schema = pq.read_schema(path)
    expected = ["a.b", "value_2", "x_onset_s", "x_x_Onset_S", "zeta"]
    assert [(f.name, f.type) for f in schema] == FIXED + [(name, TEXT) for name in expected]
    table = read(path)
    assert table["store_path"] == ["a.zarr", "b.zarr"]
    assert table["x_onset_s"] == ["own", None]
    assert table["x_x_Onset_S"] == [None, "o"]
    assert table["a.b"] == [None, "dotted"]
    assert (made.row_count, made.size_bytes, made.stores_without_rows) == (
        2,
        path.stat().st_size,
        0,
    )
    metadata = pq.ParquetFile(path).metadata
    chunks = [metadata.row_group(0).column(i) for i in range(metadata.num_columns)]
    assert {chunk.compression for chunk in chunks} == {"ZSTD"}
    texts = [chunk for chunk in chunks if chunk.physical_type == "BYTE_ARRAY"]
    assert all(chunk.has_dictionary_page for chunk in texts)


def test_rows_are_ordered_by_onset_then_group(tmp_path: Path) -> None:
    groups = (("meg_250hz", 250.0, 10), ("eeg_250hz_from500", 250.0, 10), ("a_511_7hz", 511.7, 10))
    onsets = [None, 2.0, -1.001, 2.0, math.nan, 1e300, 0.002]
    made, path = build(tmp_path, [rows("s.zarr", onsets, groups)])
    table = read(path)
    # 1e300 s lies on no int64 sample; unknown onsets come last, in the file's order.
    order = [2, 6, 1, 3, 5, 0, 4]
    names = ["a_511_7hz", "eeg_250hz_from500", "meg_250hz"]
    assert table["trial_type"] == [f"event {n}" for n in order for _ in names]
    assert table["group_name"] == names * len(order)
    assert table["onset_s"] == [
        onset for n in order for onset in [None if n == 4 else onsets[n]] * 3
    ]
    # -250.25 + 0.5 rounds down to -250, 1.0234 + 0.5 to 1, and 0.5 + 0.5 up to 1.
    expected = [-512, -250, -250, 1, 1, 1, 1023, 500, 500, 1023, 500, 500]
    assert table["sample_index"] == expected + [None] * 9
    assert made.stores_without_rows == 0


def test_stores_without_a_usable_row(tmp_path: Path) -> None:
    made, path = build(
        tmp_path,
        [
            rows("empty.zarr", []),
            rows("nowhere.zarr", [1.0], ()),
            rows("unknown.zarr", [None, None]),
            rows("good.zarr", [None, 1.0]),
        ],
    )
    assert (made.row_count, made.stores_without_rows) == (4, 3)
    assert read(path)["store_path"] == ["good.zarr"] * 2 + ["unknown.zarr"] * 2
    nothing, path = build(
        tmp_path, [rows("empty.zarr", [], passthrough={"note": []})], name="none.parquet"
    )
    assert nothing == EventsFile(0, 0, 1)
    assert not path.exists()


def test_row_groups_are_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events_table, "ROW_GROUP_ROWS", 64)
    sizes = {"a.zarr": 10, "b.zarr": 200, "c.zarr": 1, "d.zarr": 45}
    events = [rows(store, [float(n) for n in range(size)]) for store, size in sizes.items()]
    _, path = build(tmp_path, events)
    metadata = pq.ParquetFile(path).metadata
    assert [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)] == [64] * 4
    table = read(path)
    assert table["onset_s"] == [float(n) for size in sizes.values() for n in range(size)]


def test_row_groups_are_bounded_in_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events_table, "ROW_GROUP_BYTES", 100_000)
    texts = {"a.zarr": [1, 50_000, 70_000, 1], "b.zarr": [200_000] + [10] * 40, "c.zarr": [1]}
    wide: dict[str, list[str | None]] = {f"c{n}": [None] for n in range(400)}
    events = [
        rows(store, [float(n) for n in range(len(lengths))], passthrough={"note": cells})
        for store, lengths in texts.items()
        for cells in [["x" * length for length in lengths]]
    ]
    whole = [*events[:2], rows("c.zarr", [0.0], passthrough=wide)]
    _, path = build(tmp_path, whole)
    file = pq.ParquetFile(path)
    table = pq.read_table(path).to_pylist()
    cell = events_table.CELL_BYTES * len(file.schema_arrow)
    sizes = [cell + sum(len(v) for v in row.values() if isinstance(v, str)) for row in table]
    groups: list[list[int]] = [[]]
    for size in sizes:
        groups[-1].append(size)
        if sum(groups[-1]) >= 100_000:
            groups.append([])
    counts = [file.metadata.row_group(n).num_rows for n in range(file.num_row_groups)]
    assert counts == [len(group) for group in groups if group]
    assert len(counts) > 4
    _, again = build(tmp_path, whole[1:2], path, {"a.zarr", "c.zarr"}, name="again.parquet")
    assert again.read_bytes() == path.read_bytes()


def test_carried_rows_stay_and_touched_stores_inherit_none(tmp_path: Path) -> None:
    before = [
        rows("a.zarr", [1.0], passthrough={"note": ["kept"], "value": ["further"]}),
        rows("b.zarr", [2.0], passthrough={"gone": ["x"]}),
        rows("c.zarr", [3.0], passthrough={"gone": ["x"]}),
        rows("d.zarr", [4.0], passthrough={"gone": ["x"]}),
    ]
    _, prior = build(tmp_path, before, name="prior.parquet")
    # b is converted anew without a row, c with another, d is not served any more.
    now = [rows("b.zarr", []), rows("c.zarr", [5.0, 6.0])]
    made, path = build(tmp_path, now, prior, {"a.zarr", "b.zarr", "c.zarr"})
    table = read(path)
    assert table["store_path"] == ["a.zarr", "c.zarr", "c.zarr"]
    assert table["onset_s"] == [1.0, 5.0, 6.0]
    assert table["note"] == ["kept", None, None]
    assert table["x_value"] == ["further", None, None]
    assert "gone" not in table
    assert made.stores_without_rows == 1


def test_prior_of_another_writer_is_carried(tmp_path: Path) -> None:
    columns: dict[str, Any] = {
        name: pa.array([None] * 2, pa.string()) for name, kind in FIXED if kind == TEXT
    }
    columns |= {
        "store_path": ["a.zarr", "b.zarr"],
        "onset_s": [1.0, 2.0],
        "duration_s": pa.array([1.0, None], pa.float64()),
        "sample_index": [250, 500],
        "group_name": ["eeg_250hz"] * 2,
    }
    ordered = {name: columns[name] for name, _ in FIXED}
    ordered |= {"x_value": ["v", "w"], "of_b": [None, "x"], "of_any": pa.nulls(2, pa.string())}
    pq.write_table(pa.table(ordered), tmp_path / "prior.parquet")
    now = [rows("b.zarr", [2.0], passthrough={"value": ["new"]})]
    _, path = build(tmp_path, now, tmp_path / "prior.parquet", {"a.zarr"})
    further = [("of_any", TEXT), ("x_value", TEXT)]
    assert [(f.name, f.type) for f in pq.read_schema(path)] == [*FIXED, *further]
    assert read(path)["x_value"] == ["v", "new"]


def test_a_column_without_values_stays_as_long_as_a_store_has_it(tmp_path: Path) -> None:
    before = [
        rows("a.zarr", [1.0], passthrough={"blank": [None], "filled": [None]}),
        rows("b.zarr", [2.0], passthrough={"blank": [None], "filled": ["x"], "only b": [None]}),
    ]
    _, prior = build(tmp_path, before, name="prior.parquet")
    _, path = build(tmp_path, [rows("b.zarr", [2.0])], prior, {"a.zarr"})
    assert read(path)["blank"] == read(path)["filled"] == [None, None]
    assert "only b" not in read(path)
    _, path = build(tmp_path, [rows("a.zarr", [1.0])], path, {"b.zarr"}, name="next.parquet")
    assert set(read(path)) == {name for name, _ in FIXED}


def test_an_unusable_prior_is_named(tmp_path: Path) -> None:
    prior = tmp_path / "events_before.parquet"
    prior.write_bytes(b"PAR1 is not enough")
    with pytest.raises(EventsError, match=r"events_before\.parquet cannot be read"):
        build(tmp_path, [], prior, {"a.zarr"})
    pq.write_table(pa.table({"store_path": ["a.zarr"]}), prior)
    with pytest.raises(EventsError, match="no column subject"):
        build(tmp_path, [], prior, {"a.zarr"})
    _, good = build(tmp_path, [rows("a.zarr", [1.0]), rows("b.zarr", [1.0])])
    pq.write_table(pq.read_table(good).take([1, 0]), prior)
    with pytest.raises(EventsError, match=r"a\.zarr after those of b\.zarr"):
        build(tmp_path, [], prior, {"a.zarr", "b.zarr"}, name="new.parquet")


def test_names_that_differ_in_case_only_are_told_apart() -> None:
    assert published_names(["note", "Note", "HED", "x_hed", ""]) == {
        "Note": "Note",
        "note": "x_note",
        "x_hed": "x_hed",
        "HED": "x_x_HED",
        "": "x_",
    }


@given(
    st.floats(-1e9, 1e9),
    st.sampled_from([Fraction(250), Fraction(512), Fraction(1000), Fraction(5117, 10)]),
)
def test_sample_index_is_the_nearest_sample(onset: float, rate: Fraction) -> None:
    index = sample_index(onset, float(rate))
    assert index is not None
    # Rounding in float64 moves a product of this size by less than 1e-3 samples.
    assert abs(Fraction(onset) * rate - index) <= Fraction(501, 1000)


@pytest.mark.parametrize(
    ("onset", "rate", "expected"),
    [
        (0.5, 1.0, 1),
        (-0.5, 1.0, 0),
        (2.0**62, 1.0, 2**62),
        (2.0**63, 1.0, None),
        (-(2.0**64), 1.0, None),
        (1e308, 1e9, None),
        (math.inf, 1.0, None),
        (math.nan, 1.0, None),
        (None, 250.0, None),
        (1.0, None, None),
        (1.0, 0.0, None),
    ],
)
def test_sample_index_at_its_bounds(
    onset: float | None, rate: float | None, expected: int | None
) -> None:
    assert sample_index(onset, rate) == expected


@st.composite
def recordings(draw: st.DrawFn) -> list[EventRows]:
    stores = draw(st.sets(st.sampled_from(["a b.zarr", "a.zarr", "a/x.zarr", "ä.zarr", "é.zarr"])))
    made = []
    for store in sorted(stores):
        onsets = draw(st.lists(st.none() | st.floats(allow_nan=True), min_size=1, max_size=4))
        columns = draw(st.sets(st.sampled_from(["value", "x_value", "Note", "note", "k"])))
        cells: dict[str, list[str | None]] = {
            name: [draw(st.sampled_from([None, f"{name} {n}"])) for n in range(len(onsets))]
            for name in sorted(columns)
        }
        groups = draw(st.sampled_from([(("g1", 250.0, 9),), (("g2", 1.0, 9), ("g1", 250.0, 9))]))
        made.append(rows(store, onsets, groups, cells))
    return made


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(recordings(), recordings(), st.sets(st.integers(0, 4)), st.randoms())
def test_an_incremental_run_writes_what_a_clean_one_does(
    tmp_path: Path,
    before: list[EventRows],
    anew: list[EventRows],
    left_out: set[int],
    random: Random,
) -> None:
    touched = {one.store_path for one in anew}
    kept = [
        one for n, one in enumerate(before) if n not in left_out and one.store_path not in touched
    ]
    whole = [*kept, *anew]
    random.shuffle(whole)
    made, prior = build(tmp_path, before, name="prior.parquet")
    clean, path = build(tmp_path, whole, name="clean.parquet")
    if made.row_count == 0 or clean.row_count == 0:
        return
    carried = {one.store_path for one in kept}
    again, other = build(tmp_path, anew, prior, carried, name="again.parquet")
    assert again.row_count == clean.row_count == sum(len(e.onset_s) * len(e.groups) for e in whole)
    assert other.read_bytes() == path.read_bytes()
