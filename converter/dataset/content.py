"""A recording's bytes, laid out on this machine under their BIDS names.

Annexed content is taken from an annex of this machine, or fetched from where the `git-annex`
branch says that it lies: special remotes with URLs, those first that are told to have it, then
recorded URLs; at last the `git-annex` program is asked, where it is installed.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path, PurePosixPath
from typing import Final

from .content_errors import ContentError, DamagedContent, MissingContent, UnreachableContent
from .content_source import ContentSource, locate
from .fetching import check_places, fetch
from .recording import Entry, Recording

__all__ = [
    "ContentSource",
    "DamagedContent",
    "MissingContent",
    "UnreachableContent",
    "materialise",
    "read_small",
]

UNSIZED_LIMIT: Final = 16 << 30
"""Bytes that are fetched at most for a key that tells no size."""


def materialise(recording: Recording, content: ContentSource, into: Path) -> dict[str, Path]:
    """Lay out a recording's members and sidecars as `into/<BIDS path>`; return path to file.

    Annexed content of this machine is hard-linked, or symlinked where it lies on another
    volume: it must not be written to. Other content is fetched, files of git are copied.
    Nothing is laid out unless all annexed content is there.

    Raises MissingContent (every place says that it has it not), DamagedContent (it is not what
    its key tells), UnreachableContent (a place refused it or broke off), RepositoryError (a blob
    is not there), OSError (a full disk) and ValueError for a refused recording.
    """
    if recording.refused is not None:
        raise ValueError(recording.refused)
    entries = {entry.path: entry for entry in (*recording.members, *recording.sidecars.entries())}
    files = {path: into / _inside(path) for path in entries}
    with content.repository.blobs() as blobs:
        local, plans = locate(entries.values(), content, blobs)
        check_places(plans)
        for file in files.values():
            file.parent.mkdir(parents=True, exist_ok=True)
        fetch(plans, content, files, UNSIZED_LIMIT)
        for path, source in local.items():
            _link(source, files[path])
        for plan in plans:
            first, *others = (files[entry.path] for entry in plan.entries)
            for other in others:
                _link(first, other)
        for path, entry in entries.items():
            if entry.key is None:
                blobs.copy(entry.blob, files[path])
    return files


def read_small(entry: Entry, content: ContentSource, limit: int) -> bytes | None:
    """A small file's bytes; None when it has more than `limit`, or can't be had."""
    if entry.size > limit:
        return None
    repository = content.repository
    if entry.key is None:
        return repository.read_blob(entry.blob, limit)
    with tempfile.TemporaryDirectory() as folder, repository.blobs() as blobs:
        file = Path(folder, "content")
        try:
            local, plans = locate([entry], content, blobs)
            fetch(plans, content, {entry.path: file}, limit)
        except ContentError:
            return None
        with local.get(entry.path, file).open("rb") as opened:
            return opened.read(limit)


def _inside(path: str) -> PurePosixPath:
    parts = path.split("/")
    if not {"", ".", ".."}.isdisjoint(parts):
        raise ValueError(f"{path!r} is no path inside a dataset.")
    return PurePosixPath(*parts)


def _link(content: Path, file: Path) -> None:
    try:
        os.link(content, file)
    except FileExistsError:
        raise
    except OSError:
        file.symlink_to(content)
