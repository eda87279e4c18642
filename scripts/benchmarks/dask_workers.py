"""A Dask cluster on this machine: a scheduler, and workers of one thread each."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from .measuring import JobFailed

START_SECONDS = 60.0
STOP_SECONDS = 20.0
MEMORY = "memory=4e9"  # bytes of each worker, as `nemar-convert --dask` asks for it


class DaskWorkers:
    """So many workers, from `__enter__` on; `scheduler` is the file that tells where they are."""

    def __init__(self, count: int, folder: Path) -> None:
        self._count, self._folder = count, folder
        self.scheduler = folder / "scheduler.json"
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> DaskWorkers:
        self._folder.mkdir()
        try:
            self._start("scheduler", ["--port", "0"])
            deadline = time.monotonic() + START_SECONDS
            while not self.scheduler.exists():
                if time.monotonic() > deadline:
                    raise JobFailed(f"no Dask scheduler within {START_SECONDS:.0f} s")
                time.sleep(0.1)
            workers = ["--nworkers", str(self._count), "--nthreads", "1", "--memory-limit", "0"]
            # As the run's own scratch is: on the volume that stores are moved to.
            place = ["--local-directory", str(self._folder)]
            self._start("worker", [*workers, "--resources", MEMORY, *place])
        except BaseException:
            self.__exit__()
            raise
        return self

    def _start(self, role: str, options: Sequence[str]) -> None:
        command = [sys.executable, "-m", "dask", role, "--scheduler-file", str(self.scheduler)]
        command += ["--host", "127.0.0.1", "--no-dashboard", *options]
        with (self._folder / f"{role}.log").open("wb") as log:
            self._processes.append(
                subprocess.Popen(
                    command,
                    cwd=self._folder,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                )
            )

    def __exit__(self, *_: object) -> None:
        for process in reversed(self._processes):
            process.terminate()
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
