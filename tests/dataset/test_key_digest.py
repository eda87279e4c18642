from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from converter.dataset.annex import AnnexKey
from converter.dataset.key_digest import checksum_of
from tests.conftest import git
from tests.environment import GIT_ENVIRONMENT

BACKENDS = (
    *("MD5E", "MD5", "SHA1E", "SHA1", "SHA224E", "SHA256E", "SHA256", "SHA384", "SHA512E"),
    *("SHA3_224", "SHA3_256E", "SHA3_384", "SHA3_512E"),
    *("BLAKE2B160", "BLAKE2B256E", "BLAKE2B512E", "BLAKE2S160E", "BLAKE2S224", "BLAKE2S256"),
)


def digest_of(text: str, content: bytes) -> tuple[str, str] | None:
    """The digest that a key names, and the one that the content has."""
    key = AnnexKey.parse(text)
    assert key is not None
    checksum = checksum_of(key)
    if checksum is None:
        return None
    hasher = checksum.new()
    hasher.update(content)
    return checksum.digest, hasher.hexdigest()


def test_digests_are_those_of_git_annex(tmp_path: Path) -> None:
    if shutil.which("git-annex") is None:
        pytest.skip("git-annex is not installed")
    content = b"some content\n" * 1000
    git(tmp_path, "init", "-q")
    file = tmp_path / "a b.tar.gz"
    file.write_bytes(content)
    for backend in BACKENDS:
        command = ["git-annex", "calckey", f"--backend={backend}", str(file)]
        done = subprocess.run(
            command, cwd=tmp_path, env=GIT_ENVIRONMENT, check=True, capture_output=True, text=True
        )
        key = done.stdout.strip()
        assert key.startswith(f"{backend}-s13000--")
        named = digest_of(key, content)
        assert named is not None
        assert named[0] == named[1]
        assert digest_of(key, content[1:]) != named


@pytest.mark.parametrize(
    "key",
    [
        *("WORM-s3-m17--0cc175b9c0f1b6a831c399e269772661", "URL--http&c%%a.org", "SKEIN256-s1--a"),
        *("BLAKE3_256-s1--a", "XXH3-s1--a", "BLAKE2BP512-s1--a", "XMD5-s1--a", "MD55-s1--a"),
    ],
)
def test_other_keys_tell_their_size_only(key: str) -> None:
    assert digest_of(key, b"") is None


def test_a_digest_that_nothing_can_have_is_kept() -> None:
    named = digest_of("MD5E-s1--no-digest.edf", b"")
    assert named is not None
    assert named[0] == "no-digest"
    upper = digest_of("MD5-s0--D41D8CD98F00B204E9800998ECF8427E", b"")
    assert upper is not None
    assert upper[0] == upper[1]
