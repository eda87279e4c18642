"""What is particular to S3: order, headers, large objects, and a network that misbehaves."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import unquote

import pytest
from mypy_boto3_s3 import S3Client

from converter.storage import s3_bucket, s3_content
from converter.storage.destination import DestinationError
from converter.storage.s3_client import S3Options
from converter.storage.s3_content import Content
from converter.storage.s3_destination import S3Destination
from tests.servers.fault_proxy import FaultProxy
from tests.servers.faults import (
    ACCESS_DENIED,
    EXPIRED_TOKEN,
    INTERNAL_ERROR,
    NOT_FOUND,
    SLOW_DOWN,
    Fault,
    Flip,
    Gate,
    LoseAnswer,
    Reset,
    Stall,
    Status,
    Truncate,
)
from tests.servers.seaweedfs import S3Server
from tests.storage.stores import NEW, OLD, ZARR, store

PREFIX = "nm000103/zarr/"
CHUNK, ROOT, LIST = r"/c/\d", r"\.zarr/zarr\.json", "list-type"


@dataclass(frozen=True)
class Trial:
    """A destination behind a proxy, and its bucket without one."""

    server: S3Server
    proxy: FaultProxy
    bucket: str
    destination: S3Destination
    client: S3Client

    def objects(self) -> dict[str, bytes]:
        client = self.client
        listed = client.list_objects_v2(Bucket=self.bucket).get("Contents", [])
        return {
            key.removeprefix(PREFIX): client.get_object(Bucket=self.bucket, Key=key)["Body"].read()
            for key in (found["Key"] for found in listed)
        }

    @property
    def impatient(self) -> S3Destination:
        """For servers that fall silent."""
        options = S3Options(self.proxy.endpoint, read_timeout=6.0)
        return replace(self.destination, options=options)

    def sent(self) -> list[str]:
        """The keys of the PUT requests so far, in their order, below the store or the prefix."""
        start = f"/{self.bucket}/{PREFIX}"
        paths = [unquote(each.path).partition("?")[0] for each in self.proxy.exchanges("PUT")]
        return [path.removeprefix(start).removeprefix(f"{ZARR}/") for path in paths]


@pytest.fixture
def trial(
    s3_server: S3Server,
    bucket: str,
    fault_proxy: Callable[[], FaultProxy],
    monkeypatch: pytest.MonkeyPatch,
) -> Trial:
    for name, value in s3_server.environment().items():
        monkeypatch.setenv(name, value)
    proxy = fault_proxy()
    destination = S3Destination(bucket, PREFIX, S3Options(proxy.endpoint))
    return Trial(s3_server, proxy, bucket, destination, s3_server.client())


def test_metadata_follows_what_it_describes_and_the_root_is_last(
    trial: Trial, tmp_path: Path
) -> None:
    chunks = [f"{row}/{column}" for row in range(4) for column in range(5)]
    trial.destination.place_store(store(tmp_path / "new", NEW, *chunks)[0], ZARR)
    sent = trial.sent()
    assert sorted(sent[:20]) == sorted(f"eeg/0/c/{chunk}" for chunk in chunks)
    assert sent[20:] == ["eeg/0/zarr.json", "eeg/zarr.json", "zarr.json"]
    last = trial.proxy.exchanges()[-2:]
    assert LIST in last[0].path, "all but the root is there before the root goes out"
    assert last[1].method == "PUT"


def test_of_what_is_there_already_only_the_root_is_sent_again(trial: Trial, tmp_path: Path) -> None:
    for stamp, changed in ((OLD, None), (NEW, ["zarr.json"] * 2), (NEW, ["zarr.json"] * 2)):
        local, objects = store(tmp_path / "store", stamp, "0/0", "0/1")
        for name in ("eeg/0/zarr.json", "eeg/zarr.json"):
            (local / name).write_text("the same")
            objects[f"{ZARR}/{name}"] = b"the same"
        trial.proxy.forget()
        trial.destination.place_store(local, ZARR)
        assert changed is None or trial.sent() == changed
        assert trial.objects() == objects
        assert trial.destination.store_stamps([ZARR]) == {ZARR: stamp}


def test_types_lifetimes_and_the_stamp_are_set(trial: Trial, tmp_path: Path) -> None:
    trial.destination.place_store(store(tmp_path / "new", NEW, "0/0")[0], ZARR)
    trial.destination.write_file("events.parquet", Path(__file__))
    trial.destination.write_document("index.json", b"{}")
    trial.destination.write_document("manifest.json", b"{}", expected=None)
    minute, day = "public, max-age=60", "public, max-age=86400"
    expected = {
        f"{ZARR}/eeg/0/c/0/0": ("application/octet-stream", day),
        f"{ZARR}/eeg/zarr.json": ("application/json", minute),
        f"{ZARR}/zarr.json": ("application/json", minute),
        "events.parquet": ("application/vnd.apache.parquet", minute),
        "index.json": ("application/json", minute),
        "manifest.json": ("application/json", minute),
    }
    reader = trial.server.anonymous_client()
    found = {name: reader.head_object(Bucket=trial.bucket, Key=PREFIX + name) for name in expected}
    assert {n: (head["ContentType"], head["CacheControl"]) for n, head in found.items()} == expected
    assert found[f"{ZARR}/zarr.json"]["Metadata"] == {"created-utc": NEW}
    trial.proxy.forget()
    assert trial.destination.store_stamps([ZARR]) == {ZARR: NEW}
    assert trial.proxy.exchanges("GET") == [], "one HEAD a store"


def test_a_large_object_goes_in_parts(
    trial: Trial, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = 5 << 20
    for module in (s3_bucket, s3_content):
        monkeypatch.setattr(module, "LARGEST_SINGLE", part)
        monkeypatch.setattr(module, "PART", part)
    content = bytes(range(256)) * (12 << 12)  # 12 MiB
    for stamp, in_parts in ((OLD, True), (NEW, False)):
        local, objects = store(tmp_path / "store", stamp, "0/0")
        (local / "eeg/0/c/0/0").write_bytes(content)
        trial.proxy.forget()
        trial.destination.place_store(local, ZARR)
        assert any("partNumber" in each.path for each in trial.proxy.exchanges("PUT")) is in_parts
        assert trial.objects() == objects | {f"{ZARR}/eeg/0/c/0/0": content}
    key = f"{PREFIX}{ZARR}/eeg/0/c/0/0"
    head = trial.client.head_object(Bucket=trial.bucket, Key=key)
    assert head["CacheControl"] == "public, max-age=86400"
    # How Amazon makes the ETag of an object of three parts, by hand.
    digests = [hashlib.md5(content[at : at + part]).digest() for at in range(0, 12 << 20, part)]
    assert head["ETag"] == f'"{hashlib.md5(b"".join(digests)).hexdigest()}-3"'
    fetched = trial.destination.fetch_file(f"{ZARR}/eeg/0/c/0/0", tmp_path)
    assert fetched is not None
    assert fetched.read_bytes() == content


def test_a_store_that_is_replaced_in_part_has_no_stamp(trial: Trial, tmp_path: Path) -> None:
    trial.destination.place_store(store(tmp_path / "old", OLD, "0/0", "0/1")[0], ZARR)
    local, new = store(tmp_path / "new", NEW, "0/0", "0/1")
    (local / "eeg/0/c/0/0").write_bytes(b"another")
    gate = Gate()
    trial.proxy.inject(gate, method="PUT", path=CHUNK)
    with ThreadPoolExecutor(1) as pool:
        placed = pool.submit(trial.destination.place_store, local, ZARR)
        gate.wait_until_reached()
        [stamp] = trial.destination.store_stamps([ZARR]).values()
        assert stamp not in (OLD, NEW)
        assert OLD.encode() in trial.objects()[f"{ZARR}/zarr.json"], "readers see the same root"
        gate.open()
        placed.result()
    assert trial.objects() == new | {f"{ZARR}/eeg/0/c/0/0": b"another"}
    assert trial.destination.store_stamps([ZARR]) == {ZARR: NEW}


TRANSIENT: list[tuple[Fault, str | None, str, int]] = [
    (Reset(), "PUT", CHUNK, 4),
    (LoseAnswer(), "PUT", CHUNK, 4),
    (LoseAnswer(), "PUT", ROOT, 1),
    (Stall(30), "PUT", CHUNK, 1),
    (Stall(30), None, LIST, 1),
    (INTERNAL_ERROR, "PUT", CHUNK, 6),
    (SLOW_DOWN, None, "", 2),
    (Status(400, "BadDigest"), "PUT", CHUNK, 1),
    (Reset(after=40), None, LIST, 1),
    (Truncate(after=200), None, LIST, 2),
    (Flip(at=300), None, LIST, 1),
]


def test_an_upload_outlives_faults(trial: Trial, tmp_path: Path) -> None:
    for number, (fault, method, path, times) in enumerate(TRANSIENT):
        stamp = f"stamp {number}"
        chunks = (f"{number}/0", f"{number}/1", "0/2")
        local, objects = store(tmp_path / "store", stamp, *chunks)
        trial.proxy.forget()
        trial.proxy.inject(fault, method=method, path=path, times=times)
        left = trial.impatient.place_store(local, ZARR)
        assert any(each.fault == fault for each in trial.proxy.exchanges())
        trial.destination.remove_objects(ZARR, left, stamp)
        assert trial.objects() == objects
        assert trial.destination.store_stamps([ZARR]) == {ZARR: stamp}


def test_an_upload_that_is_refused_leaves_the_old_metadata(trial: Trial, tmp_path: Path) -> None:
    _, old = store(tmp_path / "old", OLD, "0/0")
    trial.destination.place_store(tmp_path / "old", ZARR)
    local, new = store(tmp_path / "new", NEW, "0/0", "1/0", "1/1")
    for method, path, skip in (
        (None, "", 0),
        ("PUT", CHUNK, 1),
        ("GET", LIST, 1),
        ("PUT", ROOT, 0),
        ("PUT", ROOT, 1),
    ):
        trial.proxy.inject(EXPIRED_TOKEN, method=method, path=path, skip=skip, times=None)
        with pytest.raises(DestinationError, match="credentials have expired") as caught:
            trial.destination.place_store(local, ZARR)
        assert trial.bucket in str(caught.value)
        assert trial.server.access_key not in str(caught.value)
        assert trial.objects()[f"{ZARR}/zarr.json"] == old[f"{ZARR}/zarr.json"]
        trial.proxy.heal()
        trial.client.delete_object(Bucket=trial.bucket, Key=f"{PREFIX}{ZARR}/eeg/0/c/1/1")
    trial.destination.place_store(local, ZARR)
    assert trial.objects() == new


@pytest.mark.parametrize("times", [1, 2])
def test_an_object_that_is_not_as_it_was_sent_is_sent_once_more(
    trial: Trial, tmp_path: Path, times: int
) -> None:
    local, new = store(tmp_path / "new", NEW, "0/0", "0/1")
    gates = [Gate() for _ in range(times)]
    for gate in gates:
        trial.proxy.inject(gate, path=LIST, skip=1)
    with ThreadPoolExecutor(1) as pool:
        placed = pool.submit(trial.destination.place_store, local, ZARR)
        for gate in gates:
            gate.wait_until_reached()
            spoil(trial, f"{ZARR}/eeg/0/c/0/1")
            gate.open()
    if times == 1:
        assert placed.result() == ()
        assert trial.objects() == new
    else:
        with pytest.raises(DestinationError, match=r"eeg/0/c/0/1 is listed with another"):
            placed.result()
        assert f"{ZARR}/zarr.json" not in trial.objects()


def spoil(trial: Trial, name: str) -> None:
    trial.client.put_object(Bucket=trial.bucket, Key=PREFIX + name, Body=b"another")


def test_a_document_is_read_as_it_was_written(trial: Trial, tmp_path: Path) -> None:
    destination, content = trial.impatient, b"x" * 100_000
    destination.write_document("index.json", content)
    for fault in (Truncate(after=5000), Reset(after=5000), Flip(at=99_999), SLOW_DOWN, Stall(30)):
        trial.proxy.inject(fault, method="GET", path="index")
        found = destination.read_document("index.json")
        assert found is not None
        assert found.content == content
        trial.proxy.inject(fault, method="GET", path="index")
        path = destination.fetch_file("index.json", tmp_path)
        assert path is not None
        assert path.read_bytes() == content
    trial.proxy.inject(Flip(), method="GET", path="index", times=None)
    with pytest.raises(DestinationError, match=r"index\.json was read \d times.* not fit"):
        destination.read_document("index.json")


def test_what_is_denied_is_not_absent(trial: Trial) -> None:
    trial.proxy.inject(NOT_FOUND, path="index")
    assert trial.destination.read_document("index.json") is None
    trial.proxy.inject(ACCESS_DENIED, times=None)
    acts: tuple[Callable[[], object], ...] = (
        lambda: trial.destination.read_document("index.json"),
        lambda: trial.destination.store_stamps([ZARR]),
        lambda: trial.destination.write_document("index.json", b"", expected=None),
        lambda: trial.destination.remove_store(ZARR),
        lambda: trial.destination.remove_document("index.json"),
    )
    for act in acts:
        with pytest.raises(DestinationError, match=r"access is denied.*HTTP 403"):
            act()


def test_a_write_whose_answer_is_lost_counts_as_written(trial: Trial) -> None:
    destination = trial.destination
    trial.proxy.inject(LoseAnswer(), method="PUT")
    first = destination.write_document("index.json", b"one", expected=None)
    trial.proxy.inject(LoseAnswer(), method="PUT")
    second = destination.write_document("index.json", b"two", expected=first)
    assert first != second
    assert trial.objects() == {"index.json": b"two"}
    found = destination.read_document("index.json")
    assert found is not None
    assert found.version == second


def test_an_endpoint_without_conditional_writes_is_named(trial: Trial) -> None:
    trial.proxy.inject(Status(501, "NotImplemented"), method="PUT", times=None)
    with pytest.raises(DestinationError, match="on a condition: the endpoint does not support"):
        trial.destination.write_document("index.json", b"one", expected=None)


def test_many_objects_are_removed_in_batches(
    trial: Trial, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3_bucket, "BATCH", 2)
    trial.destination.place_store(store(tmp_path / "new", NEW, "0/0", "0/1", "0/2")[0], ZARR)
    trial.proxy.inject(LoseAnswer(), method="POST", skip=1)
    trial.destination.remove_store(ZARR)
    assert trial.objects() == {}


def test_missing_credentials_are_said_to_be_missing(
    bucket: str, fault_proxy: Callable[[], FaultProxy], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID", raising=False)
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY", raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, "/nonexistent")
    place = S3Destination(bucket, "", S3Options(fault_proxy().endpoint))
    with pytest.raises(DestinationError, match=f"s3://{bucket}.*no AWS credentials were found"):
        place.read_document("index.json")


def test_an_etag_says_only_what_it_can() -> None:
    content = Content.of_bytes(b"abc")
    assert content.may_have({"etag": '"900150983cd24fb0d6963f7d28e17f72"'})
    assert not content.may_have({"etag": '"d41d8cd98f00b204e9800998ecf8427e"'})
    kms = {"x-amz-server-side-encryption": "aws:kms"}
    assert content.may_have({"etag": '"d41d8cd98f00b204e9800998ecf8427e"', **kms})
    assert content.may_have({"etag": '"d41d8cd98f00b204e9800998ecf8427e-3"'})
