"""What takes time at its first use, once in the process that workers are forked from.

To be imported there after all other modules.
"""

from __future__ import annotations

import gc
import signal
import sys
from importlib.abc import MetaPathFinder

import numpy as np
import pyarrow as pa

from ..contract.validation import store_validator
from ..recording.zarr_v3 import encode
from .enclosure import software


class _WithoutPandas(MetaPathFinder):
    """Arrow's first array imports pandas where it is installed, which nothing here needs.

    It takes longer than a short recording, and doubles the memory that is forked for each.
    """

    def find_spec(self, name: str, *_: object) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(name)


sys.meta_path.insert(0, _WithoutPandas())
pa.array([])
del sys.meta_path[0]
# The first frame makes a lock, which frames of one thread never take.
blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ())
encode(np.zeros(1, np.int16))
signal.pthread_sigmask(signal.SIG_SETMASK, blocked)  # to register a lock may unblock SIGTERM
store_validator()
software()

# What the collector would visit in a worker, the worker would have to copy.
gc.collect()
gc.freeze()
