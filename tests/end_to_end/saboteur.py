"""A run whose workers do the worst that a reader can do, for recordings whose task names it.

To be imported by the process that workers are forked from, and to be run as a program:
`python -m tests.end_to_end.saboteur REPOSITORY DEST SECONDS`, with the time limit of a phase.
"""

from __future__ import annotations

import errno
import mmap
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from converter import conversion, convert_dataset
from converter.recording import convert
from converter.recording.local import LocalRecording
from converter.recording.signal import SignalSource
from converter.work.task import CONVERSION

from .history import History

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
    """Leave a child behind, which holds a file of the run's scratch open."""
    with tempfile.TemporaryFile():
        if os.fork() == 0:
            time.sleep(600)


def thread() -> None:
    """Leave a thread behind, which would hold its process up."""
    threading.Thread(target=time.sleep, args=(600,)).start()


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
    "thread": thread,
}


def sabotaged(recording: LocalRecording) -> SignalSource:
    """Open a recording after its fault."""
    FAULTS.get(recording.entities["task"], lambda: None)()
    return open_recording(recording)


def run(history: History, seconds: float = 60.0) -> None:
    """Convert a dataset in a process of its own, whose server of workers is a new one."""
    arguments = [sys.executable, "-m", __name__, history.root, history.dest, str(seconds)]
    environment = {**os.environ, "SABOTAGED": str(history.dest)}
    subprocess.run(arguments, env=environment, cwd=ROOT, check=True)


ROOT = Path(__file__).parents[2]

if __name__ == "__main__":
    conversion.CONVERSION = (*CONVERSION, "tests.end_to_end.saboteur")
    convert_dataset(sys.argv[1], dest=sys.argv[2], timeout=float(sys.argv[3]), jobs=2)
elif "SABOTAGED" in os.environ:
    convert.open_recording = sabotaged
