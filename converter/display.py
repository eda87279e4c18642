"""What a person sees while a run works, and the same as JSON lines for machines."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TextIO

import msgspec
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

from .printout import human_size, printable
from .work.outcome import Converted, Failed, Outcome

if TYPE_CHECKING:
    from .conversion import Done
    from .dataset.recording import Recording
    from .pipeline import Plan, Reporter
    from .work.pool import Census


@contextmanager
def reporter_for(
    stream: TextIO, *, verbose: bool, quiet: bool, log: TextIO | None = None
) -> Iterator[Reporter]:
    """A live display on a terminal, plain lines elsewhere, nothing when quiet; JSON in `log`."""
    from .pipeline import Silent

    with ExitStack() as stack:
        shown: Reporter
        if quiet:
            shown = Silent()
        elif stream.isatty():
            shown = stack.enter_context(Live(Console(file=stream), verbose=verbose))
        else:
            shown = Lines(stream, verbose=verbose)
        yield shown if log is None else Logged(shown, log)


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


def _effort(done: Done) -> str:
    """Seconds by phase, bytes, and memory against what was reserved."""
    effort = done.effort
    phases = ", ".join(f"{name} {value:.2f} s" for name, value in effort.seconds.items())
    return (
        f"{phases}; {human_size(effort.source_bytes)} read, {human_size(effort.store_bytes)} "
        f"written; {human_size(effort.peak_memory)} of {human_size(done.demand.memory)} memory"
    )


class Lines:
    """One plain line a recording."""

    def __init__(self, stream: TextIO, *, verbose: bool) -> None:
        self._stream, self._verbose = stream, verbose
        self._total = self._done = 0

    def planned(self, plan: Plan, discovered: int) -> None:
        """Say what will be done."""
        self._total = len(plan.convert)
        self._say(f"{discovered} recordings found, {self._total} to convert")

    def working(self, census: Census) -> None:
        """Say nothing: a line a recording is enough."""

    def finished(self, done: Done) -> None:
        """Say what came of one recording."""
        self._done += 1
        outcome = done.outcome
        detail = _detail(outcome)
        shown = detail is not None and (self._verbose or not isinstance(outcome, Converted))
        text = f"[{self._done}/{self._total}] {describe(outcome)}  {done.recording.path}"
        if isinstance(outcome, Converted):
            seconds = f"{done.effort.total_seconds:.1f} s"
            text += f"  {_effort(done) if self._verbose else seconds}"
        self._say(f"{text}: {detail}" if shown else text)

    def note(self, text: str) -> None:
        """Say what goes on."""
        if self._verbose:
            self._say(text)

    def _say(self, text: str) -> None:
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
        self._census = ""
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

    def working(self, census: Census) -> None:
        """Show what the workers do."""
        self._census = (
            f"{census.computing} converting, {census.fetching} fetching, "
            f"{census.uploading} placing, {census.queued} queued"
        )
        if self._task is not None:
            self._progress.update(self._task, description=self._description())

    def finished(self, done: Done) -> None:
        """Count one recording; show what went wrong with it."""
        recording, outcome = done.recording, done.outcome
        kind = describe(outcome).split()[0]
        self._counts[kind] += 1
        detail = _detail(outcome)
        if detail is not None and (kind != "store" or self._verbose):
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
        """Show what goes on; it stays to be read where details are asked for."""
        if self._verbose:
            with suppress(OSError):
                self._console.print(printable(text), markup=False, highlight=False)
        elif self._task is not None:
            self._progress.update(self._task, description=text)

    def _description(self) -> str:
        done = sum(self._counts.values())
        parts = [f"{done}/{self._total} recordings"]
        parts += [
            f"{self._counts[kind]} {kind}" for kind in ("failed", "pending") if self._counts[kind]
        ]
        return ", ".join(parts) + (f"; {self._census}" if self._census else "")


def _weight(recording: Recording) -> int:
    """Bytes, and for each recording a share that does not depend on them."""
    return recording.size + (1 << 20)


class Logged:
    """Another reporter, and a line of JSON for each thing that it is told."""

    def __init__(self, shown: Reporter, stream: TextIO) -> None:
        self._shown, self._stream = shown, stream

    def planned(self, plan: Plan, discovered: int) -> None:
        """Log the numbers of the plan."""
        self._shown.planned(plan, discovered)
        self._log("planned", discovered=discovered, to_convert=len(plan.convert))

    def working(self, census: Census) -> None:
        """Log nothing: it changes all the time."""
        self._shown.working(census)

    def finished(self, done: Done) -> None:
        """Log a recording: its outcome, seconds by phase, bytes, memory against the estimate."""
        self._shown.finished(done)
        effort, outcome = done.effort, done.outcome
        self._log(
            "recording",
            path=done.recording.path,
            outcome=describe(outcome).split()[0],
            detail=_detail(outcome),
            code=outcome.code if isinstance(outcome, Failed) else None,
            seconds={name: round(value, 4) for name, value in effort.seconds.items()},
            source_bytes=effort.source_bytes,
            store_bytes=effort.store_bytes,
            peak_memory=effort.peak_memory,
            estimated_memory=done.demand.memory,
        )

    def note(self, text: str) -> None:
        """Log what goes on."""
        self._shown.note(text)
        self._log("note", text=text)

    def _log(self, event: str, **facts: object) -> None:
        moment = datetime.now(UTC).isoformat(timespec="milliseconds")
        line = msgspec.json.encode({"time": moment, "event": event, **facts})
        with suppress(OSError):
            print(line.decode(), file=self._stream, flush=True)
