"""The accounting of datasets of 5,000 to 100,000 recordings: the plan, and what is published.

The plan is a dry run of the command, from its start to its end. Publishing is what follows the
conversions, whose outcomes are made up: every recording converted, with four events each.
"""

from __future__ import annotations

import gc
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.table import Table

from .large_dataset import DATASET_ID, EVENTS, WHEN, Name, files, names, store_entry
from .measuring import CONVERTER, Bench, Command, JobFailed, Measurement, median
from .report import MB, Options, Part, table
from .trees import annex_object, make_repository

COUNTS = (5_000, 25_000, 100_000)
QUICK_COUNTS = (1_000, 5_000)
REFERENCE = 25_000

MOST_PLAN_SECONDS, MOST_PUBLISH_SECONDS, MOST_MEMORY = 5.0, 20.0, 1000 * MB
MOST_GROWTH = 1.25  # of the seconds a recording, from one size to the next

MODULES = ("converter.pipeline", "pyarrow.parquet", "jsonschema_rs")


@dataclass
class Publishing:
    """The outcomes of a whole dataset, and their way to the index."""

    repository: Path
    commit: str
    folder: Path

    def prepare(self) -> None:
        """Discover the recordings and write the spools that workers would leave."""
        from converter.dataset.discovery import discover
        from converter.dataset.repository import Repository
        from converter.dataset.snapshot import Snapshot
        from converter.work.outcome import Converted

        gc.disable()
        self._recordings = discover(Snapshot.read(Repository(self.repository), self.commit))
        gc.enable()
        spools = self.folder / "spools"
        spools.mkdir(parents=True)
        self._outcomes = {}
        for number, name in enumerate(names(len(self._recordings))):
            entry = store_entry(name)
            spool = spools / f"{number}.arrow"
            _write_spool(spool, entry.zarr, name)
            self._outcomes[entry.path] = Converted(entry=entry, events=spool)

    def run(self) -> Mapping[str, float]:
        """Assemble, validate and write events.parquet, manifest.json and index.json."""
        from converter.contract.addresses import Addresses
        from converter.contract.index import Provenance
        from converter.dataset.content import ContentSource
        from converter.dataset.repository import Repository
        from converter.publish.accounting import account
        from converter.publish.publication import Release, publish
        from converter.storage.local_destination import LocalDestination

        accounts = account(self._recordings, self._outcomes, {}, {}, WHEN)
        release = Release(
            dataset_id=DATASET_ID,
            commit=self.commit,
            updated_utc=WHEN,
            addresses=Addresses.for_dataset(DATASET_ID),
            provenance=Provenance(),
            recordings=self._recordings,
            outcomes=self._outcomes,
            accounts=accounts,
            content=ContentSource.of(Repository(self.repository)),
        )
        destination = LocalDestination(self.folder / "serving")
        publication = publish(release, destination, None, None, self.folder)
        assert publication.index.store_count == len(self._recordings)
        assert publication.events is not None
        return {"index_bytes": (self.folder / "serving" / "index.json").stat().st_size}


def _write_spool(path: Path, zarr: str, name: Name) -> None:
    from converter.contract.events import EventRows
    from converter.work.spool import write_spool

    rows = EventRows(
        store_path=zarr,
        subject=name.subject,
        session=name.session,
        task="rest",
        run=name.run,
        onset_s=[event / 10 for event in range(EVENTS)],
        duration_s=[0.0] * EVENTS,
        trial_type=["go"] * EVENTS,
        value=[None] * EVENTS,
        hed=[None] * EVENTS,
        groups=[("eeg_100hz", 100.0, 100)],
    )
    write_spool(path, rows)


@dataclass(frozen=True, slots=True)
class Result:
    """Medians of one size of dataset."""

    count: int
    plan: Measurement
    publishing: Measurement


def measure_scale(options: Options) -> Part:
    """Run the sizes that are wanted, the smallest first."""
    part = Part("scale")
    counts = [n for n in (QUICK_COUNTS if options.quick else COUNTS) if options.wants(str(n))]
    if not counts:
        return part
    results: list[Result] = []
    with Bench(()) as bare, Bench(MODULES) as bench:
        for count in counts:
            options.say(f"scale: {count} recordings")
            try:
                results.append(_measure(count, options, bare, bench))
            except JobFailed as error:
                part.failures.append(f"{count} recordings: {error}")
    part.figures = {str(result.count): _to_json(result) for result in results}
    part.tables = [_table(results, part)] if results else []
    return part


def _measure(count: int, options: Options, bare: Bench, bench: Bench) -> Result:
    folder = options.folder / str(count)
    repository = folder / DATASET_ID
    commit = make_repository(repository, files(count, annex_object(b"a recording")))
    command = [*CONVERTER, str(repository), "--dest", str(folder / "dest")]
    dry_run = Command([*command, "--dry-run", "-q", "--json", str(folder / "plan.json")])
    repeats = 1 if options.quick or count > REFERENCE else options.repeats
    plans = [bare.measure(dry_run) for _ in range(repeats)]
    publishing = [
        bench.measure(Publishing(repository, commit, folder / f"publishing-{number}"))
        for number in range(repeats)
    ]
    return Result(count, median(plans), median(publishing))


def _to_json(result: Result) -> Mapping[str, Any]:
    return {"plan": asdict(result.plan), "publishing": asdict(result.publishing)}


def _table(results: Sequence[Result], part: Part) -> Table:
    made = table(
        f"Seconds and MB of the whole process; growth: of the seconds a recording, from the size "
        f"before, {MOST_GROWTH} at most",
        "recordings",
        [
            *("plan\nseconds", "plan\nMB", "plan\ngrowth"),
            *("publishing\nseconds", "publishing\nMB", "publishing\ngrowth", "index\nMB"),
        ],
    )
    before: Result | None = None
    for now in results:
        sides = (
            ("plan", now.plan, now.plan.own["highest"], MOST_PLAN_SECONDS),
            ("publishing", now.publishing, now.publishing.highest, MOST_PUBLISH_SECONDS),
        )
        cells: list[str] = []
        for name, measured, memory, most_seconds in sides:
            seconds, megabytes = f"{measured.wall:.2f}", f"{memory / MB:.0f}"
            if now.count == REFERENCE:
                what = f"{name} of {now.count}"
                seconds = part.target(f"{what}, s", measured.wall, most_seconds).cell(seconds)
                megabytes = part.target(f"{what}, bytes", memory, MOST_MEMORY).cell(megabytes)
            growth = "-"
            if before is not None:
                wall = before.plan.wall if name == "plan" else before.publishing.wall
                ratio = measured.wall / now.count / (wall / before.count)
                target = part.target(f"{name} of {now.count}, growth", ratio, MOST_GROWTH)
                growth = target.cell(f"{ratio:.2f}")
            cells += [seconds, megabytes, growth]
        made.add_row(f"{now.count:,}", *cells, f"{now.publishing.own['index_bytes'] / MB:.1f}")
        before = now
    return made
