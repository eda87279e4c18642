from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from converter.recording.sidecars.electrodes import Electrodes, read_electrodes
from converter.recording.sidecars.metadata import MAX_BYTES, merge_json, power_line_frequency
from converter.recording.sidecars.tables import read_table

texts = st.text(max_size=6)
scalars = st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts
values = scalars | st.lists(scalars, max_size=3) | st.dictionaries(texts, scalars, max_size=2)
documents = st.dictionaries(texts, values, max_size=4)


@settings(max_examples=60)
@given(st.lists(documents, max_size=4), st.booleans())
def test_the_most_specific_document_wins(
    given_order: list[dict[str, Any]], ascii_only: bool
) -> None:
    raw = [json.dumps(v, ensure_ascii=ascii_only).encode(errors="replace") for v in given_order]
    expected: dict[str, Any] = {}
    for document in raw:
        expected.update(json.loads(document))
    merged = merge_json(raw)
    assert (merged.values, merged.warnings) == (expected, [])


@settings(max_examples=60)
@given(documents)
def test_trailing_commas_and_comments_change_nothing(value: dict[str, Any]) -> None:
    text = (
        json.dumps(value | {"last": [1]}, indent=1)
        .replace("\n]", ", // [\n]")
        .replace("\n}", ",/* } */}")
    )
    assert merge_json([text.encode()]).values == value | {"last": [1]}


@pytest.mark.parametrize(
    ("raw", "values"),
    [
        (b'\xef\xbb\xbf{"a": 1,}', {"a": 1}),
        ('{"a": "µ"}'.encode("utf-16"), {"a": "µ"}),
        (b'{"a": "\xb5"}\r\n\0', {"a": "µ"}),
        (b'{"a": 1, "a": 2}', {"a": 2}),
        (b'{"a": NaN, "b": [-Infinity], "c": 1e999, "d": 0}', {"b": [None], "d": 0}),
        (b'{"a": "tab\there // no comment, ]",}', {"a": "tab\there // no comment, ]"}),
        (b'{"a": ' + b"9" * 5000 + b"}", {}),
    ],
)
def test_tolerance(raw: bytes, values: dict[str, Any]) -> None:
    merged = merge_json([raw])
    assert (merged.values, merged.warnings) == (values, [])


def test_null_and_nan_override_nothing() -> None:
    specific = [b'{"PowerLineFrequency": NaN}', b'{"PowerLineFrequency": null}']
    merged = merge_json([b'{"PowerLineFrequency": 50}', *specific])
    assert power_line_frequency(merged.values) == 50.0


@pytest.mark.parametrize(
    "raw",
    [
        *[
            b"",
            b"[1]",
            b'"text"',
            b"{",
            b'{"a" 1}',
            b"\x00\x01\xff",
            b"null",
            b" " * (MAX_BYTES + 1),
        ],
        *[b'{"a":' * 200 + b"1" + b"}" * 200, b"[" * 100_000, b'{"a":' * 100_000],
        *[b"/*" * 100_000, b'"' * 100_001, b"," * 100_000, b'"\\' * 100_000, b"/*/" * 100_000],
    ],
)
def test_what_is_no_object_gives_one_warning(raw: bytes) -> None:
    start = time.process_time()
    merged = merge_json([b'{"kept": true}', raw])
    assert merged.values == {"kept": True}
    assert len(merged.warnings) == 1
    assert len(merged.warnings[0]) < 200
    assert time.process_time() - start < 2


@settings(max_examples=60)
@given(st.binary(max_size=60) | st.text(st.sampled_from('{}[],:"\\/* 1a\n')).map(str.encode))
def test_no_bytes_raise(raw: bytes) -> None:
    merge_json([raw])


@pytest.mark.parametrize(
    ("value", "frequency"),
    [
        *[(50, 50.0), (60.0, 60.0), ("50", 50.0), (" 60.0 ", 60.0), ("n/a", None), ("", None)],
        *[(0, None), (-50, None), (True, None), ([50], None), (None, None), (10**400, None)],
        *[("inf", None), (float("nan"), None)],
    ],
)
def test_power_line_frequency(value: object, frequency: float | None) -> None:
    assert power_line_frequency({"PowerLineFrequency": value}) == frequency
    assert power_line_frequency({}) is None


def test_electrodes() -> None:
    table = read_table(
        b"Name\tx\tY\tz\timpedance\nA\t1\t-2,5\t3e1\t5\nB\tn/a\t1\t2\t5\nC\t1\t2\nD\tnan\t1\tinf\t1\n"
        b"A\t9\t9\t9\t9\nn/a\t1\t2\t3\t4\n"
    )
    coordsystem = (
        b'{"EEGCoordinateSystem": "CapTrak", "EEGCoordinateUnits": "n/a", '
        b'"iEEGCoordinateUnits": "mm"}'
    )
    assert read_electrodes(table, coordsystem, "eeg") == Electrodes(
        {"A": [1.0, -2.5, 30.0]}, "CapTrak"
    )
    assert read_electrodes(table, coordsystem, "ieeg").units == "mm"
    assert read_electrodes(table, None, "emg").system is None
    broken = read_electrodes(table, b"{", "eeg")
    assert broken.positions
    assert len(broken.warnings) == 1
    assert read_electrodes(read_table(b"name\tx\ty\nA\t1\t2\n"), None, "eeg").positions == {}


@pytest.mark.parametrize(
    ("modality", "key"),
    [("eeg", "EEG"), ("ieeg", "iEEG"), ("emg", "EMG"), ("meg", "MEG"), ("meg", "EEG")],
)
def test_coordinate_keys_of_each_modality(modality: str, key: str) -> None:
    raw = json.dumps(
        {f"{key}CoordinateSystem": "Other", f"{key}CoordinateUnits": "\ud800m"}
    ).encode()
    found = read_electrodes(read_table(b""), raw, modality)
    assert (found.system, found.units) == ("Other", "?m")
