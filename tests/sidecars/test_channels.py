from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from converter.recording.sidecars.channels import (
    TableStatus,
    UnitsCounts,
    match_labels,
    plan_channels,
)
from converter.recording.sidecars.tables import Table, read_table
from converter.recording.signal import Channel, distinct_labels


def table(
    *rows: tuple[str, str, str], columns: tuple[str, ...] = ("name", "type", "units")
) -> Table:
    return Table(list(columns), [list(row) for row in rows])


@settings(max_examples=60)
@given(st.lists(st.sampled_from(["X", "x", "Y", "X-0", "X-1", "Fp1"]), max_size=8))
def test_the_reader_numbering_of_repeated_labels_is_undone(names: list[str]) -> None:
    labels = distinct_labels(names)
    matched = match_labels(labels, names)
    taken = [row for row in matched if row is not None]
    assert len(set(taken)) == len(taken)
    # A name that is its own channel's label, or one of a repeated name, finds its row.
    if not {"X-0", "X-1"} & set(names):
        assert matched == list(range(len(names)))


@settings(max_examples=60)
@given(st.permutations(range(6)))
def test_the_order_of_rows_is_free(order: list[int]) -> None:
    labels = ["Fp1", "Fp2", "Cz", "EOG", "T8-P8", "STI"]
    assert match_labels(labels, [labels[row] for row in order]) == [
        order.index(i) for i in range(6)
    ]


@pytest.mark.parametrize(
    ("labels", "names", "matched"),
    [
        (["FP1", "CZ"], ["fp1", "Cz"], [0, 1]),
        (["FP1", "Fp1"], ["fp1"], [None, None]),
        (["Fp1"], ["FP1", "fp1"], [None]),
        (["Fp1", "FP1"], ["FP1", "fp1"], [1, 0]),
        (["X-1", "X-2", "X-0"], ["X", "X-0", "X"], [0, 2, 1]),
        (["X-0", "X-1"], ["X"], [None, None]),
        (["A-1"], ["A"], [None]),
        (["X-0", "X-1"], ["X", "X", "X"], [0, 1]),
    ],
)
def test_matching(labels: list[str], names: list[str], matched: list[int | None]) -> None:
    assert match_labels(labels, names) == matched


@pytest.mark.parametrize(
    ("reader", "declared", "unit", "factor", "bids_unit", "counts"),
    [
        ("V", "µV", "µV", 1e6, None, (1, 0, 0)),
        ("uV", "µV", "µV", 1.0, None, (0, 1, 0)),
        ("µV", "ÂµV", "µV", 1.0, None, (0, 0, 0)),
        ("uV", "uV", "uV", 1.0, None, (0, 0, 0)),
        ("C", "uV", "C", 1.0, "uV", (0, 0, 1)),
        ("V", "T", "V", 1.0, "T", (0, 0, 1)),
        ("n/a", "mV", "n/a", 1.0, "mV", (0, 0, 1)),
        ("V", "N/A", "uV", 1e6, None, (0, 0, 0)),
        ("mV", "", "uV", 1e3, None, (0, 0, 0)),
        ("fT", "n/a", "T", 1e-15, None, (0, 0, 0)),
        ("fT/cm", "n/a", "T/m", 1e-13, None, (0, 0, 0)),
        ("T", "fT", "fT", 1e15, None, (1, 0, 0)),
        ("°C", "n/a", "°C", 1.0, None, (0, 0, 0)),
        ("", "n/a", "n/a", 1.0, None, (0, 0, 0)),
        ("furlong", "furlong", "furlong", 1.0, None, (0, 0, 0)),
    ],
)
def test_units(
    reader: str,
    declared: str,
    unit: str,
    factor: float,
    bids_unit: str | None,
    counts: tuple[int, int, int],
) -> None:
    plan = plan_channels([Channel("A", "EEG", reader)], table(("A", "EEG", declared)))
    channel = plan.channels[0]
    assert (channel.unit, channel.factor, channel.bids_unit) == (unit, factor, bids_unit)
    assert plan.report == UnitsCounts(*counts, True)


@pytest.mark.parametrize(
    ("channel", "declared_type"),
    [
        (Channel("S", "MISC", "V", discrete=True), "n/a"),
        (Channel("S", "TRIG", "V"), "n/a"),
        (Channel("S", "EEG", "V"), "trig"),
        (Channel("S", "MISC", "V"), "SysClock"),
    ],
)
def test_discrete_channels_are_never_rescaled(channel: Channel, declared_type: str) -> None:
    plan = plan_channels([channel], table(("S", declared_type, "mV")))
    planned = plan.channels[0]
    assert planned.discrete
    assert (planned.unit, planned.factor, planned.bids_unit) == ("V", 1.0, "mV")
    assert plan.report == UnitsCounts(0, 0, 1, True)
    undeclared = plan_channels([channel], table(("S", declared_type, "n/a"))).channels[0]
    assert (undeclared.unit, undeclared.factor, undeclared.bids_unit) == ("V", 1.0, None)


def test_types_columns_and_unmatched_rows() -> None:
    channels = [Channel("A", "EEG", "uV", prefilter="HP 0.1"), Channel("B", "EEG", "uV")]
    rows = [("eog", "A", "x"), ("banana", "B", "x"), ("EEG", "C", "x"), ("EEG", "n/a", "x")]
    plan = plan_channels(channels, table(*rows, columns=("TYPE", "Name", "note")))
    assert [channel.type for channel in plan.channels] == ["EOG", "EEG"]
    assert plan.channels[0].prefilter == "HP 0.1"
    assert (plan.declared, plan.unmatched) == (3, ["C"])
    assert plan.report == UnitsCounts(0, 0, 0, False)
    assert plan.table_status is TableStatus.APPLIED


def test_without_a_usable_table() -> None:
    channels = [Channel("A", "EEG", "V")]
    absent = plan_channels(channels, None)
    assert (absent.report, absent.table_status) == (None, TableStatus.ABSENT)
    assert (absent.channels[0].unit, absent.channels[0].factor) == ("uV", 1e6)
    nameless = plan_channels(channels, Table(["label"], [["A"]]))
    assert (nameless.declared, nameless.table_status) == (0, TableStatus.NO_NAMES)
    other = plan_channels(channels, table(("Z", "EEG", "uV")))
    assert (other.unmatched, other.table_status) == (["Z"], TableStatus.NO_MATCH)


def test_real_channels_of_volts(real_dataset: Path) -> None:
    raw = (real_dataset / "sub-06" / "eeg" / "sub-06_task-rest_channels.tsv").read_bytes()
    names = [line.split("\t")[0] for line in raw.decode().splitlines()[1:]]
    channels = [Channel(name, "EEG", "V") for name in names]
    plan = plan_channels(channels, read_table(raw))
    # 138 EEG channels in uV and one TRIG without a unit.
    assert plan.report == UnitsCounts(138, 0, 0, True)
    assert sum(channel.factor == 1e6 for channel in plan.channels) == 138
    assert [channel.unit for channel in plan.channels if channel.discrete] == ["V"]
    assert (plan.declared, plan.unmatched) == (139, [])
