"""A dataset's git repository, read through the `git` program.

The repository is untrusted: nothing of its configuration runs, no hook, no replaced object,
no fetch; nor does the caller's environment choose another repository.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import IO, NamedTuple

_SHA1 = re.compile(r"[0-9a-f]{40}")
_CHUNK = 1 << 20

_OPTIONS = (
    "--no-pager",
    "--no-replace-objects",
    *("-c", "safe.directory=*"),  # a clone may belong to another user
    *("-c", "protocol.allow=never"),
    *("-c", "core.fsmonitor=false"),
    *("-c", f"core.hooksPath={os.devnull}"),
)

_ENVIRONMENT = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "LC_ALL": "C",
}


class RepositoryError(Exception):
    """A repository, commit or object cannot be read; one sentence says which and why."""


class TreeEntry(NamedTuple):
    """A file or symbolic link of a commit's tree.

    `mode` is git's (100644, 100755 or 120000), `size` the blob's bytes, `path` as git holds it.
    """

    mode: str
    sha: str
    size: int
    path: bytes


class Repository:
    """A git repository at `path`: a work tree, a linked work tree, a submodule or a bare one.

    `git_dir` is its own git directory, `common_dir` the one that linked work trees share.
    Raises RepositoryError when `path` itself (not a parent of it) is no repository.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.git_dir = _git_dir(self.path)
        common = self._run("rev-parse", "--path-format=absolute", "--git-common-dir")
        if common is None:
            raise RepositoryError(f"{self.path} is not a git repository that git can read.")
        self.common_dir = Path(os.fsdecode(common.rstrip(b"\n")))

    def resolve(self, rev: str) -> str:
        """The 40 hex digits of the commit that a SHA, branch or tag names.

        Raises RepositoryError when it names none, or when object names are not SHA-1.
        """
        found = None
        if rev and "\0" not in rev and not rev.startswith("-"):
            found = self._run("rev-parse", "--verify", "--quiet", f"{rev}^{{commit}}")
        if found is None:
            raise RepositoryError(f"{rev!r} names no commit of the repository {self.path}.")
        sha = found.decode("ascii").strip()
        if not _SHA1.fullmatch(sha):
            raise RepositoryError(
                f"The repository {self.path} names the commit {rev!r} by {len(sha)} hex digits, "
                "where the 40 of SHA-1 are expected."
            )
        return sha

    def tree(self, commit: str) -> Iterator[TreeEntry]:
        """Every file and symbolic link of a commit, in git's order; submodules left out."""
        arguments = ("ls-tree", "-r", "-z", "-l", "--full-tree", _checked(commit))
        with self._start(*arguments, stdin=subprocess.DEVNULL) as process:
            for line in _nul_separated(_pipe(process.stdout)):
                facts, _, path = line.partition(b"\t")
                mode, kind, sha, size = facts.decode("ascii").split()
                if kind == "blob":
                    yield TreeEntry(mode, sha, int(size), path)
        if process.returncode:
            raise RepositoryError(f"The tree of {commit} cannot be read from {self.path}.")

    def read_blob(self, sha: str, limit: int) -> bytes:
        """One blob's bytes. Raises RepositoryError when there are more than `limit`."""
        with self.blobs() as reader:
            return reader.read(sha, limit)

    def read_blobs(self, shas: Iterable[str]) -> Iterator[bytes]:
        """Bytes of many small blobs, in the order asked, without a round trip for each."""
        with tempfile.TemporaryFile() as requests:
            requests.writelines(b"%s\n" % _checked(sha).encode("ascii") for sha in shas)
            count = requests.tell() // 41
            requests.seek(0)
            process = self._start("cat-file", "--batch", "--buffer", stdin=requests)
            with process, BlobReader(self, process) as reader:
                for _ in range(count):
                    yield reader.next_blob()

    def blobs(self) -> BlobReader:
        """A reader of blobs, to be used in a `with` block."""
        return BlobReader(self, self._start("cat-file", "--batch", stdin=subprocess.PIPE))

    def _run(self, *arguments: str) -> bytes | None:
        with self._start(*arguments, stdin=subprocess.DEVNULL) as process:
            output = _pipe(process.stdout).read()
        return output if process.returncode == 0 else None

    def _start(self, *arguments: str, stdin: int | IO[bytes]) -> subprocess.Popen[bytes]:
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
        # A stand-in for the work tree, as `core.worktree` may name one that is gone.
        place = (f"--git-dir={self.git_dir}", f"--work-tree={self.git_dir}")
        try:
            return subprocess.Popen(
                ["git", *_OPTIONS, *place, *arguments],
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                cwd=self.git_dir,
                env=inherited | _ENVIRONMENT,
            )
        except FileNotFoundError as error:
            message = f"The git program, needed to read {self.path}, is not installed."
            raise RepositoryError(message) from error


class BlobReader:
    """Blobs out of one running `git cat-file --batch`; one thread uses it at a time."""

    def __init__(self, repository: Repository, process: subprocess.Popen[bytes]) -> None:
        self._repository = repository
        self._process = process
        self._output = _pipe(process.stdout)

    def __enter__(self) -> BlobReader:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._output.close()
        if self._process.stdin is not None:
            self._process.stdin.close()
        if kind is not None:
            self._process.kill()
        self._process.wait()

    def read(self, sha: str, limit: int | None = None) -> bytes:
        """The blob's bytes. Raises RepositoryError: not there, or more bytes than `limit`."""
        size = self._ask(sha)
        if limit is not None and size > limit:
            for _ in self._body(sha, size):
                pass
            raise RepositoryError(
                f"The object {sha} of {self._repository.path} has {size} bytes, "
                f"where at most {limit} are expected."
            )
        return b"".join(self._body(sha, size))

    def copy(self, sha: str, destination: Path) -> None:
        """Write the blob to a new file, a piece at a time."""
        size = self._ask(sha)
        with destination.open("xb") as file:
            for piece in self._body(sha, size):
                file.write(piece)

    def next_blob(self) -> bytes:
        """The bytes of the next object that was asked for already."""
        sha, size = self._header()
        return b"".join(self._body(sha, size))

    def _ask(self, sha: str) -> int:
        requests = _pipe(self._process.stdin)
        try:
            requests.write(_checked(sha).encode("ascii") + b"\n")
            requests.flush()
        except BrokenPipeError as error:
            raise self._broken(sha) from error
        return self._header(sha)[1]

    def _header(self, asked: str = "asked for") -> tuple[str, int]:
        line = self._output.readline().decode("ascii", "replace").split()
        match line:
            case [sha, "blob", size]:
                return sha, int(size)
            case [sha, *found] if found:
                what = "missing" if found[0] == "missing" else f"a {found[0]}"
                raise RepositoryError(
                    f"The object {sha} of {self._repository.path} is {what}, "
                    "where a blob is expected."
                )
        raise self._broken(asked)

    def _body(self, sha: str, size: int) -> Iterator[bytes]:
        left = size
        while left:
            piece = self._output.read(min(left, _CHUNK))
            if not piece:
                raise self._broken(sha)
            left -= len(piece)
            yield piece
        self._output.read(1)  # the line feed that ends an object

    def _broken(self, sha: str) -> RepositoryError:
        return RepositoryError(
            f"git stopped before the end of the object {sha} in {self._repository.path}."
        )


def _git_dir(path: Path) -> Path:
    """The git directory of `path`, found without looking at its parents."""
    for candidate in (_pointed_to(path / ".git"), path):
        if (candidate / "HEAD").is_file() and (
            (candidate / "objects").is_dir() or (candidate / "commondir").is_file()
        ):
            return candidate.absolute()
    raise RepositoryError(f"{path} is not a git repository.")


def _pointed_to(dot_git: Path) -> Path:
    """Where the `.git` file of a submodule or a linked work tree leads, or `.git` itself."""
    if dot_git.is_file():
        text = dot_git.read_bytes()[:4096].strip()
        if text.startswith(b"gitdir:"):
            return dot_git.parent / os.fsdecode(text.removeprefix(b"gitdir:").strip())
    return dot_git


def _checked(sha: str) -> str:
    if not _SHA1.fullmatch(sha):
        raise RepositoryError(f"{sha!r} is no object name of 40 hex digits.")
    return sha


def _pipe(stream: IO[bytes] | None) -> IO[bytes]:
    if stream is None:
        raise RepositoryError("git was started without the pipe that is read here.")
    return stream


def _nul_separated(stream: IO[bytes]) -> Iterator[bytes]:
    rest = b""
    while piece := stream.read(_CHUNK):
        *lines, rest = (rest + piece).split(b"\0")
        yield from lines
