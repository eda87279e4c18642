"""The root attributes of a store. Source of the names: the store contract."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from . import allowed, views
from .group_attributes import MOST_LISTED, listed_gaps
from .local import LocalRecording
from .rates import RATE_CAPS
from .signal import SignalGroup, SourceFacts

FORMAT, FORMAT_VERSION = "biosigio-zarr", 2
ANTI_ALIAS_FILTER = "scipy.signal.resample_poly (zero-phase FIR, Kaiser 5.0)"
NOTE = "A copy; the BIDS dataset is the reference. Level 0 is the signal, views are for display."


@dataclass(frozen=True, slots=True)
class StoreContext:
    """What all stores of a run share. `contract_base` ends with a slash."""

    dataset_id: str
    source_commit: str
    engine_version: str
    contract_base: str
    created_utc: str
    doi: str | None = None
    license: str | None = None
    citation: str | None = None
    hed_version: str | None = None
    provenance_fetch_failed: bool = False


def root_attributes(
    recording: LocalRecording,
    facts: SourceFacts,
    groups: Sequence[SignalGroup],
    group_names: Sequence[str],
    context: StoreContext,
) -> dict[str, Any]:
    """Attributes that follow from the recording's own file; sidecars and `nemar` add theirs."""
    attributes: dict[str, Any] = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "biosigio_version": None,
        "source_format": facts.format,
        "modality_rates": RATE_CAPS,
        "dtype": "int16",
        "view_downsample": views.DOWNSAMPLE,
        "view_chunk_columns": views.CHUNK_COLUMNS,
        "anti_alias_filter": ANTI_ALIAS_FILTER,
        "channel_groups": list(group_names),
        "recording_metadata": {
            "source_file": recording.path,
            "number_of_signals": facts.header_signals,
            **allowed.technical(facts.technical),
            **listed_gaps(max(groups, key=lambda group: group.rate)),
            **_segments(facts.joints),
        },
        "created_utc": context.created_utc,
        "note": NOTE,
    }
    if facts.separation is not None:
        attributes["sss"] = {"applied": True, **asdict(facts.separation)}
    return attributes


def _segments(joints: Sequence[float]) -> dict[str, Any]:
    """`segments`: their onsets in seconds, the first one's left out; bounded as gaps are."""
    if not joints:
        return {}
    return {"segments": list(joints[:MOST_LISTED]), "segment_count": len(joints) + 1}


def nemar_attributes(zarr: str, context: StoreContext, *, derived: bool) -> dict[str, Any]:
    """The provenance object `nemar`."""
    return {
        "dataset_id": context.dataset_id,
        "doi": context.doi,
        "license": context.license,
        "citation": context.citation,
        "source_commit": context.source_commit,
        "source_tree": "raw",
        "derived": derived,
        "hed_version": context.hed_version,
        "engine_version": context.engine_version,
        "contract_url": f"{context.contract_base}{zarr}/",
        "provenance_fetch_failed": context.provenance_fetch_failed,
    }
