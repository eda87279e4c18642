from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path

import pytest

from converter.dataset import content
from converter.dataset.annex import AnnexKey, DamagedContent
from converter.dataset.content import MissingContent, materialise
from converter.dataset.discovery import discover
from converter.dataset.recording import Entry, Recording
from converter.dataset.repository import Repository
from converter.dataset.snapshot import Snapshot

from .trees import Link, make_repository

DATA = "MD5-s5--5d41402abc4b2a76b9719d911017c592"
TABLE = "MD5-s12--0cc175b9c0f1b6a831c399e269772661"


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
    files = materialise(recording, repository, tmp_path / "out")
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
        materialise(recording, repository, tmp_path / "out")
    assert missing.value.keys == (TABLE, DATA)
    assert f"s/a_channels.tsv ({TABLE}), s/a_eeg.eeg ({DATA})." in str(missing.value)
    assert not (tmp_path / "out").exists()
    copy = pickle.loads(pickle.dumps(missing.value))
    assert (str(copy), copy.keys) == (str(missing.value), missing.value.keys)
    put(repository, DATA, b"hello")
    with pytest.raises(MissingContent) as missing:
        materialise(recording, repository, tmp_path / "out")
    assert missing.value.keys == (TABLE,)


def test_content_of_another_size_is_damaged(
    repository: Repository, recording: Recording, tmp_path: Path
) -> None:
    put(repository, DATA, b"hell")
    with pytest.raises(DamagedContent, match=f"{DATA} has 4 bytes here, .* key tells 5"):
        materialise(recording, repository, tmp_path / "out")


def test_nothing_is_written_outside(
    repository: Repository, recording: Recording, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match="because"):
        materialise(replace(recording, refused="because"), repository, tmp_path / "out")
    for path in ("../x", "/x", "a//b"):
        stray = replace(recording, members=(Entry(path, "100644", "0" * 40, 1),))
        stray = replace(stray, sidecars=type(stray.sidecars)())
        with pytest.raises(ValueError, match="no path inside a dataset"):
            materialise(stray, repository, tmp_path / "out")
