"""A real Dask cluster for tests: a scheduler and workers of one thread, on free ports."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from distributed import Client

from tests.servers.seaweedfs import tether

START_SECONDS = 120.0
ROOT = Path(__file__).resolve().parents[2]
PYTHONPATH = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))


@dataclass
class DaskProcesses:
    """Starts a scheduler, and workers when told; use it as a context manager.

    `file` is the scheduler file. To be used from the main thread: the kernel kills what this
    starts when the thread that started it is gone.
    """

    folder: Path
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    file: Path = field(init=False)
    scheduler: subprocess.Popen[bytes] = field(init=False)
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list, init=False)

    def __enter__(self) -> DaskProcesses:
        self.folder.mkdir(parents=True)
        self.file = self.folder / "scheduler.json"
        options = ["--port", "0", "--host", "127.0.0.1", "--scheduler-file", str(self.file)]
        self.scheduler = self._start("scheduler", *options)
        until(self.file.is_file, "the scheduler has written its file")
        return self

    def __exit__(self, *_: object) -> None:
        for process in (*self.workers, self.scheduler):
            kill_family(process.pid)
            process.wait()

    def add_worker(self, memory: float | None = 4e9, *, nanny: bool = False) -> int:
        """Start a worker; returns its number. It joins some seconds later."""
        number = len(self.workers)
        options = ["--scheduler-file", str(self.file), "--nthreads", "1"]
        options += ["--local-directory", str(self.folder / f"local-{number}")]
        options += ["--name", f"worker-{number}", "--nanny" if nanny else "--no-nanny"]
        if memory is not None:
            options += ["--resources", f"memory={memory}"]
        self.workers.append(self._start("worker", *options))
        return number

    def end_worker(self, number: int, how: signal.Signals) -> None:
        """Send a worker, and its nanny, a signal; they end some time later, or at once."""
        members = family(self.workers[number].pid)
        for process in members[: 1 + any(map(is_worker, members[1:2]))]:
            process.send_signal(how)

    def await_workers(self, count: int) -> None:
        """Wait until so many workers have joined."""
        with Client(scheduler_file=str(self.file), set_as_default=False) as client:
            client.wait_for_workers(count, timeout=START_SECONDS)

    def log_of_worker(self, number: int) -> str:
        """What a worker wrote."""
        return (self.folder / f"worker-{number}.log").read_text("utf-8", "replace")

    def _start(self, kind: str, *options: str) -> subprocess.Popen[bytes]:
        with (self.folder / f"{kind}-{len(self.workers)}.log").open("ab") as log:
            return subprocess.Popen(
                [
                    *(*tether(), sys.executable, "-m", f"distributed.cli.dask_{kind}"),
                    *(*options, "--dashboard-address", "127.0.0.1:0"),
                ],
                # Tasks of tests are defined in tests.
                env={**self.environment, "PYTHONPATH": PYTHONPATH},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )


def is_worker(process: psutil.Process) -> bool:
    """Whether a nanny has started this process as its worker."""
    with suppress(psutil.NoSuchProcess):
        return "spawn_main" in " ".join(process.cmdline())
    return False


def family(pid: int) -> list[psutil.Process]:
    """A process and all that descend from it, the oldest first."""
    with suppress(psutil.NoSuchProcess):
        first = psutil.Process(pid)
        return [first, *first.children(recursive=True)]
    return []


def kill_family(pid: int) -> None:
    """Kill a process and all that descend from it."""
    for process in family(pid):
        with suppress(psutil.NoSuchProcess):
            process.kill()


def is_alive(pid: int) -> bool:
    """Whether a process of this number runs."""
    with suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    return False


def until(condition: Callable[[], object], what: str, seconds: float = START_SECONDS) -> None:
    """Wait until a condition holds."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"waited in vain until {what}"
        time.sleep(0.05)
