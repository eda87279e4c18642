from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from converter.publish.destination import Destination, DestinationError, LocalDestination


@pytest.fixture
def place(tmp_path: Path) -> LocalDestination:
    return LocalDestination(tmp_path / "dest" / "nm000103" / "zarr")


def make_store(folder: Path, content: str) -> Path:
    (folder / "eeg_250hz").mkdir(parents=True)
    (folder / "zarr.json").write_text(content)
    (folder / "eeg_250hz" / "zarr.json").write_text(content)
    return folder


def tree(folder: Path) -> set[str]:
    return {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()}


def across_filesystems(monkeypatch: pytest.MonkeyPatch, source: Path) -> None:
    rename = Path.rename

    def refuse(self: Path, target: Path) -> Path:
        if self == source:
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", refuse)


def test_documents_are_replaced_whole(place: LocalDestination, tmp_path: Path) -> None:
    checked: Destination = place
    assert checked.read_document("index.json") is None
    place.write_document("index.json", b"one")
    place.write_document("index.json", b"two")
    assert place.read_document("index.json") == b"two"
    (tmp_path / "rows").write_bytes(b"rows")
    place.write_file("events.parquet", tmp_path / "rows")
    found = place.fetch_file("events.parquet", tmp_path)
    assert found is not None
    assert found.read_bytes() == b"rows"
    assert tree(place.root) == {"index.json", "events.parquet"}
    assert place.fetch_file("manifest.json", tmp_path) is None
    assert place.location == str(place.root)


def test_a_failed_write_leaves_the_old_document(place: LocalDestination, tmp_path: Path) -> None:
    place.write_document("events.parquet", b"old")
    with pytest.raises(DestinationError, match=r"events\.parquet cannot be written: No such file"):
        place.write_file("events.parquet", tmp_path / "missing")
    assert place.read_document("events.parquet") == b"old"
    assert tree(place.root) == {"events.parquet"}


@pytest.mark.parametrize("copied", [False, True])
def test_stores_are_placed_replaced_and_removed(
    place: LocalDestination, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, copied: bool
) -> None:
    zarr = "sub-01/eeg/sub-01_task-a b_eeg.zarr"
    for content in ("one", "two"):
        local = make_store(tmp_path / content, content)
        if content == "two":
            (local / "new").touch()
        if copied:
            across_filesystems(monkeypatch, local)
        place.place_store(local, zarr)
        assert not local.exists()
    assert (place.root / zarr / "zarr.json").read_text() == "two"
    assert tree(place.root) == {f"{zarr}/{n}" for n in ("zarr.json", "new", "eeg_250hz/zarr.json")}
    place.remove_store(zarr)
    place.remove_store(zarr)
    assert list(place.root.iterdir()) == []


def test_a_copy_that_breaks_off_is_never_seen(
    place: LocalDestination, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.place_store(make_store(tmp_path / "one", "one"), "a/x.zarr")
    local = make_store(tmp_path / "two", "two")
    across_filesystems(monkeypatch, local)

    def full(source: Path, target: Path, **_: object) -> None:
        target.mkdir()
        (target / "zarr.json").touch()
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("shutil.copytree", full)
    with pytest.raises(DestinationError, match=r"a/x\.zarr cannot be placed: No space left"):
        place.place_store(local, "a/x.zarr")
    assert (place.root / "a/x.zarr/zarr.json").read_text() == "one"
    assert [p.name for p in (place.root / "a").iterdir()] == ["x.zarr"]
    assert (local / "zarr.json").read_text() == "two"


def test_the_old_store_comes_back_when_the_new_one_cannot_be_placed(
    place: LocalDestination, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.place_store(make_store(tmp_path / "one", "one"), "x.zarr")
    rename = Path.rename

    def refuse(self: Path, target: Path) -> Path:
        if self.name.startswith(".incoming"):
            raise PermissionError(errno.EACCES, "Permission denied")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", refuse)
    with pytest.raises(DestinationError, match="Permission denied"):
        place.place_store(make_store(tmp_path / "two", "two"), "x.zarr")
    assert (place.root / "x.zarr/zarr.json").read_text() == "one"
    assert [p.name for p in place.root.iterdir()] == ["x.zarr"]


@pytest.mark.parametrize("name", ["", "/etc/x", "../x", "a/../../x", "a//b", "./x", "a/", "a\0b"])
def test_names_stay_inside(place: LocalDestination, tmp_path: Path, name: str) -> None:
    local = make_store(tmp_path / "one", "one")
    for act in (
        lambda: place.write_document(name, b""),
        lambda: place.read_document(name),
        lambda: place.place_store(local, name),
        lambda: place.remove_store(name),
    ):
        with pytest.raises(DestinationError, match="relative"):
            act()
    assert local.is_dir()


def test_symbolic_links_are_not_followed(place: LocalDestination, tmp_path: Path) -> None:
    outside = make_store(tmp_path / "outside", "outside")
    place.root.mkdir(parents=True)
    (place.root / "sub-01").symlink_to(outside)
    (place.root / "index.json").symlink_to(outside / "zarr.json")
    acts: tuple[Callable[[], object], ...] = (
        lambda: place.write_document("index.json", b""),
        lambda: place.read_document("index.json"),
        lambda: place.place_store(make_store(tmp_path / "one", "one"), "sub-01/x.zarr"),
        lambda: place.remove_store("sub-01/eeg_250hz"),
    )
    for act in acts:
        with pytest.raises(DestinationError, match="symbolic link"):
            act()
    assert tree(outside) == {"zarr.json", "eeg_250hz/zarr.json"}


def test_a_file_in_place_of_the_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "dest").write_text("x")
    place = LocalDestination(tmp_path / "dest")
    with pytest.raises(DestinationError, match=r"dest: index\.json cannot be written"):
        place.write_document("index.json", b"")
    with pytest.raises(DestinationError, match="no folder of a store"):
        place.place_store(tmp_path / "nothing", "x.zarr")
