"""Bring many datasets' serving copies up to date, as after a change of the engine.

Each dataset of a list is converted by `nemar-convert --if-outdated` in a process of its own. A
copy that is of the dataset's commit and of this engine, with nothing pending, costs a second:
an interrupted run is resumed by running it again.

The list is a text file with a dataset a line, its path, its id and its path, or its id alone
when it is to be fetched; relative paths start at the working directory, and what follows a # at
a line's start or after a space is a comment:

    nm000108
    /data/nm000103
    nm000281  /data/clones/large one    # the name of this folder is no id

exit status: 0 every dataset has its index published,
             1 at least one has nothing published,  2 the command line or the list is wrong,
             128 + N after signal N, which is passed on to the conversions
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import IO, Any

from converter.contract.addresses import is_dataset_id
from converter.work.fork_server import usable_cpus

EXAMPLES = """\
examples:
  python scripts/reconvert.py datasets.txt --dest /srv/serving
        one dataset after the other, with all CPUs
  python scripts/reconvert.py datasets.txt --dest /srv/serving --at-once 4 -- --jobs 2 -v
        four at once, with two recordings each; what follows -- is for nemar-convert
"""

POLL_SECONDS = 0.05
STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class ListError(ValueError):
    """The list of datasets cannot be used; one sentence says where and why."""


@dataclass(frozen=True, slots=True)
class Dataset:
    """A line of the list."""

    id: str
    path: str


@dataclass(frozen=True, slots=True)
class Result:
    """What came of a dataset: the summary of its run, or a sentence on why there is none."""

    dataset: Dataset
    seconds: float
    summary: dict[str, Any] | None
    problem: str | None = None

    @property
    def word(self) -> str:
        """In one word, for a table."""
        if self.summary is None:
            return "FAILED"
        return "converted" if self.summary["converted"] else "unchanged"

    @property
    def counts(self) -> list[int]:
        """Recordings converted in this run, stores, failures, pending; empty when it failed."""
        names = ("converted", "store_count", "failure_count", "pending_count")
        return [] if self.summary is None else [self.summary[name] for name in names]

    def line(self) -> str:
        """For the log."""
        if self.summary is None:
            return f"{self.dataset.id}: FAILED: {self.problem}"
        converted, stores, failures, pending = self.counts
        return (
            f"{self.dataset.id}: {self.word}: {converted} converted, {stores} stores + "
            f"{failures} failures + {pending} pending, {self.seconds:.0f} s"
        )


@dataclass(slots=True)
class Conversion:
    """A running `nemar-convert`."""

    dataset: Dataset
    process: subprocess.Popen[bytes]
    log: IO[bytes]
    json: Path
    started: float = field(default_factory=time.monotonic)

    def result(self) -> Result:
        """Of a process that has ended."""
        self.log.close()
        seconds = time.monotonic() - self.started
        status = self.process.returncode
        if status == 0:
            try:
                return Result(self.dataset, seconds, json.loads(self.json.read_bytes()))
            except (OSError, ValueError) as error:
                return Result(self.dataset, seconds, None, f"its summary is missing: {error}")
        said = Path(self.log.name).read_text(encoding="utf-8", errors="replace").strip()
        last = said.splitlines()[-1] if said else f"exit status {status}, and nothing was said"
        return Result(self.dataset, seconds, None, last.removeprefix("nemar-convert: "))


class Reconversion:
    """Conversions of many datasets, at most `at_once` at a time; a signal ends them all."""

    def __init__(self, dest: str, logs: Path, at_once: int, options: Sequence[str]) -> None:
        self._dest, self._logs, self._at_once = dest, logs, at_once
        self._options = options
        self._running: list[Conversion] = []
        self.signal: int | None = None

    def run(self, datasets: Sequence[Dataset]) -> Iterator[Result]:
        """Yield results as conversions end; after a signal, of those that had begun."""
        waiting = list(reversed(datasets))
        try:
            while self._running or (waiting and self.signal is None):
                while waiting and self.signal is None and len(self._running) < self._at_once:
                    self._start(waiting.pop())
                for conversion in [c for c in self._running if c.process.poll() is not None]:
                    self._running.remove(conversion)
                    yield conversion.result()
                time.sleep(POLL_SECONDS)
        finally:
            for conversion in self._running:
                conversion.process.terminate()

    def stop(self, signum: int, _frame: FrameType | None) -> None:
        """Start nothing more, and pass a signal on to what runs."""
        self.signal = signum
        for conversion in self._running:
            conversion.process.send_signal(signum)

    def _start(self, dataset: Dataset) -> None:
        summary = self._logs / f"{dataset.id}.json"
        summary.unlink(missing_ok=True)
        log = (self._logs / f"{dataset.id}.log").open("wb")
        own = ["--if-outdated", "--dest", self._dest, "--dataset-id", dataset.id]
        own += ["--json", str(summary)]
        process = subprocess.Popen(
            [sys.executable, "-m", "converter", *self._options, *own, "--", dataset.path],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            # Ctrl-C reaches it through stop() alone, and once.
            start_new_session=True,
        )
        self._running.append(Conversion(dataset, process, log, summary))
        if self.signal is not None:
            # It came before this conversion was among those that it is passed on to.
            process.send_signal(self.signal)


def read_list(path: Path) -> list[Dataset]:
    """The datasets of a list. Raises ListError."""
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ListError(f"{path} cannot be read: {error}") from error
    found: dict[str, Dataset] = {}
    for number, line in enumerate(lines, start=1):
        text = re.sub(r"(^|\s)#.*", "", line).strip()
        if not text:
            continue
        dataset = _dataset(text)
        if dataset is None:
            raise ListError(
                f"{path}, line {number}: {text!r} found, a folder named by its dataset id, or "
                "an id and a folder, expected"
            )
        if dataset.id in found:
            raise ListError(f"{path}, line {number}: {dataset.id} is in the list already")
        found[dataset.id] = dataset
    return list(found.values())


def _dataset(text: str) -> Dataset | None:
    first, _, rest = text.partition(" ") if "\t" not in text else text.partition("\t")
    if rest.strip() and is_dataset_id(first):
        return Dataset(first, rest.strip())
    name = Path(text).resolve().name.removesuffix(".git")
    return Dataset(name, text) if is_dataset_id(name) else None


def table(results: Iterable[Result], left: int) -> str:
    """A summary in Markdown: problems first, then what changed, then the rest."""
    ordered = sorted(
        results, key=lambda r: (("FAILED", "converted", "unchanged").index(r.word), r.dataset.id)
    )
    words = [result.word for result in ordered]
    counts = [f"{words.count(word)} {word}" for word in dict.fromkeys(words)]
    if left:
        counts.append(f"{left} not reached")
    lines = [f"### Serving copies: {', '.join(counts) or 'no dataset in the list'}", ""]
    if ordered:
        lines += [
            "| dataset | result | converted | stores | failures | pending | time | note |",
            "|---|---|--:|--:|--:|--:|--:|---|",
        ]
    for result in ordered:
        numbers = [str(count) for count in result.counts] or [""] * 4
        cells = [result.dataset.id, result.word, *numbers, f"{result.seconds:.0f} s", note(result)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def note(result: Result) -> str:
    """What a maintainer should look at, fit for a cell of a table."""
    if result.summary is None:
        text = result.problem or ""
    else:
        lost = {
            "events_upload_failed": "no events.parquet",
            "manifest_upload_failed": "no manifest.json",
            "provenance_fetch_failed": "catalog not read",
        }
        text = ", ".join(words for name, words in lost.items() if result.summary[name])
    printable = "".join(c if c.isprintable() else " " for c in text)
    return re.sub(r"([\\`*_<>\[\]|])", r"\\\1", printable)


def parser() -> argparse.ArgumentParser:
    cli = argparse.ArgumentParser(
        prog="reconvert.py",
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        usage="%(prog)s [-h] LIST --dest DEST [--at-once N] [--log DIR] [-- OPTION ...]",
    )
    cli.add_argument("list", metavar="LIST", type=Path, help="text file with a dataset a line")
    cli.add_argument(
        "--dest",
        metavar="DIR|s3://BUCKET[/PREFIX]",
        required=True,
        help="writes <id>/zarr/ there for each dataset",
    )
    cli.add_argument(
        "--at-once",
        metavar="N",
        type=int,
        default=1,
        help="datasets converted at a time, which share the CPUs (default: %(default)s)",
    )
    cli.add_argument(
        "--log",
        metavar="DIR",
        type=Path,
        default=Path("reconvert-log"),
        help="gets <id>.log and <id>.json of each dataset, and summary.md (default: %(default)s)",
    )
    return cli


def main(argv: Sequence[str] | None = None) -> int:
    arguments = list(sys.argv[1:] if argv is None else argv)
    split = arguments.index("--") if "--" in arguments else len(arguments)
    cli = parser()
    ours, options = cli.parse_args(arguments[:split]), arguments[split + 1 :]
    if ours.at_once < 1:
        cli.error(f"--at-once: {ours.at_once} found, a whole number from 1 up expected")
    try:
        datasets = read_list(ours.list)
        ours.log.mkdir(parents=True, exist_ok=True)
    except (ListError, OSError) as error:
        cli.error(str(error))
    jobs = ["--jobs", str(max(1, usable_cpus() // ours.at_once))]
    return reconvert(
        datasets, Reconversion(ours.dest, ours.log, ours.at_once, jobs + options), ours.log
    )


def reconvert(datasets: Sequence[Dataset], reconversion: Reconversion, logs: Path) -> int:
    """Convert and tell; return the exit status."""
    for signum in STOPPING:
        signal.signal(signum, reconversion.stop)
    results: list[Result] = []
    for result in reconversion.run(datasets):
        results.append(result)
        print(f"[{len(results)}/{len(datasets)}] {result.line()}", flush=True)
    summary = table(results, left=len(datasets) - len(results))
    print(f"\n{summary}", end="")
    (logs / "summary.md").write_text(summary, encoding="utf-8")
    if step_summary := os.environ.get("GITHUB_STEP_SUMMARY"):
        with Path(step_summary).open("a", encoding="utf-8") as file:
            file.write(summary)
    if reconversion.signal is not None:
        return 128 + reconversion.signal
    return int(any(result.summary is None for result in results))


if __name__ == "__main__":
    sys.exit(main())
