from __future__ import annotations

import shutil
from collections.abc import Callable
from hashlib import md5, sha256
from pathlib import Path
from secrets import token_bytes
from urllib.request import urlopen

import pytest

from tests.servers.annex import AnnexDataset, public_url, run_git
from tests.servers.seaweedfs import S3Server

MIB = 1 << 20
EEG = "sub-01/eeg/sub-01_task-rest_eeg.edf"
SET = "sub-02/eeg/sub-02_task-rest_eeg.set"
SIDECAR = "sub-01/eeg/sub-01_task-rest_events.tsv"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    for path, content in (
        (EEG, token_bytes(2 * MIB + 5)),
        (SET, token_bytes(1000)),
        (SIDECAR, b"onset\tduration\n"),
    ):
        target = tmp_path / "source" / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
    return tmp_path / "source"


def objects(server: S3Server, bucket: str) -> dict[str, int]:
    listed = server.client().list_objects_v2(Bucket=bucket)
    return {each["Key"]: each["Size"] for each in listed.get("Contents", [])}


def log(dataset: AnnexDataset, path: str, ending: str) -> str:
    """What the git-annex branch records of a file in its log with that ending."""
    names = dataset.git("ls-tree", "-r", "--name-only", "git-annex").splitlines()
    [name] = [name for name in names if name.endswith(f"/{dataset.key(path)}{ending}")]
    return dataset.git("show", f"git-annex:{name}")


def test_a_clone_has_no_content_and_says_where_it_lies(
    s3_server: S3Server,
    bucket: str,
    source: Path,
    annex_dataset: Callable[..., AnnexDataset],
    tmp_path: Path,
) -> None:
    dataset = annex_dataset(source)
    dataset.add_s3_remote(
        s3_server, bucket, fileprefix="ds/", public_url=public_url(s3_server, bucket)
    )
    dataset.copy_to("s3")
    clone = dataset.clone(tmp_path / "clone")

    content = (source / EEG).read_bytes()
    key = f"MD5E-s{len(content)}--{md5(content).hexdigest()}.edf"
    assert dataset.key(EEG) == key
    assert sorted(dataset.keys()) == [EEG, SET]
    assert (clone / SIDECAR).read_bytes() == b"onset\tduration\n"
    assert (clone / EEG).is_symlink()
    assert not (clone / EEG).exists()
    remote_log = run_git(clone, dataset.environment, "show", "origin/git-annex:remote.log")
    for setting in (f"bucket={bucket}", "fileprefix=ds/", f"port={s3_server.port}", "publicurl="):
        assert f" {setting}" in remote_log
    assert s3_server.access_key not in remote_log
    got = s3_server.anonymous_client().get_object(Bucket=bucket, Key=f"ds/{key}")
    assert got["Body"].read() == content

    run_git(clone, dataset.environment, "annex", "get", "--quiet", "--from", "s3", EEG)
    assert (clone / EEG).read_bytes() == content


def test_several_chunk_sizes_and_urls_are_in_the_logs(
    s3_server: S3Server, bucket: str, source: Path, annex_dataset: Callable[..., AnnexDataset]
) -> None:
    dataset = annex_dataset(source, backend="SHA256E", sidecars_too=True, unlocked=True)
    dataset.add_s3_remote(s3_server, bucket, chunk="1MiB")
    dataset.copy_to("s3", EEG, SIDECAR)
    first = set(objects(s3_server, bucket))
    dataset.reconfigure("s3", chunk="700kB")
    dataset.copy_to("s3", SET)
    dataset.copy_again_to("s3", EEG)
    dataset.offer_on_the_web(s3_server, bucket, SET)

    digest = sha256((source / EEG).read_bytes()).hexdigest()
    size = 2 * MIB + 5
    chunks = {
        f"SHA256E-s{size}-S{chunk}-C{number}--{digest}.edf": length
        for chunk in (MIB, 700_000)
        for number in range(1, -(-size // chunk) + 1)
        for length in [min(chunk, size - chunk * (number - 1))]
    }
    stored = objects(s3_server, bucket)
    assert {name: stored[name] for name in stored if name.endswith(".edf")} == chunks
    assert {name for name in first if name.endswith(".edf")} == {
        name for name in chunks if f"-S{MIB}-" in name
    }
    generations = log(dataset, EEG, ".log.cnk").splitlines()
    assert sorted(line.split(":")[1] for line in generations) == [f"{MIB} 3", "700000 3"]
    assert log(dataset, SET, ".log.cnk").endswith(":700000 1")
    url = log(dataset, SET, ".log.web").split()[-1]
    assert urlopen(url).read() == (source / SET).read_bytes()
    pointer = dataset.git("show", f"HEAD:{SIDECAR}")
    assert pointer == f"/annex/objects/{dataset.key(SIDECAR)}"


def test_a_change_reaches_those_who_cloned_before(
    source: Path, annex_dataset: Callable[..., AnnexDataset], tmp_path: Path
) -> None:
    dataset = annex_dataset(source)
    clone = dataset.clone(tmp_path / "clone")
    before = dataset.commit
    dataset.write(SET, b"changed")
    (dataset.work / EEG).unlink()
    after = dataset.save()
    dataset.push(tmp_path / "clone.git")

    run_git(clone, dataset.environment, "pull", "-q")
    assert (clone / SET).readlink().name == dataset.key(SET)
    assert not (clone / EEG).is_symlink()
    run_git(tmp_path, dataset.environment, "init", "-q", "fresh")
    bare = (tmp_path / "clone.git").as_uri()
    run_git(tmp_path / "fresh", dataset.environment, "fetch", "-q", "--depth=1", bare, before)
    assert before != after


@pytest.mark.skipif(shutil.which("gpg") is None, reason="git-annex encrypts by gpg")
def test_an_encrypted_remote_names_no_keys(
    s3_server: S3Server, bucket: str, source: Path, annex_dataset: Callable[..., AnnexDataset]
) -> None:
    dataset = annex_dataset(source)
    dataset.add_s3_remote(s3_server, bucket, encryption="shared")
    dataset.copy_to("s3", SET)

    assert " encryption=shared " in dataset.git("show", "git-annex:remote.log")
    stored = [name for name in objects(s3_server, bucket) if name != "annex-uuid"]
    assert [name.partition("--")[0] for name in stored] == ["GPGHMACSHA1"]
