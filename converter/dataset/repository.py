"""A dataset's git repository, read through the `git` program.

The repository is untrusted: nothing of its configuration runs, no hook, no replaced object,
no fetch; nor does the caller's environment choose another repository.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import IO, NamedTuple

_SHA1 = re.compile(r"[0-9a-f]{40}")
_SHA1_LINES = re.compile(r"(?:[0-9a-f]{40}\n)*+")
_FOUND = re.compile(rb"(?P<sha>[0-9a-f]{40}) (?P<kind>\w+) (?P<size>\d+)\n")
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

    `mode` is git's (100644, 100755 or 120000), `size` the blob's bytes; a byte of `path` that
    is not UTF-8 is shown as `\\xff`.
    """

    mode: str
    sha: str
    size: int
    path: str


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

    def remotes(self) -> dict[str, dict[str, str]]:
        """Settings of the remotes in the repository's own configuration, by their names."""
        arguments = ("config", "--local", "--no-includes", "-z", "--get-regexp", r"^remote\.")
        remotes: dict[str, dict[str, str]] = {}
        for line in (self._run(*arguments) or b"").decode("utf-8", "replace").split("\0"):
            setting, _, value = line.partition("\n")
            name, dot, variable = setting.removeprefix("remote.").rpartition(".")
            if dot:
                remotes.setdefault(name, {})[variable] = value
        return remotes

    def commits_of(self, *patterns: str) -> tuple[str, ...]:
        """The commits that refs point to, each once; patterns as `git for-each-ref` has them."""
        found = self._run("for-each-ref", "--format=%(objectname) %(objecttype)", *patterns)
        lines = (line.split() for line in (found or b"").decode("ascii").splitlines())
        return tuple(dict.fromkeys(sha for sha, kind in lines if kind == "commit"))

    def tree(self, commit: str) -> Iterator[TreeEntry]:
        """Every file and symbolic link of a commit, in git's order; submodules left out.

        Raises RepositoryError, also where a blob is not in the repository.
        """
        arguments = ("ls-tree", "-r", "-z", "-l", "--full-tree", _checked(commit))
        with self._start(*arguments, stdin=subprocess.DEVNULL) as process:
            for lines in _whole_lines(_pipe(process.stdout)):
                for line in lines.decode("utf-8", "backslashreplace").split("\0"):
                    facts, _, path = line.partition("\t")
                    mode, kind, sha, size = facts.split()
                    if size == "BAD":
                        raise RepositoryError(f"The object {sha} of {self.path} is missing.")
                    if kind == "blob":
                        yield TreeEntry(sys.intern(mode), sha, int(size), path)
        if process.returncode:
            raise RepositoryError(f"The tree of {commit} cannot be read from {self.path}.")

    def read_blob(self, sha: str, limit: int) -> bytes:
        """One blob's bytes. Raises RepositoryError when there are more than `limit`."""
        with self.blobs() as reader:
            return reader.read(sha, limit)

    def read_blobs(self, shas: Iterable[str]) -> Iterator[bytes]:
        """Bytes of many small blobs, in the order asked, without a round trip for each."""
        asked = "".join([f"{sha}\n" for sha in shas])
        if not _SHA1_LINES.fullmatch(asked):
            raise RepositoryError("A blob was asked for by no object name of 40 hex digits.")
        with tempfile.TemporaryFile() as requests:
            requests.write(asked.encode("ascii"))
            requests.seek(0)
            process = self._start("cat-file", "--batch", "--buffer", stdin=requests)
            with process, BlobReader(self, process) as reader:
                for _ in range(len(asked) // 41):
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
        return self._bounded(sha, self._ask(sha), limit)

    def _bounded(self, sha: str, size: int, limit: int | None) -> bytes:
        if limit is not None and size > limit:
            for _ in self._body(sha, size):
                pass
            raise RepositoryError(
                f"The object {sha} of {self._repository.path} has {size} bytes, "
                f"where at most {limit} are expected."
            )
        return b"".join(self._body(sha, size))

    def read_path(self, commit: str, path: str, limit: int) -> bytes | None:
        """The bytes of the file at a path of a commit or tree, None when there is none.

        Raises RepositoryError for more bytes than `limit`.
        """
        if "\n" in path:
            return None
        name = f"{_checked(commit)}:{path}"
        self._send(name)
        line = self._output.readline()
        if not line:
            raise self._broken(name)
        found = _FOUND.fullmatch(line)
        if found is None:
            return None
        if found["kind"] != b"blob":
            for _ in self._body(name, int(found["size"])):
                pass
            return None
        return self._bounded(found["sha"].decode("ascii"), int(found["size"]), limit)

    def copy(self, sha: str, destination: Path) -> None:
        """Write the blob to a new file, a piece at a time."""
        size = self._ask(sha)
        with destination.open("xb") as file:
            for piece in self._body(sha, size):
                file.write(piece)

    def next_blob(self) -> bytes:
        """The bytes of the next object that was asked for already."""
        sha, size = self._header()
        content = self._output.read(size + 1)  # a line feed ends an object
        if len(content) <= size:
            raise self._broken(sha)
        return content[:-1]

    def _ask(self, sha: str) -> int:
        self._send(_checked(sha))
        return self._header(sha)[1]

    def _send(self, name: str) -> None:
        requests = _pipe(self._process.stdin)
        try:
            requests.write(name.encode("utf-8", "surrogateescape") + b"\n")
            requests.flush()
        except BrokenPipeError as error:
            raise self._broken(name) from error

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


def _whole_lines(stream: IO[bytes]) -> Iterator[bytes]:
    """Many lines at a time, with a NUL between each two."""
    rest = b""
    while piece := stream.read(_CHUNK):
        lines, end, rest = (rest + piece).rpartition(b"\0")
        if end:
            yield lines
