"""Mutants converted one after the other in an enclosed process, as a worker would convert them."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import msgspec

from converter.contract.codes import RecordingError
from converter.contract.validation import store_validator, validate_store
from converter.recording.attributes import StoreContext
from converter.recording.convert import convert_recording
from converter.recording.local import LocalRecording, LocalSidecars
from converter.recording.readers import format_of
from converter.work.apart import DiedApart, run_apart
from converter.work.enclosure import enclose, is_possible
from converter.work.limits import confined, peak_memory
from converter.work.spool import write_spool

from .seeds import Seed

MEMORY: Final = 300 << 20
"""What a conversion of a small recording may take; it is what the smallest is given."""

SECONDS: Final = 10.0
"""Of one core, for a recording that takes a quarter of one."""

SECRET: Final = b"nobody may publish this sentence"
CONTEXT = StoreContext("nm099999", "0" * 40, "3", "https://example.org/", "2020-01-01T00:00:00Z")


@dataclass(frozen=True)
class Mutant:
    """A mutant whose files lie in `folder`."""

    name: str
    seed: Seed
    folder: Path


class TooLong(BaseException):
    """Nothing in a conversion catches it."""


def converted(mutants: Sequence[Mutant], scratch: Path) -> dict[str, str]:
    """What becomes of each mutant: "store", a failure's code, or what it should not be.

    `scratch` is a folder of these conversions alone. A crash costs its mutant only.
    """
    store_validator()  # made before the process is enclosed, which can't read the schema
    for mutant in mutants:
        known = format_of(mutant.seed.recording, (mutant.folder / mutant.seed.recording).is_dir())
        for module in known.modules if known is not None else ():
            import_module(module)  # once, not in every process
    outcomes: dict[str, str] = {}
    waiting = deque(mutants)
    while waiting:
        journal = scratch / "journal"
        journal.write_text("")
        try:
            run_apart(lambda: _convert_all(waiting, scratch), lambda _: None)
            end = None
        except DiedApart as death:
            end = f"crash: {death}"
        lines = [json.loads(line) for line in journal.read_text().splitlines()]
        outcomes.update(line for line in lines if line[1] is not None)
        begun = {name for name, _ in lines}
        while waiting and waiting[0].name in begun:
            mutant = waiting.popleft()
            outcomes.setdefault(mutant.name, end or "nothing told")
        if not begun:
            raise RuntimeError(f"no mutant was begun: {end}")
    return outcomes


def _convert_all(mutants: Iterable[Mutant], scratch: Path) -> bytes:
    signal.signal(signal.SIGPROF, _too_long)
    folders = {mutant.folder for mutant in mutants}
    journal = os.open(scratch / "journal", os.O_WRONLY | os.O_APPEND)
    for name in ("store", "scratch"):
        (scratch / name).mkdir(exist_ok=True)
    if is_possible():
        enclose(folders, scratch / "store", scratch / "scratch")
    most = peak_memory() + MEMORY
    for mutant in mutants:
        for outcome in _outcomes(mutant, scratch, most):
            os.write(journal, json.dumps([mutant.name, outcome]).encode() + b"\n")
    return b""


def _outcomes(mutant: Mutant, scratch: Path, most: int) -> Iterator[str | None]:
    """None at the beginning, then what came of it; `most` bytes are its process's to hold."""
    yield None
    store = scratch / "store" / "store.zarr"
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        outcome = _outcome(mutant, store, scratch / "scratch")
        signal.setitimer(signal.ITIMER_PROF, 0)
        left = [path.name for path in (scratch / "scratch").iterdir()]
        files = [path for path in store.rglob("*") if path.is_file()] if store.is_dir() else []
        if left and left != ["events.arrow"]:
            outcome = f"left in scratch: {left}"
        if any(SECRET in file.read_bytes() for file in files):
            outcome = "published a secret"
        if peak_memory() > most:
            outcome = "too much memory"
    except TooLong:
        outcome = "too long"
    except BaseException as error:
        outcome = f"{type(error).__name__}: {error}"
    yield outcome
    for folder in (store, *(scratch / "scratch").iterdir()):
        shutil.rmtree(folder, ignore_errors=True)
        folder.unlink(missing_ok=True)


def _outcome(mutant: Mutant, store: Path, scratch: Path) -> str:
    try:
        with confined(MEMORY):
            recording = _local(mutant)
            done = convert_recording(recording, "store.zarr", store, scratch, CONTEXT)
            if done.events is not None:
                write_spool(scratch / "events.arrow", done.events)
        document: dict[str, Any] = msgspec.to_builtins(done.entry)
        validate_store(document)
        if SECRET in msgspec.json.encode((document, done.warnings)):
            return "published a secret"
        return "store"
    except RecordingError as error:
        return "told a secret" if SECRET.decode() in error.message else str(error.code)


def _local(mutant: Mutant) -> LocalRecording:
    def sidecar(kind: str) -> Path | None:
        return next(iter(mutant.folder.glob(f"*_{kind}.tsv")), None)

    recording = mutant.seed.recording
    return LocalRecording(
        path=f"sub-01/{mutant.seed.modality}/{recording}",
        modality=mutant.seed.modality,
        file=mutant.folder / recording,
        sidecars=LocalSidecars(
            channels=sidecar("channels"),
            events=sidecar("events"),
            json=tuple(sorted(mutant.folder.glob("*.json"))),
        ),
    )


def _too_long(*_: object) -> None:
    raise TooLong
