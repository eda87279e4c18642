"""Content fetched by the `git-annex` program, for remotes that only it can ask.

A dataset's repository is not trusted, and git and git-annex run commands that a repository's
configuration names. So the program never works in it: it gets a bare repository of our own,
which borrows the dataset's objects, with a configuration written here. That has only remotes of
kinds that run no other program: git repositories and git-lfs by http(s), and directories of
this machine, of which nothing but a file named by the key is read. The caller's environment is
left out, so that credentials reach no host that a dataset names.
"""

from __future__ import annotations

import os
import re
import resource
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from ..storage.hosts import HostGuard
from ..storage.http import normal_url
from .annex import AnnexKey, LocalAnnex
from .content_errors import DamagedContent
from .repository import Repository

PROGRAM: Final = "git-annex"
STALL: Final = "1KB/60s"
"""A slower transfer counts as stalled, in the program's own terms."""

_UUID = re.compile(r"[0-9A-Za-z][0-9A-Za-z-]{0,99}")
# Settings that make a remote one of a special type; of these types two are served.
_SPECIAL = re.compile(
    r"annex-(?:adb|androiddirectory|bittorrent|borgrepo|buprepo|compute|ddarrepo|directory|"
    r"externaltype|gcrypt|git-lfs|glacier|hooktype|httpalso|mask|rclone|rsyncurl|s3|tahoe|web|"
    r"webdav|xmppaddress)"
)
# Room for what a transfer writes beside the content.
_SPARE = 16 << 20


@dataclass(frozen=True, slots=True)
class ProgramRemote:
    """A remote of a clone that the program may ask; `settings` are those of its git config.

    `url` is None for a directory of this machine.
    """

    uuid: str
    title: str
    settings: tuple[tuple[str, str], ...]
    url: str | None = None


def program_remotes(repository: Repository) -> tuple[ProgramRemote, ...]:
    """The remotes in a clone's configuration that may be asked, none without the program."""
    if shutil.which(PROGRAM) is None:
        return ()
    known = (_program_remote(name, settings) for name, settings in repository.remotes().items())
    return tuple(remote for remote in known if remote is not None)


def _program_remote(name: str, settings: Mapping[str, str]) -> ProgramRemote | None:
    uuid, directory = settings.get("annex-uuid", ""), settings.get("annex-directory")
    if not _UUID.fullmatch(uuid) or settings.get("annex-ignore", "false") != "false":
        return None
    special = {setting for setting in settings if _SPECIAL.fullmatch(setting)}
    if special == {"annex-directory"} and directory is not None and Path(directory).is_absolute():
        title = f"the directory remote {name[:40]}"
        return ProgramRemote(uuid, title, (("annex-directory", directory),))
    url = normal_url(settings.get("url", ""))
    if url is None or special - {"annex-git-lfs"}:
        return None
    marks = (("annex-git-lfs", "true"),) if special else ()
    title = f"the git remote {name[:40]} at {urlsplit(url).hostname}"
    return ProgramRemote(uuid, title, (("url", url), *marks), url)


class AnnexProgram:
    """The program at work for one dataset, in a repository of its own; for one thread."""

    def __init__(self, folder: Path, dataset: Repository, branches: Sequence[str]) -> None:
        self._repository = folder / "annex.git"
        self._home = folder / "home"
        self._home.mkdir()
        self._git("init", "--quiet", "--bare", str(self._repository), where=folder)
        self._git("annex", "init", "--quiet", "--no-autoenable", "scratch")
        self._git("config", "annex.stalldetection", STALL)
        alternates = self._repository / "objects" / "info" / "alternates"
        alternates.write_text(f"{dataset.common_dir.absolute() / 'objects'}\n")
        for number, commit in enumerate(branches):
            self._git("update-ref", f"refs/remotes/branch{number}/git-annex", commit)

    def get(
        self, key: AnnexKey, remote: ProgramRemote, guard: HostGuard, limit: int
    ) -> Path | None:
        """The file with a key's content, None when the remote did not give it.

        It is never much longer than `limit` bytes. Raises RefusedAddress.
        """
        if remote.url is not None:
            self._allow(remote.url, guard)
        for setting, value in (("annex-uuid", remote.uuid), *remote.settings):
            self._git("config", f"remote.asked.{setting}", value)
        self._git("annex", "get", "--quiet", f"--key={key.key}", "--from=asked", limit=limit)
        self._git("config", "--remove-section", "remote.asked")
        with suppress(DamagedContent):
            return LocalAnnex(self._repository).find(key)
        return None

    def _allow(self, url: str, guard: HostGuard) -> None:
        """Let the program ask a trusted host; by itself it asks public ones only."""
        parts = guard.check_url(url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        allowed = ""
        if guard.is_trusted(parts.hostname or "", port):
            with suppress(OSError):
                found = socket.getaddrinfo(parts.hostname, port, type=socket.SOCK_STREAM)
                allowed = " ".join(sorted({str(address[4][0]) for address in found}))
        self._git("config", "annex.security.allowed-ip-addresses", allowed)

    def _git(self, *arguments: str, where: Path | None = None, limit: int | None = None) -> bool:
        process = subprocess.Popen(
            ["git", "-c", f"core.hooksPath={os.devnull}", *arguments],
            cwd=where or self._repository,
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            if limit is not None and sys.platform == "linux":
                # A server that sends more than the key tells must not fill the disk.
                with suppress(ProcessLookupError):
                    most = limit + _SPARE
                    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (most, most))
            return process.wait() == 0
        except BaseException:
            process.kill()
            process.wait()
            raise

    def _environment(self) -> dict[str, str]:
        return {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(self._home),
            "LC_ALL": "C.UTF-8",
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_ALLOW_PROTOCOL": "http:https",
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_AUTHOR_NAME": "nemar-convert",
            "GIT_AUTHOR_EMAIL": "nemar-convert@localhost",
            "GIT_COMMITTER_NAME": "nemar-convert",
            "GIT_COMMITTER_EMAIL": "nemar-convert@localhost",
        }


@contextmanager
def program_at_work(
    place: Path, dataset: Repository, branches: Sequence[str]
) -> Iterator[AnnexProgram]:
    """The program with a repository below `place`, of which nothing stays."""
    folder = Path(tempfile.mkdtemp(prefix=".git-annex-", dir=place))
    try:
        yield AnnexProgram(folder, dataset, branches)
    finally:
        for parent, _, _ in os.walk(folder):
            # git-annex protects content by the modes of its folders.
            Path(parent).chmod(stat.S_IRWXU)
        shutil.rmtree(folder, ignore_errors=True)
