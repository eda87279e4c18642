"""Work measured in a fresh process whose imports are done: CPU and wall seconds, memory.

A bench is a process that has imported what one side needs. For each measurement it forks a
child, as `nemar-convert` forks its workers, so that no run finds what an earlier one left. A
job prepares itself before the clock starts: a warm-up imports what is imported late.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import multiprocessing
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import MappingProxyType
from typing import Protocol, TypeVar

ONE_THREAD = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS"), "1"
)
# The command, as this interpreter has it installed.
CONVERTER = (sys.executable, "-P", "-m", "converter")
SAMPLING_SECONDS = 0.02
FAREWELL_SECONDS = 10.0
PR_SET_CHILD_SUBREAPER = 36  # of Linux's prctl

S = TypeVar("S")
M = TypeVar("M")


class JobFailed(Exception):
    """A job raised, or its process died; the message is its traceback or how it ended."""


class Job(Protocol):
    """Picklable work to be measured."""

    def prepare(self) -> None:
        """Do what should not count."""

    def run(self) -> Mapping[str, float]:
        """Do what counts; return figures of the job's own."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """One run of a job.

    `cpu` counts user and system seconds of all threads and children, `wall` those on the clock;
    `peak` is the highest resident memory above what the process held before, in bytes, pages of
    mapped files included; `private` the same without them, sampled, so a lower bound; `highest`
    the peak with what was held before.
    """

    cpu: float
    wall: float
    peak: float
    private: float
    highest: float
    own: Mapping[str, float] = field(default_factory=dict)


class Bench:
    """A process that has imported `modules` and runs one job at a time, each in a fork.

    `environment` has variables of that process beside those that keep libraries to one thread.
    """

    def __init__(
        self, modules: Sequence[str], environment: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        spawn = multiprocessing.get_context("spawn")
        self._here, there = spawn.Pipe()
        self._process: BaseProcess = spawn.Process(target=_serve, args=(there, list(modules)))
        with _environment({**ONE_THREAD, **environment}):
            self._process.start()
        there.close()

    def __enter__(self) -> Bench:
        return self

    def __exit__(self, *_: object) -> None:
        self._here.close()
        self._process.join()

    def measure(self, job: Job) -> Measurement:
        """Run a job once. Raises JobFailed."""
        try:
            self._here.send(job)
            answer = self._here.recv()
        except (EOFError, OSError) as error:
            raise JobFailed("the process that was to run it has ended") from error
        if isinstance(answer, str):
            raise JobFailed(answer)
        assert isinstance(answer, Measurement)
        return answer


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Variables for the processes that start within."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _serve(connection: Connection, modules: Sequence[str]) -> None:
    for name in modules:
        importlib.import_module(name)
    # A collector that visits all that was imported has it copied for each job: not so in
    # nemar-convert's workers, and on no side here.
    gc.collect()
    gc.freeze()
    fork = multiprocessing.get_context("fork")
    with suppress(EOFError):
        while True:
            job = connection.recv()
            here, there = fork.Pipe(duplex=False)
            child = fork.Process(target=_run, args=(job, there))
            child.start()
            there.close()
            connection.send(_watch(child, here))


def _watch(child: BaseProcess, results: Connection) -> Measurement | str:
    """Sample a child's memory until its answer comes."""
    try:
        private_before = results.recv()
        if isinstance(private_before, str):
            child.join()
            return private_before
        private = private_before
        while not results.poll(SAMPLING_SECONDS):
            private = max(private, memory(str(child.pid), "RssAnon"))
        answer = results.recv()
    except EOFError:
        child.join()
        return f"its process ended with exit status {child.exitcode} and no answer"
    child.join()
    if isinstance(answer, str):
        return answer
    cpu, wall, before, highest, own = answer
    peak = max(0, highest - before)
    return Measurement(cpu, wall, peak, private - private_before, highest, own)


def _run(job: Job, results: Connection) -> None:
    try:
        job.prepare()
        _return_free_memory()
        before = memory("self", "VmRSS")
        was_reset = _reset_peak()
        results.send(memory("self", "RssAnon"))
        wall, cpu = time.perf_counter(), cpu_seconds()
        own = job.run()
        wall, cpu = time.perf_counter() - wall, cpu_seconds() - cpu
    except JobFailed as error:
        results.send(str(error))
        return
    except Exception:
        results.send(traceback.format_exc())
        return
    highest = memory("self", "VmHWM") if was_reset else 0
    highest = highest or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    results.send((cpu, wall, before, highest, dict(own)))


@dataclass(frozen=True, slots=True)
class Command:
    """A program to be measured, from its start until all its processes are gone.

    `highest` among its own figures is its first process's peak memory in bytes.
    """

    arguments: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)

    def prepare(self) -> None:
        """Have orphans of the program become children of this process (on Linux)."""
        prctl = getattr(ctypes.CDLL(None), "prctl", None)
        if prctl is not None:
            prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)

    def run(self) -> Mapping[str, float]:
        """Run it. Raises JobFailed when it exits with another status than 0."""
        with tempfile.TemporaryFile() as output:
            process = subprocess.Popen(
                self.arguments,
                env={**os.environ, **self.environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            if process.returncode:
                output.seek(0)
                said = output.read().decode(errors="replace").strip()
                raise JobFailed(f"{self.arguments[0]}: exit {process.returncode}: {said}")
        _await_orphans()
        return {"highest": usage.ru_maxrss * 1024}


def _await_orphans() -> None:
    """Wait, for a bounded time, for processes that a program has not waited for itself."""
    deadline = time.monotonic() + FAREWELL_SECONDS
    with suppress(ChildProcessError):
        while time.monotonic() < deadline:
            if os.waitpid(-1, os.WNOHANG) == (0, 0):
                time.sleep(SAMPLING_SECONDS / 10)


def memory(process: str, field: str) -> int:
    """A field of a process's memory in bytes, such as VmRSS; 0 where it is not to be had."""
    try:
        status = Path("/proc", process, "status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return 0
    lines = [line for line in status.splitlines() if line.startswith(f"{field}:")]
    return int(lines[0].split()[1]) * 1024 if lines else 0


def cpu_seconds() -> float:
    """Of this process and the children it has waited for."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def _return_free_memory() -> None:
    """Give back what was freed, so that a job can't grow into it unseen (glibc only)."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _reset_peak() -> bool:
    """Let the kernel forget this process's highest memory so far; False where it won't."""
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    except OSError:
        return False
    return True


def in_turn(sides: Sequence[S], repeats: int, run: Callable[[S], M]) -> dict[S, list[M]]:
    """Measure each side so many times, forwards and backwards in turn: a noisy machine
    disturbs all sides alike."""
    runs: dict[S, list[M]] = {side: [] for side in sides}
    for number in range(repeats):
        for side in sides if number % 2 == 0 else reversed(sides):
            runs[side].append(run(side))
    return runs


def median(measurements: Iterable[Measurement]) -> Measurement:
    """The median of each figure by itself."""
    rows = list(measurements)
    return Measurement(
        cpu=statistics.median(row.cpu for row in rows),
        wall=statistics.median(row.wall for row in rows),
        peak=statistics.median(row.peak for row in rows),
        private=statistics.median(row.private for row in rows),
        highest=statistics.median(row.highest for row in rows),
        own={name: statistics.median(row.own[name] for row in rows) for name in rows[0].own},
    )


def machine() -> str:
    """What the figures were measured on."""
    return (
        f"{platform.machine()}, {len(os.sched_getaffinity(0))} CPUs, "
        f"Python {platform.python_version()}"
    )
