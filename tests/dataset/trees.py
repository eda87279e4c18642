"""Git repositories with any tree, also one that no file system would hold."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from converter.dataset.recording import Entry
from converter.dataset.repository import Repository
from converter.dataset.snapshot import Snapshot
from tests.conftest import GIT_ENVIRONMENT, git


@dataclass(frozen=True)
class Link:
    """A symbolic link in a tree."""

    target: str


Content = bytes | Link


def make_repository(
    folder: Path, files: Mapping[str | bytes, Content] | Iterable[tuple[str | bytes, Content]]
) -> str:
    """Commit a tree to a new repository without a checked-out work tree; return the SHA."""
    folder.mkdir(parents=True)
    git(folder, "init", "-q", "-b", "main")
    pairs = files.items() if isinstance(files, Mapping) else files
    subprocess.run(
        ["git", "fast-import", "--quiet"],
        cwd=folder,
        env=GIT_ENVIRONMENT,
        input=b"".join(_commands(pairs)),
        check=True,
    )
    return git(folder, "rev-parse", "main")


def _commands(files: Iterable[tuple[str | bytes, Content]]) -> Iterator[bytes]:
    yield b"commit refs/heads/main\ncommitter t <t@localhost> 1700000000 +0000\ndata 1\nt\n"
    for path, content in files:
        raw = path.encode() if isinstance(path, str) else path
        mode = b"120000" if isinstance(content, Link) else b"100644"
        body = content.target.encode() if isinstance(content, Link) else content
        quoted = b"".join(b"\\%03o" % byte for byte in raw)
        yield b'M %s inline "%s"\ndata %d\n%s\n' % (mode, quoted, len(body), body)


def snapshot_of(
    folder: Path, files: Mapping[str | bytes, Content] | Iterable[tuple[str | bytes, Content]]
) -> Snapshot:
    """The snapshot of a new repository's only commit."""
    commit = make_repository(folder, files)
    return Snapshot.read(Repository(folder), commit)


def listed(*paths: str) -> Snapshot:
    """A snapshot of plain files, without a repository."""
    return Snapshot("0" * 40, [Entry(path, "100644", "0" * 40, 1) for path in paths])
