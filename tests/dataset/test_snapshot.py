from __future__ import annotations

from pathlib import Path

from .trees import Link, snapshot_of

KEY = "MD5E-s12345--0cc175b9c0f1b6a831c399e269772661.eeg"
ANNEXED = Link(f"../../.git/annex/objects/gx/Mx/{KEY}/{KEY}")
POINTER = f"/annex/objects/{KEY}\n".encode()


def test_entries_by_directory(tmp_path: Path) -> None:
    snapshot = snapshot_of(
        tmp_path / "r",
        {
            "README": b"text",
            "sub-01/eeg/sub-01_eeg.eeg": ANNEXED,
            "sub-01/eeg/sub-01_channels.tsv": POINTER,
            "sub-01/eeg/sub-01_events.tsv": b"onset\tduration\n",
            "sub-01/x/y/z": b"deep",
        },
    )
    assert len(snapshot) == 5
    assert set(snapshot.directories) == {"", "sub-01", "sub-01/eeg", "sub-01/x", "sub-01/x/y"}
    assert snapshot.subdirectories("sub-01") == ["eeg", "x"]
    assert set(snapshot.children("sub-01/eeg")) == {
        "sub-01_eeg.eeg",
        "sub-01_channels.tsv",
        "sub-01_events.tsv",
    }
    for path in ("sub-01/eeg/sub-01_eeg.eeg", "sub-01/eeg/sub-01_channels.tsv"):
        entry = snapshot.get(path)
        assert entry is not None
        assert (entry.key, entry.size) == (KEY, 12345)
    events = snapshot.get("sub-01/eeg/sub-01_events.tsv")
    assert events is not None
    assert (events.key, events.size) == (None, len("onset\tduration\n"))
    assert [entry.path for entry in snapshot.beneath("sub-01/x")] == ["sub-01/x/y/z"]
    assert snapshot.get("sub-01/eeg") is None
    assert snapshot.children("absent") == {}


def test_links_are_resolved_inside_the_tree(tmp_path: Path) -> None:
    snapshot = snapshot_of(
        tmp_path / "r",
        {
            "shared/plain.edf": b"0123456789",
            "shared/pointer.edf": POINTER,
            "sourcedata/pointer.edf": POINTER + b"\n",
            "shared/annexed/one.edf": ANNEXED,
            "shared/x.ds/x.res4": b"res4",
            "via": Link("shared"),
            "a/plain": Link("../shared/plain.edf"),
            "a/chain": Link("./plain"),
            "a/through": Link("../via/pointer.edf"),
            "a/annexed": Link("../via/annexed/one.edf"),
            "a/source": Link("../sourcedata/pointer.edf"),
            "a/x.ds": Link("../via/x.ds/"),
        },
    )
    found = {e.path: (e.mode, e.key, e.size) for e in snapshot if e.path.startswith("a/")}
    assert found["a/plain"] == found["a/chain"] == ("100644", None, 10)
    assert found["a/through"] == found["a/source"] == ("100644", KEY, 12345)
    assert found["a/annexed"] == ("120000", KEY, 12345)
    assert snapshot.directory_links == {"a/x.ds": "shared/x.ds", "via": "shared"}
    assert snapshot.refused == {}


def test_links_that_lead_astray_are_refused(tmp_path: Path) -> None:
    wrong = {
        "a/absolute": ("/etc/passwd", "out of the dataset's tree"),
        "a/above": ("../../secret", "out of the dataset's tree"),
        "a/through": ("above", "out of the dataset's tree"),
        "a/self": ("self", "in a circle"),
        "a/ping": ("pong", "in a circle"),
        "a/pong": ("ping", "in a circle"),
        "a/gone": ("../b", "leads to nothing"),
        "a/bad key": ("../.git/annex/objects/xx/yy/zz", "leads to nothing"),
        "a/parent": ("../a", "holds the link itself"),
        "a/root": ("..", "holds the link itself"),
        "a/long": ("x/" * 20_000, "too long"),
        "a/to long": ("long", "leads to nothing"),
    }
    snapshot = snapshot_of(tmp_path / "r", {path: Link(to) for path, (to, _) in wrong.items()})
    assert set(snapshot.refused) == set(wrong)
    for path, (_, reason) in wrong.items():
        assert snapshot.refused[path].startswith(f"{path} is a symbolic link that ")
        assert reason in snapshot.refused[path]
        entry = snapshot.get(path)
        assert entry is not None
        assert entry.key is None


def test_a_name_that_is_not_utf8_is_printable_and_distinct(tmp_path: Path) -> None:
    snapshot = snapshot_of(
        tmp_path / "r",
        {b"m\xfcller_eeg.edf": b"1", "müller_eeg.edf": b"22", r"m\xfcller_eeg.bdf": b"333"},
    )
    sizes = {entry.path: entry.size for entry in snapshot}
    assert sizes == {
        r"m\xfcller_eeg.edf": 1,
        "müller_eeg.edf": 2,
        r"m\xfcller_eeg.bdf": 3,
    }
    assert all(path.encode() for path in sizes)
