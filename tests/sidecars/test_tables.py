from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from converter.recording.sidecars import tables
from converter.recording.sidecars.tables import parse_number, read_table
from converter.recording.sidecars.text import decode

# Cells as an annotator may type them, separators that are no line ends included.
inner = st.text(st.sampled_from("abcZ09.,;:-µé \u2028\u2029\x0b\x0c\x85\x1c'"), max_size=8)
cells = inner.map(lambda text: f"<{text}>")
grids = st.integers(1, 5).flatmap(
    lambda width: st.lists(st.lists(cells, min_size=width, max_size=width), max_size=12)
)
ENCODINGS = ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"]


@settings(max_examples=60)
@given(grids, st.sampled_from(ENCODINGS), st.sampled_from(["\n", "\r\n", "\r"]), st.integers(0, 2))
def test_no_row_is_lost_in_any_encoding_or_line_end(
    rows: list[list[str]], encoding: str, end: str, blanks: int
) -> None:
    header = [f"column-{index}" for index in range(len(rows[0]) if rows else 2)]
    lines = ["\t".join(row) for row in [header, *rows]]
    if encoding in ("utf-16-le", "utf-16-be"):  # told by the NULs of mostly ASCII text
        lines = [line.encode("ascii", "replace").decode() for line in lines]
        rows = [line.split("\t") for line in lines[1:]]
    text = (end * (blanks + 1)).join(lines) + end * blanks
    table = read_table(text.encode(encoding))
    assert table.columns == header
    assert table.rows == rows


@settings(max_examples=60)
@given(st.binary(max_size=200))
def test_any_bytes_decode_and_make_a_table(raw: bytes) -> None:
    text, _ = decode(raw)
    text.encode("utf-8")
    table = read_table(raw)
    assert len(set(table.columns)) == len(table.columns)
    assert all(table.columns)
    assert all(len(row) == len(table.columns) for row in table.rows)


@pytest.mark.parametrize(
    ("raw", "text", "named"),
    [
        (b"\xef\xbb\xbf\xc2\xb5V", "µV", None),
        ("µV".encode("utf-16"), "µV", "UTF-16"),
        (b"\xff\xfeo\x00n\x00s", "ons\ufffd"[:2] + "\ufffd", "UTF-16"),
        (b"\xb5V \x80 \x85", "µV € …", "Windows-1252"),
        (b"\xb5V \x81", "µV \x81", "Latin-1"),
        ("name\tunits".encode("utf-16-be"), "name\tunits", "UTF-16"),
        (b"a\xcc\x81", "a\u0301", None),
        (b"", "", None),
    ],
)
def test_encodings(raw: bytes, text: str, named: str | None) -> None:
    decoded, warning = decode(raw)
    assert decoded == text
    assert (warning is None) == (named is None)
    assert named is None or (warning or "").startswith(named)


def test_rows_short_long_quoted_and_blank() -> None:
    raw = (
        b'"name"\ttype\tnote\n\n  \t \t\nA\n"B ""b"""\t EEG \t"x"\n'
        b'C\tEEG\ty\tz\n"D\td"\t1\t2\nE\t"\t"\n'
    )
    table = read_table(raw)
    assert table.columns == ["name", "type", "note"]
    assert table.rows == [
        ["A", "n/a", "n/a"],
        ['B "b"', "EEG", "x"],
        ["C", "EEG", "y"],
        ["D\td", "1", "2"],
        ["E", '"', '"'],
    ]
    assert table.warnings == ["1 rows have more cells than the 3 of the header, cut"]


def test_column_names_become_distinct_and_are_found_in_any_case() -> None:
    table = read_table(b"a\t\ta\ta_2\tName\t\n1\t2\t3\t4\t5\t\n")
    assert table.columns == ["a", "column_2", "a_3", "a_2", "Name"]
    assert table.rows == [["1", "2", "3", "4", "5"]]
    assert table.column(" name".strip()) == ["5"]
    assert table.column("A") == ["1"]
    assert table.column("onset") is None


@pytest.mark.parametrize(
    ("raw", "rows"),
    [
        (b'name,type,units\nA,EEG,"u,V"\nB,EEG\n', [["A", "EEG", "u,V"], ["B", "EEG", "n/a"]]),
        (b"onset;duration\n1,5;0\n", [["1,5", "0"]]),
        (
            b"onset  duration trial\n1.5 0   go\n2 0 stop\n",
            [["1.5", "0", "go"], ["2", "0", "stop"]],
        ),
        (b"participant id\nsub-01\n", [["sub-01"]]),
        (b"a, b\nx\n", [["x"]]),
    ],
)
def test_files_without_tabs(raw: bytes, rows: list[list[str]]) -> None:
    assert read_table(raw).rows == rows


@pytest.mark.parametrize(
    ("cell", "value"),
    [
        *[("1.5", 1.5), ("1,5", 1.5), ("-2e3", -2000.0), ("1e300", 1e300), (".5", 0.5)],
        *[(text, None) for text in ("", "n/a", "nan", "inf", "-Infinity", "1e999", "1_000", "٣")],
        *[(text, None) for text in ("1,000.5", "1,2,3", "0x10", "1.5s")],
    ],
)
def test_numbers(cell: str, value: float | None) -> None:
    assert parse_number(cell) == value


def test_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="cells"):
        read_table(b"a\t" * 9_000 + b"z" + b"\n1" * 10_000)
    with pytest.raises(ValueError, match="5000002 columns"):
        read_table(b'name\t"' + b'"\t' * 5_000_000)
    with pytest.raises(ValueError, match="lines"):
        read_table(b"\n" * tables.MAX_CELLS)
    monkeypatch.setattr(tables, "MAX_BYTES", 10)
    with pytest.raises(ValueError, match="11 bytes are more than the 10"):
        read_table(b"onset\n12345")


def test_time_is_linear_in_rows() -> None:
    def seconds(count: int) -> float:
        raw = b"onset\tduration\n" + b'1.25\t"go"\r\n' * count
        start = time.process_time()
        assert len(read_table(raw).rows) == count
        return time.process_time() - start

    def least(count: int) -> float:
        return min(seconds(count) for _ in range(5))

    assert least(80_000) < 12 * max(least(20_000), 0.02)


def test_real_channels(real_dataset: Path) -> None:
    path = real_dataset / "sub-01" / "eeg" / "sub-01_task-rest_channels.tsv"
    table = read_table(path.read_bytes())
    assert table.columns == ["name", "type", "units"]
    assert table.column("units") == ["µV"] * 32
    assert table.rows[3] == ["EEG 003", "EEG", "µV"]
    assert table.warnings == []
