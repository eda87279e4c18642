"""Show where the time of one conversion goes, phase by phase.

The recording is converted in this process, without its sidecars, while its threads are sampled a
thousand times a second; the CPU time since the last sample goes to the phase that the thread
is in. MB/s is the recording's size by a phase's CPU seconds.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

from benchmarks.measuring import ONE_THREAD, cpu_seconds
from benchmarks.phases import sampled
from benchmarks.report import MB, table
from rich.console import Console

EXAMPLES = """\
examples:
  python scripts/profile.py sub-01_task-rest_eeg.edf
        phases of a conversion on one thread
  python scripts/profile.py rest.ds --modality meg --repeats 5
        the mean of five; for a short recording
  python scripts/profile.py rest.set --functions
        the functions, by their own time
"""
MODALITIES = ("eeg", "meg", "ieeg", "emg")
WIDTH = 100  # where the output is no terminal
MOST_FUNCTIONS = 30


def print_phases(title: str, size: float, run: Callable[[], None], repeats: int) -> None:
    cpu, wall = cpu_seconds(), time.perf_counter()
    seconds = sampled(run, repeats)
    cpu, wall = cpu_seconds() - cpu, time.perf_counter() - wall
    made = table(f"{title}, {wall / repeats:.2f} s", "phase", ["CPU, s", "share", "MB/s"])
    total = sum(seconds.values())
    rows = [*sorted(seconds.items(), key=lambda row: -row[1]), ("all, with the sampling", cpu)]
    for number, (name, spent) in enumerate(rows, start=1):
        each = spent / repeats
        share = f"{spent / total:.0%}" if number < len(rows) else ""
        made.add_row(name, f"{each:.3f}", share, f"{size / MB / each:.0f}" if each else "-")
        if number == len(rows) - 1:
            made.add_section()
    Console(width=None if sys.stdout.isatty() else WIDTH, highlight=False).print(made)


def print_functions(run: Callable[[], None], repeats: int) -> None:
    """By their own time, of this thread."""
    # In its own folder's place, this script would pass for the profile that cProfile imports.
    here, sys.path = sys.path[0], sys.path[1:]
    profiler, statistics = import_module("cProfile"), import_module("pstats")
    sys.path.insert(0, here)
    profile = profiler.Profile()
    profile.enable()
    for _ in range(repeats):
        run()
    profile.disable()
    statistics.Stats(profile).sort_stats("tottime").print_stats(MOST_FUNCTIONS)


def size_of(path: Path) -> int:
    """Bytes of a recording: of its folder, or of the files that have its name."""
    files = path.rglob("*") if path.is_dir() else path.parent.glob(f"{path.stem}.*")
    return sum(file.stat().st_size for file in files if file.is_file())


def command_line() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("recordings", nargs="+", type=Path, metavar="RECORDING")
    parser.add_argument(
        "--modality", choices=MODALITIES, help="default: the suffix of its name, or eeg"
    )
    parser.add_argument("--threads", type=int, default=1, metavar="N", help="default: 1")
    parser.add_argument(
        "--repeats", type=int, default=1, metavar="N", help="conversions (default: 1)"
    )
    parser.add_argument(
        "--functions", action="store_true", help="functions of the main thread, not phases"
    )
    return parser.parse_args()


def modality_of(path: Path) -> str:
    suffix = path.name.partition(".")[0].rpartition("_")[2]
    return suffix if suffix in MODALITIES else MODALITIES[0]


def main() -> int:
    arguments = command_line()
    os.environ.update(ONE_THREAD)  # before numpy is imported
    from benchmarks.conversions import convert

    from converter.contract.codes import RecordingError
    from converter.recording.local import LocalRecording
    from converter.recording.readers import open_recording

    for path in arguments.recordings:
        modality = arguments.modality or modality_of(path)
        recording = LocalRecording(f"sub-01/{modality}/{path.name}", modality, path.absolute())

        def run(recording: LocalRecording = recording) -> None:
            with tempfile.TemporaryDirectory(prefix="profile-") as folder:
                convert(recording, Path(folder) / "store.zarr", Path(folder), arguments.threads)

        try:
            # What is imported once is no part of a conversion.
            import_module("converter.recording.convert")
            open_recording(recording).close()
            if arguments.functions:
                print_functions(run, arguments.repeats)
            else:
                size = size_of(path)
                title = f"{path.name}: {size / MB:.1f} MB"
                print_phases(title, size, run, arguments.repeats)
        except RecordingError as error:
            print(f"profile: {path}: {error.code}: {error.message}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
