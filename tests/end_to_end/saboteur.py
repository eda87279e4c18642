"""Faults in place of the reader, for recordings whose task names one; a worker preloads this."""

from __future__ import annotations

import errno
import mmap
import os
import signal
import subprocess
import sys
import time

from converter.recording import convert
from converter.recording.local import LocalRecording
from converter.recording.signal import SignalSource

open_recording = convert.open_recording


held: list[mmap.mmap] = []


def take(size: int) -> None:
    """Take memory, which is not touched."""
    held.append(mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))


def thirst() -> None:
    """Take more than is estimated for a small recording, and go on."""
    take(1 << 30)


def balloon() -> None:
    while True:
        take(1 << 28)


def full() -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def fork() -> None:
    """Leave a child behind that names the run's scratch."""
    script = "import time; time.sleep(600)"
    subprocess.Popen([sys.executable, "-c", script, os.environ["SOAK"]])


FAULTS = {
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "segv": lambda: os.kill(os.getpid(), signal.SIGSEGV),
    "bus": lambda: os.kill(os.getpid(), signal.SIGBUS),
    "exit": lambda: os._exit(7),
    "hang": lambda: time.sleep(600),
    "raise": lambda: {}["no such key"],
    "thirst": thirst,
    "balloon": balloon,
    "full": full,
    "fork": fork,
}


def sabotaged(recording: LocalRecording) -> SignalSource:
    """Open a recording after its fault."""
    FAULTS.get(recording.entities["task"], lambda: None)()
    return open_recording(recording)


convert.open_recording = sabotaged
