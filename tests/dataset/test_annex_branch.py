from __future__ import annotations

from pathlib import Path

import pytest

from converter.dataset.annex import AnnexKey
from converter.dataset.annex_branch import AnnexBranch, Chunking, KeyLogs
from converter.dataset.repository import Repository
from tests.conftest import git

from .trees import make_repository

TEXT = "MD5E-s12345--0cc175b9c0f1b6a831c399e269772661.eeg"
HERE = "add/c6a"  # as `git-annex examinekey` prints it
A, B = "aaaaaaaa-0000-0000-0000-000000000001", "bbbbbbbb-0000-0000-0000-000000000002"


def parsed(text: str = TEXT) -> AnnexKey:
    key = AnnexKey.parse(text)
    assert key is not None
    return key


def branch_of(folder: Path, *trees: dict[str, str]) -> Repository:
    """A repository with a git-annex branch of its own and one of each further remote."""
    make_repository(folder, {"README": b""})
    for number, tree in enumerate(trees):
        other = folder.with_name(f"{folder.name}-{number}")
        make_repository(other, {path: text.encode() for path, text in tree.items()})
        ref = f"refs/remotes/r{number}/git-annex" if number else "refs/heads/git-annex"
        git(folder, "fetch", "-q", str(other), f"main:{ref}")
    return Repository(folder)


def key_logs(repository: Repository, key: AnnexKey) -> KeyLogs:
    with repository.blobs() as blobs:
        return AnnexBranch.of(repository).key_logs(blobs, key)


def test_settings_come_unescaped_and_the_newest_hold(tmp_path: Path) -> None:
    repository = branch_of(
        tmp_path / "r",
        {
            "remote.log": (
                f"{A} bucket=old name=one type=S3 timestamp=1400000000s\n"
                f"{A} bucket=new fileprefix=a&32;b&38;amp;&10;/=x name=one type=S3"
                " timestamp=1500000000.5s\n"
                f"{B} name=two timestamp=1300000000s\n"
            ),
            "trust.log": f"{B} X timestamp=2s\n{A} X timestamp=1s\n{A} 1 timestamp=3s\n",
        },
        {"remote.log": f"{A} bucket=other name=one timestamp=1450000000s\nrubbish\n\n"},
    )
    with repository.blobs() as blobs:
        remotes = AnnexBranch.of(repository).remotes(blobs)
    settings = {"bucket": "new", "fileprefix": "a b&amp;\n/=x", "name": "one", "type": "S3"}
    assert remotes == {A: settings, "rubbish": {}}


def test_a_key_has_the_logs_of_all_branches(tmp_path: Path) -> None:
    repository = branch_of(
        tmp_path / "r",
        {
            f"{HERE}/{TEXT}.log": f"10s 1 {A}\n20.5s 0 {A}\n30s 1 {B}\n",
            f"{HERE}/{TEXT}.log.web": (
                "1s 1 https://a.org/x y?q=1\n3s 0 https://b.org/\n2s 1 https://b.org/\n"
            ),
            f"{HERE}/{TEXT}.log.cnk": (
                f"1s {A}:1048576 12\n2s {A}:1000 13\n3s {B}:500 25\n4s {B}:500 0\n5s {A}:x 1\n"
            ),
            f"{HERE}/{TEXT}.log.rmet": (
                f"1s {A}:V +v1#ds/sub {A}:W +w#x {B}:V +v9#ds/x\n"
                f"2s {A}:V +v2#ds/y\n3s {A}:V +!djMjZHMvYSBi\n4s {A}:V -v2#ds/y\n"
            ),
        },
        {f"{HERE}/{TEXT}.log": f"40s 1 {A}\n41s X {B}\n"},
    )
    logs = key_logs(repository, parsed())
    assert (logs.is_in(A), logs.is_in(B), logs.is_in("other")) == (True, False, False)
    assert logs.urls == ("https://a.org/x y?q=1",)
    assert logs.chunkings == {A: (Chunking(1000, 13), Chunking(1048576, 12))}
    assert logs.versions == {A: (("ds/a b", "v3"), ("ds/sub", "v1")), B: (("ds/x", "v9"),)}


@pytest.mark.parametrize("directory", ["gx/Mx", "add"])
def test_older_layouts_are_read(tmp_path: Path, directory: str) -> None:
    repository = branch_of(
        tmp_path / "r",
        {
            f"{directory}/{TEXT}.log": f"10s 1 {A}\n",
            f"{directory}/{TEXT}.log.web": "1s 1 https://b.org/\n",
            f"remote/web/{HERE}/{TEXT}.log": "2s 1 https://a.org/\n",
        },
    )
    logs = key_logs(repository, parsed())
    assert logs.is_in(A)
    assert logs.urls == ("https://a.org/", "https://b.org/")


def test_exported_trees_are_known(tmp_path: Path) -> None:
    old, new, partial = "1" * 40, "2" * 40, "3" * 40
    lines = f"1s {A}:{B} {old}\n2s {A}:{B} {new} {partial}\n3s {A}:{A} no-sha\n"
    repository = branch_of(tmp_path / "r", {"export.log": lines})
    with repository.blobs() as blobs:
        assert AnnexBranch.of(repository).exports(blobs) == {B: (new, partial), A: ()}


def test_a_repository_without_a_branch_tells_nothing(tmp_path: Path) -> None:
    repository = branch_of(tmp_path / "r")
    branch = AnnexBranch.of(repository)
    assert branch.commits == ()
    with repository.blobs() as blobs:
        assert branch.remotes(blobs) == {}
        assert branch.key_logs(blobs, parsed()) == KeyLogs({}, {}, {}, ())


def test_a_key_with_odd_characters_is_looked_up(tmp_path: Path) -> None:
    text = "WORM-s3-m1700000000--a&sb c&ac&cd é"
    key = parsed(text)
    logs = {f"{key.hash_lower}/{text}.log": f"10s 1 {A}\n"}
    assert key_logs(branch_of(tmp_path / "r", logs), key).is_in(A)
    assert not key_logs(branch_of(tmp_path / "s", logs), parsed()).is_in(A)
