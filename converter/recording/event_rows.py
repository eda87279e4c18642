"""A recording's rows of events.parquet, from its events.tsv and its channel groups."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..contract.events import EventRows
from ..contract.index import GroupEntry
from .sidecars.events import Events


def event_rows(
    events: Events, zarr: str, entities: Mapping[str, str], groups: Iterable[GroupEntry]
) -> EventRows:
    """The rows of the store at the path `zarr`, whose groups are these."""
    return EventRows(
        store_path=zarr,
        subject=entities.get("sub"),
        session=entities.get("ses"),
        task=entities.get("task"),
        run=entities.get("run"),
        onset_s=events.onset,
        duration_s=events.duration,
        trial_type=events.trial_type,
        value=events.value,
        hed=events.hed,
        passthrough=events.extra,
        groups=[(group.name, group.rate, group.n_samples) for group in groups],
    )
