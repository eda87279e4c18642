"""Git repositories with any tree, also one that no file system would hold."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from converter.dataset.recording import Entry
from converter.dataset.repository import Repository
from converter.dataset.snapshot import Snapshot
from scripts.benchmarks.trees import Content, Link, make_repository

__all__ = ["Content", "Link", "listed", "make_repository", "snapshot_of"]


def snapshot_of(
    folder: Path, files: Mapping[str | bytes, Content] | Iterable[tuple[str | bytes, Content]]
) -> Snapshot:
    """The snapshot of a new repository's only commit."""
    commit = make_repository(folder, files)
    return Snapshot.read(Repository(folder), commit)


def listed(*paths: str) -> Snapshot:
    """A snapshot of plain files, without a repository."""
    return Snapshot("0" * 40, [Entry(path, "100644", "0" * 40, 1) for path in paths])
