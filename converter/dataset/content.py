"""A recording's bytes, laid out on this machine under their BIDS names."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from .annex import AnnexKey, DamagedContent, LocalAnnex
from .recording import Entry, Recording
from .repository import Repository

# More than a few named files make no sentence.
_NAMED = 3


class MissingContent(Exception):
    """Annexed files whose content is not on this machine; `keys` has every key, in path order."""

    def __init__(self, message: str, keys: tuple[str, ...]) -> None:
        super().__init__(message)
        self.keys = keys

    def __reduce__(self) -> tuple[type[MissingContent], tuple[str, tuple[str, ...]]]:
        return type(self), (str(self), self.keys)


def materialise(recording: Recording, repository: Repository, into: Path) -> dict[str, Path]:
    """Lay out a recording's members and sidecars as `into/<BIDS path>`; return path to file.

    Annexed content is hard-linked, or symlinked where it lies on another volume: it must not
    be written to. Files of git are copied. Nothing is laid out unless all content is here.

    Raises MissingContent, DamagedContent (an annexed file of another size than its key
    tells), RepositoryError (a blob is not there) and ValueError for a refused recording.
    """
    if recording.refused is not None:
        raise ValueError(recording.refused)
    entries = {entry.path: entry for entry in (*recording.members, *recording.sidecars.entries())}
    contents = _annexed(entries.values(), LocalAnnex(repository))
    files = {path: into / _inside(path) for path in entries}
    for file in files.values():
        file.parent.mkdir(parents=True, exist_ok=True)
    for path, content in contents.items():
        _link(content, files[path])
    with repository.blobs() as blobs:
        for path, entry in entries.items():
            if path not in contents:
                blobs.copy(entry.blob, files[path])
    return files


def read_small(entry: Entry, repository: Repository, limit: int) -> bytes | None:
    """A small file's bytes; None when it has more than `limit`, or its content is not here."""
    if entry.size > limit:
        return None
    if entry.key is None:
        return repository.read_blob(entry.blob, limit)
    try:
        content = _annexed([entry], LocalAnnex(repository))[entry.path]
    except (MissingContent, DamagedContent):
        return None
    with content.open("rb") as file:
        return file.read(limit)


def _annexed(entries: Iterable[Entry], annex: LocalAnnex) -> dict[str, Path]:
    """Where the content of each annexed entry lies, by the entry's path."""
    contents: dict[str, Path] = {}
    missing: list[Entry] = []
    for entry in entries:
        if entry.key is None:
            continue
        key = AnnexKey.parse(entry.key)
        content = annex.find(key) if key is not None else None
        if content is None:
            missing.append(entry)
        else:
            contents[entry.path] = content
    if missing:
        missing.sort(key=lambda entry: entry.path)
        raise MissingContent(_sentence(missing), tuple(entry.key or "" for entry in missing))
    return contents


def _sentence(missing: list[Entry]) -> str:
    named = ", ".join(f"{entry.path} ({entry.key})" for entry in missing[:_NAMED])
    rest = len(missing) - _NAMED
    more = f" and {rest} more" if rest > 0 else ""
    return f"The annexed content of these files is not on this machine: {named}{more}."


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
