from __future__ import annotations

from pathlib import Path

import pytest

from converter.dataset.annex import AnnexKey
from converter.dataset.annex_branch import AnnexBranch, Chunking, KeyLogs
from converter.dataset.annex_remotes import ObjectRemote, object_remotes, parse_size, web_places
from converter.dataset.recording import Entry
from converter.dataset.repository import Repository
from converter.storage.objects import Place

from .test_annex_branch import A, B, branch_of

TEXT = "MD5E-s2500--0cc175b9c0f1b6a831c399e269772661.eeg"
ENTRY = Entry("sub-01/eeg/a b_eeg.eeg", "120000", "0" * 40, 2500, TEXT)
NOTHING = KeyLogs({}, {}, {}, ())


def remotes_of(tmp_path: Path, *lines: str, **files: str) -> tuple[ObjectRemote, ...]:
    tree = {"remote.log": "".join(f"{line} timestamp=1s\n" for line in lines), **files}
    repository = branch_of(tmp_path / "r", tree)
    with repository.blobs() as blobs:
        return object_remotes(AnnexBranch.of(repository), blobs)


def places_of(
    remote: ObjectRemote, tmp_path: Path, logs: KeyLogs = NOTHING, text: str = TEXT
) -> list[Place]:
    key = AnnexKey.parse(text)
    assert key is not None
    with Repository(tmp_path / "r").blobs() as blobs:
        return list(remote.places(ENTRY, key, logs, blobs))


def urls(places: list[Place]) -> list[str]:
    return [place.address(place.count - 1).url for place in places]


@pytest.mark.parametrize(
    ("settings", "url"),
    [
        ("bucket=ds", "https://ds.s3.amazonaws.com/"),
        ("bucket=ds host=s3.amazonaws.com port=80 datacenter=US", "https://ds.s3.amazonaws.com/"),
        ("bucket=ds datacenter=EU fileprefix=a/", "https://ds.s3.eu-west-1.amazonaws.com/a/"),
        ("bucket=ds region=us-west-2", "https://ds.s3.us-west-2.amazonaws.com/"),
        ("bucket=my.ds", "https://s3.amazonaws.com/my.ds/"),
        ("bucket=ds requeststyle=path", "https://s3.amazonaws.com/ds/"),
        ("bucket=ds host=minio.lab", "http://ds.minio.lab/"),
        ("bucket=ds host=minio.lab protocol=https", "https://ds.minio.lab/"),
        ("bucket=ds host=minio.lab port=443", "https://ds.minio.lab/"),
        ("bucket=ds host=minio.lab port=9000 protocol=https", "https://minio.lab:9000/ds/"),
        ("bucket=ds host=10.0.0.5 fileprefix=x&32;%", "http://10.0.0.5/ds/x%20%25"),
    ],
)
def test_the_address_follows_from_the_settings(tmp_path: Path, settings: str, url: str) -> None:
    [remote] = remotes_of(tmp_path, f"{A} type=S3 name=s encryption=none {settings}")
    assert urls(places_of(remote, tmp_path)) == [url + TEXT]
    key = "URL--http&c%%a.org%b&sc"
    assert urls(places_of(remote, tmp_path, text=key)) == [f"{url}URL--http%3A//a.org/b%25c"]


@pytest.mark.parametrize(
    "settings",
    [
        *("bucket=a/b", "bucket=..", "bucket=ds host=evil.org/x", "bucket=ds host=a@b", ""),
        *("bucket=ds port=0", "bucket=ds port=x", "bucket=ds protocol=file host=a.org"),
        "bucket=ds region=evil.org/",
    ],
)
def test_settings_that_name_no_address_make_no_remote(tmp_path: Path, settings: str) -> None:
    assert remotes_of(tmp_path, f"{A} type=S3 name=s {settings}") == ()
    others = ("directory", "external externaltype=evil", "web", "httpalso")
    assert remotes_of(tmp_path / "x", *(f"{A} type={kind} name=s" for kind in others)) == ()


def test_chunks_are_tried_as_logged_then_as_configured_then_the_whole(tmp_path: Path) -> None:
    [remote] = remotes_of(tmp_path, f"{A} type=S3 name=s bucket=ds chunk=1kB encryption=none")
    logged = (Chunking(2000, 2), Chunking(700, 99), Chunking(1024, 3))
    places = places_of(remote, tmp_path, KeyLogs({}, {A: logged, B: (Chunking(5, 500),)}, {}, ()))
    assert [(place.chunk_size, place.count) for place in places] == [
        *((2000, 2), (1024, 3), (1000, 3), (None, 1))
    ]
    digest = "0cc175b9c0f1b6a831c399e269772661.eeg"
    assert urls(places)[1] == f"https://ds.s3.amazonaws.com/MD5E-s2500-S1024-C3--{digest}"


def test_public_urls_come_first_and_sealed_remotes_not_at_all(tmp_path: Path) -> None:
    public, sealed = remotes_of(
        tmp_path,
        f"{A} type=S3 name=s bucket=ds fileprefix=p/ publicurl=https://cdn.org/ds encryption=none",
        f"{B} type=S3 name=t bucket=ds encryption=shared cipher=x",
    )
    key = f"p/{TEXT}"
    places = places_of(public, tmp_path)
    assert urls(places) == [f"https://cdn.org/ds/{key}", f"https://ds.s3.amazonaws.com/{key}"]
    assert places[0].name == "S3 remote s, bucket ds at s3.amazonaws.com"
    assert (sealed.is_encrypted, places_of(sealed, tmp_path)) == (True, [])


def test_exports_are_asked_by_path_and_version(tmp_path: Path) -> None:
    [remote] = remotes_of(
        tmp_path,
        f"{A} type=S3 name=s bucket=ds fileprefix=ds1/ exporttree=yes versioning=yes",
        **{
            "export.log": f"1s {B}:{A} {'1' * 40}\n",
        },
    )
    versions = {A: (("ds1/old name.eeg", "v+2"), ("ds1/b", "v1"))}
    assert urls(places_of(remote, tmp_path, KeyLogs({}, {}, versions, ()))) == [
        "https://ds.s3.amazonaws.com/ds1/old%20name.eeg?versionId=v%2B2",
        "https://ds.s3.amazonaws.com/ds1/b?versionId=v1",
    ]


def test_a_remote_beside_another_has_its_content(tmp_path: Path) -> None:
    s3, beside = remotes_of(
        tmp_path,
        f"{B} type=httpalso sameas-name=h sameas-uuid={A} url=https://cdn.org/x",
        f"{A} type=S3 name=s bucket=ds chunk=1kB encryption=none",
    )
    assert (s3.bucket is not None, beside.uuid) == (True, A)
    assert urls(places_of(beside, tmp_path))[0].startswith("https://cdn.org/x/MD5E-s2500-S1000-C3")


def test_recorded_urls_are_cleaned() -> None:
    written = ("https://user:secret@a.org/b c/é?q=ü#f", "ftp://a.org/", "yt:https://b.org/v", "x")
    [place] = web_places(KeyLogs({}, {}, {}, written))
    assert (place.name, urls([place])) == ("a.org", ["https://a.org/b%20c/%C3%A9?q=%C3%BC"])


@pytest.mark.parametrize(
    ("text", "size"),
    [
        *(("1MiB", 1 << 20), ("500KiB", 512_000), ("700kB", 700_000), ("1.5 megabytes", 1_500_000)),
        *(("2 gibibytes", 2 << 30), ("10", 10), ("10 B", 10), ("1GB", 10**9), ("1KB", 1000)),
        *(("", None), ("x", None), ("-1MB", None), ("1 parsec", None)),
    ],
)
def test_sizes_are_read_as_git_annex_writes_them(text: str, size: int | None) -> None:
    assert parse_size(text) == size
