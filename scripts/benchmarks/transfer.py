"""Stores to an S3 server and content from it, against rclone on the same server.

SeaweedFS serves on this machine, so it shares the cores with whoever talks to it. Every upload
goes into an empty bucket, every fetch into an empty folder, and both sides check what they moved.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from secrets import token_hex

import numpy as np
from rich.table import Table

from tests.servers.seaweedfs import S3Server, SeaweedFS

from .measuring import Bench, JobFailed, Measurement, in_turn, median
from .report import MB, Options, Part, table
from .transfer_jobs import MODULES, Fetch, Objects, Upload

SIDES = OURS, RCLONE = "ours", "rclone"
WAYS = UPLOAD, FETCH = "upload", "fetch"
MOST_OF_RCLONE = 1.2


@dataclass(frozen=True, slots=True)
class Case:
    """So many objects of so many bytes, sent or fetched."""

    name: str
    count: int
    size: int

    def __str__(self) -> str:
        return f"{self.count:,} objects of {self.size / 1000:,.0f} kB"


Row = tuple[str, Case, Mapping[str, Measurement]]

CASES = (Case("small", 5_000, 4_000), Case("large", 200, 8_000_000))
QUICK_CASES = (Case("small", 500, 4_000), Case("large", 16, 8_000_000))


def measure_transfer(options: Options) -> Part:
    """Run the cases that are wanted, each way."""
    part = Part("transfer")
    cases = QUICK_CASES if options.quick else CASES
    wanted = {case: [way for way in WAYS if options.wants(f"{way} {case.name}")] for case in cases}
    if not any(wanted.values()):
        return part
    # The programs are installed beside the interpreter.
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    missing = [name for name in ("weed", "rclone") if shutil.which(name) is None]
    if missing:
        part.failures.append(f"{missing[0]} is not installed; the extra `test` has it")
        return part
    rows: list[Row] = []
    with ExitStack() as stack:
        server = stack.enter_context(SeaweedFS(options.folder / "server"))
        ours, rclone = (stack.enter_context(Bench(modules)) for modules in (MODULES, ()))
        for case, ways in wanted.items():
            folder = options.folder / case.name
            transfers = Transfers(case, server, folder, {OURS: ours, RCLONE: rclone})
            for way in ways:
                options.say(f"transfer: {way} {case}")
                try:
                    rows.append((way, case, _measure(transfers, way, options)))
                except JobFailed as error:
                    part.failures.append(f"{way} {case.name}: {error}")
            transfers.close()
    for way, case, sides in rows:
        part.figures[f"{way} {case.name}"] = {
            "objects": case.count,
            "bytes": case.count * case.size,
            "sides": {side: asdict(measured) for side, measured in sides.items()},
        }
    part.tables = [_table(rows, part)] if rows else []
    return part


def _measure(transfers: Transfers, way: str, options: Options) -> Mapping[str, Measurement]:
    run = transfers.upload if way == UPLOAD else transfers.fetch
    runs = in_turn(SIDES, 1 if options.quick else options.repeats, run)
    return {side: median(measured) for side, measured in runs.items()}


class Transfers:
    """One case's files, the bucket that they are fetched from, and both ways."""

    def __init__(
        self, case: Case, server: S3Server, folder: Path, benches: Mapping[str, Bench]
    ) -> None:
        self._case, self._server, self._benches = case, server, benches
        self._folder, self._source = folder, folder / "source"
        for name, content in _files(case):
            (self._source / name).parent.mkdir(parents=True, exist_ok=True)
            (self._source / name).write_bytes(content)
        self._filled: Objects | None = None

    def upload(self, side: str) -> Measurement:
        """Send all files into a bucket of their own. Raises JobFailed."""
        objects = self._bucket()
        job = (
            Upload(objects, self._source, self._folder / "sent")
            if side == OURS
            else objects.rclone(str(self._source), objects.rclone_path)
        )
        measured = self._benches[side].measure(job)
        pages = objects.server.client().get_paginator("list_objects_v2")
        found = sum(page["KeyCount"] for page in pages.paginate(Bucket=objects.bucket))
        self._remove(objects)
        self._check(found)
        return measured

    def fetch(self, side: str) -> Measurement:
        """Fetch all files from one bucket into a folder of their own. Raises JobFailed."""
        if self._filled is None:
            self._filled = self._bucket()
            fill = self._filled.rclone(str(self._source), self._filled.rclone_path)
            self._benches[RCLONE].measure(fill)
        target = self._folder / "fetched"
        job = (
            Fetch(self._filled, self._source, target)
            if side == OURS
            else self._filled.rclone(self._filled.rclone_path, str(target))
        )
        measured = self._benches[side].measure(job)
        found = sum(path.stat().st_size for path in target.rglob("*") if path.is_file())
        shutil.rmtree(target)
        self._check(found // self._case.size)
        return measured

    def close(self) -> None:
        """Remove files and bucket."""
        if self._filled is not None:
            self._remove(self._filled)
        shutil.rmtree(self._folder)

    def _bucket(self) -> Objects:
        name = f"benchmark-{token_hex(6)}"
        self._server.client().create_bucket(Bucket=name)
        return Objects(self._server, name)

    def _remove(self, objects: Objects) -> None:
        self._server.client().delete_bucket(Bucket=objects.bucket)

    def _check(self, found: int) -> None:
        if found != self._case.count:
            raise JobFailed(f"{found} objects arrived, {self._case.count} were expected")


def _files(case: Case) -> Iterator[tuple[str, bytes]]:
    """A store's files: chunks of random bytes, and one root."""
    random = np.random.default_rng(20)
    for number in range(case.count - 1):
        yield f"view/1/c/0/0/{number}", random.bytes(case.size)
    yield "zarr.json", random.bytes(case.size)


def _table(rows: Sequence[Row], part: Part) -> Table:
    made = table(
        f"Seconds, the server's CPU apart; {MOST_OF_RCLONE} times rclone's on the clock at most",
        "transfer",
        [
            *("objects", "MB"),
            *(f"{figure}\n{side}" for figure in ("wall", "CPU") for side in SIDES),
            "wall of\nrclone's",
        ],
    )
    for way, case, sides in rows:
        ratio = sides[OURS].wall / sides[RCLONE].wall
        target = part.target(f"{way} {case.name}, wall of rclone's", ratio, MOST_OF_RCLONE)
        made.add_row(
            f"{way} {case.name}",
            f"{case.count:,}",
            f"{case.count * case.size / MB:,.0f}",
            *(f"{sides[side].wall:.2f}" for side in SIDES),
            *(f"{sides[side].cpu:.2f}" for side in SIDES),
            target.cell(f"{ratio:.2f}"),
        )
    return made
