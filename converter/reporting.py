"""The report of a run that ends in whichever way."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType

from .contract.addresses import is_dataset_id
from .report import CALLBACK_VARIABLE, RunReport, Status, deliver
from .settings import Settings
from .summary import Summary


class Reporting:
    """Delivers a run's report at the end of a `with` block, which sets `summary` or `error`.

    `is_interrupted` tells a run that a signal ended from one that failed. A dry run has no
    report. What can't be delivered goes to `say`, a sentence each.
    """

    def __init__(
        self, settings: Settings, file: Path | None, url: str | None, say: Callable[[str], None]
    ) -> None:
        self.summary: Summary | None = None
        self.error: str | None = None
        self.is_interrupted = False
        self._settings, self._file, self._url, self._say = settings, file, url, say
        self._started = _now()

    def __enter__(self) -> Reporting:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._settings.dry_run:
            return
        if kind is not None and self.error is None:
            self.error = f"{kind.__name__}: {error}"
        token = (os.environ.get(CALLBACK_VARIABLE) or "").strip() or None
        for problem in deliver(self._report(), self._file, self._url, token):
            self._say(f"nemar-convert: {problem}")

    def _report(self) -> RunReport:
        found = self.summary
        if found is None:
            asked = self._settings.commit
            return RunReport(
                dataset_id=_dataset_id(self._settings),
                status=Status.INTERRUPTED if self.is_interrupted else Status.FAILED,
                commit=asked if re.fullmatch(r"[0-9a-f]{40}", asked) else None,
                error=self.error or "the run ended without a word",
                started_utc=self._started,
                finished_utc=_now(),
            )
        return RunReport(
            dataset_id=found.dataset_id,
            status=Status.PUBLISHED if found.has_published else Status.UNCHANGED,
            commit=found.source_commit,
            store_count=found.store_count,
            converted=found.converted,
            removed=found.removed,
            errors=found.errors,
            failure_count=found.failure_count,
            pending_count=found.pending_count,
            discovered_count=found.discovered_count,
            index_etag=found.index_version,
            events_row_count=found.events_row_count,
            events_upload_failed=found.events_upload_failed,
            events_stores_without_rows=found.events_stores_without_rows,
            manifest_upload_failed=found.manifest_upload_failed,
            provenance_fetch_failed=found.provenance_fetch_failed,
            started_utc=self._started,
            finished_utc=_now(),
        )


def _dataset_id(settings: Settings) -> str | None:
    name = settings.dataset_id or Path(settings.dataset).resolve().name.removesuffix(".git")
    return name if is_dataset_id(name) else None


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
