"""The whole job on one page: a commit is read, planned, converted and published."""

from __future__ import annotations

import fnmatch
import gc
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

import msgspec

from .contract.addresses import Addresses, is_dataset_id
from .contract.codes import PendingReason
from .contract.details import public_detail
from .contract.index import ENGINE_VERSION, Provenance, StoreEntry
from .contract.validation import InvalidDocumentError, validate_store
from .dataset.catalog import read_provenance
from .dataset.content import read_small
from .dataset.discovery import discover
from .dataset.recording import Recording
from .dataset.repository import Repository, RepositoryError
from .dataset.snapshot import Snapshot
from .plan import Plan, make_plan, source_format
from .publish.accounting import account
from .publish.destination import Destination, DestinationError, LocalDestination
from .publish.publication import Publication, Release, publish
from .publish.published import Published, UnreadableIndexError, read_published
from .recording.attributes import StoreContext
from .settings import Settings
from .summary import PlannedRecording, Summary
from .work.outcome import Converted, Deferred, Failed, Outcome
from .work.pool import WorkerDied, WorkerPool, usable_cpus
from .work.task import CONVERSION, Task, run_task

__all__ = ["NothingPublished", "Plan", "Reporter", "Settings", "Summary", "convert_dataset", "run"]

DESCRIPTION_LIMIT = 1 << 20  # bytes of dataset_description.json


class NothingPublished(Exception):
    """The run ended without publishing; the message says why in one sentence."""


class Reporter(Protocol):
    """Is told what happens, as it happens."""

    def planned(self, plan: Plan, discovered: int) -> None:
        """The plan is made, over this many discovered recordings."""

    def finished(self, recording: Recording, outcome: Outcome) -> None:
        """A recording of the plan is done."""

    def note(self, text: str) -> None:
        """The run enters another part of its work."""


class Silent:
    """A reporter that says nothing."""

    def planned(self, plan: Plan, discovered: int) -> None:
        """Say nothing."""

    def finished(self, recording: Recording, outcome: Outcome) -> None:
        """Say nothing."""

    def note(self, text: str) -> None:
        """Say nothing."""


def convert_dataset(
    dataset: Path | str,
    *,
    commit: str = "HEAD",
    dataset_id: str | None = None,
    dest: Path | str = "serving",
    jobs: int | None = None,
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

    `dataset` is a git repository, `commit` what git takes for one, `dataset_id` by default the
    folder's name. The copy goes to `dest`/<id>/zarr, `jobs` recordings at a time (default: the
    CPUs), with temporary files in `scratch` (default: beside the copy). `only` holds globs of
    BIDS paths. `catalog` is a base URL, a JSON file or "none". `clean` converts everything,
    `retry_pending` what is pending only, `retry_failures` also failures of these codes (or
    "all"); `if_outdated` ends at once when the copy is current, `dry_run` after the plan.

    Recordings that fail or stay pending do not raise: the summary lists them. Raises
    NothingPublished when no index could be published, ValueError for settings that can't be.
    Worker processes import the caller's
    main module, so a script calls this under `if __name__ == "__main__":`.
    """
    settings = Settings(
        dataset=Path(dataset),
        commit=commit,
        dataset_id=dataset_id,
        dest=Path(dest),
        jobs=jobs or 0,
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


def run(settings: Settings, reporter: Reporter) -> Summary:
    """Convert a dataset as the settings say. Raises NothingPublished."""
    try:
        return _run(settings, reporter)
    except (RepositoryError, DestinationError, UnreadableIndexError) as error:
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


def _run(settings: Settings, reporter: Reporter) -> Summary:
    started = time.monotonic()
    dataset_id = _dataset_id(settings)
    repository = Repository(settings.dataset)
    commit = repository.resolve(settings.commit)
    destination = LocalDestination(settings.dest / dataset_id / "zarr")
    published = _published(destination, dataset_id, settings)
    is_current = published is not None and published.is_of(commit, ENGINE_VERSION)
    if settings.if_outdated and published is not None and is_current and not published.pending:
        return _unchanged_summary(published, destination, started)
    if settings.retry_pending and not is_current:
        raise NothingPublished(
            f"--retry-pending: the published index is not of {commit}; run without it first"
        )
    with _collector_paused():
        snapshot = Snapshot.read(repository, commit)
        recordings = discover(snapshot)
        _check_selection(recordings, settings)
        before = _before(published, repository, recordings, commit)
        plan = make_plan(
            recordings, published, before, settings, lambda entry: _is_there(entry, destination)
        )
    if plan.dropped:
        raise NothingPublished(
            f"{len(plan.dropped)} recordings that --only leaves out have changed since they were "
            f"published ({plan.dropped[0]} is one), and would lose their stores; run without --only"
        )
    reporter.planned(plan, len(recordings))
    if settings.dry_run:
        return _dry_run_summary(dataset_id, commit, recordings, plan, started)
    context = _store_context(settings, dataset_id, commit, repository, snapshot, published)
    with _scratch(settings, destination) as scratch:
        outcomes = dict(plan.decided)
        for recording, outcome in _convert(plan, settings, repository, context, scratch):
            placed = _placed(outcome, recording, destination)
            outcomes[recording.path] = placed
            reporter.finished(recording, placed)
        reporter.note("publishing")
        release = _release(context, recordings, outcomes, plan)
        publication = publish(release, destination, published, scratch)
    return _summary(release, context, destination, publication, started)


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


def _dataset_id(settings: Settings) -> str:
    if settings.dataset_id is not None:
        if not is_dataset_id(settings.dataset_id):
            raise NothingPublished(
                f"the dataset id {settings.dataset_id!r} was found, two lower-case letters and "
                "six digits were expected, such as nm000103"
            )
        return settings.dataset_id
    name = settings.dataset.resolve().name.removesuffix(".git")
    if not is_dataset_id(name):
        raise NothingPublished(
            f"the folder's name {name!r} is no dataset id (two lower-case letters and six "
            "digits, such as nm000103); say which with --dataset-id"
        )
    return name


def _published(
    destination: LocalDestination, dataset_id: str, settings: Settings
) -> Published | None:
    try:
        published = read_published(destination.read_document("index.json"))
        if published is not None and published.dataset_id != dataset_id:
            raise UnreadableIndexError(
                f"The published index is that of {published.dataset_id!r}, where "
                f"{dataset_id} was expected."
            )
        return published
    except UnreadableIndexError as error:
        if settings.clean:
            return None
        raise NothingPublished(
            f"{destination.root / 'index.json'}: {str(error).rstrip('.')}; --clean replaces it"
        ) from error


def _check_selection(recordings: Sequence[Recording], settings: Settings) -> None:
    paths = [recording.path for recording in recordings]
    if settings.only and not any(fnmatch.filter(paths, glob) for glob in settings.only):
        raise NothingPublished(
            f"--only {' '.join(settings.only)} matches none of the {len(recordings)} recordings"
        )


class _StoreRoot(msgspec.Struct):
    attributes: dict[str, Any]


def _is_there(entry: StoreEntry, destination: Destination) -> bool:
    """Whether the destination holds the very store that a published entry describes.

    A run that was cut short may have put a newer one in its place.
    """
    try:
        raw = destination.read_document(f"{entry.zarr}/zarr.json")
        root = None if raw is None else msgspec.json.decode(raw, type=_StoreRoot)
    except (DestinationError, msgspec.DecodeError, UnicodeDecodeError):
        return False
    return root is not None and root.attributes.get("created_utc") == entry.updated_utc


def _placed(outcome: Outcome, recording: Recording, destination: Destination) -> Outcome:
    """The outcome once its store is at the destination; one that can't be is for a later run.

    So is one whose entry would make the whole index invalid.
    """
    if not isinstance(outcome, Converted):
        return outcome
    try:
        validate_store(msgspec.to_builtins(outcome.entry))
        destination.place_store(outcome.store, recording.zarr)
    except (InvalidDocumentError, DestinationError) as error:
        return Deferred(PendingReason.INFRA_FAILURE, public_detail(error))
    return outcome


def _before(
    published: Published | None,
    repository: Repository,
    recordings: Sequence[Recording],
    commit: str,
) -> Mapping[str, Recording] | None:
    """The recordings at the published commit; None when it can't be compared with."""
    if published is None or published.engine_version != ENGINE_VERSION:
        return None
    if published.source_commit != commit:
        try:
            recordings = discover(Snapshot.read(repository, published.source_commit))
        except RepositoryError:
            return None  # history was rewritten
    return {recording.path: recording for recording in recordings}


def _store_context(
    settings: Settings,
    dataset_id: str,
    commit: str,
    repository: Repository,
    snapshot: Snapshot,
    published: Published | None,
) -> StoreContext:
    description = snapshot.get("dataset_description.json")
    raw = None if description is None else read_small(description, repository, DESCRIPTION_LIMIT)
    answer = read_provenance(settings.catalog, dataset_id, raw)
    # A catalog that is down takes no fact away that was published.
    facts = published if answer.fetch_failed and published is not None else answer
    return StoreContext(
        dataset_id=dataset_id,
        source_commit=commit,
        engine_version=ENGINE_VERSION,
        contract_base=Addresses.for_dataset(dataset_id).contract_base,
        created_utc=_now(),
        doi=facts.doi,
        license=facts.license,
        citation=facts.citation,
        hed_version=facts.hed_version,
        provenance_fetch_failed=answer.fetch_failed,
    )


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@contextmanager
def _scratch(settings: Settings, destination: LocalDestination) -> Iterator[Path]:
    """A folder of the run's own. By default it lies on the destination's volume, where a
    finished store is moved into place without a copy."""
    parent = (settings.scratch or destination.root.parent).absolute()
    parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=".nemar-convert-", dir=parent))
    try:
        yield scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _convert(
    plan: Plan, settings: Settings, repository: Repository, context: StoreContext, scratch: Path
) -> Iterator[tuple[Recording, Outcome]]:
    """Convert what the plan says in worker processes; yield each outcome as it comes."""
    tasks = (
        Task(recording, repository.path.absolute(), context, scratch / str(number))
        for number, recording in enumerate(plan.convert)
    )
    if not plan.convert:
        return  # a worker's imports take seconds
    formats = {source_format(recording) for recording in plan.convert}
    modules = sorted({name for known in formats if known for name in known.modules})
    pool = WorkerPool(run_task, settings.jobs or usable_cpus(), (*CONVERSION, *modules))
    for task, result in pool.run(tasks):
        if isinstance(result, WorkerDied):
            result = Deferred(PendingReason.INFRA_FAILURE, str(result))
        yield task.recording, result
        events = result.events if isinstance(result, Converted) else None
        with suppress(OSError):
            _remove_all_but(task.folder, events)


def _release(
    context: StoreContext,
    recordings: Sequence[Recording],
    outcomes: Mapping[str, Outcome],
    plan: Plan,
) -> Release:
    now = _now()
    return Release(
        dataset_id=context.dataset_id,
        commit=context.source_commit,
        updated_utc=now,
        addresses=Addresses.for_dataset(context.dataset_id),
        provenance=Provenance(context.doi, context.license, context.citation, context.hed_version),
        recordings=recordings,
        outcomes=outcomes,
        accounts=account(recordings, outcomes, plan.carry, plan.history, now),
    )


def _remove_all_but(folder: Path, kept: Path | None) -> None:
    for path in folder.iterdir() if folder.is_dir() else ():
        if path != kept:
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def _dry_run_summary(
    dataset_id: str, commit: str, recordings: Sequence[Recording], plan: Plan, started: float
) -> Summary:
    return Summary(
        dataset_id=dataset_id,
        source_commit=commit,
        dry_run=True,
        discovered_count=len(recordings),
        store_count=0,
        failure_count=sum(isinstance(outcome, Failed) for outcome in plan.decided.values()),
        pending_count=0,
        converted=0,
        errors=0,
        seconds=round(time.monotonic() - started, 3),
        plan=tuple(
            PlannedRecording(
                path=recording.path,
                zarr=recording.zarr,
                format=known.name if (known := source_format(recording)) else None,
                size_bytes=recording.size,
                action=plan.action(recording),
            )
            for recording in recordings
        ),
    )


def _unchanged_summary(
    published: Published, destination: LocalDestination, started: float
) -> Summary:
    """Of a run that found the published copy current, and did nothing."""
    counts = len(published.stores), len(published.failures), len(published.pending)
    return Summary(
        dataset_id=published.dataset_id,
        source_commit=published.source_commit,
        dry_run=False,
        discovered_count=sum(counts),
        store_count=counts[0],
        failure_count=counts[1],
        pending_count=counts[2],
        converted=0,
        errors=0,
        seconds=round(time.monotonic() - started, 3),
        published_at=destination.location,
        events_row_count=published.events_row_count,
        failures=tuple(published.failures.values()),
    )


def _summary(
    release: Release,
    context: StoreContext,
    destination: LocalDestination,
    publication: Publication,
    started: float,
) -> Summary:
    index = publication.index
    warnings = list(publication.warnings)
    for path, outcome in release.outcomes.items():
        if isinstance(outcome, Converted):
            warnings.extend(f"{path}: {warning}" for warning in outcome.warnings)
    return Summary(
        dataset_id=release.dataset_id,
        source_commit=release.commit,
        dry_run=False,
        discovered_count=index.discovered_count,
        store_count=index.store_count,
        failure_count=index.failure_count,
        pending_count=index.pending_count,
        converted=sum(isinstance(outcome, Converted) for outcome in release.outcomes.values()),
        errors=index.errors,
        seconds=round(time.monotonic() - started, 3),
        published_at=destination.location,
        events_row_count=publication.events.row_count if publication.events else None,
        events_stores_without_rows=publication.events_stores_without_rows,
        events_upload_failed=publication.events_upload_failed,
        manifest_upload_failed=publication.manifest_upload_failed,
        provenance_fetch_failed=context.provenance_fetch_failed,
        failures=index.failures,
        pending=index.pending,
        warnings=tuple(warnings),
    )
