"""Measure this project's speed: conversions, transfers, the accounting, the worker pool.

Each figure is a ratio to something measured in the same run: biosigIO's streaming exporter, a
limit, rclone, fewer recordings or fewer processes. Recordings are made on the spot, the same on
every run. Measured work runs in fresh processes whose imports are done, all sides in turn, and
medians over the repeats are reported; CPU seconds are user and system, children included.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path

from benchmarks.measuring import machine
from benchmarks.report import Options, Part
from rich.console import Console

EXAMPLES = """\
parts:
  signal    one recording becomes a store, in every format: against biosigIO, and against bare
            decoding plus bare compression
  transfer  stores to an S3 server, content from it: against rclone
  scale     plan and index of 5,000 to 100,000 recordings
  pool      a batch of recordings on one process and on two, and on Dask workers

examples:
  python scripts/benchmark.py --quick
        a first impression of everything, in two minutes
  python scripts/benchmark.py signal --only 'edf' --json signal.json
        EDF and nothing else; keep the numbers
  python scripts/benchmark.py
        the whole record, in half an hour, with 8 GB of temporary disk

Figures vary with the machine: compare within one run, not across two.
"""
WIDTH = 150  # of the tables, where the output is no terminal


PARTS = {
    "signal": "benchmarks.signal_path:measure_signal",
    "transfer": "benchmarks.transfer:measure_transfer",
    "scale": "benchmarks.scale:measure_scale",
    "pool": "benchmarks.pool:measure_pool",
}


def measure(name: str, options: Options) -> Part:
    """Run a part; what it needs is imported now."""
    module, _, function = PARTS[name].partition(":")
    run: Callable[[Options], Part] = getattr(import_module(module), function)
    return run(options)


def command_line() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", nargs="?", choices=[*PARTS, "all"], default="all")
    parser.add_argument("--quick", action="store_true", help="fewer and smaller cases, once each")
    parser.add_argument(
        "--only", default="", metavar="NAME", help="cases whose name has this in it, case ignored"
    )
    parser.add_argument(
        "--repeats", type=positive, default=3, metavar="N", help="runs a side (default: 3)"
    )
    parser.add_argument(
        "--longest", type=positive, metavar="SECONDS", help="cut recordings, for a trial"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write all figures there")
    parser.add_argument(
        "--check", action="store_true", help="exit status 1 where a target is missed"
    )
    parser.add_argument(
        "--folder", type=Path, help="where temporary files go (default: the system's place)"
    )
    return parser.parse_args()


def positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} found, a whole number from 1 up expected")
    return int(text)


def main() -> int:
    arguments = command_line()
    console = Console(width=None if sys.stdout.isatty() else WIDTH, highlight=False)
    console.print(machine())
    names = list(PARTS) if arguments.part == "all" else [arguments.part]
    parts = []
    for name in names:
        with tempfile.TemporaryDirectory(prefix="benchmark-", dir=arguments.folder) as folder:
            options = Options(
                folder=Path(folder),
                quick=arguments.quick,
                repeats=arguments.repeats,
                only=arguments.only,
                longest=arguments.longest,
                say=lambda text: print(text, file=sys.stderr, flush=True),
            )
            part = measure(name, options)
        show(part, console)
        parts.append(part)
    if arguments.json is not None:
        arguments.json.write_text(document(parts), encoding="utf-8")
    targets = [target for part in parts for target in part.targets]
    missed = [target for target in targets if not target.met]
    console.print(f"\n{len(targets) - len(missed)} of {len(targets)} targets met")
    failed = any(part.failures for part in parts)
    return int(failed or (arguments.check and bool(missed)))


def show(part: Part, console: Console) -> None:
    for made in part.tables:
        console.print()
        console.print(made)
    for failure in part.failures:
        console.print(f"\nFAILED {failure}", markup=False, style="red")


def document(parts: list[Part]) -> str:
    found = {
        "machine": machine(),
        "when": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "load": os.getloadavg(),
        "parts": {part.name: part.to_json() for part in parts},
    }
    return json.dumps(found, indent=2) + "\n"


if __name__ == "__main__":
    sys.exit(main())
