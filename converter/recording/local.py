"""A recording whose files lie on this machine: all that its conversion may read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class LocalSidecars:
    """Local copies of the sidecars that apply; None or empty where none does.

    `json` and `events_json` are ordered from the least to the most specific, to be merged.
    """

    channels: Path | None = None
    events: Path | None = None
    electrodes: Path | None = None
    coordsystem: Path | None = None
    calibration: Path | None = None
    crosstalk: Path | None = None
    json: tuple[Path, ...] = ()
    events_json: tuple[Path, ...] = ()


@dataclass(frozen=True, slots=True)
class LocalRecording:
    """`path` is the recording's BIDS path, `file` the local file or directory of that name.

    `modality` is the BIDS suffix (eeg, meg, ieeg, emg). `channels_path` is the BIDS path of
    the channels.tsv that applies. The members of a split chain lie beside `file`.
    """

    path: str
    modality: str
    file: Path
    sidecars: LocalSidecars = field(default_factory=LocalSidecars)
    channels_path: str | None = None
    split_members: tuple[str, ...] = ()
    entities: Mapping[str, str] = field(default_factory=dict)
