"""A dataset as an archive keeps it: a repository without content, and copies in a bucket."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from secrets import token_hex
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.servers.annex import AnnexDataset, annexed
from tests.servers.fault_proxy import FaultProxy
from tests.servers.seaweedfs import S3Server

from .history import DATASET_ID, edf, state

CONTRACT_BASE = "https://copies.example.org"
RUN_SECONDS = 300.0


@dataclass(frozen=True)
class Finished:
    """How a run of the command ended, and what it said."""

    code: int
    out: str
    err: str


@dataclass(frozen=True)
class Archive:
    """Where runs take a dataset from by its id, and the bucket of its copies.

    `template` is that of the repository's URL, `content` the URL of the server that has the
    content; caches and scratch files lie in `folder`.
    """

    server: S3Server
    bucket: str
    dataset_id: str
    template: str
    content: str
    folder: Path

    def copy(self, endpoint: str | None = None) -> Copy:
        """A place for a new copy, of its own."""
        return Copy(self, f"copies/{token_hex(4)}", endpoint or self.server.endpoint)


@dataclass(frozen=True)
class Copy:
    """A serving copy below a prefix of the bucket; runs write it by way of `endpoint`."""

    archive: Archive
    prefix: str
    endpoint: str

    @property
    def root(self) -> str:
        """What the keys of its objects begin with."""
        return f"{self.prefix}/{self.archive.dataset_id}/zarr/"

    @property
    def url(self) -> str:
        """Where anybody reads it."""
        return f"{self.archive.server.endpoint}/{self.archive.bucket}/{self.root}"

    @property
    def scratch(self) -> Path:
        return self.archive.folder / self.prefix

    def command(self, *options: str) -> list[str]:
        """A run as a batch job does it; what `options` repeat is as they say."""
        archive = self.archive
        given = {
            "--repository": archive.template,
            "--cache": str(archive.folder / "cache"),
            "--dest": f"s3://{archive.bucket}/{self.prefix}",
            "--endpoint-url": self.endpoint,
            "--region": archive.server.region,
            "--contract-base": CONTRACT_BASE,
            "--data-base": f"{archive.server.endpoint}/{archive.bucket}/{self.prefix}",
            "--trust-host": urlsplit(archive.content).netloc,
            "--scratch": str(self.scratch),
            "--jobs": "2",
        }
        places = [word for pair in given.items() for word in pair]
        return [sys.executable, "-m", "converter", archive.dataset_id, *places, *options]

    def start(
        self, *options: str, environment: Mapping[str, str | None] | None = None
    ) -> subprocess.Popen[str]:
        """Start a run; `environment` changes what it has, None takes a variable away."""
        variables = {**credentials(self.archive.server), **(environment or {})}
        return subprocess.Popen(
            self.command(*options),
            env={name: value for name, value in variables.items() if value is not None},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(
        self,
        *options: str,
        code: int = 0,
        environment: Mapping[str, str | None] | None = None,
    ) -> Finished:
        """Run to the end, which must be with this exit status."""
        return finish(self.start(*options, environment=environment), code)

    def keys(self) -> list[str]:
        """The names of all its objects, relative to the copy; only the owner can list."""
        pages = (
            self._client()
            .get_paginator("list_objects_v2")
            .paginate(Bucket=self.archive.bucket, Prefix=self.root)
        )
        found = [each["Key"] for page in pages for each in page.get("Contents", ())]
        return [key.removeprefix(self.root) for key in found]

    def objects(self) -> dict[str, bytes]:
        """All its objects, by name."""
        client, bucket, names = self._client(), self.archive.bucket, self.keys()

        def get(name: str) -> bytes:
            return client.get_object(Bucket=bucket, Key=self.root + name)["Body"].read()

        with ThreadPoolExecutor(8) as pool:
            return dict(zip(names, pool.map(get, names), strict=True))

    def read(self, name: str) -> bytes:
        """An object, got without credentials."""
        client = _anonymous(self.archive.server)
        return client.get_object(Bucket=self.archive.bucket, Key=self.root + name)["Body"].read()

    def state(self, folder: Path) -> dict[str, Any]:
        """`history.state` of a download into a new folder, without where this copy lies."""
        shutil.rmtree(folder, ignore_errors=True)
        dataset_id = self.archive.dataset_id
        for name, content in self.objects().items():
            file = folder / dataset_id / "zarr" / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
        found = state(folder, dataset_id)
        place = f"{self.archive.bucket}/{self.prefix}"
        found["index"] = json.loads(json.dumps(found["index"]).replace(place, "bucket/prefix"))
        return found

    def duplicate(self, endpoint: str | None = None) -> Copy:
        """The same objects below another prefix, as if runs had put them there."""
        other = self.archive.copy(endpoint)
        client, bucket = self._client(), self.archive.bucket
        for name in self.keys():
            source = {"Bucket": bucket, "Key": self.root + name}
            client.copy_object(Bucket=bucket, Key=other.root + name, CopySource=source)
        return other

    def _client(self) -> Any:
        return _owner(self.archive.server)


@cache
def _owner(server: S3Server) -> Any:
    return server.client()


@cache
def _anonymous(server: S3Server) -> Any:
    return server.anonymous_client()


def credentials(server: S3Server) -> dict[str, str | None]:
    """This process's environment, with the server's credentials and nobody else's."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    nowhere = ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE")
    return {
        **kept,
        **server.environment(),
        **dict.fromkeys(nowhere, os.devnull),
        "AWS_EC2_METADATA_DISABLED": "true",
    }


def finish(run: subprocess.Popen[str], code: int = 0) -> Finished:
    """Wait for a run's end, which must be with this exit status and no traceback."""
    out, err = run.communicate(timeout=RUN_SECONDS)
    assert run.returncode == code, f"exit status {run.returncode}\n{out}\n{err}"
    assert "Traceback" not in err
    return Finished(run.returncode, out, err)


def recording(number: int) -> str:
    """The path of a recording of the small dataset."""
    return f"sub-{number:02}/eeg/sub-{number:02}_task-rest_eeg.edf"


@dataclass(frozen=True)
class Changed:
    """The small dataset at two commits, and the proxy between it and its content.

    The older commit has recordings 0 to 3 and one that is none. The newer one has no 0, other
    events of 1, another signal in 2, the same 3, and a 4. `keys` are the annex keys by path
    there, `bare` is the repository that runs fetch.
    """

    archive: Archive
    older: str
    newer: str
    keys: dict[str, str]
    content: FaultProxy
    bare: Path

    def asked_for(self, number: int) -> str:
        """A regular expression of the requests for a recording's content."""
        return self.keys[recording(number)].replace(".", r"\.")


def make_changed(server: S3Server, content: FaultProxy, folder: Path) -> Changed:
    """Make the small dataset, with all its files in the annex."""
    source = folder / "source"
    for number in range(4):
        _record(source, number, seed=number)
    broken = source / recording(99)
    broken.parent.mkdir(parents=True)
    broken.write_text("no EDF at all")
    (source / "dataset_description.json").write_text('{"Name": "N", "License": "CC0"}')
    dataset = annexed(source, folder / "work", sidecars_too=True)
    older = dataset.commit
    dataset.add_s3_remote(server, server.new_bucket(), port=content.port)
    dataset.copy_to("s3")
    _change(dataset)
    newer = dataset.save("changes")
    dataset.copy_to("s3")
    bare = dataset.push(folder / "repositories" / f"{DATASET_ID}.git")
    archive = Archive(
        server=server,
        bucket=server.new_bucket(),
        dataset_id=DATASET_ID,
        template=f"{bare.parent.as_uri()}/{{dataset_id}}.git",
        content=content.endpoint,
        folder=folder,
    )
    return Changed(archive, older, newer, dataset.keys(), content, bare)


def _record(tree: Path, number: int, seed: int) -> None:
    file = tree / recording(number)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(edf(seed, seconds=20))
    events = file.with_name(file.name.replace("_eeg.edf", "_events.tsv"))
    events.write_text(f"onset\tduration\tword\n0.{number}\t0\tw{number}\n")


def _change(dataset: AnnexDataset) -> None:
    shutil.rmtree(dataset.work / "sub-00")
    events = recording(1).replace("_eeg.edf", "_events.tsv")
    dataset.write(events, b"onset\tduration\tword\n7.5\t0\tother\n")
    dataset.write(recording(2), edf(seed=20, seconds=20))
    _record(dataset.work, 4, seed=4)


@dataclass(frozen=True)
class Disturbed:
    """A copy of the older commit, with proxies before it and before the dataset's content."""

    changed: Changed
    copy: Copy
    copies: FaultProxy

    @property
    def content(self) -> FaultProxy:
        return self.changed.content

    @property
    def met(self) -> int:
        """How many requests met a fault."""
        exchanges = [*self.content.exchanges(), *self.copies.exchanges()]
        return sum(each.fault is not None for each in exchanges)

    def heal(self) -> None:
        self.content.heal()
        self.copies.heal()

    def convert(self, *options: str, code: int = 0) -> Finished:
        """Run over the newer commit."""
        return self.copy.run("--commit", self.changed.newer, *options, code=code)


@pytest.fixture(scope="session")
def changed(s3_server: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Any:
    need_git_annex()
    content = FaultProxy(s3_server.endpoint)
    yield make_changed(s3_server, content, tmp_path_factory.mktemp("archive"))
    content.close()


@pytest.fixture(scope="session")
def older_copy(changed: Changed) -> Copy:
    """A copy of the older commit, which tests duplicate."""
    copy = changed.archive.copy()
    assert "5 recordings = 4 stores + 1 failures" in copy.run("--commit", changed.older).out
    return copy


@pytest.fixture(scope="session")
def undisturbed(changed: Changed, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The state of a copy of the newer commit that one run made."""
    copy = changed.archive.copy()
    assert "5 recordings = 4 stores + 1 failures" in copy.run("--commit", changed.newer).out
    return copy.state(tmp_path_factory.mktemp("undisturbed"))


@pytest.fixture
def disturbed(changed: Changed, older_copy: Copy, fault_proxy: Any) -> Any:
    copies = fault_proxy()
    found = Disturbed(changed, older_copy.duplicate(copies.endpoint), copies)
    changed.content.forget()
    yield found
    found.heal()


def need_git_annex() -> None:
    if shutil.which("git-annex") is None:
        pytest.skip("git-annex is not installed (it is one of the test dependencies)")
