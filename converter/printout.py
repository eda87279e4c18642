"""A plan or a summary as lines for a person."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from .summary import RecordingEffort, Summary

# Entries of one list that a person is shown; --json and the index have them all.
SHOWN = 20

# Recordings that are listed as the slowest and as the largest, of a run that is not small.
OUTSTANDING, SMALL_RUN = 3, 20


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
        f"{duration(summary.seconds)}"
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
    if len(summary.efforts) > SMALL_RUN:
        lines += _outstanding(summary.efforts)
    if summary.provenance_fetch_failed:
        lines.append(
            "the catalog could not be read: doi, license, citation and HED version are those "
            "published before, or null"
        )
    if summary.was_stopped:
        lines.append(
            "stopped by a signal: what was done is published, the rest is for the next run"
            if summary.efforts
            else "stopped by a signal before anything was converted: the copy is as it was"
        )
    lines.append(f"published: {summary.published_at}/index.json")
    _print(lines, stream)


def _outstanding(efforts: tuple[RecordingEffort, ...]) -> list[str]:
    """The recordings that took the most time, and the most memory against its estimate."""
    slowest = sorted(efforts, key=lambda e: -sum(e.seconds.values()))[:OUTSTANDING]
    largest = sorted(efforts, key=lambda e: -e.source_bytes)[:OUTSTANDING]
    lines = ["slowest:"]
    for effort in slowest:
        phases = ", ".join(f"{name} {value:.1f} s" for name, value in effort.seconds.items())
        lines.append(f"  {effort.path}: {phases}")
    lines.append("largest:")
    for effort in largest:
        lines.append(
            f"  {effort.path}: {human_size(effort.source_bytes)}, "
            f"{human_size(effort.peak_memory)} of memory where "
            f"{human_size(effort.estimated_memory)} were reserved"
        )
    return lines


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


def duration(seconds: float) -> str:
    """Seconds in words, such as 3 min 20 s."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{seconds:.1f} s"
