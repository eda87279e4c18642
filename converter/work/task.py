"""What a worker does with one recording: fetch its files, convert them, say what came of it."""

from __future__ import annotations

import errno
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ..contract.codes import PendingReason, RecordingError
from ..contract.details import public_detail
from ..dataset.annex import DamagedContent
from ..dataset.content import MissingContent, materialise
from ..dataset.recording import Entry, Recording, Sidecars
from ..dataset.repository import Repository
from ..recording.attributes import StoreContext
from ..recording.local import LocalRecording, LocalSidecars
from .outcome import Converted, Deferred, Failed, Outcome

# What a conversion imports; the process that only hands out tasks needs none of it.
CONVERSION = ("converter.recording.convert", "converter.work.spool")


@dataclass(frozen=True, slots=True)
class Task:
    """One recording to convert.

    `folder` is the task's own, beside nothing of another task's: the recording's files, its
    store and its temporary files go there, and whoever made it removes it.
    """

    recording: Recording
    repository: Path
    context: StoreContext
    folder: Path


def run_task(task: Task) -> Outcome:
    """Convert one recording. Never raises for what a recording or a machine can cause."""
    try:
        return _convert(task)
    except RecordingError as error:
        return Failed(error.code, public_detail(error))
    except MissingContent as error:
        return Deferred(PendingReason.NOT_ATTEMPTED, public_detail(str(error)), attempted=False)
    except DamagedContent as error:
        return Deferred(PendingReason.INFRA_FAILURE, public_detail(str(error)))
    except MemoryError as error:
        return Deferred(PendingReason.MEMORY_BUDGET, public_detail(error))
    except OSError as error:
        if error.errno == errno.ENOMEM:
            return Deferred(PendingReason.MEMORY_BUDGET, public_detail(error))
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            # A full disk says nothing of the recording: no attempt is counted.
            return Deferred(PendingReason.NOT_ATTEMPTED, public_detail(error), attempted=False)
        return Deferred(PendingReason.INFRA_FAILURE, public_detail(error))
    except Exception as error:
        return Deferred(PendingReason.INFRA_FAILURE, public_detail(error))


def _convert(task: Task) -> Converted:
    from ..recording.convert import convert_recording
    from .spool import write_spool

    started = time.monotonic()
    recording = task.recording
    source, store, scratch = (task.folder / name for name in ("source", "store", "scratch"))
    for folder in (source, scratch):
        folder.mkdir(parents=True)
    files = materialise(recording, Repository(task.repository), source)
    local = _local(recording, source, files)
    converted = convert_recording(local, recording.zarr, store, scratch, task.context)
    events = None
    if converted.events is not None:
        events = task.folder / "events.arrow"
        write_spool(events, converted.events)
    return Converted(
        entry=converted.entry,
        events=events,
        store=store,
        seconds=time.monotonic() - started,
        warnings=converted.warnings,
    )


def _local(recording: Recording, source: Path, files: Mapping[str, Path]) -> LocalRecording:
    sidecars = recording.sidecars
    return LocalRecording(
        path=recording.path,
        modality=recording.modality,
        file=source / recording.path,
        sidecars=_local_sidecars(sidecars, files),
        channels_path=sidecars.channels.path if sidecars.channels else None,
        split_members=recording.split_members,
        entities=recording.entities,
    )


def _local_sidecars(sidecars: Sidecars, files: Mapping[str, Path]) -> LocalSidecars:
    def local(entry: Entry | None) -> Path | None:
        return None if entry is None else files[entry.path]

    return LocalSidecars(
        channels=local(sidecars.channels),
        events=local(sidecars.events),
        electrodes=local(sidecars.electrodes),
        coordsystem=local(sidecars.coordsystem),
        calibration=local(sidecars.calibration),
        crosstalk=local(sidecars.crosstalk),
        json=tuple(files[entry.path] for entry in sidecars.json),
        events_json=tuple(files[entry.path] for entry in sidecars.events_json),
    )
