"""`nemar-convert`: arguments become Settings, a result becomes words and an exit status."""

from __future__ import annotations

import argparse
import atexit
import math
import os
import re
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from . import __version__
from .outlet import Readers, outlets
from .settings import TIMEOUT, Settings
from .work.fork_server import usable_cpus
from .work.stop import Stop

if TYPE_CHECKING:
    from .summary import Summary

PUBLISHED, NOTHING_PUBLISHED, INTERRUPTED = 0, 1, 130

# Signals within these seconds are one: a batch system, or a terminal, signals the whole job, and a
# script in between passes the signal on.
TOGETHER = 2.0

# Seconds that readers of a stopped run's last words get, before the batch system kills it.
PATIENCE = 3.0

DESCRIPTION = """\
Make the serving copy of a BIDS dataset: every raw EEG, MEG, iEEG and EMG recording at a
commit becomes one sharded, multiscale Zarr v3 store, and the dataset gets events.parquet,
manifest.json and index.json, which accounts for every recording as a store, a failure with
its reason, or pending."""

EXAMPLES = """\
examples:
  nemar-convert ~/data/nm000103 --dry-run
        show what would be converted, in which format and how large, and write nothing
  nemar-convert ~/data/nm000103 --commit v1.2.0 --dest /srv/serving
        convert the dataset at a tag into /srv/serving/nm000103/zarr/
  nemar-convert ./mydata --dataset-id nm000900 --only 'sub-01/*' -v
        convert one subject of a folder with another name, and say what each recording took
  nemar-convert nm000103 --commit SHA --dest s3://nemar --region us-east-2 --callback run.json
        fetch a dataset of the archive by its id, and publish to a bucket as a batch job does

A later run converts what is new, pending, or changed in a file or sidecar since the published
commit, and keeps the rest; --clean converts everything anew. Annexed content is looked for in
the repository's own annex, its S3 special remotes, the URLs recorded for it, and by git-annex;
it is checked against its key. A recording whose content is found nowhere stays pending.

AWS credentials are found as by any AWS program (environment, profile, instance role).
environment: NEMAR_REPOSITORY, NEMAR_CACHE (defaults of --repository, --cache),
             NEMAR_CALLBACK_TOKEN (bearer token for --callback-url)

Ctrl-C or SIGTERM once: no recording is begun any more, what is done is published, the rest is
pending. A second time: stop at once, with the published copy as it was.

exit status: 0 the index is published (its failures and pending entries included),
             1 nothing is published, one sentence says why,  2 the command line is wrong,
             130 interrupted before anything could be published"""


def parser() -> argparse.ArgumentParser:
    """The command line of `nemar-convert`."""
    cli = argparse.ArgumentParser(
        prog="nemar-convert",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    cli.add_argument(
        "dataset",
        metavar="DATASET",
        help="a git repository (plain git, git-annex or DataLad; work tree or bare), or the id "
        "of a dataset that is fetched from --repository",
    )
    _add_what(cli)
    _add_source(cli)
    _add_destination(cli)
    _add_means(cli)
    _add_said(cli)
    cli.add_argument("--version", action="version", version=f"nemar-convert {__version__}")
    return cli


def _add_what(cli: argparse.ArgumentParser) -> None:
    what = cli.add_argument_group("what is converted")
    what.add_argument(
        "--commit",
        metavar="SHA",
        default="HEAD",
        help="commit, tag or branch to convert (default: HEAD); the work tree is never read",
    )
    what.add_argument(
        "--dataset-id",
        metavar="ID",
        help="two lower-case letters and six digits (default: the folder's name if it is one)",
    )
    what.add_argument(
        "--only",
        metavar="GLOB",
        action="append",
        default=[],
        help="convert only recordings whose BIDS path matches, such as 'sub-01/*' or '*.edf'; "
        "repeatable; the others keep their published state or are pending",
    )
    what.add_argument(
        "--clean",
        action="store_true",
        help="convert everything anew, also over an index that can't be read",
    )
    what.add_argument(
        "--retry-pending",
        action="store_true",
        help="convert only the pending recordings of a published index of this commit",
    )
    what.add_argument(
        "--retry-failures",
        metavar="CODE",
        nargs="?",
        const="all",
        action="append",
        default=[],
        help="also convert recordings that failed before, with this code or, without one, any; "
        "put -- before DATASET when it follows directly",
    )
    what.add_argument(
        "--if-outdated",
        action="store_true",
        help="do nothing when the published copy is of this commit and this engine and has "
        "nothing pending",
    )
    what.add_argument(
        "--catalog",
        metavar="URL|FILE|none",
        default="none",
        help="where doi, license, citation and HED version come from: a base URL "
        "(URL/datasets/ID is read), a JSON file with such a row, or none: "
        "dataset_description.json (default: none)",
    )


def _add_source(cli: argparse.ArgumentParser) -> None:
    source = cli.add_argument_group("where it comes from")
    source.add_argument(
        "--repository",
        metavar="URL",
        help="URL template of datasets that are given by id, with {dataset_id} in it (default: "
        "$NEMAR_REPOSITORY or the archive's organisation on GitHub)",
    )
    source.add_argument(
        "--cache",
        metavar="DIR",
        type=Path,
        help="keeps the repositories fetched by id (default: $NEMAR_CACHE or "
        "~/.cache/nemar-convert)",
    )
    source.add_argument(
        "--trust-host",
        metavar="HOST[:PORT]",
        action="append",
        default=[],
        help="content may come from this host though its address is private, and AWS credentials "
        "may sign requests to it (always so: amazonaws.com); repeatable",
    )


def _add_destination(cli: argparse.ArgumentParser) -> None:
    where = cli.add_argument_group("where it goes")
    where.add_argument(
        "--dest",
        metavar="DIR|s3://BUCKET[/PREFIX]",
        default="serving",
        help="writes <id>/zarr/ in a folder or a bucket (default: ./serving)",
    )
    where.add_argument("--endpoint-url", metavar="URL", help="S3 server (default: that of AWS)")
    where.add_argument("--region", metavar="NAME", help="region of the bucket")
    where.add_argument(
        "--contract-base",
        metavar="URL",
        help="stable address of copies, to which <id>/zarr/ is added (default: the archive's)",
    )
    where.add_argument(
        "--data-base",
        metavar="URL",
        help="address where the bytes are read from, to which <id>/zarr/ is added (default: that "
        "of the bucket)",
    )


def _add_means(cli: argparse.ArgumentParser) -> None:
    means = cli.add_argument_group("with what")
    means.add_argument(
        "--jobs",
        metavar="N",
        type=_positive,
        default=usable_cpus(),
        help="recordings converted at a time (default: the CPUs, here %(default)s)",
    )
    means.add_argument(
        "--memory",
        metavar="SIZE",
        type=_size,
        default=0,
        help="bytes for all conversions together, such as 16GB; what would not fit waits "
        "(default: what the machine or its cgroup has free)",
    )
    means.add_argument(
        "--timeout",
        metavar="SECONDS",
        type=_seconds,
        default=TIMEOUT,
        help="limit of fetching, converting or uploading one recording, and as much again for "
        "each GB of it (default: %(default).0f)",
    )
    means.add_argument(
        "--dask",
        metavar="ADDRESS|FILE",
        help="convert on the Dask cluster of this scheduler (tcp://host:8786, or its file), "
        "as many at a time as its workers have threads and the resource `memory` for; they must "
        "see the repository and a folder destination under the same paths",
    )
    means.add_argument(
        "--scratch",
        metavar="DIR",
        type=Path,
        help="folder for temporary files, about the size of the recordings in work at 4 bytes "
        "a served sample (default: beside a folder destination, else the system's)",
    )
    means.add_argument("--dry-run", action="store_true", help="print the plan and write nothing")


def _add_said(cli: argparse.ArgumentParser) -> None:
    out = cli.add_argument_group("what is said")
    out.add_argument(
        "--json", metavar="FILE", type=Path, help="write the run's summary, for machines"
    )
    out.add_argument(
        "--log-json", metavar="FILE", type=Path, help="write a line of JSON for each recording"
    )
    out.add_argument(
        "--callback",
        metavar="FILE",
        type=Path,
        help="write the run's report, for the archive's backend, however the run ends",
    )
    out.add_argument("--callback-url", metavar="URL", help="the same, posted as JSON")
    out.add_argument("-v", "--verbose", action="store_true", help="show warnings and details")
    out.add_argument("-q", "--quiet", action="store_true", help="print errors only")


def _positive(text: str) -> int:
    number = int(text) if text.isdecimal() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} found, a whole number from 1 up expected")
    return number


def _seconds(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} found, seconds above 0 expected")
    return number


_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_UNITS |= {f"{unit}i": 1024**power for power, unit in enumerate("kmgt", start=1)}


def _size(text: str) -> int:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgt]i?)?b?", text.strip().lower())
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} found, bytes such as 16GB or 512MiB expected")
    return int(float(found[1]) * _UNITS[found[2] or ""])


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return its exit status."""
    # Started with an output closed, the next file to be opened would get its number.
    sys.stdout = sys.stdout or Path(os.devnull).open("w")
    sys.stderr = sys.stderr or Path(os.devnull).open("w")
    with outlets() as readers:
        status = _main(argv, readers)
    # Ctrl-C while libraries end their own affairs would show where in them.
    atexit.register(signal.signal, signal.SIGINT, signal.SIG_DFL)
    return status


def _main(argv: Sequence[str] | None, readers: Readers) -> int:
    cli = parser()
    arguments = cli.parse_args(argv)
    if arguments.verbose and arguments.quiet:
        cli.error("-v and -q exclude each other")
    from .contract.addresses import is_dataset_id

    if arguments.dataset_id is not None and not is_dataset_id(arguments.dataset_id):
        cli.error(
            f"--dataset-id: {arguments.dataset_id!r} found, two lower-case letters and six "
            "digits expected, such as nm000103"
        )
    try:
        settings = _settings(arguments)
    except ValueError as error:
        cli.error(str(error))
    if arguments.retry_pending and (arguments.clean or arguments.retry_failures):
        cli.error(
            "--retry-pending converts only what is pending; --clean and --retry-failures more"
        )
    try:
        return _convert(arguments, settings, readers)
    except KeyboardInterrupt:  # while modules were imported
        _say("nemar-convert: interrupted before anything was done")
        return INTERRUPTED
    except ImportError as error:
        _say(f"nemar-convert: this installation is not whole: {error}")
        return NOTHING_PUBLISHED


def _convert(arguments: argparse.Namespace, settings: Settings, readers: Readers) -> int:
    """Run the conversion and deliver its report, whichever way it ends."""
    from .pipeline import NothingPublished
    from .reporting import Reporting

    with Reporting(settings, arguments.callback, arguments.callback_url, _say) as report:
        try:
            report.summary = _run(arguments, settings)
            if report.summary.was_stopped:
                readers.patience = PATIENCE
            return PUBLISHED
        except NothingPublished as error:
            report.error = str(error)
            _say(f"nemar-convert: {error}")
            return NOTHING_PUBLISHED
        except KeyboardInterrupt:
            report.is_interrupted = True
            report.error = "interrupted; what was published stays as it was"
            _say(f"nemar-convert: {report.error}")
            return INTERRUPTED


def _run(arguments: argparse.Namespace, settings: Settings) -> Summary:
    from .display import reporter_for
    from .pipeline import run
    from .printout import print_plan, print_summary

    for option, path in (("--json", arguments.json), ("--log-json", arguments.log_json)):
        if path is not None:
            _check_writable(option, path)
    stop = Stop()
    with ExitStack() as stack:
        stack.enter_context(_stopping(stop))
        log = arguments.log_json
        stream = None if log is None else stack.enter_context(log.open("a", encoding="utf-8"))
        reporter = stack.enter_context(
            reporter_for(sys.stderr, verbose=arguments.verbose, quiet=arguments.quiet, log=stream)
        )
        summary = run(settings, reporter, stop)
    try:
        if arguments.json is not None:
            arguments.json.write_bytes(summary.to_json())
    except OSError as error:
        # What is published stays published, though nobody is told.
        _say(f"nemar-convert: {arguments.json} could not be written: {error.strerror}")
    if not arguments.quiet:
        (print_plan if summary.dry_run else print_summary)(summary, sys.stdout)
    return summary


@contextmanager
def _stopping(stop: Stop) -> Iterator[None]:
    """Signals ask for an early end once there is work that is worth publishing; a second signal,
    or one before that, ends the run where it is."""
    asked = math.inf

    def handle(number: int, frame: object) -> None:
        nonlocal asked
        if not stop.is_heeded or time.monotonic() - asked > TOGETHER:
            raise KeyboardInterrupt
        if stop.requested:
            return
        asked = time.monotonic()
        stop.request()
        _say("nemar-convert: stopping; what is done is published (once more: stop at once)")

    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, handle) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


def _say(text: str) -> None:
    with suppress(OSError):
        print(text, file=sys.stderr, flush=True)


def _check_writable(option: str, path: Path) -> None:
    """Find out before hours of work that the summary has no place to go."""
    from .pipeline import NothingPublished

    try:
        path.open("ab").close()
    except OSError as error:
        raise NothingPublished(
            f"{option} {path}: {error.strerror}, a writable file expected"
        ) from error


def _settings(arguments: argparse.Namespace) -> Settings:
    return Settings(
        dataset=arguments.dataset,
        commit=arguments.commit,
        dataset_id=arguments.dataset_id,
        repository=arguments.repository,
        cache=arguments.cache,
        trusted_hosts=frozenset(arguments.trust_host),
        dest=arguments.dest,
        endpoint_url=arguments.endpoint_url,
        region=arguments.region,
        contract_base=arguments.contract_base,
        data_base=arguments.data_base,
        jobs=arguments.jobs,
        memory=arguments.memory,
        timeout=arguments.timeout,
        dask=arguments.dask,
        only=tuple(arguments.only),
        clean=arguments.clean,
        retry_pending=arguments.retry_pending,
        retry_failures=tuple(arguments.retry_failures),
        if_outdated=arguments.if_outdated,
        scratch=arguments.scratch,
        catalog=arguments.catalog,
        dry_run=arguments.dry_run,
    )
