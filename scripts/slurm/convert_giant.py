"""One giant dataset on many nodes: a Dask cluster of SLURM jobs, and `nemar-convert` on it.

Each job has a Dask worker that converts as many recordings at a time as it has cores and memory
for. Jobs that end, at their wall time for instance, are replaced until all is converted. This
script holds the scheduler: run it where jobs may be submitted, best in a small job of its own.
It needs dask-jobqueue, and nemar-convert[cluster] in the Python that runs it, which must be
there on every node.

exit status: that of nemar-convert
"""

from __future__ import annotations

import argparse
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import timedelta
from types import FrameType
from typing import NoReturn

from dask.utils import parse_bytes
from dask_jobqueue.slurm import SLURMCluster
from distributed import Client

EXAMPLES = """\
example:
  python scripts/slurm/convert_giant.py --jobs 40 --cores 8 --memory 64GB --time 12:00:00 \\
      -- nm000103 --dest s3://nemar --region us-east-2
        what follows -- is for nemar-convert
"""

# Of a job's memory, what is for conversions; the rest is for the processes that watch over them.
SHARE = 0.9

# Minutes before its wall time at which a worker gives its recordings to others, and how much
# earlier or later, so that not all do it at once.
NOTICE, STAGGER = 6, 3


def parser() -> argparse.ArgumentParser:
    cli = argparse.ArgumentParser(
        prog="convert_giant.py",
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        usage="%(prog)s [options] -- DATASET [OPTION ...]",
    )
    cli.add_argument("--jobs", metavar="N", type=int, required=True, help="workers at a time")
    cli.add_argument("--cores", metavar="N", type=int, required=True, help="cores of a job")
    cli.add_argument("--memory", metavar="SIZE", required=True, help="memory of a job, as 64GB")
    cli.add_argument("--time", metavar="H:MM:SS", default="12:00:00", help="wall time of a job")
    cli.add_argument(
        "--interface", metavar="NAME", help="network interface of the scheduler and the workers"
    )
    cli.add_argument(
        "--local-directory",
        metavar="DIR",
        default="/tmp",
        help="folder of each node for temporary files, also '$SLURM_TMPDIR' (default: %(default)s)",
    )
    cli.add_argument(
        "--log", metavar="DIR", default="log", help="gets the jobs' output (default: %(default)s)"
    )
    cli.add_argument(
        "--sbatch",
        metavar="OPTION",
        action="append",
        default=[],
        help="a further option of sbatch, such as --sbatch=--partition=long; repeatable",
    )
    cli.add_argument("command", nargs="+", metavar="OPTION", help=argparse.SUPPRESS)
    return cli


def seconds(walltime: str) -> float:
    """Of a wall time such as 90 (minutes), 1:30:00 or 2-12:00:00."""
    found = re.fullmatch(r"(?:(\d+)-)?(?:(\d+):)?(\d+)(?::(\d+))?", walltime)
    if found is None:
        raise argparse.ArgumentTypeError(f"{walltime!r} found, a time such as 12:00:00 expected")
    days, hours, minutes, rest = (int(part or 0) for part in found.groups())
    return timedelta(days=days, hours=hours, minutes=minutes, seconds=rest).total_seconds()


def cluster_of(ours: argparse.Namespace) -> SLURMCluster:
    """The cluster, still without jobs."""
    memory = round(SHARE * parse_bytes(ours.memory))
    extra = ["--resources", f"memory={memory}"]
    left = seconds(ours.time) - 60 * NOTICE
    if left > 60 * NOTICE:
        extra += ["--lifetime", f"{left:.0f}s", "--lifetime-stagger", f"{STAGGER}m"]
    return SLURMCluster(
        cores=ours.cores,
        processes=1,
        memory=ours.memory,
        walltime=ours.time,
        interface=ours.interface,
        local_directory=ours.local_directory,
        log_directory=ours.log,
        python=sys.executable,
        worker_extra_args=extra,
        job_extra_directives=ours.sbatch,
    )


def main(argv: Sequence[str] | None = None) -> int:
    ours = parser().parse_args(argv)
    with ExitStack() as stack:
        signal.signal(signal.SIGTERM, leave)
        cluster = stack.enter_context(cluster_of(ours))
        cluster.adapt(minimum_jobs=ours.jobs, maximum_jobs=ours.jobs)
        print(f"waiting for the first of {ours.jobs} jobs", file=sys.stderr)
        with Client(cluster) as client:
            client.wait_for_workers(1)
        command = [sys.executable, "-m", "converter", "--dask", cluster.scheduler_address]
        converter = subprocess.Popen([*command, *ours.command])

        def stop(number: int, frame: FrameType | None) -> None:
            converter.send_signal(number)

        # A person's Ctrl-C reaches it without us.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, stop)
        return converter.wait()


def leave(number: int, frame: FrameType | None) -> NoReturn:
    """End with the jobs that were asked for."""
    raise SystemExit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
