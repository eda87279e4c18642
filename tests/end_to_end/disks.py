"""Small disks, of memory: real file systems that fill up, or turn read-only."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

_HOLDER = 'mount -t tmpfs -o "size=$2" tmpfs "$1" && echo ready && exec sleep 600'


@dataclass(frozen=True)
class Disk:
    """A disk that is mounted at `place` for its holder, and for what `enter` precedes."""

    holder: int
    place: Path

    @property
    def path(self) -> Path:
        """Where the test itself sees its root."""
        return Path(f"/proc/{self.holder}/root{self.place}")

    @property
    def enter(self) -> tuple[str, ...]:
        """The beginning of a command line that has the disk."""
        return ("nsenter", "-t", str(self.holder), "-U", "-m", "--preserve-credentials")

    def remount(self, options: str) -> None:
        """Change its size, or whether it can be written to."""
        mount = ("mount", "-o", f"remount,{options}", str(self.place))
        subprocess.run([*self.enter, *mount], check=True, capture_output=True)


@contextmanager
def disk(place: Path, size: str) -> Iterator[Disk]:
    """A disk of `size` bytes at the folder `place`; skips where a user may not mount."""
    try:
        holder = subprocess.Popen(
            ["unshare", "-r", "-m", "sh", "-c", _HOLDER, "sh", str(place), size],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
    except FileNotFoundError:
        pytest.skip("no unshare program to mount a disk with")
    with holder:
        try:
            assert holder.stdout is not None
            said = holder.stdout.readline()
            if said != b"ready\n":
                pytest.skip(f"a disk can't be mounted here: {said.decode().strip()}")
            yield Disk(holder.pid, place)
        finally:
            holder.kill()
