"""Content as git-annex itself stores it in special remotes, fetched without git-annex."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from secrets import token_bytes

import pytest

from converter.dataset.content import ContentSource, MissingContent, UnreachableContent, materialise
from converter.dataset.recording import Recording
from converter.dataset.repository import Repository
from converter.dataset.snapshot import Snapshot
from converter.storage.transfer import Patience
from tests.conftest import git
from tests.servers.annex import AnnexDataset
from tests.servers.fault_proxy import FaultProxy
from tests.servers.seaweedfs import S3Server

MIB = 1 << 20
EEG = "sub-01/eeg/sub-01_task-a b_eeg.edf"
EVENTS = "sub-01/eeg/sub-01_task-a b_events.tsv"
QUICK = Patience(tries=4, pause=0.01, longest_pause=0.05)
CONTENTS = {EEG: token_bytes(2 * MIB + 5), EVENTS: b"onset\tduration\n1\t2\n"}


@pytest.fixture
def dataset(tmp_path: Path, annex_dataset: Callable[..., AnnexDataset]) -> AnnexDataset:
    """A dataset whose recording and sidecar are both annexed."""
    for path, content in CONTENTS.items():
        file = tmp_path / "source" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    made = annex_dataset(tmp_path / "source", sidecars_too=True)
    assert sorted(made.keys()) == [EEG, EVENTS]
    return made


def source_of(dataset: AnnexDataset, folder: Path, *trusted: str) -> ContentSource:
    """A bare clone without content; only what the branch tells leads to any."""
    clone = dataset.clone(folder)
    git(clone, "remote", "set-url", "origin", "https://archive.invalid/ds.git")
    return ContentSource.of(Repository(clone), frozenset(trusted), QUICK)


def laid_out(source: ContentSource, into: Path) -> dict[str, bytes]:
    repository = source.repository
    entries = tuple(Snapshot.read(repository, repository.resolve("HEAD")))
    annexed = tuple(entry for entry in entries if entry.path in CONTENTS)
    recording = Recording(EEG, "z", "eeg", ".edf", {}, annexed)
    files = materialise(recording, source, into)
    return {path: file.read_bytes() for path, file in files.items()}


def test_whole_objects_and_urls(
    s3_server: S3Server, bucket: str, dataset: AnnexDataset, tmp_path: Path
) -> None:
    dataset.add_s3_remote(s3_server, bucket, fileprefix="d s/é&+/")
    dataset.copy_to("s3")
    source = source_of(dataset, tmp_path / "clone", "127.0.0.1")
    assert laid_out(source, tmp_path / "out") == CONTENTS
    with pytest.raises(UnreachableContent, match=r"127\.0\.0\.1:\d+ is not public"):
        laid_out(replace(source, trusted_hosts=frozenset()), tmp_path / "untrusted")

    dataset.drop_from("s3", EVENTS)
    source = source_of(dataset, tmp_path / "later", "127.0.0.1")
    with pytest.raises(MissingContent, match=f"S3 remote s3, bucket {bucket} at 127") as missing:
        laid_out(source, tmp_path / "none")
    assert missing.value.keys == (dataset.key(EVENTS),)
    assert not any(file.is_file() for file in (tmp_path / "none").rglob("*"))
    dataset.offer_on_the_web(s3_server, bucket, EVENTS)
    source = source_of(dataset, tmp_path / "latest", "127.0.0.1")
    assert laid_out(source, tmp_path / "found") == CONTENTS


def test_chunks_of_several_generations(
    s3_server: S3Server, bucket: str, dataset: AnnexDataset, tmp_path: Path
) -> None:
    dataset.add_s3_remote(s3_server, bucket, chunk="1MiB")
    dataset.copy_to("s3")
    dataset.reconfigure("s3", chunk="700kB")
    dataset.copy_again_to("s3", EEG)
    source = source_of(dataset, tmp_path / "clone", "127.0.0.1")
    assert laid_out(source, tmp_path / "both") == CONTENTS

    client, key = s3_server.client(), dataset.key(EEG)
    for size in (700_000, MIB):
        head, _, name = key.partition("--")
        client.delete_object(Bucket=bucket, Key=f"{head}-S{size}-C2--{name}")
        if size == 700_000:
            # The newer generation has lost a chunk, the older one has all.
            assert laid_out(source, tmp_path / "older") == CONTENTS
    with pytest.raises(MissingContent, match="nor in S3 remote s3"):
        laid_out(source, tmp_path / "neither")


def test_a_public_url_is_asked_in_place_of_the_bucket(
    s3_server: S3Server,
    bucket: str,
    dataset: AnnexDataset,
    fault_proxy: Callable[..., FaultProxy],
    tmp_path: Path,
) -> None:
    proxy = fault_proxy()
    dataset.add_s3_remote(
        s3_server, bucket, fileprefix="ds/", public_url=f"{proxy.endpoint}/{bucket}"
    )
    dataset.copy_to("s3")
    source = source_of(dataset, tmp_path / "clone", f"127.0.0.1:{proxy.port}")
    assert laid_out(source, tmp_path / "out") == CONTENTS
    assert len(proxy.exchanges("GET", f"/{bucket}/ds/")) == len(CONTENTS)


def test_an_encrypted_remote_is_unsupported(
    s3_server: S3Server, bucket: str, dataset: AnnexDataset, tmp_path: Path
) -> None:
    dataset.add_s3_remote(s3_server, bucket, encryption="shared")
    dataset.copy_to("s3", EVENTS)
    source = source_of(dataset, tmp_path / "clone", "127.0.0.1")
    with pytest.raises(MissingContent, match=r"S3 remote s3, .* is encrypted, .* unsupported\.$"):
        laid_out(source, tmp_path / "out")


def test_an_export_with_versions_has_what_was_overwritten(
    s3_server: S3Server, bucket: str, dataset: AnnexDataset, tmp_path: Path
) -> None:
    client = s3_server.client()
    dataset.environment.update(s3_server.environment())
    settings = {
        **{"type": "S3", "encryption": "none", "host": s3_server.host, "bucket": bucket},
        **{"port": str(s3_server.port), "protocol": "http", "requeststyle": "path"},
        **{"signature": "v2", "exporttree": "yes", "fileprefix": "d s/"},
    }
    options = [f"{name}={value}" for name, value in settings.items()]
    dataset.git("annex", "initremote", "--quiet", "plain", *options)
    dataset.git("annex", "export", "--quiet", "main", "--to", "plain")
    source = source_of(dataset, tmp_path / "clone", "127.0.0.1")
    assert laid_out(source, tmp_path / "plain") == CONTENTS

    options[-1] = "fileprefix=versions/"
    client.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    dataset.git("annex", "initremote", "--quiet", "versioned", "versioning=yes", *options)
    dataset.git("annex", "export", "--quiet", "main", "--to", "versioned")
    client.put_object(Bucket=bucket, Key=f"versions/{EVENTS}", Body=b"overwritten")
    client.put_object(Bucket=bucket, Key=f"d s/{EVENTS}", Body=b"overwritten")
    source = source_of(dataset, tmp_path / "later", "127.0.0.1")
    assert laid_out(source, tmp_path / "versioned") == CONTENTS


@contextmanager
def served(folder: Path) -> Iterator[str]:
    handler = partial(SimpleHTTPRequestHandler, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def test_the_program_gets_what_only_it_can(dataset: AnnexDataset, tmp_path: Path) -> None:
    store, evil = tmp_path / "store", tmp_path / "evil"
    store.mkdir()
    options = (f"directory={store}", "encryption=none", "chunk=1MiB")
    dataset.git("annex", "initremote", "--quiet", "shelf", "type=directory", *options)
    dataset.git("annex", "copy", "--quiet", "--to", "shelf", EEG)
    bare = dataset.push(tmp_path / "bare.git")
    git(bare, "config", "annex.security.allowed-ip-addresses", "all")
    subprocess.run(["git", "annex", "init", "-q"], cwd=bare, env=dataset.environment, check=True)
    dataset.git("remote", "add", "bare", str(bare))
    dataset.git("annex", "copy", "--quiet", "--to", "bare", EVENTS)
    clone = dataset.clone(tmp_path / "clone")
    with served(bare.parent) as url:
        git(clone, "remote", "set-url", "origin", f"{url}/bare.git")
        git(clone, "config", "remote.origin.annex-uuid", git(bare, "config", "annex.uuid"))
        for name in ("directory", "uuid"):
            value = dataset.git("config", f"remote.shelf.annex-{name}")
            git(clone, "config", f"remote.shelf.annex-{name}", value)
        for name in ("annex.freezecontent-command", "core.fsmonitor", "core.sshCommand"):
            git(clone, "config", name, f"touch {evil}")
        git(clone, "config", "remote.evil.annex-externaltype", "evil")
        source = ContentSource.of(Repository(clone), frozenset({url.removeprefix("http://")}))
        assert {r.title.split()[1] for r in source.program_remotes} == {"directory", "git"}
        assert laid_out(source, tmp_path / "out") == CONTENTS
        with pytest.raises(UnreachableContent, match="is not public, nor a trusted host"):
            laid_out(replace(source, trusted_hosts=frozenset()), tmp_path / "untrusted")
        with pytest.raises(MissingContent):
            laid_out(replace(source, program_remotes=()), tmp_path / "out2")
    assert not evil.exists()
    assert sorted(each.name for each in (tmp_path / "out").rglob("*") if each.is_file()) == sorted(
        Path(path).name for path in CONTENTS
    )
