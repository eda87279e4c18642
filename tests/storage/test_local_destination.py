from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from converter.storage.destination import Destination, DestinationError
from converter.storage.local_destination import UNFINISHED, LocalDestination


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
    assert (place.root / "index.json").read_bytes() == b"two"
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
    assert (place.root / "events.parquet").read_bytes() == b"old"
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
        target.touch()
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("shutil.copyfile", full)
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
        if self.name == "incoming":
            raise PermissionError(errno.EACCES, "Permission denied")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", refuse)
    with pytest.raises(DestinationError, match="Permission denied"):
        place.place_store(make_store(tmp_path / "two", "two"), "x.zarr")
    assert (place.root / "x.zarr/zarr.json").read_text() == "one"
    assert [p.name for p in place.root.iterdir()] == ["x.zarr"]


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


WRITING = """
import sys, time
from pathlib import Path
from converter.storage.local_destination import LocalDestination

def stop(*_, **__):
    print("writing", flush=True)
    time.sleep(600)

Path.replace = stop
LocalDestination(Path(sys.argv[1])).write_document("index.json", b"new")
"""


def test_what_a_killed_run_left_is_swept_and_what_is_being_written_stays(
    place: LocalDestination,
) -> None:
    place.sweep()
    place.write_document("index.json", b"old")
    # Stopped right before its rename, with the folder's lock held and then without.
    for is_locked in (True, False):
        script = WRITING if is_locked else WRITING.replace("Path.replace", "Path.write_bytes")
        command = [sys.executable, "-c", script, str(place.root)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as writer:
            assert writer.stdout is not None
            assert writer.stdout.readline() == b"writing\n"
            if not is_locked:
                place.sweep()
                assert len(list(place.root.glob(f"{UNFINISHED}*"))) == 1
            writer.kill()
        place.sweep()
        assert tree(place.root) == {"index.json"}
        assert (place.root / "index.json").read_bytes() == b"old"


def test_stores_placed_at_once_do_not_mix(place: LocalDestination, tmp_path: Path) -> None:
    locals_ = [make_store(tmp_path / str(number), str(number)) for number in range(8)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda local: place.place_store(local, "x.zarr"), locals_))
    found = {path.read_text() for path in (place.root / "x.zarr").rglob("zarr.json")}
    assert len(found) == 1
    assert tree(place.root) == {"x.zarr/zarr.json", "x.zarr/eeg_250hz/zarr.json"}
