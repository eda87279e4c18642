"""The whole job on one page: a commit is read, planned, converted and published."""

from __future__ import annotations

import fnmatch
import gc
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Protocol

from .contract.codes import PendingReason
from .contract.index import ENGINE_VERSION, Provenance, StoreEntry
from .contract.index import NAME as INDEX
from .contract.validation import InvalidDocumentError
from .conversion import Done, convert, opened_cluster
from .dataset.catalog import read_provenance
from .dataset.content import ContentSource, read_small
from .dataset.discovery import discover
from .dataset.recording import Recording
from .dataset.repository import RepositoryError
from .dataset.snapshot import Snapshot
from .places import Misplaced, Source, addresses, open_destination, open_source
from .plan import Plan, make_plan, source_format
from .publish.accounting import account
from .publish.claim import claimed
from .publish.journal import Journal, read_journal, write_journal
from .publish.publication import Publication, Release, publish
from .publish.published import Published, UnreadableIndexError, read_published
from .recording.attributes import StoreContext
from .settings import TIMEOUT, Settings
from .storage.destination import Destination, DestinationError, Superseded
from .storage.local_destination import LocalDestination
from .summary import (
    PlannedRecording,
    RecordingEffort,
    Summary,
    of_dry_run,
    of_published,
    of_release,
)
from .work import enclosure
from .work.cluster import DaskCluster
from .work.cluster_terms import NoCluster
from .work.outcome import Converted, Deferred, Outcome
from .work.pool import Census
from .work.scratch import scratch_folder
from .work.stop import Stop

__all__ = ["NothingPublished", "Plan", "Reporter", "Settings", "Summary", "convert_dataset", "run"]

DESCRIPTION_LIMIT = 1 << 20  # bytes of dataset_description.json

# Times that an index is merged into a newer one that was published meanwhile.
MERGES: Final = 5


class NothingPublished(Exception):
    """The run ended without publishing; the message says why in one sentence."""


class Reporter(Protocol):
    """Is told what happens, as it happens."""

    def planned(self, plan: Plan, discovered: int) -> None:
        """The plan is made, over this many discovered recordings."""

    def working(self, census: Census) -> None:
        """What the workers do now."""

    def finished(self, done: Done) -> None:
        """A recording of the plan is done."""

    def note(self, text: str) -> None:
        """The run enters another part of its work."""


class Silent:
    """A reporter that says nothing."""

    def planned(self, plan: Plan, discovered: int) -> None:
        """Say nothing."""

    def working(self, census: Census) -> None:
        """Say nothing."""

    def finished(self, done: Done) -> None:
        """Say nothing."""

    def note(self, text: str) -> None:
        """Say nothing."""


def convert_dataset(
    dataset: Path | str,
    *,
    commit: str = "HEAD",
    dataset_id: str | None = None,
    repository: str | None = None,
    cache: Path | str | None = None,
    trusted_hosts: Sequence[str] = (),
    dest: Path | str = "serving",
    endpoint_url: str | None = None,
    region: str | None = None,
    contract_base: str | None = None,
    data_base: str | None = None,
    jobs: int | None = None,
    memory: int = 0,
    timeout: float = TIMEOUT,
    dask: str | None = None,
    only: Sequence[str] = (),
    clean: bool = False,
    retry_pending: bool = False,
    retry_failures: Sequence[str] = (),
    if_outdated: bool = False,
    scratch: Path | str | None = None,
    catalog: str = "none",
    dry_run: bool = False,
    reporter: Reporter | None = None,
) -> Summary:
    """Convert a dataset at a commit, as `nemar-convert` does; return the run's summary.

    `dataset` is a git repository, or a dataset id: then it is fetched from the URL template
    `repository` into `cache`. `commit` is what git takes for one, `dataset_id` by default the
    folder's name. The copy goes to `dest`/<id>/zarr, a folder or s3://bucket/prefix at
    `endpoint_url` and `region`; readers find it at `contract_base` and `data_base`, by default
    the archive's. `trusted_hosts` may be private, and may see AWS credentials.

    `jobs` recordings are converted at a time (default: the CPUs) in `memory` bytes (default:
    what is free), each phase in `timeout` seconds and as many again for each GB, with temporary
    files in `scratch` (default: beside the copy); or all of it by the workers of the Dask
    scheduler whose address or file is `dask`. `only` holds globs of BIDS paths. `catalog` is a
    base URL, a JSON file or "none". `clean` converts everything, `retry_pending` what is pending
    only, `retry_failures` also failures of these codes (or "all"); `if_outdated` ends at once
    when the copy is current, `dry_run` after the plan.

    Recordings that fail or stay pending do not raise: the summary lists them. Raises
    NothingPublished when no index could be published, ValueError for settings that can't be.
    Worker processes import the caller's main module, so a script calls this under
    `if __name__ == "__main__":`.
    """
    settings = Settings(
        dataset=str(dataset),
        commit=commit,
        dataset_id=dataset_id,
        repository=repository,
        cache=None if cache is None else Path(cache),
        trusted_hosts=frozenset(trusted_hosts),
        dest=str(dest),
        endpoint_url=endpoint_url,
        region=region,
        contract_base=contract_base,
        data_base=data_base,
        jobs=jobs or 0,
        memory=memory,
        timeout=timeout,
        dask=dask,
        only=tuple(only),
        clean=clean,
        retry_pending=retry_pending,
        retry_failures=tuple(retry_failures),
        if_outdated=if_outdated,
        scratch=None if scratch is None else Path(scratch),
        catalog=catalog,
        dry_run=dry_run,
    )
    return run(settings, reporter or Silent())


def run(settings: Settings, reporter: Reporter, stop: Stop | None = None) -> Summary:
    """Convert a dataset as the settings say; `stop` ends it early, with what is done published.

    Raises NothingPublished.
    """
    try:
        with ExitStack() as stack:
            return _run(settings, reporter, stop or Stop(), stack)
    except (
        RepositoryError,
        DestinationError,
        UnreadableIndexError,
        Misplaced,
        NoCluster,
    ) as error:
        raise NothingPublished(str(error)) from error
    except InvalidDocumentError as error:
        raise NothingPublished(
            f"a document to be published breaks its schema: {error} If the entry was published "
            "before, --clean makes it anew"
        ) from error
    except MemoryError as error:
        raise NothingPublished("the machine has too little memory to publish") from error
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        raise NothingPublished(f"the run stopped at {error.strerror or error}{where}") from error


def _run(settings: Settings, reporter: Reporter, stop: Stop, stack: ExitStack) -> Summary:
    started = time.monotonic()
    source = open_source(settings)
    destination = open_destination(settings, source.dataset_id)
    copy = _read_copy(destination, source.dataset_id, settings)
    if settings.if_outdated and copy.is_current(source.commit) and not copy.has_pending:
        return _left(copy, destination, started)
    if settings.retry_pending and not copy.is_current(source.commit):
        raise NothingPublished(
            f"--retry-pending: the published index is not of {source.commit}; run without it first"
        )
    cluster = stack.enter_context(
        opened_cluster(settings, source, destination, stop, reporter.note)
    )
    with _collector_paused():
        snapshot = Snapshot.read(source.repository, source.commit)
        job = _Job(settings, source, destination, discover(snapshot), cluster)
        _check_selection(job.recordings, settings)
        plan = job.plan(copy)
    if plan.dropped:
        raise NothingPublished(
            f"{len(plan.dropped)} recordings that --only leaves out have changed since they were "
            f"published ({plan.dropped[0]} is one), and would lose their stores; run without --only"
        )
    reporter.planned(plan, len(job.recordings))
    if settings.dry_run:
        return of_dry_run(source.dataset_id, source.commit, _planned(job, plan), _since(started))
    content = ContentSource.of(source.repository, settings.trusted_hosts)
    context = _store_context(job, snapshot, content, copy.published)
    stop.is_heeded = True
    return _carry_out(job, plan, copy, content, context, started, reporter, stop)


def _carry_out(
    job: _Job,
    plan: Plan,
    copy: _Copy,
    content: ContentSource,
    context: StoreContext,
    started: float,
    reporter: Reporter,
    stop: Stop,
) -> Summary:
    """Convert what the plan says, and publish."""
    destination = job.destination
    with scratch_folder(_scratch_parent(job.settings, destination)) as scratch:
        destination.sweep()
        if plan.convert and job.cluster is None and not enclosure.is_possible():
            reporter.note(
                "this system has no Landlock: what reads recordings is not kept from other files"
            )
        outcomes, efforts = _convert(job, plan, copy, content, context, scratch, reporter, stop)
        if stop.requested and copy.published is not None and not efforts:
            return _left(copy, destination, started, was_stopped=True)
        reporter.note("publishing")
        release, publication = _publish(
            job, plan, copy, outcomes, content, context, scratch, reporter
        )
    return of_release(
        release,
        publication,
        destination.location,
        _since(started),
        efforts,
        provenance_fetch_failed=context.provenance_fetch_failed,
        was_stopped=stop.requested,
    )


@dataclass(frozen=True, slots=True)
class _Copy:
    """The serving copy as an index tells it, and that index's version; both None before the
    first run."""

    published: Published | None
    version: str | None

    def is_current(self, commit: str) -> bool:
        return self.published is not None and self.published.is_of(commit, ENGINE_VERSION)

    @property
    def has_pending(self) -> bool:
        return self.published is not None and bool(self.published.pending)


@dataclass(frozen=True, slots=True)
class _Job:
    """What stays the same while a run goes on, whatever others publish."""

    settings: Settings
    source: Source
    destination: Destination
    recordings: Sequence[Recording]
    cluster: DaskCluster | None

    def plan(self, copy: _Copy) -> Plan:
        """What is to be done to make the copy this commit's."""
        stamps: dict[str, str] | None = None

        def is_there(entry: StoreEntry) -> bool:
            """Whether the destination holds the very store that a published entry describes.

            A run that was cut short may have put a newer one in its place.
            """
            nonlocal stamps
            if stamps is None:
                assert copy.published is not None
                entries = copy.published.stores.values()
                stamps = self.destination.store_stamps(store.zarr for store in entries)
            return stamps.get(entry.zarr) == entry.updated_utc

        before = self._before(copy.published)
        return make_plan(self.recordings, copy.published, before, self.settings, is_there)

    def _before(self, published: Published | None) -> Mapping[str, Recording] | None:
        """The recordings at the published commit; None when it can't be compared with."""
        recordings = self.recordings
        if published is None or published.engine_version != ENGINE_VERSION:
            return None
        if published.source_commit != self.source.commit:
            try:
                if not self.source.has(published.source_commit):
                    return None  # history was rewritten
                recordings = discover(
                    Snapshot.read(self.source.repository, published.source_commit)
                )
            except RepositoryError:
                return None
        return {recording.path: recording for recording in recordings}


def _read_copy(destination: Destination, dataset_id: str, settings: Settings) -> _Copy:
    document = destination.read_document(INDEX)
    if document is None:
        return _Copy(None, None)
    try:
        published = read_published(document.content)
        if published is not None and published.dataset_id != dataset_id:
            raise UnreadableIndexError(
                f"The published index is that of {published.dataset_id!r}, where "
                f"{dataset_id} was expected."
            )
        return _Copy(published, document.version)
    except UnreadableIndexError as error:
        if settings.clean:
            return _Copy(None, document.version)
        raise NothingPublished(
            f"{destination.location}: {str(error).rstrip('.')}; --clean replaces it"
        ) from error


def _left(
    copy: _Copy, destination: Destination, started: float, *, was_stopped: bool = False
) -> Summary:
    """The summary of a run that leaves the published copy as it is."""
    assert copy.published is not None
    return of_published(
        copy.published,
        destination.location,
        copy.version,
        _since(started),
        was_stopped=was_stopped,
    )


def _since(started: float) -> float:
    return round(time.monotonic() - started, 3)


@contextmanager
def _collector_paused() -> Iterator[None]:
    """A plan's records hold no cycles; looking for some takes a third of a large plan's time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _check_selection(recordings: Sequence[Recording], settings: Settings) -> None:
    paths = [recording.path for recording in recordings]
    if settings.only and not any(fnmatch.filter(paths, glob) for glob in settings.only):
        raise NothingPublished(
            f"--only {' '.join(settings.only)} matches none of the {len(recordings)} recordings"
        )


def _planned(job: _Job, plan: Plan) -> list[PlannedRecording]:
    return [
        PlannedRecording(
            path=recording.path,
            zarr=recording.zarr,
            format=known.name if (known := source_format(recording)) else None,
            size_bytes=recording.size,
            action=plan.action(recording),
        )
        for recording in job.recordings
    ]


def _store_context(
    job: _Job, snapshot: Snapshot, content: ContentSource, published: Published | None
) -> StoreContext:
    source, settings = job.source, job.settings
    description = snapshot.get("dataset_description.json")
    raw = None
    if description is not None:
        raw = read_small(description, content, DESCRIPTION_LIMIT)
    answer = read_provenance(settings.catalog, source.dataset_id, raw)
    # A catalog that is down takes no fact away that was published.
    facts = published if answer.fetch_failed and published is not None else answer
    return StoreContext(
        dataset_id=source.dataset_id,
        source_commit=source.commit,
        engine_version=ENGINE_VERSION,
        contract_base=addresses(settings, source.dataset_id).contract_base,
        created_utc=_now(),
        doi=facts.doi,
        license=facts.license,
        citation=facts.citation,
        hed_version=facts.hed_version,
        provenance_fetch_failed=answer.fetch_failed,
    )


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _scratch_parent(settings: Settings, destination: Destination) -> Path:
    """By default on a folder destination's volume, where a finished store is moved into place
    without a copy."""
    if settings.scratch is not None:
        return settings.scratch.absolute()
    if isinstance(destination, LocalDestination):
        return destination.root.parent.absolute()
    return Path(tempfile.gettempdir())


def _convert(
    job: _Job,
    plan: Plan,
    copy: _Copy,
    content: ContentSource,
    context: StoreContext,
    scratch: Path,
    reporter: Reporter,
    stop: Stop,
) -> tuple[dict[str, Outcome], list[RecordingEffort]]:
    """Convert what the plan says; return every outcome by path, and what each took."""
    outcomes = dict(plan.decided)
    efforts: list[RecordingEffort] = []
    known = copy.published.store_paths if copy.published is not None else frozenset()
    new = {recording.zarr for recording in plan.convert}.difference(known)
    if new:
        found = read_journal(job.destination)
        write_journal(job.destination, Journal(found.stores | new, found.stale))
    for done in convert(
        plan.convert,
        job.settings,
        content,
        context,
        job.destination,
        scratch,
        stop,
        reporter.working,
        job.cluster,
    ):
        outcomes[done.recording.path] = done.outcome
        if done.was_reached:
            efforts.append(_effort(done))
            reporter.finished(done)
    return outcomes, efforts


def _effort(done: Done) -> RecordingEffort:
    recording = done.recording
    known = source_format(recording)
    return RecordingEffort(
        path=recording.path,
        format=None if known is None else known.name,
        seconds={phase: round(value, 3) for phase, value in done.effort.seconds.items()},
        source_bytes=done.effort.source_bytes,
        store_bytes=done.effort.store_bytes,
        peak_memory=done.effort.peak_memory,
        estimated_memory=done.demand.memory,
    )


def _publish(
    job: _Job,
    plan: Plan,
    copy: _Copy,
    outcomes: Mapping[str, Outcome],
    content: ContentSource,
    context: StoreContext,
    scratch: Path,
    reporter: Reporter,
) -> tuple[Release, Publication]:
    """Publish this run's outcomes over the index that is there now.

    When another run has published since this one began, the result is that of this run after
    the other one.
    """

    def wait() -> None:
        reporter.note("another run is publishing to the same place; waiting for it")

    with claimed(job.destination, wait):
        for _ in range(MERGES):
            now = _read_copy(job.destination, job.source.dataset_id, job.settings)
            if now.version != copy.version:
                reporter.note("another run has published meanwhile; merging with it")
                copy, plan, outcomes = _merged(job, now, outcomes)
            release = _release(job, plan, outcomes, content, context)
            try:
                return release, publish(
                    release, job.destination, copy.published, copy.version, scratch
                )
            except Superseded:
                continue
    raise NothingPublished(
        f"{job.destination.location}: the index was replaced by others {MERGES} times while this "
        "run published; the stores are there, and the next run accounts for them"
    )


def _merged(
    job: _Job, now: _Copy, outcomes: Mapping[str, Outcome]
) -> tuple[_Copy, Plan, dict[str, Outcome]]:
    """The plan over a newer index, and those outcomes that still count."""
    finishing = replace(job.settings, only=(), clean=False, retry_pending=False, retry_failures=())
    plan = replace(job, settings=finishing).plan(now)
    converted = [o.entry for o in outcomes.values() if isinstance(o, Converted)]
    stamps = job.destination.store_stamps(entry.zarr for entry in converted)
    kept: dict[str, Outcome] = {**plan.decided}
    for path, outcome in outcomes.items():
        theirs = plan.carry.get(path)
        if isinstance(outcome, Converted):
            if stamps.get(outcome.entry.zarr) == outcome.entry.updated_utc:
                kept[path] = outcome
            elif theirs is None:  # replaced or removed by a run that is not done
                kept[path] = Deferred(PendingReason.NOT_ATTEMPTED, attempted=False)
        elif theirs is None or not (isinstance(theirs, StoreEntry) or _was_left(outcome)):
            kept[path] = outcome
    return now, plan, kept


def _was_left(outcome: Outcome) -> bool:
    return isinstance(outcome, Deferred) and not outcome.attempted


def _release(
    job: _Job,
    plan: Plan,
    outcomes: Mapping[str, Outcome],
    content: ContentSource,
    context: StoreContext,
) -> Release:
    now = _now()
    return Release(
        dataset_id=context.dataset_id,
        commit=context.source_commit,
        updated_utc=now,
        addresses=addresses(job.settings, context.dataset_id),
        provenance=Provenance(context.doi, context.license, context.citation, context.hed_version),
        recordings=job.recordings,
        outcomes=outcomes,
        accounts=account(job.recordings, outcomes, plan.carry, plan.history, now),
        content=content,
    )
