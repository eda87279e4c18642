"""A batch of equal recordings through the command: workers side by side, and what a run adds.

One and two processes, and Dask clusters of one and two single-thread workers, are compared by
the clock, from the command's start to its end. What a recording costs beyond its conversion is the
time that each further one takes on one process, less that of a bare conversion in a warm
process.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass

from rich.table import Table

from converter.work.fork_server import OF_WORKERS

from .batch import SHAPE, Batch, Side
from .conversions import OURS
from .dask_workers import DaskWorkers
from .measuring import Bench, JobFailed, Measurement, in_turn, median
from .report import Options, Part, table

COUNT, QUICK_COUNT = 64, 4
WARMING = 4  # recordings that a Dask cluster converts before it is measured

ONE, TWO, SINGLE = "1 process", "2 processes", "1 process, 1 recording"
BARE = "bare conversions"
DASK_ONE, DASK_TWO = "Dask, 1 worker", "Dask, 2 workers"
DASK_SINGLE = "Dask, 1 recording"

LEAST_SPEEDUP, LEAST_DASK_SPEEDUP = 1.8, 1.7
MOST_OVERHEAD = 0.15

Results = Mapping[str, Measurement]


def measure_pool(options: Options) -> Part:
    """Run the batch each way, in turn; the quick run without Dask, unless it is asked for."""
    part = Part("pool")
    has_processes = options.wants("processes")
    has_dask = options.wants("dask") and (not options.quick or options.only != "")
    if not has_processes and not has_dask:
        return part
    batch = Batch(options.folder, QUICK_COUNT if options.quick else COUNT)
    with ExitStack() as stack:
        commands = stack.enter_context(Bench(()))
        ours = stack.enter_context(Bench(OURS, OF_WORKERS))
        pool = _Pool(batch, commands, ours, options, part)
        try:
            if has_processes:
                pool.measure_processes()
            if has_dask:
                pool.measure_dask()
        except JobFailed as error:
            part.failures.append(f"pool: {error}")
    return part


@dataclass(frozen=True, slots=True)
class _Pool:
    batch: Batch
    commands: Bench
    ours: Bench
    options: Options
    part: Part

    def measure_processes(self) -> None:
        count = self.batch.count
        sides = (
            Side(ONE, count, ("--jobs", "1")),
            Side(TWO, count, ("--jobs", "2")),
            Side(SINGLE, 1, ("--jobs", "1")),
            Side(BARE, count, None),
        )
        results = self._measure("processes", sides)
        start = results[SINGLE].wall
        speed = _speed(results[ONE], results[TWO], start, "process", LEAST_SPEEDUP, self.part)
        self.part.tables += [speed, _overhead(results, count, self.part)]

    def measure_dask(self) -> None:
        count = self.batch.count
        with ExitStack() as stack:
            sides = []
            for workers, name in ((1, DASK_ONE), (2, DASK_TWO)):
                folder = self.options.folder / f"dask-{workers}"
                cluster = stack.enter_context(DaskWorkers(workers, folder))
                where = ("--dask", str(cluster.scheduler))
                sides.append(Side(name, count, where))
                self._run(Side("warming", WARMING, where))
            sides.append(Side(DASK_SINGLE, 1, where))
            results = self._measure("dask", sides)
        one, two, start = results[DASK_ONE], results[DASK_TWO], results[DASK_SINGLE].wall
        self.part.tables.append(
            _speed(one, two, start, "Dask worker", LEAST_DASK_SPEEDUP, self.part)
        )

    def _measure(self, name: str, sides: Sequence[Side]) -> Results:
        """Medians by side; raw figures go to the part."""
        count = self.batch.count
        self.options.say(f"pool: {name}, {count} recordings, {SHAPE}")
        repeats = 1 if self.options.quick else self.options.repeats
        runs = in_turn(sides, repeats, self._run)
        results = {side.name: median(measured) for side, measured in runs.items()}
        self.part.figures[name] = {
            "recordings": count,
            "shape": asdict(SHAPE),
            "sides": {name: asdict(measured) for name, measured in results.items()},
        }
        return results

    def _run(self, side: Side) -> Measurement:
        return self.batch.measure(side, self.ours if side.options is None else self.commands)


def _speed(
    one: Measurement, two: Measurement, start: float, of: str, least: float, part: Part
) -> Table:
    """`start` is the time of a run over one recording."""
    made = table(
        f"Equal recordings; two of a kind at least {least} times as fast as one",
        "seconds",
        [f"one {of}", "two", "times as fast"],
    )
    ratio = one.wall / two.wall
    target = part.target(f"two of {of}, times as fast as one", ratio, least, at_least=True)
    made.add_row(
        "from start to end", f"{one.wall:.2f}", f"{two.wall:.2f}", target.cell(f"{ratio:.2f}")
    )
    if two.wall > start:
        less = one.wall - start, two.wall - start
        made.add_row(
            "less a run of one recording",
            *(f"{seconds:.2f}" for seconds in less),
            f"{less[0] / less[1]:.2f}",
        )
    return made


def _overhead(results: Results, count: int, part: Part) -> Table:
    """Of one process: the seconds of each recording, and the share that is no conversion."""
    made = table(
        f"Seconds of a recording on one process; overhead {MOST_OVERHEAD:.0%} of them at most",
        "run",
        ["a recording", "bare conversion", "overhead"],
    )
    one, single, bare = results[ONE], results[SINGLE], results[BARE]
    further = "each further one, wall"
    for name, whole, less in (
        (further, (one.wall - single.wall) / (count - 1), bare.wall / count),
        ("each further one, CPU", (one.cpu - single.cpu) / (count - 1), bare.cpu / count),
        ("with the command's start and end, wall", one.wall / count, bare.wall / count),
    ):
        share = 1 - less / whole
        text = f"{share:.1%}"
        if name == further:
            text = part.target("overhead of a recording", share, MOST_OVERHEAD).cell(text)
        made.add_row(name, f"{whole:.3f}", f"{less:.3f}", text)
    return made
