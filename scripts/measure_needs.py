"""Measure what recordings need of memory and scratch beside what is estimated for them.

Each recording of a BIDS folder is converted in a process forked as workers are. Reported, in MB:
  reserved  the most that the process had allocated above what it began with, used or not: what
            a worker's limit counts; sampled, so a lower bound
  held      the most that was resident of it, mapped files left out
  scratch   the most that its folder took, its temporary files without a name included; sampled
each beside the estimate, of which it should be less.
"""

from __future__ import annotations

import argparse
import fnmatch
import itertools
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from dataclasses import asdict, dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path

from grown_recordings import grown

from converter.contract.codes import RecordingError
from converter.dataset.discovery import discover
from converter.dataset.recording import Entry, Recording
from converter.dataset.snapshot import Snapshot
from converter.recording.attributes import StoreContext
from converter.recording.local import LocalRecording, LocalSidecars
from converter.recording.readers import Format, format_of
from converter.work.fork_server import start_process
from converter.work.limits import confined, peak_memory
from converter.work.need import Need, declared_rate, need_of

EXAMPLES = """\
examples:
  python scripts/measure_needs.py
        the recordings of ../shared/real/dataset, where that folder is
  python scripts/measure_needs.py --grow 200 --only '*.set'
        also each one's samples repeated to 200 MB, in every way the format has
  python scripts/measure_needs.py ~/data/nm000103 --confined
        within the estimate: what needs more fails
"""
REAL = Path(__file__).resolve().parents[2] / "shared" / "real" / "dataset"
CONVERSION = ("converter.recording.convert", "converter.work.spool")
CONTEXT = StoreContext("nm099999", "0" * 40, "measurement", "", "2020-01-01T00:00:00Z")
SAMPLING_SECONDS = 0.004
SAMPLES_A_LOOK_AT_SCRATCH = 10
MB = 1e6


@dataclass(frozen=True, slots=True)
class How:
    """How recordings are converted; `preload` is what the processes find imported."""

    threads: int
    is_confined: bool
    preload: tuple[str, ...]
    scratch: Path


@dataclass(frozen=True, slots=True)
class Measured:
    """One recording: bytes, seconds, and what came of it where that is no store."""

    name: str
    format: str
    size: int
    need: Need
    reserved: int
    held: int
    scratch: int
    seconds: float
    failure: str | None


def recordings_of(folder: Path, only: str) -> list[tuple[Recording, Format]]:
    """The recordings of a BIDS folder whose format is known, without the help of git."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    entries = [
        Entry(path.relative_to(folder).as_posix(), "100644", "", path.stat().st_size)
        for path in files
    ]
    found = []
    for recording in discover(Snapshot("", entries)):
        known = format_of(recording.path, (folder / recording.path).is_dir())
        if known and not recording.conflict and fnmatch.fnmatch(recording.path, only):
            found.append((recording, known))
    return found


def local(recording: Recording, folder: Path) -> LocalRecording:
    """The recording as its conversion sees it, its files where they are."""

    def at(entry: Entry | None) -> Path | None:
        return folder / entry.path if entry else None

    sidecars = recording.sidecars
    return LocalRecording(
        path=recording.path,
        modality=recording.modality,
        file=folder / recording.path,
        sidecars=LocalSidecars(
            channels=at(sidecars.channels),
            events=at(sidecars.events),
            electrodes=at(sidecars.electrodes),
            coordsystem=at(sidecars.coordsystem),
            calibration=at(sidecars.calibration),
            crosstalk=at(sidecars.crosstalk),
            json=tuple(folder / entry.path for entry in sidecars.json),
            events_json=tuple(folder / entry.path for entry in sidecars.events_json),
        ),
        split_members=recording.split_members,
        entities=recording.entities,
    )


def convert(
    recording: LocalRecording, work: Path, threads: int, memory: int | None, pipe: Connection
) -> None:
    """In a process of its own: convert once the other end says so; tell how it went."""
    from converter.recording.convert import convert_recording
    from converter.work.spool import write_spool

    before = peak_memory()
    pipe.send(None)
    pipe.recv()
    failure = None
    try:
        with nullcontext() if memory is None else confined(memory):
            done = convert_recording(
                recording, "store.zarr", work / "store", work, CONTEXT, threads
            )
            if done.events is not None:
                write_spool(work / "events.arrow", done.events)
    except (RecordingError, MemoryError, OSError) as error:
        failure = getattr(error, "code", type(error).__name__)
    pipe.send((failure, peak_memory() - before))
    pipe.recv()


def measure(recording: Recording, known: Format, folder: Path, how: How) -> Measured:
    """Convert one recording, watched from outside."""
    rate = declared_rate((folder / entry.path).read_bytes() for entry in recording.sidecars.json)
    need = need_of(recording, known, is_fetched=False, rate=rate)
    work = Path(tempfile.mkdtemp(dir=how.scratch))
    limit = need.memory if how.is_confined else None
    arguments = (local(recording, folder), work, how.threads, limit)
    process, pipe = start_process(convert, arguments, how.preload)
    assert process.pid is not None
    started = time.monotonic()
    failure, reserved, held, taken = watch(process.pid, pipe, work)
    seconds = time.monotonic() - started
    process.join()
    pipe.close()
    shutil.rmtree(work)
    # The recording's files are in place here; a worker copies them to scratch.
    taken += sum(entry.size for entry in (*recording.members, *recording.sidecars.entries()))
    return Measured(
        recording.path, known.name, recording.size, need, reserved, held, taken, seconds, failure
    )


def watch(pid: int, pipe: Connection, folder: Path) -> tuple[str | None, int, int, int]:
    """How a conversion went, and the most that it reserved, held, and took of its folder."""
    failure: str | None = "died"
    reserved = held = taken = 0
    with suppress(EOFError, OSError):
        pipe.recv()
        before = data_of(pid)
        pipe.send(None)
        for count in itertools.count():
            reserved = max(reserved, data_of(pid) - before)
            is_done = pipe.poll(SAMPLING_SECONDS)
            if is_done or count % SAMPLES_A_LOOK_AT_SCRATCH == 0:
                taken = max(taken, taken_by(pid, folder))
            if is_done:
                break
        failure, held = pipe.recv()
        pipe.send(None)
    return failure, reserved, held, taken


def data_of(pid: int) -> int:
    """Writable private memory of a process, in bytes; 0 when it is gone."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text("ascii", "replace").splitlines():
            if line.startswith("VmData:"):
                return int(line.split()[1]) * 1024
    return 0


def taken_by(pid: int, folder: Path) -> int:
    """Bytes on disk of a folder, and of files without a name that a process has there."""
    paths = [path for path in folder.rglob("*") if path.is_file()]
    with suppress(OSError):
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            target = str(descriptor.readlink())
            if target.startswith(f"{folder}/") and target.endswith("(deleted)"):
                paths.append(descriptor)
    total = 0
    for path in paths:
        with suppress(OSError):
            total += path.stat().st_blocks * 512
    return total


def all_measured(arguments: argparse.Namespace, scratch: Path) -> Iterator[Measured]:
    folder: Path = arguments.dataset
    found = recordings_of(folder, arguments.only)
    modules = {module for _, known in found for module in known.modules}
    how = How(arguments.threads, arguments.confined, (*CONVERSION, *sorted(modules)), scratch)
    for recording, known in found:
        done = measure(recording, known, folder, how)
        yield done
        if not arguments.grow or done.failure:
            continue
        size = arguments.grow * MB
        for name, made in grown(recording, known, folder, size, scratch / "grown"):
            for again, its_format in recordings_of(made, "*"):
                longer = measure(again, its_format, made, how)
                yield replace(longer, format=f"{known.name}, {name}")


def print_row(row: Measured) -> None:
    need = row.need
    print(
        f"{row.name.rpartition('/')[2][:30]:<31}{row.format:<26}{row.size / MB:>8.1f}"
        f"{row.reserved / MB:>9.0f}{row.held / MB:>7.0f}{need.memory / MB:>9.0f}"
        f"{row.scratch / MB:>9.1f}{need.scratch / MB:>9.1f}{row.seconds:>8.1f}  "
        f"{row.failure or ''}",
        flush=True,
    )


def print_errors(rows: list[Measured]) -> None:
    """By format, the largest share of its estimate that a recording took."""
    print("\nmost of the estimate that was needed")
    for name in sorted({row.format for row in rows}):
        of_format = [row for row in rows if row.format == name]
        memory = max(max(row.reserved, row.held) / row.need.memory for row in of_format)
        scratch = max(row.scratch / row.need.scratch for row in of_format)
        shares = f"memory {memory:>5.0%}  scratch {scratch:>5.0%}"
        print(f"  {name:<26}{len(of_format):>4} recordings  {shares}")


def command_line() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "dataset",
        nargs="?",
        type=Path,
        default=REAL,
        help="BIDS folder whose recordings are converted (default: ../shared/real/dataset)",
    )
    parser.add_argument("--only", default="*", metavar="GLOB", help="recordings by their path")
    parser.add_argument(
        "--grow", type=float, metavar="MB", help="also measure each one repeated to this size"
    )
    parser.add_argument(
        "--confined", action="store_true", help="limit each to the memory estimated for it"
    )
    parser.add_argument(
        "--threads", type=int, default=1, metavar="N", help="of each conversion (default: 1)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep the figures")
    return parser.parse_args()


def main() -> None:
    arguments = command_line()
    if not arguments.dataset.is_dir():
        sys.exit(f"{arguments.dataset}: no such folder, one with recordings expected")
    print(
        f"{'recording':<31}{'format':<26}{'size':>8}{'reserved':>9}{'held':>7}{'estimate':>9}"
        f"{'scratch':>9}{'estimate':>9}{'s':>8}"
    )
    # Arrow's own allocator begins with a gigabyte of addresses, or less where less is allowed.
    os.environ["ARROW_DEFAULT_MEMORY_POOL"] = "system"
    rows = []
    with tempfile.TemporaryDirectory(prefix="needs-") as scratch:
        for row in all_measured(arguments, Path(scratch)):
            print_row(row)
            rows.append(row)
    print_errors([row for row in rows if not row.failure])
    if arguments.json:
        arguments.json.write_text(json.dumps([asdict(row) for row in rows], indent=1))


if __name__ == "__main__":
    main()
