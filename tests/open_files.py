"""What a process has open, by its links in /proc."""

from __future__ import annotations

import stat
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple


class OpenFile(NamedTuple):
    """`path` is where it lay when it was opened; also one without a name has a folder."""

    path: Path
    is_written: bool


def open_files(process: str = "self") -> list[OpenFile]:
    """Those of a process number; what is closed meanwhile is left out, and who has ended."""
    found: list[OpenFile] = []
    with suppress(OSError):
        for link in Path("/proc", process, "fd").iterdir():
            with suppress(OSError):
                mode = link.lstat().st_mode
                found.append(OpenFile(link.readlink(), bool(mode & stat.S_IWUSR)))
    return found
