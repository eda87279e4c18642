"""index.json, the document by which a dataset's stores are found, as typed records.

Source of the rules: the index contract. Fields stand in the contract's order; UNSET is an
absent field, None is null.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import msgspec
from msgspec import UNSET, Struct, UnsetType

from .codes import FailureCode, PendingReason

NAME: Final = "index.json"
FORMAT: Final = "nemar-zarr-index"
FORMAT_VERSION: Final = 3
ENGINE_VERSION: Final = "3"
DATA_BASE_KIND: Final = "s3-public"

# A recording that failed for a retryable reason on this many runs is given up.
MAX_ATTEMPTS: Final = 5


class Layout(Struct, frozen=True, kw_only=True):
    """Path templates; constants of the format version."""

    level0: str = "<zarr>/<group>/0"
    view: str = "<zarr>/<group>/view/<L>"
    view_levels: str = "1..n_view_levels from the group attrs"
    scale_offset: str = (
        "level-0 array attrs scale[] and offset[]; physical = digital * scale + offset"
    )
    events: str = "<data_base>events.parquet"


class GroupEntry(Struct, frozen=True, kw_only=True):
    """A channel group: rates in Hz, `duration_s` in seconds, sizes in samples or columns."""

    name: str
    modality: str
    rate: float
    n_channels: int
    n_samples: int
    duration_s: float
    source_rate_hz: float
    n_view_levels: int
    view_chunk_columns: int
    chunk_samples: int
    shard_samples: int


class Sss(Struct, frozen=True, kw_only=True):
    """Signal-Space Separation that was applied; file names, never paths."""

    applied: bool
    method: str
    calibration: str
    cross_talk: str
    mne_version: str


class UnitsReport(Struct, frozen=True, kw_only=True):
    """What channels.tsv did to the units; counts of channels, `sidecar` a BIDS path."""

    converted: int
    relabelled: int
    kept_importer_unit: int
    units_column_present: bool
    sidecar: str | None
    sidecar_supplied: bool = False
    channels_tsv_read_error: bool | UnsetType = UNSET


class StoreEntry(Struct, frozen=True, kw_only=True):
    """A recording with a served store; `zarr` is relative to `contract_base`."""

    path: str
    zarr: str
    source_tree: str = "raw"
    derived: bool = False
    updated_utc: str
    modalities: list[str]
    groups: list[GroupEntry]
    sss: Sss | UnsetType = UNSET
    split_members: list[str] | UnsetType = UNSET
    power_line_frequency: float | UnsetType = UNSET
    event_description_count: int | UnsetType = UNSET
    n_events: int | UnsetType = UNSET
    trial_types: dict[str, int] | UnsetType = UNSET
    units_report: UnitsReport | UnsetType = UNSET


class FailureEntry(Struct, frozen=True, kw_only=True):
    """A recording that will not convert without a change to the data or the converter."""

    path: str
    zarr: str
    code: FailureCode
    reason: str
    detail: str | None
    attempts: int


class PendingEntry(Struct, frozen=True, kw_only=True):
    """A recording without a store that a later run may still convert."""

    path: str
    zarr: str
    reason: PendingReason
    attempts: int
    last_error: str | None
    last_attempt_utc: str | None


Entry = StoreEntry | FailureEntry | PendingEntry


@dataclass(frozen=True, slots=True)
class Provenance:
    """Dataset facts of the catalog, None where it has no value."""

    doi: str | None = None
    license: str | None = None
    citation: str | None = None
    hed_version: str | None = None


class Index(Struct, frozen=True, kw_only=True):
    """The whole document."""

    format: str = FORMAT
    format_version: int = FORMAT_VERSION
    dataset_id: str
    contract_base: str
    data_base: str
    data_base_kind: str = DATA_BASE_KIND
    s3_uri: str
    s3_region: str
    s3_anonymous: bool = True
    source_commit: str
    engine_version: str = ENGINE_VERSION
    biosigio_version: str | None = None
    updated_utc: str
    discovered_count: int
    store_count: int
    n_recordings: int
    errors: int
    failure_count: int
    pending_count: int
    stores: tuple[StoreEntry, ...]
    failures: tuple[FailureEntry, ...]
    pending: tuple[PendingEntry, ...]
    doi: str | None
    license: str | None
    citation: str | None
    hed_version: str | None
    events_parquet: str | UnsetType = UNSET
    events_row_count: int | UnsetType = UNSET
    layout: Layout = Layout()


def encode_index(index: Index) -> bytes:
    """Compact UTF-8 JSON; a number that JSON cannot hold (NaN, infinity) becomes null."""
    return msgspec.json.encode(index)
