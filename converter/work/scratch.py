"""A run's scratch folder: its own while the run lives, anybody's to remove after."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

_PREFIX: Final = ".nemar-convert-"
_LOCK: Final = "lock"
_NEW_LOCK: Final = "lock.new"

# A folder without a lock file may be one that is just being made, for this many seconds.
_NEWBORN: Final = 3600.0


@contextmanager
def scratch_folder(parent: Path) -> Iterator[Path]:
    """A new folder in `parent`, which is made too; removed at the end.

    Holds a locked file as long as this process lives. Folders that killed runs left in
    `parent` are removed first. Raises OSError when no folder can be made.
    """
    parent.mkdir(parents=True, exist_ok=True)
    _sweep(parent)
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
    try:
        with (folder / _NEW_LOCK).open("wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            # Whoever sees the lock sees it locked.
            (folder / _NEW_LOCK).rename(folder / _LOCK)
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _sweep(parent: Path) -> None:
    for folder in parent.glob(f"{_PREFIX}*"):
        if folder.is_dir() and not folder.is_symlink() and _is_abandoned(folder):
            shutil.rmtree(folder, ignore_errors=True)


def _is_abandoned(folder: Path) -> bool:
    with suppress(OSError):
        try:
            descriptor = os.open(folder / _LOCK, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            return time.time() - folder.stat().st_mtime > _NEWBORN
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        finally:
            os.close(descriptor)
    return False
