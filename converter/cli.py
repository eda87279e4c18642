"""`nemar-convert`: arguments become Settings, a result becomes words and an exit status."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from . import __version__
from .work.pool import usable_cpus

if TYPE_CHECKING:
    from .settings import Settings

PUBLISHED, NOTHING_PUBLISHED, INTERRUPTED = 0, 1, 130

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
  nemar-convert ./mydata --dataset-id nm000900 --only 'sub-01/*' --catalog none -v
        convert one subject of a folder with another name, without asking a catalog

A later run converts what is new, pending, or changed in a file or sidecar since the published
commit, and keeps the rest; --clean converts everything anew. Content is read from the
repository's own annex: a recording whose content is absent stays pending, and its entry
names the missing annex key.

exit status: 0 the index is published (its failures and pending entries included),
             1 nothing is published, one sentence says why,  2 the command line is wrong"""


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
        type=Path,
        help="a git repository (plain git, git-annex or DataLad; work tree or bare)",
    )
    _add_what(cli)
    _add_where(cli)
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


def _add_where(cli: argparse.ArgumentParser) -> None:
    where = cli.add_argument_group("where and how")
    where.add_argument(
        "--dest",
        metavar="DIR",
        type=Path,
        default=Path("serving"),
        help="writes DIR/<id>/zarr/ (default: ./serving)",
    )
    where.add_argument(
        "--scratch",
        metavar="DIR",
        type=Path,
        help="folder for temporary files, about the size of the recordings in work at 4 bytes "
        "a served sample (default: beside the destination)",
    )
    where.add_argument(
        "--jobs",
        metavar="N",
        type=_positive,
        default=usable_cpus(),
        help="recordings converted at a time (default: the CPUs, here %(default)s)",
    )
    where.add_argument("--dry-run", action="store_true", help="print the plan and write nothing")


def _add_said(cli: argparse.ArgumentParser) -> None:
    out = cli.add_argument_group("what is said")
    out.add_argument(
        "--json", metavar="FILE", type=Path, help="write the run's summary, for machines"
    )
    out.add_argument("-v", "--verbose", action="store_true", help="show warnings and details")
    out.add_argument("-q", "--quiet", action="store_true", help="print errors only")


def _positive(text: str) -> int:
    number = int(text) if text.isdecimal() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} found, a whole number from 1 up expected")
    return number


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return its exit status."""
    # Started with an output closed, the next file to be opened would get its number.
    sys.stdout = sys.stdout or Path(os.devnull).open("w")
    sys.stderr = sys.stderr or Path(os.devnull).open("w")
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
    from .pipeline import NothingPublished

    # A batch system ends a job by SIGTERM: what Ctrl-C does, with scratch and workers gone.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return _run(arguments, settings)
    except NothingPublished as error:
        _say(f"nemar-convert: {error}")
        return NOTHING_PUBLISHED
    except KeyboardInterrupt:
        _say("nemar-convert: interrupted; what was published stays as it was")
        return INTERRUPTED


def _run(arguments: argparse.Namespace, settings: Settings) -> int:
    from .display import print_plan, print_summary, reporter_for
    from .pipeline import run

    if arguments.json is not None:
        _check_writable(arguments.json)
    with reporter_for(sys.stderr, verbose=arguments.verbose, quiet=arguments.quiet) as reporter:
        summary = run(settings, reporter)
    try:
        if arguments.json is not None:
            arguments.json.write_bytes(summary.to_json())
        if not arguments.quiet:
            (print_plan if summary.dry_run else print_summary)(summary, sys.stdout)
    except OSError as error:
        # What is published stays published, though nobody is told.
        _say(f"nemar-convert: the summary could not be written: {error.strerror}")
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return PUBLISHED


def _say(text: str) -> None:
    with suppress(OSError):
        print(text, file=sys.stderr, flush=True)


def _check_writable(path: Path) -> None:
    """Find out before hours of work that the summary has no place to go."""
    from .pipeline import NothingPublished

    try:
        path.open("ab").close()
    except OSError as error:
        raise NothingPublished(
            f"--json {path}: {error.strerror}, a writable file expected"
        ) from error


def _settings(arguments: argparse.Namespace) -> Settings:
    from .settings import Settings

    return Settings(
        dataset=arguments.dataset,
        commit=arguments.commit,
        dataset_id=arguments.dataset_id,
        dest=arguments.dest,
        jobs=arguments.jobs,
        only=tuple(arguments.only),
        clean=arguments.clean,
        retry_pending=arguments.retry_pending,
        retry_failures=tuple(arguments.retry_failures),
        if_outdated=arguments.if_outdated,
        scratch=arguments.scratch,
        catalog=arguments.catalog,
        dry_run=arguments.dry_run,
    )
