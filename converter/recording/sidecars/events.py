"""events.tsv: what happened when, as parallel columns in file order."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from .tables import MISSING, Table, is_missing, parse_number, read_table

MAX_LABEL = 128
_KEPT_OF_LABEL = 100
# index.json is fetched on every page visit: a store's map of trial types stays small.
MAX_TRIAL_TYPES = 100
# Every further column of one file is a column of the whole dataset's events.parquet.
MAX_EXTRA = 500
OTHER = "(other)"

_KNOWN = ("onset", "duration", "trial_type", "value", "hed")


@dataclass(frozen=True, slots=True)
class Events:
    """Columns of events.tsv, all of one length and in file order.

    `onset` and `duration` are seconds, None where the cell holds no finite number; text is
    None where the cell is blank or `n/a`. `declared` names those of the known columns that
    the file has, `extra` holds its other columns, MAX_EXTRA at most.
    """

    onset: list[float | None]
    duration: list[float | None]
    trial_type: list[str | None]
    value: list[str | None]
    hed: list[str | None]
    extra: dict[str, list[str | None]]
    declared: frozenset[str]
    warnings: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.onset)

    def order(self) -> list[int]:
        """Rows by onset; rows of one onset in file order, rows without an onset last."""
        onset = self.onset
        return sorted(range(len(onset)), key=lambda row: (onset[row] is None, onset[row] or 0.0))

    def description(self, row: int) -> str:
        """What names the event: its trial_type, else its value, else `n/a`."""
        return self.trial_type[row] or self.value[row] or MISSING

    @property
    def description_count(self) -> int:
        """How many different descriptions the rows have."""
        return len({self.description(row) for row in range(len(self))})


def parse_events(raw: bytes) -> Events:
    """The events of a file; no row that is not blank is left out.

    Raises ValueError with a sentence where `read_table` does.
    """
    table = read_table(raw)
    places = {name: table.find(name) for name in _KNOWN}
    known = set(places.values())
    further = [index for index in range(len(table.columns)) if index not in known]
    extra = {table.columns[index]: _texts(table, index) for index in further[:MAX_EXTRA]}
    warnings = list(table.warnings)
    if len(further) > MAX_EXTRA:
        warnings.append(
            f"{len(further)} further columns, those beyond the first {MAX_EXTRA} are left out"
        )
    if places["onset"] is None and table.rows:
        warnings.append("no column 'onset', so no event has a place")
    return Events(
        _numbers(table, places["onset"]),
        _numbers(table, places["duration"]),
        _texts(table, places["trial_type"]),
        _texts(table, places["value"]),
        _texts(table, places["hed"]),
        extra,
        frozenset(name for name, index in places.items() if index is not None),
        warnings,
    )


def describe(events: Events, rows: Sequence[int]) -> tuple[list[int], dict[str, str]]:
    """A code for each of `rows`, and the description that each code stands for.

    Codes count from 1 in the sorted order of the descriptions; the map's keys are the codes
    as decimal text. Source of the shape: the store contract, group `events`.
    """
    descriptions = [events.description(row) for row in rows]
    codes = {text: code for code, text in enumerate(sorted(set(descriptions)), 1)}
    return [codes[text] for text in descriptions], {str(c): text for text, c in codes.items()}


def trial_types(events: Events) -> dict[str, int]:
    """Rows of each trial type, sorted by name; small whatever the file holds.

    A label above MAX_LABEL characters is cut and gets a digest of the whole, so that
    different labels stay apart. Of more than MAX_TRIAL_TYPES labels the most frequent are
    kept (the first by name among equals) and the rest is summed under OTHER, named last.
    """
    counts = Counter(_short(label) for label in events.trial_type if label is not None)
    if len(counts) <= MAX_TRIAL_TYPES:
        return dict(sorted(counts.items()))
    rest = counts.pop(OTHER, 0)
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    kept = dict(sorted(ranked[: MAX_TRIAL_TYPES - 1]))
    rest += sum(count for _, count in ranked[MAX_TRIAL_TYPES - 1 :])
    return kept | {OTHER: rest}


def _short(label: str) -> str:
    if len(label) <= MAX_LABEL:
        return label
    digest = hashlib.sha256(label.encode()).hexdigest()[:16]
    return f"{label[:_KEPT_OF_LABEL]}… sha256:{digest}"


def _numbers(table: Table, index: int | None) -> list[float | None]:
    if index is None:
        return [None] * len(table.rows)
    return [parse_number(row[index]) for row in table.rows]


def _texts(table: Table, index: int | None) -> list[str | None]:
    if index is None:
        return [None] * len(table.rows)
    return [None if is_missing(row[index]) else row[index] for row in table.rows]
