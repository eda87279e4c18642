"""What a person sees: progress while a run works, a plan or a summary at its end."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, TextIO

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from .work.outcome import Converted, Failed, Outcome

if TYPE_CHECKING:
    from .dataset.recording import Recording
    from .pipeline import Plan, Reporter
    from .summary import Summary

# Entries of one list that a person is shown; --json and the index have them all.
SHOWN = 20


@contextmanager
def reporter_for(stream: TextIO, *, verbose: bool, quiet: bool) -> Iterator[Reporter]:
    """A live display on a terminal, plain lines elsewhere, nothing when quiet."""
    from .pipeline import Silent

    if quiet:
        yield Silent()
    elif stream.isatty():
        with Live(Console(file=stream), verbose=verbose) as live:
            yield live
    else:
        yield Lines(stream, verbose=verbose)


def describe(outcome: Outcome) -> str:
    """An outcome in a few words."""
    if isinstance(outcome, Converted):
        groups = ", ".join(
            f"{group.name} {group.n_channels}x{group.n_samples}" for group in outcome.entry.groups
        )
        return f"store    {groups}"
    if isinstance(outcome, Failed):
        return f"failed   {outcome.code}"
    return f"pending  {outcome.reason}"


def _detail(outcome: Outcome) -> str | None:
    if isinstance(outcome, Converted):
        return "; ".join(outcome.warnings) or None
    return outcome.detail if isinstance(outcome, Failed) else outcome.last_error


class Lines:
    """One plain line a recording."""

    def __init__(self, stream: TextIO, *, verbose: bool) -> None:
        self._stream, self._verbose = stream, verbose
        self._total = self._done = 0

    def planned(self, plan: Plan, discovered: int) -> None:
        """Say what will be done."""
        self._total = len(plan.convert)
        self._say(f"{discovered} recordings found, {self._total} to convert")

    def finished(self, recording: Recording, outcome: Outcome) -> None:
        """Say what came of one recording."""
        self._done += 1
        detail = _detail(outcome)
        shown = detail is not None and (self._verbose or not isinstance(outcome, Converted))
        text = f"[{self._done}/{self._total}] {describe(outcome)}  {recording.path}"
        if isinstance(outcome, Converted):
            text += f"  {outcome.seconds:.1f} s"
        self._say(f"{text}: {detail}" if shown else text)

    def note(self, text: str) -> None:
        """Say what goes on."""
        if self._verbose:
            self._say(text)

    def _say(self, text: str) -> None:
        # A reader that went away, as `| head` does, or a full disk ends the lines, not the run.
        with suppress(OSError):
            print(printable(text), file=self._stream, flush=True)


class Live:
    """A progress bar with counts, rate and time left, by bytes."""

    def __init__(self, console: Console, *, verbose: bool) -> None:
        self._console, self._verbose = console, verbose
        self._counts: Counter[str] = Counter()
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.percentage:3.0f}%"),
            TextColumn("{task.fields[rate]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console,
            transient=True,
        )
        self._task: TaskID | None = None
        self._bytes = self._done = self._total = 0
        self._started = time.monotonic()

    def __enter__(self) -> Live:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def planned(self, plan: Plan, discovered: int) -> None:
        """Show how much there is to do."""
        self._total = len(plan.convert)
        size = sum(_weight(recording) for recording in plan.convert)
        self._started = time.monotonic()
        self._task = self._progress.add_task(self._description(), total=size, rate="")

    def finished(self, recording: Recording, outcome: Outcome) -> None:
        """Count one recording; show what went wrong with it."""
        kind = describe(outcome).split()[0]
        self._counts[kind] += 1
        detail = _detail(outcome)
        if detail is not None and (kind != "store" or self._verbose):
            with suppress(OSError):
                self._console.print(
                    printable(f"{describe(outcome)}  {recording.path}: {detail}"),
                    markup=False,
                    highlight=False,
                )
        self._bytes += recording.size
        self._done += _weight(recording)
        if self._task is not None:
            rate = self._bytes / max(1e-3, time.monotonic() - self._started)
            self._progress.update(
                self._task,
                completed=self._done,
                description=self._description(),
                rate=f"{human_size(rate)}/s",
            )

    def note(self, text: str) -> None:
        """Show what goes on."""
        if self._task is not None:
            self._progress.update(self._task, description=text)

    def _description(self) -> str:
        done = sum(self._counts.values())
        parts = [f"{done}/{self._total} recordings"]
        parts += [
            f"{self._counts[kind]} {kind}" for kind in ("failed", "pending") if self._counts[kind]
        ]
        return ", ".join(parts)


def _weight(recording: Recording) -> int:
    """Bytes, and for each recording a share that does not depend on them."""
    return recording.size + (1 << 20)


def print_plan(summary: Summary, stream: TextIO) -> None:
    """What a run would do."""
    total = sum(planned.size_bytes for planned in summary.plan)
    lines = [
        f"{planned.action:8}{planned.format or 'unknown format':16}"
        f"{human_size(planned.size_bytes):>9}  {planned.path}"
        for planned in summary.plan
    ]
    counts = Counter(planned.action for planned in summary.plan)
    actions = ", ".join(f"{count} to {action}" for action, count in sorted(counts.items()))
    lines.append(
        f"{summary.dataset_id} at {summary.source_commit[:12]}: {summary.discovered_count} "
        f"recordings, {human_size(total)}{f'; {actions}' if actions else ''}. Nothing was written."
    )
    _print(lines, stream)


def print_summary(summary: Summary, stream: TextIO) -> None:
    """What a run did: counts, each failure's code and reason, what is pending and why."""
    lines = [
        f"{summary.dataset_id} at {summary.source_commit[:12]}: {summary.discovered_count} "
        f"recordings = {summary.store_count} stores + {summary.failure_count} failures + "
        f"{summary.pending_count} pending; {summary.converted} converted in this run, "
        f"{_duration(summary.seconds)}"
    ]
    by_code: dict[str, list[tuple[str, str | None, str]]] = {}
    for failure in summary.failures:
        by_code.setdefault(failure.code, []).append((failure.path, failure.detail, failure.reason))
    for code, failures in sorted(by_code.items()):
        lines.append(f"failed, {code}: {len(failures)}. {failures[0][2]}")
        lines += _listed([(path, detail) for path, detail, _ in failures])
    by_reason: dict[str, list[tuple[str, str | None]]] = {}
    for pending in summary.pending:
        by_reason.setdefault(pending.reason, []).append((pending.path, pending.last_error))
    for reason, paths in sorted(by_reason.items()):
        lines.append(f"pending, {reason}: {len(paths)}")
        lines += _listed(paths)
    if summary.warnings:
        lines.append(f"warnings: {len(summary.warnings)}")
        lines += _listed([(warning, None) for warning in summary.warnings], "--json has all")
    if summary.provenance_fetch_failed:
        lines.append(
            "the catalog could not be read: doi, license, citation and HED version are those "
            "published before, or null"
        )
    lines.append(f"published: {summary.published_at}/index.json")
    _print(lines, stream)


def _listed(rows: list[tuple[str, str | None]], rest: str = "listed in index.json") -> list[str]:
    lines = [f"  {path}{f': {detail}' if detail else ''}" for path, detail in rows[:SHOWN]]
    if len(rows) > SHOWN:
        lines.append(f"  and {len(rows) - SHOWN} more; {rest}")
    return lines


def _print(lines: list[str], stream: TextIO) -> None:
    print("\n".join(printable(line) for line in lines), file=stream, flush=True)


def printable(text: str) -> str:
    """Text without control characters: names and messages of a dataset steer no terminal."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def human_size(size: float) -> str:
    """Bytes with a unit, such as 12.3 MB."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{seconds:.1f} s"
