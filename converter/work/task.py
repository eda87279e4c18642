"""What a worker does with one recording: fetch its files, convert them, place the store."""

from __future__ import annotations

import errno
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from ..contract.codes import PendingReason, RecordingError
from ..contract.details import public_detail
from ..contract.validation import validate_store
from ..dataset.content import (
    ContentSource,
    DamagedContent,
    MissingContent,
    UnreachableContent,
    materialise,
)
from ..dataset.recording import Entry, Recording, Sidecars
from ..recording.attributes import StoreContext
from ..recording.local import LocalRecording, LocalSidecars
from ..storage.destination import Destination
from .limits import confined, peak_memory
from .need import MOST_THREADS
from .outcome import Converted, Deferred, Effort, Failed, Outcome, Result
from .pool import Demand
from .worker import Turn

# What a conversion imports; the process that only hands out tasks needs none of it.
CONVERSION = ("converter.recording.convert", "converter.work.spool", "converter.work.task")
WARM = "converter.work.warm"  # last


@dataclass(frozen=True, slots=True)
class Task:
    """One recording to convert, from its content to its place at the destination.

    `folder` is the task's own, beside nothing of another task's: the recording's files, its
    store and its temporary files go there, and it is gone when the task is done.
    """

    recording: Recording
    content: ContentSource
    context: StoreContext
    destination: Destination
    folder: Path
    demand: Demand


@dataclass(slots=True)
class _Work:
    """A task at work: its clock, and the rows and sizes that come of it."""

    task: Task
    turn: Turn
    seconds: dict[str, float] = field(default_factory=dict)
    spool: bytes | None = None
    store_bytes: int = 0

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        started = time.monotonic()
        try:
            yield
        finally:
            self.seconds[name] = time.monotonic() - started

    @contextmanager
    def core(self) -> Iterator[int]:
        """A core, with the memory that was reserved and no more."""
        started = time.monotonic()
        with self.turn.core() as threads, confined(self.task.demand.memory):
            self.seconds["wait"] = time.monotonic() - started
            yield threads


def run_task(task: Task, turn: Turn) -> Result:
    """Convert one recording. Never raises for what a recording or a machine can cause."""
    work = _Work(task, turn)
    before = peak_memory()
    try:
        outcome = _outcome(work)
    finally:
        shutil.rmtree(task.folder, ignore_errors=True)
    effort = Effort(
        seconds=work.seconds,
        source_bytes=task.recording.size,
        store_bytes=work.store_bytes,
        peak_memory=peak_memory() - before,
    )
    return Result(outcome, work.spool, effort)


def _outcome(work: _Work) -> Outcome:
    try:
        return _convert(work)
    except RecordingError as error:
        return Failed(error.code, public_detail(error))
    except MissingContent as error:
        return Deferred(PendingReason.NOT_ATTEMPTED, public_detail(str(error)), attempted=False)
    except (DamagedContent, UnreachableContent) as error:
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


def _convert(work: _Work) -> Converted:
    from ..recording.convert import convert_recording
    from .spool import write_spool

    task = work.task
    recording = task.recording
    source, store, scratch = (task.folder / name for name in ("source", "store", "scratch"))
    for folder in (source, scratch):
        folder.mkdir(parents=True)
    with work.phase("fetch"):
        files = materialise(recording, task.content, source)
    local = _local(recording, source, files)
    with work.core() as threads, work.phase("convert"):
        converted = convert_recording(
            local, recording.zarr, store, scratch, task.context, threads=min(threads, MOST_THREADS)
        )
        if converted.events is not None:
            write_spool(scratch / "events.arrow", converted.events)
            work.spool = (scratch / "events.arrow").read_bytes()
        # An entry that breaks the schema would cost the whole index.
        validate_store(msgspec.to_builtins(converted.entry))
    work.store_bytes = sum(file.stat().st_size for file in store.rglob("*") if file.is_file())
    shutil.rmtree(source)
    with work.phase("upload"):
        stale = task.destination.place_store(store, recording.zarr)
    return Converted(converted.entry, None, stale, converted.warnings)


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
