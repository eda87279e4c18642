from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from converter.dataset.repository import Repository, RepositoryError
from tests.conftest import commit_all, git

from .trees import Link, make_repository


@pytest.fixture
def work_tree(tmp_path: Path) -> Path:
    folder = tmp_path / "work tree"
    folder.mkdir()
    (folder / "a.txt").write_bytes(b"first\n")
    commit_all(folder)
    return folder


def test_branch_tag_and_short_sha_resolve_to_the_commit(work_tree: Path) -> None:
    commit = git(work_tree, "rev-parse", "HEAD")
    git(work_tree, "tag", "-a", "-m", "a release", "v1.0")
    repository = Repository(work_tree)
    assert git(work_tree, "rev-parse", "v1.0") != commit  # an annotated tag is an object
    for rev in ("HEAD", "main", "v1.0", commit, commit[:8]):
        assert repository.resolve(rev) == commit


@pytest.mark.parametrize("rev", ["nothing", "", "--all", "-h", "--output=x", "HEAD:a.txt", "a\0b"])
def test_what_names_no_commit_is_said(work_tree: Path, rev: str) -> None:
    with pytest.raises(RepositoryError, match=r"names no commit of the repository .*work tree"):
        Repository(work_tree).resolve(rev)


def test_every_kind_of_repository(work_tree: Path, tmp_path: Path) -> None:
    commit = git(work_tree, "rev-parse", "HEAD")
    git(tmp_path, "clone", "-q", "--bare", str(work_tree), "bare.git")
    git(work_tree, "worktree", "add", "-q", "--detach", str(tmp_path / "linked"))
    outer = tmp_path / "outer"
    outer.mkdir()
    git(outer, "init", "-q")
    allow = ("-c", "protocol.file.allow=always")
    git(outer, *allow, "submodule", "--quiet", "add", str(work_tree), "inner")
    for folder in (work_tree, tmp_path / "bare.git", tmp_path / "linked", outer / "inner"):
        repository = Repository(folder)
        assert repository.resolve("HEAD") == commit
        assert [entry.path for entry in repository.tree(commit)] == ["a.txt"]
    assert Repository(tmp_path / "linked").common_dir == work_tree / ".git"
    assert Repository(outer / "inner").common_dir == outer / ".git/modules/inner"
    commit_all(outer)
    assert [e.path for e in Repository(outer).tree(Repository(outer).resolve("HEAD"))] == [
        ".gitmodules"
    ]
    # Its configuration names the work tree that is gone now.
    shutil.rmtree(outer / "inner")
    assert Repository(outer / ".git/modules/inner").resolve("HEAD") == commit


def test_a_folder_inside_a_repository_is_none(work_tree: Path) -> None:
    (work_tree / "folder").mkdir()
    for folder in (work_tree / "folder", work_tree / "absent"):
        with pytest.raises(RepositoryError, match="is not a git repository"):
            Repository(folder)


def test_the_environment_chooses_no_other_repository(
    work_tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = git(work_tree, "rev-parse", "HEAD")
    make_repository(tmp_path / "other", {"b.txt": b"other"})
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "other" / ".git"))
    assert Repository(work_tree).resolve("HEAD") == commit


def test_replaced_objects_are_not_read(work_tree: Path) -> None:
    original = git(work_tree, "rev-parse", "HEAD:a.txt")
    (work_tree / "b.txt").write_bytes(b"replacement\n")
    git(work_tree, "replace", original, git(work_tree, "hash-object", "-w", "b.txt"))
    assert Repository(work_tree).read_blob(original, limit=100) == b"first\n"


def test_tree_lists_modes_sizes_and_names(tmp_path: Path) -> None:
    commit = make_repository(
        tmp_path / "r",
        {
            "sp ace/naïve \"q\" 'x'\t\n.tsv": b"12345",
            b"latin-\xe9.txt": b"",
            "link": Link("sp ace"),
        },
    )
    entries = {e.path: (e.mode, e.size) for e in Repository(tmp_path / "r").tree(commit)}
    assert entries == {
        "sp ace/naïve \"q\" 'x'\t\n.tsv": ("100644", 5),
        r"latin-\xe9.txt": ("100644", 0),
        "link": ("120000", len("sp ace")),
    }


def test_a_long_tree_is_listed_whole(tmp_path: Path) -> None:
    names = [f"{'x' * 200} {number:05}" for number in range(9000)]
    commit = make_repository(tmp_path / "r", dict.fromkeys(names, b"1"))
    assert [entry.path for entry in Repository(tmp_path / "r").tree(commit)] == names


def test_a_blob_that_is_missing_is_named(work_tree: Path) -> None:
    sha = git(work_tree, "rev-parse", "HEAD:a.txt")
    (work_tree / ".git" / "objects" / sha[:2] / sha[2:]).unlink()
    repository = Repository(work_tree)
    with pytest.raises(RepositoryError, match=f"The object {sha} of .* is missing"):
        list(repository.tree(repository.resolve("HEAD")))


def test_blobs_are_read_copied_and_bounded(tmp_path: Path) -> None:
    big = os.urandom(3_000_000)
    contents = {"big": big, "empty": b"", "text": b"line\nblob 5\n"}
    commit = make_repository(tmp_path / "r", contents)
    repository = Repository(tmp_path / "r")
    sha = {e.path: e.sha for e in repository.tree(commit)}
    with repository.blobs() as blobs:
        with pytest.raises(RepositoryError, match=r"3000000 bytes, where at most 10"):
            blobs.read(sha["big"], limit=10)
        for name, content in contents.items():
            assert blobs.read(sha[name]) == content
        blobs.copy(sha["big"], tmp_path / "copy")
        with pytest.raises(RepositoryError, match="is missing, where a blob is expected"):
            blobs.read("0" * 40)
        with pytest.raises(RepositoryError, match="is a commit, where a blob"):
            repository.read_blob(commit, limit=1000)
        with pytest.raises(RepositoryError, match="no object name"):
            blobs.read("HEAD:text\n" + sha["text"])
        assert blobs.read(sha["text"]) == contents["text"]
    assert (tmp_path / "copy").read_bytes() == big
    asked = [sha["text"], sha["big"], sha["empty"], sha["text"]]
    assert list(repository.read_blobs(asked)) == [contents["text"], big, b"", contents["text"]]


def test_files_are_read_by_commit_and_path(tmp_path: Path) -> None:
    name = "d/a b: é & 100%"
    commit = make_repository(tmp_path / "r", {name: b"content", "x": b"12345"})
    repository = Repository(tmp_path / "r")
    with repository.blobs() as blobs:
        assert blobs.read_path(commit, "d", 100) is None
        assert blobs.read_path(commit, name, 100) == b"content"
        for absent in ("", "y", "d/", "x\ny", "d/a b: é & 100% blob 7"):
            assert blobs.read_path(commit, absent, 100) is None
        assert blobs.read_path("0" * 40, "x", 100) is None
        with pytest.raises(RepositoryError, match="5 bytes, where at most 4"):
            blobs.read_path(commit, "x", 4)
        assert blobs.read_path(commit, "x", 5) == b"12345"


def test_refs_and_remotes_are_listed(work_tree: Path) -> None:
    commit = git(work_tree, "rev-parse", "HEAD")
    for ref in ("refs/heads/git-annex", "refs/remotes/a/git-annex", "refs/remotes/b/other"):
        git(work_tree, "update-ref", ref, commit)
    git(work_tree, "config", "remote.a.b.url", "https://a.org/x\ny")
    git(work_tree, "config", "remote.a.b.annex-uuid", "u")
    repository = Repository(work_tree)
    assert repository.commits_of("refs/heads/git-annex", "refs/remotes/*/git-annex") == (commit,)
    assert repository.commits_of("refs/heads/none") == ()
    assert repository.remotes() == {"a.b": {"url": "https://a.org/x\ny", "annex-uuid": "u"}}
