from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from converter.dataset import clone, upstream
from converter.dataset.clone import FetchedDataset, fetch_dataset
from converter.dataset.repository import Repository, RepositoryError
from converter.dataset.snapshot import Snapshot
from tests.conftest import commit_all, git

from .git_server import GitServer, serving
from .trees import Link, make_repository

ID = "nm000103"
KEY = "MD5E-s5--d41d8cd98f00b204e9800998ecf8427e.edf"
BIG = random.Random(1).randbytes(300_000)

FETCH = """
import sys
from pathlib import Path
from converter.dataset.clone import fetch_dataset
print(fetch_dataset(sys.argv[1], sys.argv[2], template=sys.argv[3], cache=Path(sys.argv[4])).commit)
"""


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upstream, "WAITS", (0.0, 0.0))
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)


@pytest.fixture
def origin(tmp_path: Path) -> Path:
    """A repository of two commits, with a git-annex branch of its own history."""
    folder = tmp_path / "origins" / f"{ID}.git"
    files = {
        "sub-01/eeg/sub-01_task-x_eeg.edf": Link(f"../../.git/annex/objects/a/b/{KEY}/{KEY}"),
        "sub-01/eeg/sub-01_task-x_eeg.json": b"{}",
        "big.bin": BIG,
    }
    make_repository(folder, files)
    git(folder, "checkout", "-q", "main")
    (folder / "participants.tsv").write_bytes(b"participant_id\nsub-01\n")
    commit_all(folder)
    annex_commit(folder, "uuid type=S3 bucket=b")
    return folder


@pytest.fixture
def server(origin: Path) -> Iterator[GitServer]:
    with serving(origin.parent) as running:
        yield running


def annex_commit(folder: Path, text: str) -> str:
    """A commit of `remote.log` on the git-annex branch, which has nothing of the others."""
    blob = subprocess.run(
        ["git", "hash-object", "-w", "--stdin"], cwd=folder, input=text.encode(), check=True,
        capture_output=True,
    ).stdout.decode().strip()  # fmt: skip
    tree = subprocess.run(
        ["git", "mktree"], cwd=folder, input=f"100644 blob {blob}\tremote.log\n".encode(),
        check=True, capture_output=True,
    ).stdout.decode().strip()  # fmt: skip
    commit = git(folder, "commit-tree", "-m", "annex", tree)
    git(folder, "update-ref", "refs/heads/git-annex", commit)
    return commit


def fetched(origin: Path, rev: str = "HEAD", template: str | None = None) -> FetchedDataset:
    template = template or f"file://{origin.parent}/{{dataset_id}}.git"
    return fetch_dataset(ID, rev, template=template, cache=cache(origin))


def cache(origin: Path) -> Path:
    return origin.parent.parent / "cache"


def remote_log(dataset: FetchedDataset) -> bytes:
    repository = Repository(dataset.path)
    (entry,) = repository.tree(repository.resolve("git-annex"))
    return repository.read_blob(entry.sha, 1000)


def packs(dataset: FetchedDataset) -> dict[Path, int]:
    return {path: path.stat().st_size for path in dataset.path.glob("objects/pack/*.pack")}


def test_a_fetched_commit_is_read_without_its_origin(origin: Path) -> None:
    dataset = fetched(origin)
    assert dataset.commit == git(origin, "rev-parse", "main")
    origin.rename(origin.with_name("away"))
    repository = Repository(dataset.path)
    snapshot = Snapshot.read(repository, dataset.commit)
    annexed = snapshot.get("sub-01/eeg/sub-01_task-x_eeg.edf")
    big = snapshot.get("big.bin")
    assert len(snapshot) == 4
    assert annexed is not None
    assert (annexed.key, annexed.size) == (KEY, 5)
    assert big is not None
    assert repository.read_blob(big.blob, len(BIG)) == BIG
    assert remote_log(dataset) == b"uuid type=S3 bucket=b"
    assert git(dataset.path, "rev-list", "--all", "--count") == "2"  # no history
    assert not any(dataset.path.glob("hooks/*"))


def test_every_name_of_a_commit(origin: Path) -> None:
    commit = git(origin, "rev-parse", "main")
    git(origin, "tag", "-a", "-m", "a release", "v1.0")
    git(origin, "tag", "light")
    git(origin, "branch", "side", "main~1")
    for rev in ("HEAD", "main", "heads/main", "v1.0", "light", commit, commit.upper(), commit[:9]):
        assert fetched(origin, rev).commit == commit
    assert fetched(origin, "side").commit == git(origin, "rev-parse", "main~1")
    assert fetched(origin, git(origin, "rev-parse", "v1.0")).commit == commit


@pytest.mark.parametrize("rev", ["nothing", "", "main~1", "--all", "-x", "*", "OLD", "0" * 40])
def test_what_names_no_commit_is_said(origin: Path, rev: str) -> None:
    rev = git(origin, "rev-parse", "main~1")[:9] if rev == "OLD" else rev
    with pytest.raises(RepositoryError, match=r"40 hex digits .* expected|has no commit 0000"):
        fetched(origin, rev)


def test_a_later_run_transfers_what_is_new(origin: Path) -> None:
    first = fetched(origin)
    before = packs(first)
    assert sum(before.values()) > len(BIG)
    fetched(origin)
    assert packs(first) == before
    (origin / "README").write_text("new")
    commit = commit_all(origin)
    annex_commit(origin, "uuid type=S3 bucket=other")
    second = fetched(origin)
    assert (second.path, second.commit) == (first.path, commit)
    assert remote_log(second) == b"uuid type=S3 bucket=other"
    assert sum(packs(second).values()) - sum(before.values()) < 5000
    assert len(Snapshot.read(Repository(second.path), first.commit)) == 4
    git(origin, "update-ref", "-d", "refs/heads/git-annex")
    fetched(origin)
    with pytest.raises(RepositoryError):
        Repository(second.path).resolve("git-annex")


def test_a_rewritten_history_is_followed_and_its_old_commits_kept(origin: Path) -> None:
    old = fetched(origin).commit
    lost = git(origin, "rev-parse", "main~1")
    git(origin, "commit", "-q", "--amend", "-m", "rewritten")
    git(origin, "checkout", "-q", "--orphan", "other")
    new = commit_all(origin)
    git(origin, "branch", "-q", "-D", "main")
    git(origin, "branch", "-q", "-m", "main")
    git(origin, "reflog", "expire", "--expire=now", "--all")
    git(origin, "gc", "-q", "--prune=now")
    dataset = fetched(origin, "main")
    assert dataset.commit == new
    assert dataset.fetch_commit(old)
    assert not dataset.fetch_commit(lost)
    assert not dataset.fetch_commit("HEAD")
    shutil.rmtree(cache(origin))
    assert not fetched(origin, "main").fetch_commit(old)


def test_an_earlier_commit_is_fetched_when_it_is_asked_for(origin: Path) -> None:
    dataset = fetched(origin)
    earlier = git(origin, "rev-parse", "main~1")
    assert dataset.fetch_commit(earlier)
    assert len(Snapshot.read(Repository(dataset.path), earlier)) == 3
    origin.rename(origin.with_name("away"))
    assert dataset.fetch_commit(earlier)
    with pytest.raises(RepositoryError, match="no repository at file:///"):
        dataset.fetch_commit("1" * 40)


@pytest.mark.parametrize("old", [False, True])
def test_over_http_also_from_a_server_that_gives_refs_only(server: GitServer, old: bool) -> None:
    server.old = old
    origin = server.root / f"{ID}.git"
    earlier = git(origin, "rev-parse", "main~1")
    dataset = fetched(origin, "main", server.template())
    assert dataset.commit == git(origin, "rev-parse", "main")
    assert dataset.fetch_commit(earlier)
    assert len(Snapshot.read(Repository(dataset.path), earlier)) == 3
    assert remote_log(dataset) == b"uuid type=S3 bucket=b"
    assert not dataset.fetch_commit("1" * 40)
    shutil.rmtree(dataset.path)
    assert fetched(origin, earlier, server.template()).commit == earlier


def test_a_refusal_of_the_moment_is_asked_again(server: GitServer) -> None:
    origin = server.root / f"{ID}.git"
    server.refusals = 2
    assert fetched(origin, template=server.template()).commit
    server.refusals = 3
    with pytest.raises(RepositoryError, match=r"^The repository .* cannot be fetched: .*503\.$"):
        fetched(origin, template=server.template())


def test_what_is_not_there_is_asked_for_once(server: GitServer, tmp_path: Path) -> None:
    with pytest.raises(RepositoryError, match=r"no repository at http://127.*/on000001\.git, or"):
        fetch_dataset("on000001", "HEAD", template=server.template(), cache=tmp_path / "cache")
    assert len(server.requests) == 1


def test_credentials_open_a_repository_and_are_never_shown(server: GitServer) -> None:
    origin = server.root / f"{ID}.git"
    server.password = "right%hush"
    dataset = fetched(origin, template=server.template("me:right%25hush@"))
    assert "hush" not in repr(dataset)
    kept = (path for path in dataset.path.rglob("*") if path.is_file())
    assert not any(b"hush" in path.read_bytes() for path in kept)
    failures = [server.template("me:wrong-hush@"), server.template("hush@"), server.template()]
    server.password = "other"
    for template in failures:
        with pytest.raises(RepositoryError, match="none that git may read") as caught:
            fetched(origin, template=template)
        assert "hush" not in str(caught.value)
    server.password, server.refusals = None, 100
    with pytest.raises(RepositoryError, match="cannot be fetched") as caught:
        fetched(origin, template=failures[0])
    assert "hush" not in str(caught.value)


def test_credentials_are_taken_out_of_what_git_says(
    origin: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in = tmp_path / "bin" / "git"
    stand_in.parent.mkdir()
    stand_in.write_text(
        "#!/bin/sh\n"
        'case "$*" in *ls-remote*) for url; do :; done; echo "fatal: no $url" >&2; exit 1;; esac\n'
        f'exec {shutil.which("git")} "$@"\n'
    )
    stand_in.chmod(0o755)
    monkeypatch.setenv("PATH", f"{stand_in.parent}:{os.environ['PATH']}")
    for credentials in ("me:hu'hush\"@", "hush%41@", "me:hush@"):
        with pytest.raises(RepositoryError, match=r"cannot be fetched: no https?://") as caught:
            fetched(origin, template=f"https://{credentials}host/{{dataset_id}}?key=hush")
        assert "hu" not in str(caught.value)


def test_a_server_that_stalls_is_given_up(
    server: GitServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upstream, "WAITS", ())
    monkeypatch.setattr(upstream, "SILENCE", 1.5)
    server.stalls = True
    origin = server.root / f"{ID}.git"
    with pytest.raises(RepositoryError, match="made no progress for 2 s"):
        fetched(origin, template=server.template())
    port = b":%d/" % server.server_port
    wait_until(lambda: not any(port in line for line in command_lines()))
    server.stalls = False
    monkeypatch.setattr(upstream, "SILENCE", 60)
    assert fetched(origin, template=server.template()).commit == git(origin, "rev-parse", "main")


@pytest.mark.parametrize("with_git", [True, False])
def test_what_a_killed_run_leaves_does_not_hinder_the_next(
    server: GitServer, with_git: bool
) -> None:
    origin = server.root / f"{ID}.git"
    server.stalls = True
    run = start(origin, "HEAD", server.template())
    assert server.stalled.wait(60)
    repository = cache(origin) / f"{ID}.git"
    wait_until((repository / "shallow.lock").exists)
    stopped: set[int] = set()
    while new := {run.pid, *(beneath(run.pid) if with_git else ())} - stopped:
        for pid in new:  # what is stopped begins no other
            os.kill(pid, signal.SIGSTOP)
        stopped |= new
    for pid in stopped:
        os.kill(pid, signal.SIGKILL)
    run.communicate()
    server.stalls = False
    (repository / "refs" / "nemar").mkdir(parents=True, exist_ok=True)
    pack = repository / "objects" / "pack"
    for left in ("refs/nemar/x.lock", "packed-refs.lock", "objects/pack/tmp_pack_x"):
        (repository / left).touch()
    for left in ("pack-1.pack", "pack-1.rev", "pack-1.keep"):
        (pack / left).touch()
    dataset = fetched(origin, template=server.template())
    assert len(Snapshot.read(Repository(dataset.path), dataset.commit)) == 4
    assert remote_log(dataset) == b"uuid type=S3 bucket=b"
    if with_git:
        assert {path.suffix for path in pack.iterdir()} <= {".pack", ".idx", ".rev"}
        assert not any(repository.rglob("*.lock"))
        assert len(packs(dataset)) == 1


def test_two_runs_at_once_share_a_cache(server: GitServer) -> None:
    origin = server.root / f"{ID}.git"
    commits = [git(origin, "rev-parse", rev) for rev in ("main", "main~1")]
    server.stalls = True
    runs = [start(origin, commits[0], server.template())]
    assert server.stalled.wait(60)
    asked = len(server.requests)
    runs += [start(origin, commit, server.template()) for commit in (commits[1], *commits)]
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(fetched, origin, commits[1], server.template())
        time.sleep(0.5)
        assert len(server.requests) == asked  # they wait for the first
        server.stalls = False
        server.release.set()
        assert waiting.result().commit == commits[1]
    assert [run.communicate()[0].strip() for run in runs] == commits * 2
    for commit in commits:
        assert Snapshot.read(Repository(cache(origin) / f"{ID}.git"), commit)


def test_the_cache_does_not_grow_for_ever(origin: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clone, "MOST_PACKS", 2)
    long_ago = time.time() - (clone.UNUSED_DAYS + 1) * 86400
    commits: list[str] = []
    for number in range(4):
        (origin / "big.bin").write_bytes(random.Random(number).randbytes(100_000))
        commits.append(commit_all(origin))
        dataset = fetched(origin)
        if number < 2:
            os.utime(dataset.path / "refs" / "nemar" / commits[number], (long_ago, long_ago))
        if number == 1:
            assert dataset.fetch_commit(commits[1])  # which uses it
    repository = Repository(dataset.path)
    assert len(packs(dataset)) <= 2
    with pytest.raises(RepositoryError):
        Snapshot.read(repository, commits[0])
    for commit in commits[1:]:
        assert len(Snapshot.read(repository, commit)) == 4
    assert dataset.fetch_commit(commits[0])
    assert len(Snapshot.read(repository, commits[0])) == 4


@pytest.mark.parametrize(
    "template",
    [
        "https://host/fixed.git",
        "ext::sh -c 'touch x' {dataset_id}",
        "--upload-pack=touch {dataset_id}",
        "-u{dataset_id}",
        "ssh://-oProxyCommand=x/{dataset_id}",
        "-oProxyCommand=x@host:{dataset_id}",
        "ftp://host/{dataset_id}",
        "{dataset_id}",
        "../{dataset_id}",
        "https://me:hu/hush@host/{dataset_id}",
        "https://host/{dataset_id}\n",
    ],
)
def test_what_is_no_template_is_refused(tmp_path: Path, template: str) -> None:
    with pytest.raises(RepositoryError, match=r"was found, .* was expected\.$") as caught:
        fetch_dataset(ID, "HEAD", template=template, cache=tmp_path)
    assert "hush" not in str(caught.value)
    assert not any(tmp_path.iterdir())


def test_a_cache_that_cannot_be_written_is_said(origin: Path) -> None:
    cache(origin).write_text("a file")
    with pytest.raises(RepositoryError, match=r"^The cache .*cache cannot be used: "):
        fetched(origin)


def test_the_default_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/h")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("NEMAR_CACHE", raising=False)
    assert clone.default_cache() == Path("/h/.cache/nemar-convert")
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    assert clone.default_cache() == Path("/x/nemar-convert")
    monkeypatch.setenv("NEMAR_CACHE", "/n")
    assert clone.default_cache() == Path("/n")


def start(origin: Path, rev: str, template: str) -> subprocess.Popen[str]:
    """A run in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-c", FETCH, ID, rev, template, str(cache(origin))],
        stdout=subprocess.PIPE,
        text=True,
    )


def beneath(pid: int) -> Iterator[int]:
    """The processes that a process started, and theirs."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    for child in map(int, children.split()):
        yield from beneath(child)
        yield child


def command_lines() -> Iterator[bytes]:
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            yield (process / "cmdline").read_bytes()


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)
