"""What the values of events mean: `Levels` and `HED` of events.json, and the HED column.

Source of the fields: the BIDS specification, "Tabular files" and "Hierarchical Event Descriptors".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .events import Events

MAX_TEXT = 1000
MAX_LEVELS = 1000


@dataclass(frozen=True, slots=True)
class Levels:
    """Texts by what `Events.description` calls an event; both sorted and small.

    `descriptions` are in words, `hed` are HED tags.
    """

    descriptions: dict[str, str]
    hed: dict[str, str]


def levels(events: Events, rows: Sequence[int], metadata: Mapping[str, Any]) -> Levels:
    """What the merged events.json says of the descriptions that occur in `rows`.

    A description is explained by the column that it comes from: trial_type, else value. Where
    events.json has no HED tags of it, those of the HED column count if all its rows have the
    same. Texts beyond MAX_TEXT characters are cut, MAX_LEVELS of each kind are kept.
    """
    columns = {name: _column(metadata, name) for name in ("trial_type", "value")}
    descriptions: dict[str, str] = {}
    hed: dict[str, str] = {}
    for description, column in _sources(events, rows):
        level = _mapping(columns[column].get("Levels")).get(description)
        if text := _text(level):
            descriptions.setdefault(description, text)
        if tags := _text(_mapping(columns[column].get("HED")).get(description)):
            hed.setdefault(description, tags)
    for description, tags in _tagged(events, rows):
        hed.setdefault(description, _cut(tags))
    return Levels(_bounded(descriptions), _bounded(hed))


def _sources(events: Events, rows: Sequence[int]) -> list[tuple[str, str]]:
    """Each description that occurs, with the columns that it comes from."""
    found = set()
    for row in rows:
        if (label := events.trial_type[row]) is not None:
            found.add((label, "trial_type"))
        elif (value := events.value[row]) is not None:
            found.add((value, "value"))
    return sorted(found)


def _tagged(events: Events, rows: Sequence[int]) -> Iterator[tuple[str, str]]:
    """Descriptions of which every row has the same tags in the HED column."""
    tags: dict[str, str | None] = {}
    for row in rows:
        description, own = events.description(row), events.hed[row]
        if tags.setdefault(description, own) != own:
            tags[description] = None
    return ((description, text) for description, text in tags.items() if text is not None)


def _column(metadata: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """The object of a column; its name exactly, else the first that differs in case only."""
    if name not in metadata:
        name = next((key for key in metadata if key.casefold() == name), name)
    return _mapping(metadata.get(name))


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(level: Any) -> str | None:
    """The words of a level: a text, or the description in an object."""
    if isinstance(level, dict):
        level = level.get("Description")
    if not isinstance(level, str) or not level.strip():
        return None
    # JSON can escape half a surrogate pair, which no UTF-8 file can hold.
    return _cut(level.strip().encode(errors="replace").decode())


def _cut(text: str) -> str:
    return text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT - 1]}…"


def _bounded(texts: dict[str, str]) -> dict[str, str]:
    return dict(sorted(texts.items())[:MAX_LEVELS])
