"""channels.tsv against the channels of a file: types, published units, factors.

Source of the rules: the store contract, "Units".
"""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from ..signal import DISCRETE_TYPES, Channel
from ..units import conversion, parse_unit, spelling
from .tables import MISSING, Table, is_missing

_GENERAL_TYPES = {
    "EEG",
    "ECOG",
    "SEEG",
    "DBS",
    "EMG",
    "ECG",
    "EOG",
    "HEOG",
    "VEOG",
    "REF",
    "MISC",
    "OTHER",
    "AUDIO",
}
_SENSOR_TYPES = {
    "EYEGAZE",
    "PUPIL",
    "PPG",
    "GSR",
    "RESP",
    "TEMP",
    "PD",
    "ADC",
    "DAC",
    "HLU",
    "FITERR",
}
_MEG_TYPES = {
    "MEGGRADAXIAL",
    "MEGGRADPLANAR",
    "MEGMAG",
    "MEGOTHER",
    "MEGREFGRADAXIAL",
    "MEGREFGRADPLANAR",
    "MEGREFMAG",
}
_MOTION_TYPES = {"ACCEL", "ANGACC", "GYRO", "JNTANG", "LATENCY", "MAGN", "ORNT", "POS", "VEL"}
BIDS_TYPES = DISCRETE_TYPES | _GENERAL_TYPES | _SENSOR_TYPES | _MEG_TYPES | _MOTION_TYPES
# Types that deployed readers know; they refuse a store that has another one.
_SERVED_TYPES = DISCRETE_TYPES | {
    *("ACC", "DBS", "ECG", "ECOG", "EEG", "EMG", "EOG", "GSR", "GYRO", "HEOG", "MAGN", "MISC"),
    *("MEGGRADAXIAL", "MEGGRADPLANAR", "MEGMAG", "MEGREFGRADAXIAL", "MEGREFGRADPLANAR"),
    *("MEGREFMAG", "OTHER", "PPG", "QUAT", "REF", "RESP", "SEEG", "TEMP", "VEOG"),
}
_SERVED_AS = {"ACCEL": "ACC"}
# Types that may be those of a trigger, too.
_OF_ANYTHING = {"MISC", "OTHER"}
# What a quantity is served in when channels.tsv declares nothing.
_DEFAULT_UNITS = {"V": "uV", "T": "T", "T/m": "T/m"}
_NUMBERED = re.compile(r"(?P<base>.+)-\d+", re.DOTALL)


class TableStatus(StrEnum):
    """How far a channels.tsv could be used."""

    ABSENT = "absent"
    NO_NAMES = "no_names"
    NO_MATCH = "no_match"
    APPLIED = "applied"


@dataclass(frozen=True, slots=True)
class UnitsCounts:
    """What the declared units did, in channels; undeclared ones count nowhere."""

    converted: int
    relabelled: int
    kept_importer_unit: int
    units_column_present: bool


@dataclass(frozen=True, slots=True)
class PlannedChannel:
    """A channel as it is published: `(raw * gain + offset) * factor` is in `unit`.

    `discrete` samples are codes, whose factor is 1. `bids_unit` is a declared unit that was
    recorded instead of adopted.
    """

    label: str
    type: str
    unit: str
    factor: float
    discrete: bool
    bids_unit: str | None
    prefilter: str


@dataclass(frozen=True, slots=True)
class ChannelPlan:
    """Published channels in the order of the file, and how channels.tsv fits them.

    `declared` counts the rows that name a channel, `unmatched` lists those names of them
    that no channel has. `report` is None without a channels.tsv.
    """

    channels: list[PlannedChannel]
    report: UnitsCounts | None
    declared: int = 0
    unmatched: list[str] = field(default_factory=list)
    table_status: TableStatus = TableStatus.ABSENT


@dataclass(slots=True)
class _Tally:
    converted: int = 0
    relabelled: int = 0
    kept: int = 0


def plan_channels(channels: Sequence[Channel], table: Table | None) -> ChannelPlan:
    """Types, units and factors of all channels of a recording under its channels.tsv.

    A declared type is adopted when BIDS knows it, and served as MISC when readers of stores
    don't; one of waveforms makes a waveform of what a label alone calls a trigger. A declared
    unit is adopted when the reader's unit converts to it and the channel is not discrete. Without
    a declared unit voltages are served in uV and magnetic fields in T or T/m.
    """
    tally = _Tally()
    if table is None:
        return ChannelPlan([_plan(channel, "", "", tally) for channel in channels], None)
    names = table.column("name")
    rows = [] if names is None else [i for i, name in enumerate(names) if not is_missing(name)]
    row_names = [] if names is None else [names[row] for row in rows]
    matched = match_labels([channel.label for channel in channels], row_names)
    types = table.column("type")
    units = table.column("units")
    planned = []
    for channel, place in zip(channels, matched, strict=True):
        row = None if place is None else rows[place]
        declared_type = "" if row is None or types is None else types[row]
        declared_unit = "" if row is None or units is None else units[row]
        planned.append(_plan(channel, declared_type, declared_unit, tally))
    used = {place for place in matched if place is not None}
    status = TableStatus.APPLIED if used else TableStatus.NO_MATCH
    return ChannelPlan(
        planned,
        UnitsCounts(tally.converted, tally.relabelled, tally.kept, units is not None),
        len(rows),
        [name for place, name in enumerate(row_names) if place not in used],
        TableStatus.NO_NAMES if names is None else status,
    )


def match_labels(labels: Sequence[str], names: Sequence[str]) -> list[int | None]:
    """For each channel label the index of its row among `names`, each row used once.

    Rows match exactly, repeated names in order; then rows that repeat a name X match the
    labels X-0, X-1, ... in order; then what is left matches regardless of case where one
    label and one row, no more, are alike.
    """
    matched: list[int | None] = [None] * len(labels)
    free_rows = set(range(len(names)))

    def pair(label_keys: Iterable[tuple[int, Hashable]], row_keys: dict[int, Hashable]) -> None:
        waiting = _places((key, row) for row, key in row_keys.items())
        for key, indices in _places((key, index) for index, key in label_keys).items():
            for index, row in zip(indices, waiting.get(key, ()), strict=False):
                matched[index] = row
                free_rows.discard(row)

    def free_labels() -> list[tuple[int, str]]:
        return [(i, label.strip()) for i, label in enumerate(labels) if matched[i] is None]

    pair(free_labels(), {row: names[row] for row in sorted(free_rows)})
    numbered = [(i, m["base"]) for i, label in free_labels() if (m := _NUMBERED.fullmatch(label))]
    pair(numbered, _repeated({row: names[row] for row in sorted(free_rows)}))
    folded_labels = _single({i: _fold(label) for i, label in free_labels()})
    folded_rows = _single({row: _fold(names[row]) for row in sorted(free_rows)})
    pair(folded_labels.items(), folded_rows)
    return matched


def _places(items: Iterable[tuple[Hashable, int]]) -> dict[Hashable, list[int]]:
    places: defaultdict[Hashable, list[int]] = defaultdict(list)
    for key, index in items:
        places[key].append(index)
    return places


def _repeated(keys: dict[int, str]) -> dict[int, Hashable]:
    places = _places((key, index) for index, key in keys.items())
    return {index: key for index, key in keys.items() if len(places[key]) > 1}


def _single(keys: dict[int, str]) -> dict[int, Hashable]:
    places = _places((key, index) for index, key in keys.items())
    return {index: key for index, key in keys.items() if len(places[key]) == 1}


def _fold(name: str) -> str:
    return unicodedata.normalize("NFKC", name).casefold()


def _plan(
    channel: Channel, declared_type: str, declared_unit: str, tally: _Tally
) -> PlannedChannel:
    upper = declared_type.upper()
    if channel.waveform and upper in BIDS_TYPES - DISCRETE_TYPES - _OF_ANYTHING:
        channel = channel.waveform
    kind = upper if upper in BIDS_TYPES else channel.type
    discrete = channel.discrete or kind.upper() in DISCRETE_TYPES
    declared = "" if is_missing(declared_unit) else spelling(declared_unit)
    reader_unit = spelling(channel.unit) or MISSING
    unit, factor, bids_unit = reader_unit, 1.0, None
    if declared:
        convertible = None if discrete else conversion(reader_unit, declared)
        if declared == reader_unit:
            pass
        elif convertible is None:
            bids_unit = declared
            tally.kept += 1
        else:
            unit, factor = declared, convertible
            tally.converted += factor != 1.0
            tally.relabelled += factor == 1.0
    elif not discrete:
        unit, factor = _default(reader_unit)
    kind = _SERVED_AS.get(kind, kind if kind in _SERVED_TYPES else "MISC")
    return PlannedChannel(channel.label, kind, unit, factor, discrete, bids_unit, channel.prefilter)


def _default(reader_unit: str) -> tuple[str, float]:
    """Unit and factor of a channel for which channels.tsv declares no unit."""
    parsed = parse_unit(reader_unit)
    unit = None if parsed is None else _DEFAULT_UNITS.get(parsed.quantity)
    factor = None if unit is None else conversion(reader_unit, unit)
    return (reader_unit, 1.0) if unit is None or factor is None else (unit, factor)
