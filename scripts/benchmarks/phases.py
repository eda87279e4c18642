"""What a conversion is at: its phases, and a sampler that gives each its CPU time."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from types import FrameType

SAMPLING_SECONDS = 0.001
SWITCH_SECONDS = 1e-4  # a sampler that waits longer for the interpreter sees what lets it go

# The phase of a stack is that of its innermost frame in the package.
PACKAGE = f"{os.sep}converter{os.sep}"
FUNCTIONS = {
    ("recording/zarr_v3", "encode"): "compress",
    ("recording/passes", "resample"): "resample",
    ("recording/passes", "quantise"): "quantise",
    ("recording/passes", "fold"): "views",
}
MODULES = {
    "recording/readers/": "read",
    "recording/resample": "resample",
    "recording/quantise": "quantise",
    "recording/views": "views",
    "recording/zarr_v3": "files",
    "recording/passes": "blocks",
    "recording/waiting": "blocks",
    "recording/baseline": "blocks",
    "recording/native": "blocks",
    "recording/served": "blocks",
    "recording/store": "blocks",
    "recording/ordered": "threads",
    "recording/": "metadata",
}


class Sampler(threading.Thread):
    """Counts the CPU seconds of the process's other threads by phase."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.seconds: dict[str, float] = defaultdict(float)
        self._clocks: dict[int, float] = {}
        self._done = threading.Event()

    def run(self) -> None:
        """Sample until stopped."""
        while not self._done.wait(SAMPLING_SECONDS):
            self.sample()

    def sample(self) -> None:
        """Give each thread's time since the last sample to its phase."""
        before, self._clocks = self._clocks, {}
        for thread, frame in sys._current_frames().items():
            if thread != self.ident:
                now = time.clock_gettime(time.pthread_getcpuclockid(thread))
                # A later thread may have the number of one that ended.
                spent = now - before.get(thread, 0.0)
                self.seconds[phase(frame)] += spent if spent >= 0 else now
                self._clocks[thread] = now

    def stop(self) -> None:
        """End the sampling."""
        self._done.set()
        self.join()


def phase(frame: FrameType | None) -> str:
    """What a thread with this innermost frame is at."""
    while frame is not None:
        _, inside, name = frame.f_code.co_filename.rpartition(PACKAGE)
        if inside:
            module = name.removesuffix(".py").replace(os.sep, "/")
            known = FUNCTIONS.get((module, frame.f_code.co_name))
            return known or next((p for m, p in MODULES.items() if module.startswith(m)), "other")
        frame = frame.f_back
    return "other"


def sampled(run: Callable[[], None], repeats: int) -> dict[str, float]:
    """Seconds of CPU by phase, of all runs."""
    sampler = Sampler()
    sampler.sample()
    sampler.seconds.clear()
    switch_seconds = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_SECONDS)
    sampler.start()
    try:
        for _ in range(repeats):
            run()
    finally:
        sampler.sample()
        sampler.stop()
        sys.setswitchinterval(switch_seconds)
    return sampler.seconds
