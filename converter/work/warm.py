"""What takes time at its first use, once in the process that workers are forked from.

To be imported there after all other modules.
"""

from __future__ import annotations

import gc
import signal
from contextlib import suppress

import numpy as np

from ..contract.validation import store_validator
from ..recording.zarr_v3 import encode
from .enclosure import software
from .rehearsal import rehearse

# The first frame makes a lock, which frames of one thread never take.
blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ())
encode(np.zeros(1, np.int16))
signal.pthread_sigmask(signal.SIG_SETMASK, blocked)  # to register a lock may unblock SIGTERM
store_validator()
software()
with suppress(OSError):  # without a place for it, workers do without
    rehearse()

# What the collector would visit in a worker, the worker would have to copy.
gc.collect()
gc.freeze()
