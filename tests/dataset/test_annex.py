from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from converter.dataset.annex import AnnexKey, DamagedContent, LocalAnnex, parse_pointer
from converter.dataset.repository import Repository
from converter.dataset.snapshot import Snapshot
from tests.conftest import GIT_ENVIRONMENT, git

KEY = "SHA256E-s982--e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855.vhdr"

# Directories as `git-annex examinekey` 10.20261026 prints them.
HASH_DIRECTORIES = [
    (KEY, "xG/7z", "7da/b9e"),
    ("MD5E-s4--d41d8cd98f00b204e9800998ecf8427e.set", "Qx/MZ", "8d5/deb"),
    ("MD5E-s12345--0cc175b9c0f1b6a831c399e269772661.eeg", "gx/Mx", "add/c6a"),
    ("MD5E-s12345-S1048576-C1--0cc175b9c0f1b6a831c399e269772661.eeg", "gx/Mx", "add/c6a"),
    ("SHA256E-s10--aaaa.tar.gz", "4z/m5", "0a5/9bc"),
    ("SHA256-s7--b", "Fw/fJ", "f17/751"),
    ("MD5E-s1--é.edf", "4j/kq", "2cb/138"),
    ("URL--http&c%%example.org%a", "WF/kj", "3fc/738"),
    ("WORM-s3-m1700000000--a&sb&ac&cd", "x2/Wg", "622/373"),
]


@pytest.mark.parametrize(("text", "mixed", "lower"), HASH_DIRECTORIES)
def test_hash_directories_are_those_of_git_annex(text: str, mixed: str, lower: str) -> None:
    key = AnnexKey.parse(text)
    assert key is not None
    assert (key.hash_mixed, key.hash_lower) == (mixed, lower)


def test_fields_are_read_before_the_first_dashes_only() -> None:
    key = AnnexKey.parse("WORM-s3-m17--x-s999--y-S5-C7.edf")
    assert key is not None
    assert (key.backend, key.size, key.chunk, key.name) == ("WORM", 3, None, "x-s999--y-S5-C7.edf")
    unknown = AnnexKey.parse("URL--http&c%%host%a-s404--b")
    assert unknown is not None
    assert unknown.size is None
    chunk = AnnexKey.parse("MD5E-s982-S1048576-C1--0cc175b9c0f1b6a831c399e269772661.fif.gz")
    assert chunk is not None
    assert (chunk.size, chunk.chunk_size, chunk.chunk) == (982, 1048576, 1)
    assert chunk.extension == ".fif.gz"


def test_remotes_spell_keys_without_escapes() -> None:
    key = AnnexKey.parse("WORM-s5-m1795987702--a&sb&ac&cd%e.eeg")
    assert key is not None
    assert key.plain == "WORM-s5-m1795987702--a%b&c:d/e.eeg"
    # As git-annex 10.20261026 names the objects of a chunked S3 remote.
    assert key.chunk_name(512000, 3) == "WORM-s5-m1795987702-S512000-C3--a%b&c:d/e.eeg"


@pytest.mark.parametrize(
    "text",
    [
        *("", "..", "SHA256E", "SHA256E-s1", "SHA256E-s1--", "-s1--a", "sha256-s1--a", "MD5-sx--a"),
        *("MD5--../../etc/passwd", "MD5-s1--a/b", "MD5-s1--a\0", "MD5-s1--a\\b", "MD5-s1--a\nb"),
    ],
)
def test_no_key(text: str) -> None:
    assert AnnexKey.parse(text) is None


@given(st.text())
def test_a_key_is_always_one_path_segment(text: str) -> None:
    for candidate in (text, f"SHA256E-s1--{text}"):
        key = AnnexKey.parse(candidate)
        if key is not None:
            assert Path("objects", key.key).parts == ("objects", key.key)


@pytest.mark.parametrize(
    "content",
    [
        f"/annex/objects/{KEY}",
        f"/annex/objects/{KEY}\n",
        f"/annex/objects/{KEY}\r\n",
        f"/annex/objects/{KEY}\n/annex/another line\nand more",
        f".git/annex/objects/xG/7z/{KEY}/{KEY}",
        f"../../../.git/annex/objects/7da/b9e/{KEY}/{KEY}",
        f"../../.git/modules/sub/annex/objects/xG/7z/{KEY}/{KEY}",
        rf"..\..\.git\annex\objects\xG\7z\{KEY}\{KEY}",
        rf"\annex\objects\{KEY}",
    ],
)
def test_pointer(content: str) -> None:
    key = parse_pointer(content.encode())
    assert key is not None
    assert key.key == KEY


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"onset\tduration\n0\t1\n",
        f"see /annex/objects/{KEY}\n".encode(),
        f"see ../.git/annex/objects/{KEY} there\nand here".encode(),
        b"/annex/objects/no key\n",
        b"/annex/objects/../../../etc/passwd",
        b"/annex/objects/MD5-s1--\xff\xfe",
        b"../shared/sub-01_eeg.edf",
        f"/annex/objects/{KEY}\n".encode() + b"x" * 40_000,
    ],
)
def test_no_pointer(content: bytes) -> None:
    assert parse_pointer(content) is None


@pytest.mark.parametrize("layout", ["gx/Mx", "add/c6a"])
def test_content_is_found_in_both_layouts(tmp_path: Path, layout: str) -> None:
    text = "MD5E-s12345--0cc175b9c0f1b6a831c399e269772661.eeg"
    key = AnnexKey.parse(text)
    assert key is not None
    annex = LocalAnnex(tmp_path)
    assert annex.find(key) is None
    content = tmp_path / "annex" / "objects" / layout / text / text
    content.parent.mkdir(parents=True)
    content.symlink_to("/etc/hostname")
    assert annex.find(key) is None
    content.unlink()
    content.write_bytes(bytes(12344))
    with pytest.raises(DamagedContent, match=rf"{text} has 12344 bytes .* tells 12345"):
        annex.find(key)
    content.write_bytes(bytes(12345))
    assert annex.find(key) == content


def test_a_key_longer_than_any_file_name_is_not_here(tmp_path: Path) -> None:
    key = AnnexKey.parse(f"SHA256E-s1--{'a' * 5000}")
    assert key is not None
    assert LocalAnnex(tmp_path).find(key) is None


def test_a_repository_that_git_annex_made(tmp_path: Path) -> None:
    beside = Path(sys.executable).parent
    program = shutil.which("git-annex") or shutil.which("git-annex", path=str(beside))
    if program is None:
        pytest.skip("git-annex is not installed")
    folder, bare = tmp_path / "r", tmp_path / "bare.git"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    git(tmp_path, "init", "-q", "--bare", "bare.git")
    environment = GIT_ENVIRONMENT | {"HOME": str(tmp_path)}
    environment["PATH"] = f"{Path(program).parent}:{environment['PATH']}"

    def annex(*arguments: str, where: Path = folder) -> None:
        command = ["git", "annex", *arguments, "--quiet"]
        subprocess.run(command, cwd=where, env=environment, check=True, capture_output=True)

    contents = {"locked & 100%.edf": b"locked", "unlocked.fif.gz": b"unlocked content"}
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    annex("init", "here")
    annex("add", "locked & 100%.edf")
    annex("add", "--backend=WORM", "unlocked.fif.gz")
    annex("unlock", "unlocked.fif.gz")
    git(folder, "-c", f"core.hooksPath={tmp_path}", "commit", "-q", "-m", "data")
    git(folder, "worktree", "add", "-q", "--no-checkout", str(tmp_path / "linked"), "HEAD^{commit}")
    git(folder, "remote", "add", "bare", str(bare))
    annex("init", "there", where=bare)
    annex("copy", "--to=bare")
    commit = git(folder, "rev-parse", "HEAD")
    for place in (folder, tmp_path / "linked", bare):
        local = LocalAnnex(Repository(place).common_dir)
        for entry in Snapshot.read(Repository(folder), commit):
            key = AnnexKey.parse(entry.key or "")
            assert key is not None
            found = local.find(key)
            assert found is not None
            assert found.read_bytes() == contents[entry.path]
            assert found.stat().st_size == entry.size
