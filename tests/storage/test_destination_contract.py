"""What every destination promises, at a folder and at a bucket of a real S3 server."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from converter.storage.destination import ANY, Destination, DestinationError, Superseded
from converter.storage.local_destination import LocalDestination
from converter.storage.s3_client import S3Options
from converter.storage.s3_destination import S3Destination
from tests.servers.seaweedfs import S3Server
from tests.storage.stores import NEW, OLD, ZARR, store


@dataclass(frozen=True)
class Place:
    """A destination, and what others see there: all objects by name."""

    destination: Destination
    objects: Callable[[], dict[str, bytes]]


@pytest.fixture
def folder_place(tmp_path: Path) -> Place:
    root = tmp_path / "dest" / "nm000103" / "zarr"

    def objects() -> dict[str, bytes]:
        files = (path for path in root.rglob("*") if path.is_file())
        return {str(path.relative_to(root)): path.read_bytes() for path in files}

    return Place(LocalDestination(root), objects)


@pytest.fixture
def bucket_place(s3_server: S3Server, bucket: str, monkeypatch: pytest.MonkeyPatch) -> Place:
    for name, value in s3_server.environment().items():
        monkeypatch.setenv(name, value)
    client = s3_server.client()
    prefix = "copies/nm000103/zarr/"

    def objects() -> dict[str, bytes]:
        listed = client.list_objects_v2(Bucket=bucket).get("Contents", [])
        keys = [found["Key"] for found in listed]
        assert all(key.startswith(prefix) for key in keys)
        return {
            key.removeprefix(prefix): client.get_object(Bucket=bucket, Key=key)["Body"].read()
            for key in keys
        }

    return Place(S3Destination(bucket, prefix, S3Options(s3_server.endpoint)), objects)


@pytest.fixture(params=["folder", "bucket"])
def place(request: pytest.FixtureRequest) -> Place:
    found: Place = request.getfixturevalue(f"{request.param}_place")
    return found


def test_a_document_is_replaced_as_a_whole_and_has_versions(place: Place) -> None:
    destination = place.destination
    assert destination.read_document("index.json") is None
    first = destination.write_document("index.json", b"one", expected=None)
    second = destination.write_document("index.json", b"two", expected=first)
    assert first != second
    read = destination.read_document("index.json")
    assert read is not None
    assert (read.content, read.version) == (b"two", second)
    assert destination.write_document("index.json", b"one", expected=ANY) == first
    assert place.objects() == {"index.json": b"one"}
    destination.remove_document("index.json")
    destination.remove_document("index.json")
    assert place.objects() == {}


def test_a_document_of_another_version_stays(place: Place) -> None:
    destination = place.destination
    with pytest.raises(Superseded, match=r"index\.json.* None"):
        destination.write_document("index.json", b"new", expected='"0"')
    version = destination.write_document("index.json", b"", expected=None)
    with pytest.raises(Superseded, match="None was expected"):
        destination.write_document("index.json", b"new", expected=None)
    destination.write_document("index.json", b"theirs")
    with pytest.raises(Superseded, match=version):
        destination.write_document("index.json", b"ours", expected=version)
    assert place.objects() == {"index.json": b"theirs"}


def test_of_many_writers_at_once_one_wins(place: Place) -> None:
    destination = place.destination
    version = destination.write_document("index.json", b"start")

    def write(number: int) -> int | None:
        try:
            destination.write_document("index.json", b"%d" % number, expected=version)
        except Superseded:
            return None
        return number

    with ThreadPoolExecutor(8) as pool:
        winners = [winner for winner in pool.map(write, range(8)) if winner is not None]
    assert len(winners) == 1
    assert place.objects() == {"index.json": b"%d" % winners[0]}


def test_files_are_written_and_fetched(place: Place, tmp_path: Path) -> None:
    destination = place.destination
    local = tmp_path / "events.parquet"
    assert destination.fetch_file("events.parquet", tmp_path) is None
    for content in (b"", b"rows" * (1 << 19)):
        local.write_bytes(content)
        destination.write_file("events.parquet", local)
        local.write_bytes(b"the next ones")
        fetched = destination.fetch_file("events.parquet", tmp_path)
        assert fetched is not None
        assert fetched.read_bytes() == content
        assert local.read_bytes() == b"the next ones"
    with pytest.raises(DestinationError, match=r"events\.parquet cannot be written: No such file"):
        destination.write_file("events.parquet", tmp_path / "missing")
    assert place.objects() == {"events.parquet": b"rows" * (1 << 19)}


def test_a_store_takes_the_place_of_an_older_one(place: Place, tmp_path: Path) -> None:
    destination = place.destination
    local, old = store(tmp_path / "old", OLD, "0/0", "0/1", "0/2")
    assert destination.place_store(local, ZARR) == ()
    assert not local.exists()
    assert place.objects() == old
    assert destination.store_stamps([ZARR, ZARR]) == {ZARR: OLD}

    local, new = store(tmp_path / "new", NEW, "0/0", "1/1")
    left = destination.place_store(local, ZARR)
    assert not local.exists()
    assert place.objects() == new | {f"{ZARR}/{name}": old[f"{ZARR}/{name}"] for name in left}
    assert destination.store_stamps([ZARR]) == {ZARR: NEW}
    before = place.objects()
    destination.remove_objects(ZARR, left, OLD)
    assert place.objects() == before
    destination.remove_objects(ZARR, left, NEW)
    destination.remove_objects(ZARR, left, NEW)
    assert place.objects() == new


def test_stores_are_removed_and_their_neighbours_stay(place: Place, tmp_path: Path) -> None:
    destination = place.destination
    destination.write_document(f"{ZARR}2/zarr.json", b"a neighbour")
    destination.place_store(store(tmp_path / "old", OLD, "0/0")[0], ZARR)
    destination.remove_store(ZARR)
    destination.remove_store(ZARR)
    assert place.objects() == {f"{ZARR}2/zarr.json": b"a neighbour"}
    assert destination.store_stamps([ZARR]) == {}


def test_stamps_are_those_of_stores_that_are_there(place: Place, tmp_path: Path) -> None:
    destination = place.destination
    names = [f"sub-{number:02}/eeg.zarr" for number in range(40)]
    for number, name in enumerate(names[1:]):
        root = {"attributes": {"created_utc": f"stamp {number}"}}
        destination.write_document(f"{name}/zarr.json", json.dumps(root).encode())
    destination.place_store(store(tmp_path / "none", None)[0], "a.zarr")
    destination.write_document("b.zarr/zarr.json", b"{cut sho")
    destination.write_document("c.zarr/eeg/zarr.json", b"{}")
    stamps = destination.store_stamps([*names, "a.zarr", "b.zarr", "c.zarr"])
    assert stamps == {name: f"stamp {number}" for number, name in enumerate(names[1:])}


def test_names_stay_inside(place: Place, tmp_path: Path) -> None:
    destination = place.destination
    local, _ = store(tmp_path / "one", OLD)
    acts: tuple[Callable[[str], object], ...] = (
        destination.read_document,
        lambda name: destination.write_document(name, b""),
        lambda name: destination.write_document(name, b"", expected=None),
        destination.remove_document,
        lambda name: destination.fetch_file(name, tmp_path),
        lambda name: destination.write_file(name, local / "zarr.json"),
        lambda name: destination.place_store(local, name),
        lambda name: destination.store_stamps([name]),
        destination.remove_store,
    )
    for name in ("", "/etc/x", "../x", "a/../../x", "a//b", "./x", "a/", "a\0b"):
        for act in acts:
            with pytest.raises(DestinationError, match="relative"):
                act(name)
    assert (local / "zarr.json").is_file()
    assert place.objects() == {}


def test_a_destination_travels_to_another_process(place: Place) -> None:
    place.destination.write_document("index.json", b"one")
    copy: Destination = pickle.loads(pickle.dumps(place.destination))
    assert copy.location == place.destination.location
    found = copy.read_document("index.json")
    assert found is not None
    assert found.content == b"one"


def test_a_store_that_is_not_there_cannot_be_placed(place: Place, tmp_path: Path) -> None:
    with pytest.raises(DestinationError, match=r"x\.zarr"):
        place.destination.place_store(tmp_path / "nothing", "x.zarr")
    assert place.objects() == {}
