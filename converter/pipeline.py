"""The whole job on one page: a commit is read, planned, converted and published."""

from __future__ import annotations

import fnmatch
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from .contract.addresses import Addresses, is_dataset_id
from .contract.codes import PendingReason
from .contract.index import ENGINE_VERSION, Entry, PendingEntry, Provenance, StoreEntry
from .contract.validation import InvalidDocumentError
from .dataset.catalog import read_provenance
from .dataset.content import read_small
from .dataset.discovery import discover
from .dataset.recording import Recording
from .dataset.repository import Repository, RepositoryError
from .dataset.snapshot import Snapshot
from .publish.accounting import account
from .publish.destination import DestinationError, LocalDestination
from .publish.publication import Publication, Release, publish
from .publish.published import Published, UnreadableIndexError, read_published
from .recording.attributes import StoreContext
from .recording.readers import format_of
from .summary import PlannedRecording, Summary
from .work.outcome import Converted, Deferred, Failed, Outcome
from .work.pool import WorkerDied, WorkerPool, usable_cpus
from .work.task import Task, run_task, verdict_without_content

__all__ = ["NothingPublished", "Plan", "Reporter", "Settings", "Summary", "convert_dataset", "run"]

DESCRIPTION_LIMIT = 1 << 20  # bytes of dataset_description.json


class NothingPublished(Exception):
    """The run ended without publishing; the message says why in one sentence."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything a run can be told; `nemar-convert --help` explains each."""

    dataset: Path
    commit: str = "HEAD"
    dataset_id: str | None = None
    dest: Path = Path("serving")
    jobs: int = 0
    only: Sequence[str] = ()
    clean: bool = False
    scratch: Path | None = None
    catalog: str = "none"
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run does with each discovered recording: convert it, or keep what is published."""

    convert: tuple[Recording, ...]
    carry: Mapping[str, Entry]
    decided: Mapping[str, Outcome]

    def action(self, recording: Recording) -> str:
        """In one word, for a dry run."""
        if recording.path in self.carry:
            return "keep"
        decided = self.decided.get(recording.path)
        if decided is None:
            return "convert"
        return "fail" if isinstance(decided, Failed) else "leave"


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
    scratch: Path | str | None = None,
    catalog: str = "none",
    dry_run: bool = False,
    reporter: Reporter | None = None,
) -> Summary:
    """Convert a dataset at a commit, as `nemar-convert` does; return the run's summary.

    Recordings that fail or stay pending do not raise: the summary lists them. Raises
    NothingPublished when no index could be published. Worker processes import the caller's
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
        scratch=None if scratch is None else Path(scratch),
        catalog=catalog,
        dry_run=dry_run,
    )
    return run(settings, reporter or Silent())


def run(settings: Settings, reporter: Reporter) -> Summary:
    """Convert a dataset as the settings say. Raises NothingPublished."""
    try:
        return _run(settings, reporter)
    except (RepositoryError, DestinationError, UnreadableIndexError, InvalidDocumentError) as error:
        raise NothingPublished(str(error)) from error
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        raise NothingPublished(f"the run stopped at {error.strerror or error}{where}") from error


def _run(settings: Settings, reporter: Reporter) -> Summary:
    started = time.monotonic()
    dataset_id = _dataset_id(settings)
    repository = Repository(settings.dataset)
    commit = repository.resolve(settings.commit)
    snapshot = Snapshot.read(repository, commit)
    recordings = discover(snapshot)
    destination = LocalDestination(settings.dest / dataset_id / "zarr")
    published = _published(destination, settings)
    plan = make_plan(recordings, published, settings, commit, destination)
    reporter.planned(plan, len(recordings))
    if settings.dry_run:
        return _dry_run_summary(dataset_id, commit, recordings, plan, started)
    context = _store_context(settings, dataset_id, commit, repository, snapshot)
    with _scratch(settings, destination) as scratch:
        outcomes = dict(plan.decided)
        for recording, outcome in _convert(plan, settings, repository, context, scratch):
            if isinstance(outcome, Converted):
                destination.place_store(outcome.store, recording.zarr)
            outcomes[recording.path] = outcome
            reporter.finished(recording, outcome)
        reporter.note("publishing")
        release = _release(context, recordings, outcomes, plan, published)
        publication = publish(release, destination, published, scratch)
    return _summary(release, context, destination, publication, started)


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


def _published(destination: LocalDestination, settings: Settings) -> Published | None:
    try:
        return read_published(destination.read_document("index.json"))
    except UnreadableIndexError as error:
        if settings.clean:
            return None
        raise NothingPublished(
            f"{destination.root / 'index.json'}: {error}; --clean replaces it"
        ) from error


def make_plan(
    recordings: Sequence[Recording],
    published: Published | None,
    settings: Settings,
    commit: str,
    destination: LocalDestination,
) -> Plan:
    """Decide what becomes of each recording, from the tree and the published index alone."""
    current = published is not None and (
        (published.source_commit, published.engine_version) == (commit, ENGINE_VERSION)
    )
    entries = published.entries if published is not None and current else {}
    selected = {r.path for r in recordings if _is_selected(r, settings.only)}
    if settings.only and not selected:
        raise NothingPublished(
            f"--only {' '.join(settings.only)} matches none of the {len(recordings)} recordings"
        )
    convert: list[Recording] = []
    carry: dict[str, Entry] = {}
    decided: dict[str, Outcome] = {}
    for recording in recordings:
        entry = entries.get(recording.path)
        keeps = not (settings.clean or settings.only) or recording.path not in selected
        if keeps and _is_settled(entry, destination):
            assert entry is not None
            carry[recording.path] = entry
        elif recording.path not in selected:
            decided[recording.path] = Deferred(PendingReason.NOT_ATTEMPTED, None, attempted=False)
        elif (verdict := _verdict(recording)) is not None:
            decided[recording.path] = verdict
        else:
            convert.append(recording)
    # The largest first, so that the last recording to start is not the longest.
    convert.sort(key=lambda recording: (-recording.size, recording.path))
    return Plan(tuple(convert), carry, decided)


def _is_selected(recording: Recording, globs: Sequence[str]) -> bool:
    return not globs or any(fnmatch.fnmatchcase(recording.path, glob) for glob in globs)


def _is_settled(entry: Entry | None, destination: LocalDestination) -> bool:
    """Whether a published entry may stay as it is: a store that is there, or a verdict."""
    if entry is None or isinstance(entry, PendingEntry):
        return False
    return not isinstance(entry, StoreEntry) or destination.has_store(entry.zarr)


def _verdict(recording: Recording) -> Failed | None:
    return verdict_without_content(recording, known_format=_format(recording) is not None)


def _format(recording: Recording) -> str | None:
    is_directory = bool(recording.members) and recording.members[0].path != recording.path
    known = format_of(recording.path, is_directory)
    return None if known is None else known.name


def _store_context(
    settings: Settings, dataset_id: str, commit: str, repository: Repository, snapshot: Snapshot
) -> StoreContext:
    description = snapshot.get("dataset_description.json")
    raw = None if description is None else read_small(description, repository, DESCRIPTION_LIMIT)
    answer = read_provenance(settings.catalog, dataset_id, raw)
    return StoreContext(
        dataset_id=dataset_id,
        source_commit=commit,
        engine_version=ENGINE_VERSION,
        contract_base=Addresses.for_dataset(dataset_id).contract_base,
        created_utc=_now(),
        doi=answer.doi,
        license=answer.license,
        citation=answer.citation,
        hed_version=answer.hed_version,
        provenance_fetch_failed=answer.fetch_failed,
    )


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@contextmanager
def _scratch(settings: Settings, destination: LocalDestination) -> Iterator[Path]:
    """A folder of the run's own. By default it lies on the destination's volume, where a
    finished store is moved into place without a copy."""
    parent = settings.scratch or destination.root.parent
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
        Task(recording, repository.path, context, scratch / str(number))
        for number, recording in enumerate(plan.convert)
    )
    pool = WorkerPool(run_task, settings.jobs or usable_cpus())
    for task, result in pool.run(tasks):
        if isinstance(result, WorkerDied):
            result = Deferred(PendingReason.INFRA_FAILURE, str(result))
        yield task.recording, result
        events = result.events if isinstance(result, Converted) else None
        _remove_all_but(task.folder, events)


def _release(
    context: StoreContext,
    recordings: Sequence[Recording],
    outcomes: Mapping[str, Outcome],
    plan: Plan,
    published: Published | None,
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
        accounts=account(recordings, outcomes, plan.carry, published, now),
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
                format=_format(recording),
                size_bytes=recording.size,
                action=plan.action(recording),
            )
            for recording in recordings
        ),
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
