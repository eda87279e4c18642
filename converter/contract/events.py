"""The events of one recording, as they go into events.parquet.

Source of the rules: the index contract, "events.parquet".
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Final

# The fixed columns in published order; `x_` goes before any other column of these names.
FIXED_COLUMNS: Final = (
    "store_path",
    "subject",
    "session",
    "task",
    "run",
    "onset_s",
    "duration_s",
    "sample_index",
    "group_name",
    "trial_type",
    "value",
    "hed",
)


@dataclass(frozen=True, slots=True)
class EventRows:
    """Events in file order, as parallel lists of one length; None is an absent value.

    Onsets and durations are seconds. `passthrough` holds every other column of events.tsv
    under its own name. `groups` are the store's channel groups as (name, served rate in Hz,
    samples a channel).
    """

    store_path: str
    subject: str | None
    session: str | None
    task: str | None
    run: str | None
    onset_s: list[float | None]
    duration_s: list[float | None]
    trial_type: list[str | None]
    value: list[str | None]
    hed: list[str | None]
    passthrough: dict[str, list[str | None]] = field(default_factory=dict)
    groups: list[tuple[str, float, int]] = field(default_factory=list)


def sample_index(onset_s: float | None, rate: float | None) -> int | None:
    """The level-0 sample that an onset falls on: floor(onset * rate + 0.5), not clamped.

    None without an onset or a rate, and where the index is no int64.
    """
    if onset_s is None or rate is None or not rate > 0:
        return None
    position = onset_s * rate + 0.5
    if not math.isfinite(position):
        return None
    index = math.floor(position)
    return index if abs(index) < 2**63 else None
