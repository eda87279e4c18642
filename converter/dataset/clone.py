"""A dataset's repository, fetched by the dataset's id into a cache that later runs update.

The cache holds one bare, shallow repository a dataset: the commits that runs asked for, each
with its whole tree and no history, and the newest `git-annex` branch. They come with all their
blobs, which are small where the data are annexed, so that nothing is fetched while one reads.

Each fetched commit has a ref, `refs/nemar/<sha>`, which is there only when all of the commit is.
Its file's time is that of the last use. Once there are MOST_PACKS packs, commits that nobody
used for UNUSED_DAYS are dropped, and the rest goes into one pack.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ..contract.addresses import is_dataset_id
from ..contract.details import public_detail
from .repository import Repository, RepositoryError
from .upstream import NoSuchObject, RefsOnly, Upstream, run_git

REPOSITORY_TEMPLATE: Final = "https://github.com/nemarDatasets/{dataset_id}.git"
ANNEX_BRANCH: Final = "refs/heads/git-annex"
KEPT: Final = "refs/nemar"

MOST_PACKS: Final = 20
UNUSED_DAYS: Final = 30

_PLACE = "{dataset_id}"
# Addresses that git takes for no option, no helper program and no relative path.
_TEMPLATES = (
    re.compile(r"(?:https?|ssh|git)://(?:[^\s/@]+@)?(?:\w[\w.-]*|\[[\da-fA-F:.]+\])(?::\d+)?/\S+"),
    re.compile(r"\w[\w.-]*@\w[\w.-]*:[^\s:]\S*"),
    re.compile(r"file:///[^\x00-\x1f\x7f]+"),
)
_SHA = re.compile(r"[0-9a-f]{40}")
_ABBREVIATED = re.compile(r"[0-9a-f]{4,39}")

# What a killed git leaves in a repository, and what would hinder or outlast the next one.
_LEFTOVERS = (
    "*.lock",
    "shallow_*",
    "gc.pid",
    "refs/**/*.lock",
    "objects/tmp_*",
    "objects/*/tmp_*",
    "objects/pack/.tmp-*",
    "objects/pack/*.keep",
)


def default_cache() -> Path:
    """The folder of the environment variable NEMAR_CACHE, or the user's cache."""
    chosen = os.environ.get("NEMAR_CACHE")
    if chosen:
        return Path(chosen)
    user = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(user, "nemar-convert")


@dataclass(frozen=True, slots=True)
class FetchedDataset:
    """A bare repository that holds a commit, given by its 40 hex digits, and what it needs."""

    path: Path
    commit: str
    _upstream: Upstream = field(repr=False)

    def fetch_commit(self, sha: str) -> bool:
        """Fetch another commit, by its 40 hex digits; False when the upstream has it no more.

        Raises RepositoryError when it cannot be asked.
        """
        if not _SHA.fullmatch(sha):
            return False
        try:
            with _owned(self.path):
                _fetch(self._upstream, self.path, [sha])
        except NoSuchObject:
            return False
        return True


def fetch_dataset(dataset_id: str, rev: str, *, template: str, cache: Path) -> FetchedDataset:
    """Bring a commit of a dataset, and its `git-annex` branch as it is now, into the cache.

    `rev` is a branch, a tag, HEAD, or the 40 hex digits of a commit; fewer digits do where a
    branch or tag stands at the commit. Raises RepositoryError: the template or id is none,
    there is no such repository or commit, or the server cannot be reached. That is so although
    the commit may be in the cache: a dataset that was withdrawn is not served from there.
    """
    path = cache.absolute() / f"{dataset_id}.git"
    upstream = _upstream(template, dataset_id)
    with _owned(path):
        refs = upstream.refs(path)
        sha = _named(rev, refs, upstream)
        annex = refs.get(ANNEX_BRANCH)
        _fetch(upstream, path, [sha] if annex is None else [sha, annex])
        _run(path, "update-ref", *((ANNEX_BRANCH, annex) if annex else ("-d", ANNEX_BRANCH)))
        commit = Repository(path).resolve(sha)
        _tidy(path)
    return FetchedDataset(path, commit, upstream)


def _upstream(template: str, dataset_id: str) -> Upstream:
    known = any(form.fullmatch(template) for form in _TEMPLATES)
    if not known or _PLACE not in template:
        shown = template.rpartition("@")[2].partition("?")[0]
        raise RepositoryError(
            f"The repository {shown!r} was found, an http, https, ssh, git or file URL that "
            f"holds {_PLACE} was expected."
        )
    if not is_dataset_id(dataset_id):
        raise RepositoryError(
            f"{dataset_id!r} was found, the id of a dataset such as nm000103 was expected."
        )
    return Upstream(template.replace(_PLACE, dataset_id))


@contextmanager
def _owned(path: Path) -> Iterator[None]:
    """Have a cached repository for oneself; it is made, or freed of what a killed git left."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.with_name(f"{path.name}.lock").open("ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if path.exists():
                _remove_leftovers(path)
            else:
                _make(path)
            yield
    except OSError as error:
        raise RepositoryError(
            f"The cache {path.parent} cannot be used: {error.strerror or error}."
        ) from error


def _make(path: Path) -> None:
    new = path.with_name(f"{path.name}.new")
    shutil.rmtree(new, ignore_errors=True)
    _run(new, "init", "--bare", "--quiet", "--template=", "--object-format=sha1")
    _run(new, "config", "gc.auto", "0")
    new.rename(path)


def _remove_leftovers(path: Path) -> None:
    found = [leftover for pattern in _LEFTOVERS for leftover in path.glob(pattern)]
    packs = path / "objects" / "pack"
    # The index comes last: what has none is no pack yet.
    found += (part for part in packs.glob("pack-*") if not part.with_suffix(".idx").exists())
    for leftover in found:
        if leftover.is_dir():
            shutil.rmtree(leftover)
        else:
            leftover.unlink(missing_ok=True)


def _named(rev: str, refs: Mapping[str, str], upstream: Upstream) -> str:
    """The commit that a name stands for, in the order in which git itself looks."""
    if _SHA.fullmatch(rev.lower()):
        return rev.lower()
    commits = {name: refs.get(f"{name}^{{}}", sha) for name, sha in refs.items()}
    for name in (rev, f"refs/{rev}", f"refs/tags/{rev}", f"refs/heads/{rev}"):
        if name in commits:
            return commits[name]
    if _ABBREVIATED.fullmatch(rev.lower()):
        matches = {sha for sha in commits.values() if sha.startswith(rev.lower())}
        if len(matches) == 1:
            return matches.pop()
    raise RepositoryError(
        f"{rev!r} was given for a commit of {upstream}, one of its branches or tags or all "
        "40 hex digits of a commit were expected."
    )


def _fetch(upstream: Upstream, path: Path, wanted: Sequence[str]) -> None:
    """Fetch those of the commits that are not here; note that all of them are in use."""
    missing = [sha for sha in wanted if not _is_kept(path, sha)]
    if missing:
        try:
            upstream.fetch(path, [f"+{sha}:{KEPT}/{sha}" for sha in missing], "--depth=1")
        except NoSuchObject as error:
            raise NoSuchObject(f"The repository {upstream} has no commit {missing[0]}.") from error
        except RefsOnly:
            _fetch_everything(upstream, path, missing)
    for sha in wanted:
        with suppress(FileNotFoundError):
            os.utime(path / KEPT / sha)


def _fetch_everything(upstream: Upstream, path: Path, wanted: Sequence[str]) -> None:
    """Fetch all branches and tags with their history, from a server that gives nothing less."""
    refspecs = [f"+refs/{kind}/*:refs/upstream/{kind}/*" for kind in ("heads", "tags")]
    whole = ("--depth=2147483647",) if (path / "shallow").exists() else ()
    upstream.fetch(path, refspecs, "--prune", *whole)
    for sha in wanted:
        try:
            Repository(path).resolve(sha)
        except RepositoryError as error:
            raise NoSuchObject(
                f"The repository {upstream} has no commit {sha} on any branch or tag."
            ) from error
        _run(path, "update-ref", f"{KEPT}/{sha}", sha)


def _is_kept(path: Path, sha: str) -> bool:
    try:
        Repository(path).resolve(f"{KEPT}/{sha}")
    except RepositoryError:
        return False
    return True


def _tidy(path: Path) -> None:
    if sum(1 for _ in (path / "objects" / "pack").glob("*.pack")) <= MOST_PACKS:
        return
    oldest = time.time() - UNUSED_DAYS * 86400
    for ref in (path / KEPT).iterdir():
        if ref.stat().st_mtime < oldest:
            _run(path, "update-ref", "-d", f"{KEPT}/{ref.name}")
    # A pack more does no harm, so its result does not matter.
    run_git(path, "-c", "gc.packRefs=false", "gc", "--prune=now")


def _run(path: Path, *arguments: str) -> None:
    done = run_git(path, *arguments)
    if done.status:
        raise RepositoryError(
            f"The cached repository {path} cannot be written: {public_detail(done.said)}."
        )
