"""Real annexed datasets: a git-annex repository whose content lies in S3 special remotes.

All is done by the `git-annex` program. A dataset of twenty small files takes some four seconds.
"""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

from tests.environment import GIT_ENVIRONMENT
from tests.servers.seaweedfs import S3Server

# Text that BIDS datasets keep in git itself.
IN_GIT = ("*.json", "*.tsv", "*.vhdr", "*.vmrk", "*.txt", "*.md", "README", "CHANGES", "LICENSE")
ALLOW_LOOPBACK = ("annex.security.allowed-ip-addresses", "all")


class AnnexFailed(Exception):
    """A git or git-annex command failed; the message has what it wrote."""


@dataclass(frozen=True)
class AnnexDataset:
    """A work tree with all its content; `environment` is that of its git commands."""

    work: Path
    environment: dict[str, str] = field(default_factory=lambda: dict(GIT_ENVIRONMENT))

    def git(self, *arguments: str) -> str:
        """Run git (`"annex", ...` for git-annex) in the work tree; return what it printed."""
        return run_git(self.work, self.environment, *arguments)

    @property
    def commit(self) -> str:
        return self.git("rev-parse", "HEAD")

    def save(self, message: str = "change") -> str:
        """Add and commit the whole work tree; return the commit."""
        self.git("annex", "add", "--quiet", ".")
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", message)
        return self.commit

    def write(self, path: str, content: bytes) -> None:
        """Put a file in the work tree, also where annexed content is protected; not committed."""
        target = self.work / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.unlink(missing_ok=True)
        target.write_bytes(content)

    def key(self, path: str) -> str:
        """The annex key of a file."""
        return self.git("annex", "lookupkey", path)

    def keys(self) -> dict[str, str]:
        """Annex keys by path, of all files that are annexed."""
        lines = self.git("annex", "find", "--anything", "--format=${key} ${file}\\n").splitlines()
        return {path: key for key, path in (line.split(" ", 1) for line in lines)}

    def add_s3_remote(
        self,
        server: S3Server,
        bucket: str,
        *,
        name: str = "s3",
        fileprefix: str = "",
        chunk: str | None = None,
        public_url: str | None = None,
        encryption: str = "none",
        port: int | None = None,
    ) -> None:
        """Make an S3 special remote: object names are `fileprefix` + key.

        `chunk` as git-annex writes sizes ("1MiB"). `public_url` is what a key's object lies below,
        `public_url(server, bucket)` for what the server offers to everybody. `port` is what the
        git-annex branch shall tell in place of the server's own, a proxy's for instance.
        """
        options = {
            "type": "S3",
            "encryption": encryption,
            "host": server.host,
            "port": str(port or server.port),
            "protocol": "http",
            "requeststyle": "path",
            "signature": "v2",  # what git-annex signs as v4, SeaweedFS does not accept
            "bucket": bucket,
            "fileprefix": fileprefix,
            "autoenable": "true",
        }
        if chunk is not None:
            options["chunk"] = chunk
        if public_url is not None:
            options["publicurl"] = public_url
        settings = (f"{option}={value}" for option, value in options.items())
        self.environment.update(server.environment())
        self.git("annex", "initremote", "--quiet", name, *settings)

    def reconfigure(self, name: str, **options: str) -> None:
        """Change a special remote, `chunk="2MiB"` for what is copied from now on."""
        settings = (f"{option}={value}" for option, value in options.items())
        self.git("annex", "enableremote", "--quiet", name, *settings)

    def copy_to(self, name: str, *paths: str) -> None:
        """Copy content to a special remote, by default all."""
        self.git("annex", "copy", "--quiet", "-J2", "--to", name, *paths)

    def copy_again_to(self, name: str, *paths: str) -> None:
        """Copy content that is there already, in the chunks that the remote has now.

        The older chunks stay, as their entry in the key's chunk log does.
        """
        remote = self.git("config", f"remote.{name}.annex-uuid")
        for path in paths:
            self.git("annex", "setpresentkey", self.key(path), remote, "0")
        self.git("annex", "copy", "--quiet", "--fast", "--to", name, *paths)

    def drop_from(self, name: str, *paths: str) -> None:
        """Remove content from a special remote."""
        self.git("annex", "drop", "--quiet", "--from", name, *paths)

    def offer_on_the_web(
        self, server: S3Server, bucket: str, *paths: str, base: str | None = None
    ) -> None:
        """Put files in a bucket and record their URLs, below `base` (the server by default)."""
        client = server.client()
        for path in paths:
            name = f"web/{path}"
            client.put_object(Bucket=bucket, Key=name, Body=(self.work / path).read_bytes())
            url = f"{base or public_url(server, bucket)}/{quote(name)}"
            self.git("annex", "registerurl", "--quiet", self.key(path), url)

    def push(self, bare: Path) -> Path:
        """Push main and git-annex to a bare repository, made where missing; return its path.

        It serves any commit and partial clones, by its path and as file:// URL.
        """
        if not bare.exists():
            run_git(self.work, self.environment, "init", "-q", "--bare", "-b", "main", str(bare))
            run_git(bare, self.environment, "config", "uploadpack.allowAnySHA1InWant", "true")
            run_git(bare, self.environment, "config", "uploadpack.allowFilter", "true")
        self.git("push", "-q", "--force", str(bare), "main", "git-annex")
        return bare

    def clone(self, destination: Path) -> Path:
        """Make a clone without content beside a bare repository `<destination>.git`."""
        bare = self.push(destination.with_name(f"{destination.name}.git"))
        run_git(self.work, self.environment, "clone", "-q", bare.as_uri(), str(destination))
        run_git(destination, self.environment, "config", *ALLOW_LOOPBACK)
        return destination


def annexed(
    source: Path,
    work: Path,
    *,
    backend: str = "MD5E",
    sidecars_too: bool = False,
    unlocked: bool = False,
) -> AnnexDataset:
    """Make a git-annex repository of a folder's files, all committed.

    Text such as sidecars goes into git, unless `sidecars_too`; all else is annexed, as symlinks
    or, `unlocked`, as pointer files.
    """
    # The content only: fixtures may be read-only.
    shutil.copytree(source, work, copy_function=shutil.copyfile)
    dataset = AnnexDataset(work)
    dataset.git("init", "-q", "-b", "main")
    largefiles = "anything" if sidecars_too else " and ".join(f"exclude={name}" for name in IN_GIT)
    for name, value in (
        ALLOW_LOOPBACK,
        ("annex.backend", backend),
        ("annex.largefiles", largefiles),
        ("annex.addunlocked", str(unlocked).lower()),
    ):
        dataset.git("config", name, value)
    dataset.git("annex", "init", "--quiet", "archive")
    dataset.save("dataset")
    return dataset


def public_url(server: S3Server, bucket: str) -> str:
    """The URL below which anybody gets a bucket's objects."""
    return f"{server.endpoint}/{bucket}"


def run_git(folder: Path, environment: dict[str, str], *arguments: str) -> str:
    """Run git in a folder; return what it printed, or raise AnnexFailed."""
    done = subprocess.run(
        ["git", *arguments], cwd=folder, env=environment, capture_output=True, text=True
    )
    if done.returncode != 0:
        raise AnnexFailed(f"git {' '.join(arguments)}: {done.stdout}{done.stderr}")
    return done.stdout.strip()
