from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from converter.dataset import content
from converter.dataset.annex import AnnexKey, DamagedContent
from converter.dataset.content import (
    ContentSource,
    MissingContent,
    UnreachableContent,
    materialise,
    read_small,
)
from converter.dataset.discovery import discover
from converter.dataset.recording import Entry, Recording
from converter.dataset.repository import Repository
from converter.dataset.snapshot import Snapshot
from converter.storage.transfer import Patience
from tests.conftest import git
from tests.storage.web_server import WebServer, web_server, whole

from .test_annex_branch import branch_of
from .trees import Link, make_repository

DATA = "MD5-s5--5d41402abc4b2a76b9719d911017c592"
TABLE = "MD5-s12--bf2b32d1934d0e66a3583268e66cefba"


def put(repository: Repository, text: str, content: bytes) -> Path:
    key = AnnexKey.parse(text)
    assert key is not None
    path = repository.common_dir / "annex" / "objects" / key.hash_mixed / text / text
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    make_repository(
        tmp_path / "r",
        {
            "s/a_eeg.vhdr": b"header",
            "s/a_eeg.eeg": Link(f"../.git/annex/objects/x/y/{DATA}/{DATA}"),
            "s/a_eeg.vmrk": b"markers",
            "s/a_channels.tsv": f"/annex/objects/{TABLE}\n".encode(),
            "eeg.json": b"{}",
        },
    )
    return Repository(tmp_path / "r")


@pytest.fixture
def recording(repository: Repository) -> Recording:
    (found,) = discover(Snapshot.read(repository, repository.resolve("HEAD")))
    return found


@pytest.mark.parametrize("another_volume", [False, True])
def test_files_lie_under_their_bids_names(
    repository: Repository,
    recording: Recording,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    another_volume: bool,
) -> None:
    stored = put(repository, DATA, b"hello")
    put(repository, TABLE, b"name\ttype\n\n\n")
    if another_volume:

        def refuse(source: Path, destination: Path) -> None:
            raise OSError(18, "Invalid cross-device link")

        monkeypatch.setattr(content.os, "link", refuse)
    files = materialise(recording, ContentSource.of(repository), tmp_path / "out")
    assert {path: file.read_bytes() for path, file in files.items()} == {
        "s/a_eeg.vhdr": b"header",
        "s/a_eeg.eeg": b"hello",
        "s/a_eeg.vmrk": b"markers",
        "s/a_channels.tsv": b"name\ttype\n\n\n",
        "eeg.json": b"{}",
    }
    assert all(file == tmp_path / "out" / path for path, file in files.items())
    assert files["s/a_eeg.eeg"].samefile(stored)
    assert files["s/a_eeg.eeg"].is_symlink() == another_volume


def test_every_missing_key_is_named_and_nothing_laid_out(
    repository: Repository, recording: Recording, tmp_path: Path
) -> None:
    with pytest.raises(MissingContent) as missing:
        materialise(recording, ContentSource.of(repository), tmp_path / "out")
    assert missing.value.keys == (TABLE, DATA)
    assert str(missing.value) == (
        f"The annexed content of s/a_channels.tsv ({TABLE}), s/a_eeg.eeg ({DATA}) "
        "is not on this machine."
    )
    assert not (tmp_path / "out").exists()
    copy = pickle.loads(pickle.dumps(missing.value))
    assert (str(copy), copy.keys) == (str(missing.value), missing.value.keys)
    put(repository, DATA, b"hello")
    with pytest.raises(MissingContent) as missing:
        materialise(recording, ContentSource.of(repository), tmp_path / "out")
    assert missing.value.keys == (TABLE,)


def test_content_of_another_size_is_damaged(
    repository: Repository, recording: Recording, tmp_path: Path
) -> None:
    put(repository, DATA, b"hell")
    with pytest.raises(DamagedContent, match=f"{DATA} has 4 bytes here, .* key tells 5"):
        materialise(recording, ContentSource.of(repository), tmp_path / "out")


def test_nothing_is_written_outside(
    repository: Repository, recording: Recording, tmp_path: Path
) -> None:
    source = ContentSource.of(repository)
    with pytest.raises(ValueError, match="because"):
        materialise(replace(recording, refused="because"), source, tmp_path / "out")
    for path in ("../x", "/x", "a//b"):
        stray = replace(recording, members=(Entry(path, "100644", "0" * 40, 1),))
        stray = replace(stray, sidecars=type(stray.sidecars)())
        with pytest.raises(ValueError, match="no path inside a dataset"):
            materialise(stray, source, tmp_path / "out")


QUICK = Patience(stall=30.0, tries=2, pause=0.01, longest_pause=0.05)


def on_the_web(repository: Repository, server: WebServer, *keys: str) -> ContentSource:
    """The repository with a git-annex branch that knows a URL for each key."""
    logs = {}
    for text in keys:
        key = AnnexKey.parse(text)
        assert key is not None
        url = f"{server.url}/{text}?signature=secret"
        logs[f"{key.hash_lower}/{text}.log.web"] = f"1s 1 {url}\n"
    other = branch_of(repository.path.with_name("branch"), logs)
    git(repository.path, "fetch", "-q", str(other.path), "git-annex:refs/heads/git-annex")
    return ContentSource.of(repository, frozenset({server.host}), QUICK)


def serving(contents: dict[str, bytes]) -> Callable[[BaseHTTPRequestHandler], None]:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        body = contents.get(handler.path.partition("?")[0].removeprefix("/"))
        if body is not None:
            return whole(body)(handler)
        handler.send_response(404)
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    return answer


def test_what_is_not_here_is_fetched_once_for_each_key(
    repository: Repository, recording: Recording, tmp_path: Path
) -> None:
    table = b"name\ttype\n\n\n"
    stored = put(repository, DATA, b"hello")
    twin = Entry("s/twin.tsv", "100644", "0" * 40, 12, TABLE)
    recording = replace(recording, members=(*recording.members, twin))
    with web_server(serving({TABLE: table})) as server:
        source = on_the_web(repository, server, TABLE)
        files = materialise(recording, pickle.loads(pickle.dumps(source)), tmp_path / "out")
        entry = recording.sidecars.channels
        assert entry is not None
        assert read_small(entry, source, 100) == table
        assert read_small(entry, source, 11) is None
    assert files["s/a_channels.tsv"].read_bytes() == table
    assert files["s/twin.tsv"].samefile(files["s/a_channels.tsv"])
    assert files["s/a_eeg.eeg"].samefile(stored)
    assert len(server.requests) == 2


def test_content_of_the_wrong_size_here_is_fetched(
    repository: Repository, recording: Recording, tmp_path: Path
) -> None:
    put(repository, DATA, b"hell")
    put(repository, TABLE, b"name\ttype\n\n\n")
    contents = {DATA: b"hello"}
    with web_server(serving(contents)) as server:
        source = on_the_web(repository, server, DATA)
        files = materialise(recording, source, tmp_path / "out")
        assert files["s/a_eeg.eeg"].read_bytes() == b"hello"
        contents.clear()
        with pytest.raises(DamagedContent, match=f"{DATA} has 4 bytes here"):
            materialise(recording, source, tmp_path / "again")


def test_why_content_cannot_be_had_is_told(
    repository: Repository, recording: Recording, tmp_path: Path
) -> None:
    contents = {TABLE: b"name\ttype\n\n\n"}

    def fails(server: WebServer, source: ContentSource) -> Exception:
        with pytest.raises(Exception, match=server.host) as caught:
            materialise(recording, source, tmp_path / "out")
        error = caught.value
        copy = pickle.loads(pickle.dumps(error))
        assert (type(copy), str(copy)) == (type(error), str(error))
        assert "secret" not in str(error)
        assert [each for each in (tmp_path / "out").rglob("*") if each.is_file()] == []
        return error

    with web_server(serving(contents)) as server:
        source = on_the_web(repository, server, DATA, TABLE)
        missing = fails(server, source)
        assert isinstance(missing, MissingContent)
        assert str(missing) == (
            f"The annexed content of s/a_eeg.eeg ({DATA}) is not on this machine, "
            f"nor in {server.host}."
        )
        contents[DATA] = b"olleh"
        damaged = fails(server, source)
        assert isinstance(damaged, DamagedContent)
        assert str(damaged) == (
            f"The annex key {DATA} came wrong: the MD5 10e099145e3c91cd94ccb9bdc50d0495, where "
            f"5d41402abc4b2a76b9719d911017c592 is expected ({server.host})."
        )
        refused = fails(server, replace(source, trusted_hosts=frozenset()))
        assert isinstance(refused, UnreachableContent)
        assert "is not public, nor a trusted host" in str(refused)


def test_a_clone_takes_content_from_the_folder_it_came_from(
    repository: Repository, recording: Recording, tmp_path: Path
) -> None:
    put(repository, DATA, b"hello")
    put(repository, TABLE, b"name\ttype\n\n\n")
    for number, url in enumerate((str(repository.path), repository.path.as_uri())):
        git(tmp_path, "clone", "-q", "--bare", url, f"clone{number}")
        source = ContentSource.of(Repository(tmp_path / f"clone{number}"))
        files = materialise(recording, source, tmp_path / f"out{number}")
        assert files["s/a_eeg.eeg"].read_bytes() == b"hello"
