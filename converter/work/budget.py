"""What of this machine's memory and scratch space a run may still give to workers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from .machine import available_memory, free_space, resident_memory, total_memory


class MachineBudget:
    """The machine's, or its cgroup's, and never more memory than `limit` bytes, 0 for none.

    Read anew at every call: other programs come and go.
    """

    def __init__(self, scratch: Path, limit: int = 0) -> None:
        self._scratch, self._limit = scratch, limit

    @property
    def total_memory(self) -> int:
        """What can ever be free."""
        total = total_memory()
        return min(total, self._limit) if self._limit else total

    def free_memory(self, reservations: Sequence[tuple[int, int]], enough: int) -> int:
        """Bytes beyond the reservations, each a process id and its bytes; see Budget.

        What a process uses already is no longer available to the machine: only the rest of its
        reservation is still to come.
        """
        reserved = sum(size for _, size in reservations)
        free = available_memory() - reserved
        if free < enough:  # else the processes need not be asked, which takes milliseconds
            free += sum(min(resident_memory(pid), size) for pid, size in reservations)
        return min(free, self._limit - reserved) if self._limit else free

    def free_scratch(self, reserved: int) -> int:
        """Bytes of the scratch volume beyond those reserved."""
        return free_space(self._scratch) - reserved
