from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from converter.recording.sidecars.events import (
    MAX_LABEL,
    MAX_TRIAL_TYPES,
    OTHER,
    Events,
    describe,
    parse_events,
    trial_types,
)


def of_trial_types(labels: list[str]) -> Events:
    return parse_events("\n".join(["onset\ttrial_type", *(f"1\t{x}" for x in labels)]).encode())


def test_cells_of_a_difficult_file() -> None:
    raw = (
        "\ufeffOnset\tduration\ttrial_type\tHED\thed\tresponse_time\n"
        "1,5\t-1\tgo\tEvent\tx\t0.3\n\n"
        "n/a\t0\tstop\n"
        "-1e12\tinf\tn/a\t\tN/A\tn/a\n"
        '1.5\t0\t"a ""b"""\tA\tB\tC\textra\n'
    )
    events = parse_events(raw.encode())
    assert events.onset == [1.5, None, -1e12, 1.5]
    assert events.duration == [-1.0, 0.0, None, 0.0]
    assert events.trial_type == ["go", "stop", None, 'a "b"']
    assert events.hed == ["x", None, None, "B"]
    assert events.value == [None] * 4
    assert events.extra == {
        "HED": ["Event", None, None, "A"],
        "response_time": ["0.3", None, None, "C"],
    }
    assert events.declared == {"onset", "duration", "trial_type", "hed"}
    assert events.order() == [2, 0, 3, 1]
    assert len(events) == 4
    assert len(events.warnings) == 1


@settings(max_examples=60)
@given(st.lists(st.one_of(st.none(), st.integers(-3, 3), st.floats(-1e9, 1e9)), max_size=20))
def test_order_is_a_stable_sort_with_unknown_onsets_last(onsets: list[float | None]) -> None:
    text = "onset\tk\n" + "".join(
        f"{'n/a' if x is None else repr(x)}\t{i}\n" for i, x in enumerate(onsets)
    )
    events = parse_events(text.encode())
    assert events.onset == onsets
    known = np.array([np.inf if x is None else x for x in onsets], float)
    assert events.order() == np.argsort(known, kind="stable").tolist()


@settings(max_examples=60)
@given(st.lists(st.sampled_from(["go", "stop", "n/a", "", "µ"]), max_size=20))
def test_codes_name_their_descriptions(labels: list[str]) -> None:
    lines = ["onset\ttrial_type\tvalue", *(f"{i}\t{x}\t{i % 2}" for i, x in enumerate(labels))]
    events = parse_events("\n".join(lines).encode())
    rows = events.order()[::2]
    codes, label_map = describe(events, rows)
    expected = [x if x not in ("n/a", "") else str(i % 2) for i, x in enumerate(labels)]
    assert [label_map[str(code)] for code in codes] == [expected[row] for row in rows]
    assert list(label_map) == [str(code) for code in range(1, len(label_map) + 1)]
    assert list(label_map.values()) == sorted(set(label_map.values()))
    assert events.description_count == len(set(expected))


def test_an_event_that_nothing_names() -> None:
    assert describe(parse_events(b"onset\n1\n2\n"), [0, 1]) == ([1, 1], {"1": "n/a"})


@settings(max_examples=60)
@given(st.lists(st.integers(0, 300), max_size=400))
def test_trial_types_lose_no_row_and_stay_small(numbers: list[int]) -> None:
    labels = [f"t{n}" for n in numbers]
    counts = trial_types(of_trial_types(labels))
    assert sum(counts.values()) == len(labels)
    assert len(counts) <= MAX_TRIAL_TYPES
    truth = Counter(labels)
    assert all(truth[label] == count for label, count in counts.items() if label != OTHER)
    if len(truth) > MAX_TRIAL_TYPES:
        dropped = [count for label, count in truth.items() if label not in counts]
        assert max(dropped) <= min(count for label, count in counts.items() if label != OTHER)
    else:
        assert counts == dict(sorted(truth.items()))


def test_free_text_is_cut_and_kept_apart() -> None:
    labels = ["é" * 500 + "1", "é" * 500 + "2", "é" * MAX_LABEL]
    counts = trial_types(of_trial_types(labels))
    assert len(counts) == 3
    assert labels[2] in counts
    assert all(len(label) <= MAX_LABEL for label in counts)
    many = trial_types(of_trial_types([f"{i} " + "free text " * 50 for i in range(5000)]))
    assert len(json.dumps(many)) < 20_000
    assert many[OTHER] == 4901


@pytest.mark.parametrize("raw", [b"", b"\n\n", b"onset\tduration\n", b"\xff\xfe", b'""\n""\n'])
def test_nothing_to_read(raw: bytes) -> None:
    events = parse_events(raw)
    assert (events.order(), trial_types(events), events.description_count) == ([], {}, 0)


def test_a_file_without_onsets_keeps_its_rows() -> None:
    events = parse_events(b"time\ttrial_type\n1\tgo\n")
    assert (events.onset, events.extra) == ([None], {"time": ["1"]})
    assert events.warnings == ["no column 'onset', so no event has a place"]


def test_real_events(real_dataset: Path) -> None:
    raw = (real_dataset / "sub-01" / "eeg" / "sub-01_task-rest_events.tsv").read_bytes()
    rows = [line.split("\t") for line in raw.decode().split("\n")[1:] if line]
    events = parse_events(raw)
    assert events.onset == [float(row[0]) for row in rows]
    assert trial_types(events) == dict(sorted(Counter(row[2] for row in rows).items()))
    assert events.warnings == []


def test_further_columns_are_bounded() -> None:
    names = [f"c{number}" for number in range(600)]
    events = parse_events("\t".join(["onset", *names, "hed\n1", *names, "Red\n"]).encode())
    assert list(events.extra) == names[:500]
    assert (events.onset, events.hed) == ([1.0], ["Red"])
    assert any("600 further columns" in warning for warning in events.warnings)
