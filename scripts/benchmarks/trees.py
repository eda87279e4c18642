"""Git repositories with any tree, also one that no file system would hold."""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from converter.dataset.annex import AnnexKey


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
    git(folder, "fast-import", "--quiet", written=b"".join(_commands(pairs)))
    return git(folder, "rev-parse", "main")


def annex_object(content: bytes, extension: str = ".edf") -> str:
    """Where a work tree's annex keeps a content, from the work tree's root."""
    name = f"MD5E-s{len(content)}--{hashlib.md5(content).hexdigest()}{extension}"
    key = AnnexKey.parse(name)
    assert key is not None
    return f".git/annex/objects/{key.hash_mixed}/{name}/{name}"


def git(folder: Path, *arguments: str, written: bytes = b"") -> str:
    """Run git in a repository, with no configuration but its own."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    neutral = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    done = subprocess.run(
        ["git", *arguments],
        cwd=folder,
        env={**inherited, **neutral},
        input=written,
        stdout=subprocess.PIPE,
        check=True,
    )
    return done.stdout.decode().strip()


def _commands(files: Iterable[tuple[str | bytes, Content]]) -> Iterator[bytes]:
    yield b"commit refs/heads/main\ncommitter t <t@localhost> 1700000000 +0000\ndata 1\nt\n"
    for path, content in files:
        raw = path.encode() if isinstance(path, str) else path
        mode = b"120000" if isinstance(content, Link) else b"100644"
        body = content.target.encode() if isinstance(content, Link) else content
        quoted = b"".join(b"\\%03o" % byte for byte in raw)
        yield b'M %s inline "%s"\ndata %d\n%s\n' % (mode, quoted, len(body), body)
