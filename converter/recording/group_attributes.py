"""The attributes of a channel group and of its arrays. Source of the names: the store contract."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import allowed, views
from .passes import Float64
from .rates import CHUNK_SECONDS, SHARD_SECONDS, Geometry
from .sidecars.channels import PlannedChannel
from .signal import SignalGroup

MOST_LISTED = 1000  # gaps of a group, and segments of a recording
PHYSICAL_FORMULA = "physical = digital * scale + offset"


@dataclass(frozen=True, slots=True)
class GroupFacts:
    """What the attributes of a group say; rates in Hz, arrays with one element a channel.

    `native` is the group as its source has it.

    `discrete` marks channels of codes; `nonfinite` counts raw samples that had to be filled.
    """

    modality: str
    native: SignalGroup
    rate: Fraction
    geometry: Geometry
    channels: Sequence[PlannedChannel]
    scale: Float64
    offset: Float64
    discrete: NDArray[np.bool_]
    nonfinite: NDArray[np.int64]

    @property
    def inference(self) -> NDArray[np.bool_]:
        """Channels fit for training: a waveform without a sample that had to be filled.

        A gap that all channels of the group share is listed instead.
        """
        return np.logical_not(self.discrete | (self.nonfinite > 0) | (self.unrecorded > 0))

    @property
    def native_rate(self) -> Fraction:
        """The rate at which the group was recorded."""
        return self.native.rate

    @property
    def unrecorded(self) -> NDArray[np.int64]:
        """Native samples that a channel did not record while others of the group did."""
        return np.array([channel.unrecorded for channel in self.native.channels], np.int64)


def of_group(facts: GroupFacts) -> dict[str, Any]:
    """Attributes of the group node."""
    n_levels = len(views.level_lengths(facts.geometry.n_samples))
    return {
        "modality": facts.modality,
        "rate": float(facts.rate),
        "original_rate": float(facts.native_rate),
        "n_channels": len(facts.channels),
        "n_samples": facts.geometry.n_samples,
        "n_view_levels": n_levels,
        "view_levels": list(range(1, n_levels + 1)),
        "view_downsample": views.DOWNSAMPLE,
        "view_chunk_columns": views.CHUNK_COLUMNS,
        "chunk_seconds": float(CHUNK_SECONDS),
        "shard_seconds": float(SHARD_SECONDS),
        **listed_gaps(facts.native),
        "channels": [
            _of_channel(facts, row, channel, bool(usable))
            for row, (channel, usable) in enumerate(
                zip(facts.channels, facts.inference, strict=True)
            )
        ],
    }


def listed_gaps(group: SignalGroup) -> dict[str, Any]:
    """`gaps` as [onset, duration] in seconds, MOST_LISTED at most, and the `gap_count` of all."""
    if not group.gaps:
        return {}
    listed = [
        [float(start / group.rate), float((stop - start) / group.rate)]
        for start, stop in group.gaps[:MOST_LISTED]
    ]
    return {"gaps": listed, "gap_count": len(group.gaps)}


def _of_channel(
    facts: GroupFacts, row: int, channel: PlannedChannel, usable: bool
) -> dict[str, Any]:
    attributes: dict[str, Any] = {
        "label": channel.label,
        "channel_type": channel.type,
        "modality": facts.modality,
        "unit": channel.unit,
        "prefilter": allowed.prefilter(channel.prefilter),
        "original_rate": float(facts.native_rate),
        "target_rate": float(facts.rate),
        "anti_aliased": facts.rate != facts.native_rate and not channel.discrete,
        "usable_for_inference": usable,
        "scale": float(facts.scale[row]),
        "offset": float(facts.offset[row]),
        "row_index": row,
    }
    if facts.nonfinite[row]:
        attributes["nonfinite_samples"] = int(facts.nonfinite[row])
    if unrecorded := facts.native.channels[row].unrecorded:
        attributes["unrecorded_samples"] = unrecorded
    if channel.bids_unit is not None:
        attributes["bids_unit"] = channel.bids_unit
    return attributes


def of_level_0(facts: GroupFacts) -> dict[str, Any]:
    """Attributes of the signal's array."""
    return {
        "level": 0,
        "rate": float(facts.rate),
        "source_rate_hz": float(facts.native_rate),
        "downsample_factor": 1,
        "kind": "signal",
        "chunk_samples": facts.geometry.chunk,
        "shard_samples": facts.geometry.shard,
        "anti_aliased": facts.rate != facts.native_rate and not facts.discrete.all(),
        "usable_for_inference": bool(facts.inference.any()),
        "scale": facts.scale.tolist(),
        "offset": facts.offset.tolist(),
        "physical_formula": PHYSICAL_FORMULA,
    }


def of_view(facts: GroupFacts, level: int, length: int) -> dict[str, Any]:
    """Attributes of a view level with `length` columns."""
    factor = views.DOWNSAMPLE**level
    return {
        "level": level,
        "downsample_factor": factor,
        "rate_effective": float(facts.rate / factor),
        "kind": "minmax_envelope",
        "axis0": ["min", "max"],
        "chunk_columns": views.chunk_columns(length),
        "usable_for_inference": False,
    }
