"""One recording: its local files become one store, and what the index says of it.

Knows no git, no network and no other recording. Reads nothing but the files it is given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from ..contract.codes import FailureCode, RecordingError
from ..contract.events import EventRows
from ..contract.index import GroupEntry, Sss, StoreEntry, UnitsReport
from . import views, zarr_v3
from .attributes import StoreContext, nemar_attributes, root_attributes
from .event_rows import event_rows
from .local import LocalRecording
from .rates import group_names
from .readers import open_recording
from .sidecars.channels import ChannelPlan, PlannedChannel, TableStatus, plan_channels
from .sidecars.electrodes import Electrodes, read_electrodes
from .sidecars.events import Events, describe, parse_events, trial_types
from .sidecars.levels import levels
from .sidecars.metadata import merge_json, power_line_frequency
from .sidecars.tables import read_table
from .signal import SignalGroup, SignalSource
from .store import WrittenGroup, write_signal_group

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ConvertedRecording:
    """A finished store: its index entry, and the rows it adds to events.parquet."""

    entry: StoreEntry
    events: EventRows | None
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Inspection:
    """All that is known of a recording before its samples are read.

    `groups` are the indices of the source's groups that have samples; `plan` covers their
    channels in that order.
    """

    recording: LocalRecording
    source: SignalSource
    groups: Sequence[int]
    plan: ChannelPlan
    frequency: float | None
    events: Events | None
    events_metadata: Mapping[str, Any]
    electrodes: Electrodes | None

    @property
    def derived(self) -> bool:
        """Whether the samples are a processed copy, which a reader is told."""
        return self.source.facts.separation is not None

    def channels(self) -> Iterator[tuple[int, Sequence[PlannedChannel]]]:
        """Each group's index with its planned channels."""
        start = 0
        for index in self.groups:
            stop = start + len(self.source.groups[index].channels)
            yield index, self.plan.channels[start:stop]
            start = stop


def convert_recording(
    recording: LocalRecording,
    zarr: str,
    store: Path,
    scratch: Path,
    context: StoreContext,
    threads: int = 1,
) -> ConvertedRecording:
    """Write the recording's store to the folder `store`, which is empty or does not exist.

    `zarr` is the store's published path, `scratch` a folder for temporary files. With more
    than one thread the computing is shared among that many; the bytes are the same with any
    number. Raises RecordingError with the failure code when the recording cannot become a
    store.
    """
    warnings: list[str] = []
    source = open_recording(recording)
    try:
        inspection = _inspect(recording, source, warnings)
        written = _write_store(inspection, zarr, store, scratch, context, threads)
    finally:
        source.close()
    warnings.extend(f"{group.name}: {group.coarse}" for group in written if group.coarse)
    entry = _store_entry(inspection, written, zarr, context)
    return ConvertedRecording(entry, _event_rows(inspection, written, zarr), tuple(warnings))


def _inspect(recording: LocalRecording, source: SignalSource, warnings: list[str]) -> Inspection:
    groups = [index for index, group in enumerate(source.groups) if _has_samples(group)]
    if not groups:
        raise RecordingError(
            FailureCode.EMPTY_RECORDING,
            f"{recording.file.name}: the header declares no samples of any channel",
        )
    sidecars = recording.sidecars
    table = _parsed(sidecars.channels, read_table, warnings)
    plan = plan_channels([c for index in groups for c in source.groups[index].channels], table)
    if table is not None:
        _check_channel_count(recording, source, plan)
    metadata = merge_json([path.read_bytes() for path in sidecars.json])
    warnings.extend(f"JSON sidecars: {text}" for text in metadata.warnings)
    of_events = merge_json([path.read_bytes() for path in sidecars.events_json])
    warnings.extend(f"events.json: {text}" for text in of_events.warnings)
    if plan.table_status in (TableStatus.NO_NAMES, TableStatus.NO_MATCH):
        warnings.append("channels.tsv names no channel of the file; units and types are the file's")
    coordsystem = sidecars.coordsystem.read_bytes() if sidecars.coordsystem else None
    electrodes = _parsed(
        sidecars.electrodes,
        lambda raw: read_electrodes(read_table(raw), coordsystem, recording.modality),
        warnings,
    )
    return Inspection(
        recording=recording,
        source=source,
        groups=groups,
        plan=plan,
        frequency=power_line_frequency(metadata.values),
        events=_parsed(sidecars.events, parse_events, warnings),
        events_metadata=of_events.values,
        electrodes=electrodes,
    )


def _has_samples(group: SignalGroup) -> bool:
    return bool(group.channels) and group.n_samples > 0


def _parsed(path: Path | None, parse: Callable[[bytes], T], warnings: list[str]) -> T | None:
    """A parsed sidecar, or None with a warning: a bad sidecar never costs the recording."""
    if path is None:
        return None
    try:
        parsed = parse(path.read_bytes())
    except ValueError as error:
        warnings.append(f"{path.name}: {error}; it is left out")
        return None
    warnings.extend(f"{path.name}: {text}" for text in getattr(parsed, "warnings", ()))
    return parsed


def _check_channel_count(
    recording: LocalRecording, source: SignalSource, plan: ChannelPlan
) -> None:
    """Withhold a store with fewer channels than channels.tsv declares.

    A row for a signal that is no channel of the recording (annotations, a derived stim
    channel) declares none.
    """
    omitted = {label.casefold() for label in source.facts.omitted}
    missing = [name for name in plan.unmatched if name.casefold() not in omitted]
    declared = plan.declared - (len(plan.unmatched) - len(missing))
    if declared > len(plan.channels):
        raise RecordingError(
            FailureCode.CHANNEL_COUNT_MISMATCH,
            f"{recording.file.name}: channels.tsv declares {declared} channels, the file's "
            f"header counts {source.facts.header_signals} and {len(plan.channels)} can be "
            f"served; the file has no {missing[0]!r}, for one",
        )


def _write_store(
    inspection: Inspection,
    zarr: str,
    store: Path,
    scratch: Path,
    context: StoreContext,
    threads: int,
) -> list[WrittenGroup]:
    """All nodes of the store, the root's metadata last."""
    recording, source = inspection.recording, inspection.source
    modality = recording.modality.upper()
    groups = [source.groups[index] for index in inspection.groups]
    names = group_names(modality, [group.rate for group in groups])
    written = [
        write_signal_group(source, index, channels, store / name, modality, scratch, threads)
        for name, (index, channels) in zip(names, inspection.channels(), strict=True)
    ]
    _write_events_group(store / "events", inspection.events, inspection.events_metadata)
    attributes = root_attributes(recording, source.facts, groups, names, context)
    attributes |= _sidecar_attributes(inspection)
    attributes["nemar"] = nemar_attributes(zarr, context, derived=inspection.derived)
    zarr_v3.write_group(store, attributes)
    return written


def _write_events_group(path: Path, events: Events | None, metadata: Mapping[str, Any]) -> None:
    """Events with a known onset, in order of onset, as parallel arrays and a label map.

    `metadata` is the merged events.json, which says what the labels mean.
    """
    rows: list[int] = []
    onset: list[float] = []
    for row in events.order() if events is not None else ():
        assert events is not None
        if (seconds := events.onset[row]) is not None:
            rows.append(row)
            onset.append(seconds)
    codes, label_map = ([], {}) if events is None else describe(events, rows)
    duration = [] if events is None else [events.duration[row] or 0.0 for row in rows]
    attributes: dict[str, Any] = {"label_map": label_map, "n_events": len(rows)}
    if events is not None:
        meanings = levels(events, rows, metadata)
        named = {"value_descriptions": meanings.descriptions, "value_hed": meanings.hed}
        attributes |= {name: texts for name, texts in named.items() if texts}
    zarr_v3.write_group(path, attributes)
    if not rows:
        return
    zarr_v3.write_vector(path / "onset", "f8", onset)
    zarr_v3.write_vector(path / "duration", "f8", duration)
    zarr_v3.write_vector(path / "code", "i4", codes)


def _sidecar_attributes(inspection: Inspection) -> dict[str, Any]:
    """Root attributes that are there only when a sidecar declares them."""
    attributes: dict[str, Any] = {}
    if (report := inspection.plan.report) is not None:
        attributes["channels_tsv_units"] = asdict(report)
    if inspection.frequency is not None:
        attributes["power_line_frequency"] = inspection.frequency
    electrodes = inspection.electrodes
    if electrodes is not None and electrodes.positions:
        attributes["electrode_positions"] = electrodes.positions
        if electrodes.system is not None:
            attributes["electrode_coordinate_system"] = electrodes.system
        if electrodes.units is not None:
            attributes["electrode_coordinate_units"] = electrodes.units
    return attributes


def _store_entry(
    inspection: Inspection, written: Sequence[WrittenGroup], zarr: str, context: StoreContext
) -> StoreEntry:
    recording, events, frequency = inspection.recording, inspection.events, inspection.frequency
    separation = inspection.source.facts.separation
    labelled = events is not None and "trial_type" in events.declared
    return StoreEntry(
        path=recording.path,
        zarr=zarr,
        derived=inspection.derived,
        updated_utc=context.created_utc,
        modalities=[recording.modality],
        groups=[_group_entry(group) for group in written],
        sss=msgspec.UNSET if separation is None else Sss(applied=True, **asdict(separation)),
        split_members=list(recording.split_members) or msgspec.UNSET,
        power_line_frequency=msgspec.UNSET if frequency is None else frequency,
        event_description_count=msgspec.UNSET if events is None else events.description_count,
        n_events=msgspec.UNSET if events is None else len(events),
        trial_types=trial_types(events) if events is not None and labelled else msgspec.UNSET,
        units_report=_units_report(inspection),
    )


def _group_entry(group: WrittenGroup) -> GroupEntry:
    return GroupEntry(
        name=group.name,
        modality=group.modality,
        rate=group.rate,
        n_channels=group.n_channels,
        n_samples=group.n_samples,
        duration_s=group.n_samples / group.rate,
        source_rate_hz=group.native_rate,
        n_view_levels=group.n_view_levels,
        view_chunk_columns=views.CHUNK_COLUMNS,
        chunk_samples=group.chunk_samples,
        shard_samples=group.shard_samples,
    )


def _units_report(inspection: Inspection) -> UnitsReport | msgspec.UnsetType:
    """How channels.tsv was applied; absent when none applies to the recording."""
    sidecar, report = inspection.recording.channels_path, inspection.plan.report
    if sidecar is None:
        return msgspec.UNSET
    if report is None:
        return UnitsReport(
            converted=0,
            relabelled=0,
            kept_importer_unit=0,
            units_column_present=False,
            sidecar=sidecar,
            channels_tsv_read_error=True,
        )
    return UnitsReport(sidecar=sidecar, **asdict(report))


def _event_rows(
    inspection: Inspection, written: Sequence[WrittenGroup], zarr: str
) -> EventRows | None:
    """The recording's rows of events.parquet, None without an events.tsv."""
    events, entities = inspection.events, inspection.recording.entities
    if events is None:
        return None
    groups = [_group_entry(group) for group in written]
    return event_rows(events, zarr, entities, groups)
