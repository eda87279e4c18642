"""The repository that a cached one is fetched from, reached through the `git` program.

The caller chose its address, so the caller's own git configuration and credentials apply. What
the server sends is stored and never executed: there is no work tree, no hook, no submodule, and
no other address that it may name. Objects are not checked for style (`fetch.fsckObjects`), as
datasets with an old history would be refused for it; nothing is checked out that this protects.
"""

from __future__ import annotations

import os
import re
import selectors
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Final
from urllib.parse import unquote, urlsplit

from ..contract.details import public_detail
from .repository import RepositoryError

# Seconds between attempts, after which the repository counts as unreachable.
WAITS: Final = (1.0, 4.0, 16.0)

# Seconds without a word of progress, after which git is ended.
SILENCE: Final = 150.0

_LONGEST_TALE = 1 << 16

_OPTIONS = (
    "--no-pager",
    *("-c", f"core.hooksPath={os.devnull}"),
    *("-c", "core.fsmonitor=false"),
    *("-c", "gc.auto=0"),
    *("-c", "maintenance.auto=false"),
    *("-c", "protocol.version=2"),  # which serves any commit by its SHA
    *("-c", "fetch.unpackLimit=1"),  # each fetch leaves one pack
    *("-c", "fetch.fsckObjects=false"),
    *("-c", "transfer.bundleURI=false"),
    *("-c", "http.lowSpeedLimit=1"),
    *("-c", "http.lowSpeedTime=120"),  # ends git also when its watcher is gone
)

_FETCH = (
    "fetch",
    "--progress",
    "--no-tags",
    "--no-prune",
    "--no-recurse-submodules",
    "--no-write-fetch-head",
)

# What of the environment may reach git: ways to the server, never another repository.
_PASSED_ON = re.compile(
    r"GIT_(?:SSH|SSL_|PROXY_|ASKPASS$|HTTP_|CONFIG_(?:GLOBAL|SYSTEM|NOSYSTEM|COUNT|KEY_|VALUE_))"
)

_ENVIRONMENT = {
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_DEFAULT_REF_FORMAT": "files",
    "SSH_ASKPASS_REQUIRE": "never",
    "LC_ALL": "C",
}

_PROTOCOLS = "https:http:ssh:git"

# git's own words; what a server says comes after "remote: ".
_NOT_THERE = re.compile(
    r"^fatal: (?:repository '.*' not found"
    r"|'.*' does not appear to be a git repository"
    r"|remote error: access denied or repository not exported"
    r"|Authentication failed for"
    r"|could not read (?:Username|Password) for)"
    r"|^ERROR: Repository not found"
    r"|^\S+: Permission denied \(",
    re.MULTILINE,
)
_NO_OBJECT = re.compile(
    r"^fatal: (?:remote error: upload-pack: not our ref|couldn't find remote ref)", re.MULTILINE
)
_REFS_ONLY = re.compile(
    r"^error: Server does not allow request for unadvertised object"
    r"|^fatal: dumb http transport does not support shallow capabilities",
    re.MULTILINE,
)


_REASONS = ("fatal: ", "error: ", "ssh: ")


class NoSuchObject(RepositoryError):
    """The repository does not have the commit, or not any more."""


class RefsOnly(RepositoryError):
    """The server does not give a commit by its SHA, only what its branches and tags lead to."""


class Unreachable(RepositoryError):
    """The server could not be reached, or broke off, on every attempt."""


@dataclass(frozen=True, slots=True)
class Upstream:
    """A repository that git can fetch from; its address may hold credentials."""

    url: str = field(repr=False)

    def __str__(self) -> str:
        """The address without credentials and query."""
        scheme, separator, rest = self.url.partition("://")
        if not separator:
            return self.url
        host, slash, path = rest.partition("/")
        return scheme + separator + host.rpartition("@")[2] + slash + path.partition("?")[0]

    def refs(self, git_dir: Path) -> dict[str, str]:
        """What each ref names, HEAD among them; `<tag>^{}` is the commit of an annotated tag.

        Raises RepositoryError.
        """
        answer = self._ask(git_dir, "ls-remote", "--quiet", "--", self.url)
        lines = (line.partition("\t") for line in answer.decode("utf-8", "replace").splitlines())
        return {name: sha for sha, tab, name in lines if tab}

    def fetch(self, git_dir: Path, refspecs: Sequence[str], *options: str) -> None:
        """Fetch what the refspecs say into a repository, all of it or nothing.

        Raises RepositoryError; among them NoSuchObject, RefsOnly and Unreachable.
        """
        self._ask(git_dir, *_FETCH, *options, "--", self.url, *refspecs)

    def _ask(self, git_dir: Path, *arguments: str) -> bytes:
        protocols = _PROTOCOLS
        if self.url.startswith("file://"):
            protocols += ":file"
        for wait in (*WAITS, None):
            done = run_git(git_dir, *arguments, protocols=protocols, silence=SILENCE)
            if done.status == 0:
                return done.output
            problem = self._problem(done.said)
            if wait is None or not isinstance(problem, Unreachable):
                break
            time.sleep(wait)
        raise problem

    def _problem(self, said: str) -> RepositoryError:
        if _NOT_THERE.search(said):
            return RepositoryError(
                f"There is no repository at {self}, or none that git may read with the "
                "credentials it has."
            )
        if _NO_OBJECT.search(said):
            return NoSuchObject(f"The repository {self} has no such commit.")
        if _REFS_ONLY.search(said):
            return RefsOnly(f"The repository {self} gives no commit by its SHA.")
        return Unreachable(f"The repository {self} cannot be fetched: {self._cleaned(said)}.")

    def _cleaned(self, said: str) -> str:
        """The sentence in which git gave up, without anything secret."""
        reasons = (line for line in said.splitlines() if line.startswith(_REASONS))
        sentence = next(reasons, "git failed without giving a reason")
        if self.url.startswith("http"):
            parts = urlsplit(self.url)
            secret = parts.password or parts.username or ""
            for spelling in filter(None, (secret, unquote(secret))):
                sentence = sentence.replace(spelling, "<secret>")
        return public_detail(sentence.removeprefix("fatal: ").rstrip("."))


@dataclass(frozen=True, slots=True)
class GitResult:
    """Exit status, standard output, and the end of what git said on standard error."""

    status: int
    output: bytes
    said: str


def run_git(
    git_dir: Path, *arguments: str, protocols: str = "", silence: float | None = None
) -> GitResult:
    """Run git on a repository, with the caller's configuration and over these protocols only.

    It is ended, with all that it started, when it says nothing for `silence` seconds and when
    the caller is interrupted. Raises RepositoryError when git is not installed.
    """
    inherited = {
        name: value
        for name, value in os.environ.items()
        if name != "SSH_ASKPASS" and (not name.startswith("GIT_") or _PASSED_ON.match(name))
    }
    try:
        process = subprocess.Popen(
            ["git", *_OPTIONS, f"--git-dir={git_dir}", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=git_dir.parent,
            env=inherited | _ENVIRONMENT | {"GIT_ALLOW_PROTOCOL": protocols},
            start_new_session=True,
        )
    except FileNotFoundError as error:
        raise RepositoryError("The git program, needed to fetch, is not installed.") from error
    try:
        with process:
            output, said = _heard(process, silence)
    except TimeoutError as error:
        return GitResult(-signal.SIGKILL, b"", f"fatal: {error}")
    return GitResult(process.returncode, output, said)


def _heard(process: subprocess.Popen[bytes], silence: float | None) -> tuple[bytes, str]:
    """What git writes, until it ends. Raises TimeoutError when it is silent for too long."""
    output, said = bytearray(), bytearray()
    try:
        with selectors.DefaultSelector() as selector:
            for stream, heard in ((process.stdout, output), (process.stderr, said)):
                selector.register(_opened(stream), selectors.EVENT_READ, heard)
            while selector.get_map():
                ready = selector.select(silence)
                if not ready:
                    raise TimeoutError(f"git made no progress for {silence:.0f} s")
                for key, _ in ready:
                    piece = os.read(key.fd, 1 << 16)
                    key.data.extend(piece)
                    if not piece:
                        selector.unregister(key.fileobj)
                del said[:-_LONGEST_TALE]
            process.wait()
    finally:
        with suppress(ProcessLookupError):
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
    return bytes(output), said.replace(b"\r", b"\n").decode("utf-8", "replace")


def _opened(stream: IO[bytes] | None) -> IO[bytes]:
    if stream is None:
        raise RepositoryError("git was started without the pipe that is read here.")
    return stream
