"""One recording becomes a store: this project, biosigIO, and the limit, format by format."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from converter.work.fork_server import OF_WORKERS

from .conversions import OURS, PEER, Conversion, Limit, PeerConversion
from .measuring import Bench, Job, JobFailed, Measurement, in_turn, median
from .recordings import Shape, SourceFormat, make_recording, source_formats
from .report import Options, Part
from .signal_report import LIMIT, ONE, PEERS, TWO, Result, tables
from .stores import difference, store_files

SHORT, NORMAL, LONG = "short", "normal", "long"
SHAPES = {
    SHORT: Shape(129, 500, 172),
    NORMAL: Shape(64, 1000, 20 * 60),
    LONG: Shape(64, 1000, 80 * 60),
}
QUICK_SHAPES = {SHORT: SHAPES[SHORT], NORMAL: Shape(64, 1000, 5 * 60)}
CTF_SECONDS = {SHORT: 30, NORMAL: 172}  # of 356 channels at 1200 Hz
TINY_SECONDS = 4
# For so long ext4 looks past the inodes of deleted files whenever one is made, which would be
# measured; while a case is measured, nothing is deleted.
DELETED_SECONDS = 5


@dataclass(frozen=True, slots=True)
class Case:
    """A recording to be made, and how often each side converts it."""

    made: SourceFormat
    length: str
    shape: Shape
    repeats: int

    @property
    def name(self) -> str:
        """Such as `EDF short`."""
        return f"{self.made.name} {self.length}"


def cases(options: Options) -> Iterator[Case]:
    """Short, normal and long ones; only EDF is that long, or quick and normal."""
    shapes = QUICK_SHAPES if options.quick else SHAPES
    for length, shape in shapes.items():
        for made in source_formats().values():
            is_edf = made.name == "EDF"
            if not is_edf and (length == LONG or (options.quick and length == NORMAL)):
                continue
            if made.layout is not None:
                shape = Shape(*made.layout, CTF_SECONDS[length])
            seconds = min(shape.seconds, options.longest or shape.seconds)
            repeats = 1 if options.quick or length == LONG else options.repeats
            case = Case(made, length, replace(shape, seconds=seconds), repeats)
            if options.wants(case.name):
                yield case


def measure_signal(options: Options) -> Part:
    """Run all cases that are wanted."""
    part = Part("signal")
    wanted = list(cases(options))
    if not wanted:
        return part
    results: list[Result] = []
    with ExitStack() as stack:
        ours = stack.enter_context(Bench(OURS, OF_WORKERS))
        peer = stack.enter_context(Bench(PEER))
        benches = {ONE: ours, TWO: ours, LIMIT: ours, PEERS: peer}
        for case in wanted:
            options.say(f"signal: {case.name}, {case.shape}")
            folder = options.folder / "comparison"
            folder.mkdir()
            try:
                results.append(Comparison(case, folder, options.folder, benches).run())
            except JobFailed as error:
                part.failures.append(f"{case.name}: {error}")
            shutil.rmtree(folder)
            time.sleep(DELETED_SECONDS)
    part.figures = {result.name: result.to_json() for result in results}
    part.tables = tables(results, part)
    return part


class Comparison:
    """All sides over one recording, in turn. `folder` is the comparison's own."""

    def __init__(self, case: Case, folder: Path, cache: Path, benches: Mapping[str, Bench]) -> None:
        self._case, self._folder, self._benches = case, folder, benches
        tiny = Shape(2, case.shape.rate, TINY_SECONDS)
        self._tiny = make_recording(case.made, tiny, folder / "tiny", cache)
        self._recording = make_recording(case.made, case.shape, folder / "recording", cache)
        self._runs = 0
        self._stores: dict[str, Path] = {}  # the latest of each side
        self._peer_error: str | None = None

    def run(self) -> Result:
        """Measure. Raises JobFailed where this project's conversion fails."""
        runs = in_turn((ONE, TWO, PEERS, LIMIT), self._case.repeats, self._measure)
        done = {side: [one for one in measured if one] for side, measured in runs.items()}
        result = Result(
            name=self._case.name,
            recording=self._recording,
            repeats=self._case.repeats,
            sides={side: median(measured) for side, measured in done.items() if measured},
            peer_error=self._peer_error,
        )
        for side in {ONE, PEERS} & result.sides.keys():
            result.stores[side] = store_files(self._stores[side])
        if PEERS in result.sides:
            result.difference = difference(self._stores[ONE], self._stores[PEERS])
        return result

    def _measure(self, side: str) -> Measurement | None:
        """Measure one side; None where biosigIO can't read the recording."""
        self._runs += 1
        work = self._folder / f"run-{self._runs}"
        work.mkdir()
        os.sync()  # what others wrote is not written while this one is measured
        try:
            measured = self._benches[side].measure(self._job(side, work))
        except JobFailed as error:
            if side != PEERS:
                raise
            self._peer_error = str(error).strip().splitlines()[-1]
            return None
        if side in (ONE, PEERS):
            self._stores[side] = work / "store.zarr"
        return measured

    def _job(self, side: str, work: Path) -> Job:
        if side == LIMIT:
            return Limit(self._recording, self._stores[ONE])
        if side == PEERS:
            return PeerConversion(self._recording, self._tiny, work)
        threads = 2 if side == TWO else 1
        return Conversion(self._recording, self._tiny, work, threads)
