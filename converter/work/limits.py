"""What a worker may use: memory up to its reservation, time that grows with the recording."""

from __future__ import annotations

import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

BYTES_PER_BASE_TIME: Final = 1_000_000_000
"""A recording of this size may take its base time twice, one of twice the size three times."""


@contextmanager
def confined(memory: int) -> Iterator[None]:
    """Let this process take `memory` bytes more than it has now, to the end of the block.

    What asks for more gets a MemoryError, or what native code makes of a failed allocation,
    instead of the kernel's attention. Memory that is reserved counts, used or not: heap, arrays,
    8 MB for the stack of each thread. Without effect on systems other than Linux. A crash
    leaves no core file from here on.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, hard))
    data = _status().get("VmData")
    if data is None or sys.platform != "linux":
        yield
        return
    before = resource.getrlimit(resource.RLIMIT_DATA)
    allowed = [data + memory, *(limit for limit in before if limit != resource.RLIM_INFINITY)]
    resource.setrlimit(resource.RLIMIT_DATA, (min(allowed), before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)


def peak_memory() -> int:
    """The most that this process has held so far in bytes, mapped files left out.

    The difference of two calls tells what was needed in between, where that was more than
    ever before. What is still shared with the parent process counts in both.
    """
    status = _status()
    highest = status.get("VmHWM")
    if highest is None:
        usage = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return usage if sys.platform == "darwin" else usage * 1024
    return highest - status.get("RssFile", 0) - status.get("RssShmem", 0)


def time_limit(size: int, base_s: float) -> float:
    """Seconds that a recording of `size` bytes may take; `base_s` are those of an empty one."""
    return base_s * (1 + size / BYTES_PER_BASE_TIME)


def _status() -> dict[str, int]:
    """This process's memory by the names of /proc/self/status, in bytes; empty without /proc."""
    found = {}
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text("utf-8", "replace").splitlines():
            name, _, value = line.partition(":")
            if value.endswith(" kB"):
                found[name] = int(value[:-3]) * 1024
    return found
