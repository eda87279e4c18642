"""What a worker does with one recording: fetch its files, convert them, place the store."""

from __future__ import annotations

import errno
import os
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from ..contract.codes import FailureCode, PendingReason, RecordingError
from ..contract.details import public_detail
from ..contract.index import StoreEntry
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
from . import enclosure
from .apart import DiedApart, run_apart
from .limits import confined, peak_memory
from .need import MOST_THREADS
from .outcome import Converted, Deferred, Effort, Failed, Outcome, Result
from .pool import Demand
from .spares import Spares
from .worker import Turn

# What a conversion imports; the process that only hands out tasks needs none of it.
CONVERSION = ("converter.recording.convert", "converter.work.spool", "converter.work.task")
WARM = "converter.work.warm"  # last

_FOLDERS: Final = ("source", "store", "scratch")
_SPOOL: Final = "events.arrow"
_LARGEST_SPOOL: Final = 256 << 20  # bytes: millions of events


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


def spare_workers() -> Spares:
    """Spares for `run_task`: none are kept where a conversion happens in the worker itself."""
    return Spares(are_kept=enclosure.is_possible())


@dataclass(slots=True)
class _Work:
    """A task at work: its clock, and the rows and sizes that come of it."""

    task: Task
    turn: Turn
    seconds: dict[str, float] = field(default_factory=dict)
    spool: bytes | None = None
    store_bytes: int = 0
    peak_memory: int = 0

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        started = time.monotonic()
        try:
            yield
        finally:
            self.seconds[name] = time.monotonic() - started

    @contextmanager
    def core(self) -> Iterator[int]:
        """A core, which is waited for."""
        started = time.monotonic()
        with self.turn.core() as threads:
            self.seconds["wait"] = time.monotonic() - started
            yield min(threads, MOST_THREADS)


class _Account(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What came of a conversion: an entry, or a code or reason why there is none."""

    entry: StoreEntry | None = None
    warnings: tuple[str, ...] = ()
    failure: FailureCode | None = None
    pending: PendingReason | None = None
    detail: str | None = None
    attempted: bool = True
    has_events: bool = False
    peak_memory: int = 0


def run_task(task: Task, turn: Turn) -> Result:
    """Convert one recording. Never raises for what a recording or a machine can cause.

    This process fetches and uploads; what reads the recording's content is a process of its own,
    enclosed, where the kernel has the means. Raises DiedApart when that one crashed.
    """
    work = _Work(task, turn)
    try:
        outcome = _outcome(work)
    finally:
        shutil.rmtree(task.folder, ignore_errors=True)
    effort = Effort(
        seconds=work.seconds,
        source_bytes=task.recording.size,
        store_bytes=work.store_bytes,
        peak_memory=work.peak_memory,
    )
    return Result(outcome, work.spool, effort)


def _outcome(work: _Work) -> Outcome:
    try:
        return _convert(work)
    except DiedApart:
        raise
    except Exception as error:
        return _excuse(error)


def _excuse(error: Exception) -> Failed | Deferred:
    """What an error makes of the recording."""
    is_of_content = isinstance(error, MissingContent | DamagedContent | UnreachableContent)
    detail = public_detail(str(error) if is_of_content else error)
    if isinstance(error, RecordingError):
        return Failed(error.code, detail)
    if isinstance(error, MissingContent):
        return Deferred(PendingReason.NOT_ATTEMPTED, detail, attempted=False)
    number = error.errno if isinstance(error, OSError) else None
    if isinstance(error, MemoryError) or number == errno.ENOMEM:
        return Deferred(PendingReason.MEMORY_BUDGET, detail)
    if number in (errno.ENOSPC, errno.EDQUOT):
        # A full disk says nothing of the recording: no attempt is counted.
        return Deferred(PendingReason.NOT_ATTEMPTED, detail, attempted=False)
    return Deferred(PendingReason.INFRA_FAILURE, detail)


def _convert(work: _Work) -> Outcome:
    from .spool import check_spool

    task = work.task
    recording = task.recording
    source, store, scratch = (task.folder / name for name in _FOLDERS)
    for folder in (source, store, scratch):
        folder.mkdir(parents=True)
    with work.phase("fetch"):
        files = materialise(recording, task.content, source)
    local = _local(recording, source, files)
    with work.core() as threads, work.phase("convert"):
        account = _computed(work, local, files.values(), threads)
    work.peak_memory = account.peak_memory
    if account.entry is None:
        detail = None if account.detail is None else public_detail(account.detail)
        if account.failure is not None:
            return Failed(account.failure, detail)
        reason = account.pending or PendingReason.INFRA_FAILURE
        return Deferred(reason, detail, account.attempted)
    if (account.entry.path, account.entry.zarr) != (recording.path, recording.zarr):
        raise ValueError("the conversion gave account of another recording")
    # An entry that breaks the schema would cost the whole index.
    validate_store(msgspec.to_builtins(account.entry))
    if account.has_events:
        work.spool = _content(scratch / _SPOOL)
        check_spool(work.spool, recording.zarr)
    work.store_bytes = _size(store)
    shutil.rmtree(source)
    with work.phase("upload"):
        stale = task.destination.place_store(store, recording.zarr)
    return Converted(account.entry, None, stale, account.warnings)


def _size(folder: Path | str) -> int:
    """Bytes of the files in a folder and all below."""
    with os.scandir(folder) as entries:
        return sum(
            _size(entry.path)
            if entry.is_dir(follow_symlinks=False)
            else entry.stat(follow_symlinks=False).st_size
            for entry in entries
        )


def _content(file: Path) -> bytes:
    """Of a file that another process wrote, which may be no link to anywhere."""
    opened = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    with os.fdopen(opened, "rb") as stream:
        content = stream.read(_LARGEST_SPOOL + 1)
    if len(content) > _LARGEST_SPOOL:
        raise ValueError(f"the rows of events take more than {_LARGEST_SPOOL} bytes")
    return content


def _computed(work: _Work, local: LocalRecording, files: Iterable[Path], threads: int) -> _Account:
    """The conversion itself, enclosed where the kernel has the means."""
    task = work.task
    if not enclosure.is_possible():
        return _account(task, local, threads)
    # Content of an annex may lie elsewhere, and be linked to.
    readable = [task.folder / "source", *(file.resolve() for file in files if file.is_symlink())]

    def enclosed() -> bytes:
        try:
            enclosure.enclose(readable, task.folder / "store", task.folder / "scratch")
            return msgspec.msgpack.encode(_account(task, local, threads))
        except Exception as error:
            return msgspec.msgpack.encode(_refused(_excuse(error)))

    return msgspec.msgpack.decode(run_apart(enclosed, work.turn.hand_over), type=_Account)


def _account(task: Task, local: LocalRecording, threads: int) -> _Account:
    from ..recording.convert import convert_recording
    from .spool import write_spool

    store, scratch = task.folder / "store", task.folder / "scratch"
    before = peak_memory()
    try:
        with confined(task.demand.memory):
            converted = convert_recording(
                local, task.recording.zarr, store, scratch, task.context, threads=threads
            )
            if converted.events is not None:
                write_spool(scratch / _SPOOL, converted.events)
    except Exception as error:
        return _refused(_excuse(error), peak_memory() - before)
    return _Account(
        entry=converted.entry,
        warnings=converted.warnings,
        has_events=converted.events is not None,
        peak_memory=peak_memory() - before,
    )


def _refused(why: Failed | Deferred, memory: int = 0) -> _Account:
    if isinstance(why, Failed):
        return _Account(failure=why.code, detail=why.detail, peak_memory=memory)
    return _Account(
        pending=why.reason,
        detail=why.last_error,
        attempted=why.attempted,
        peak_memory=memory,
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
