"""A real S3 server for tests: SeaweedFS (`weed`) on free ports, its data in a folder.

Each pytest-xdist worker starts its own: that takes some three seconds and one of processor time,
and no test meets another worker's buckets, load or faults.
"""

from __future__ import annotations

import atexit
import json
import os
import shutil
import signal
import socket
import subprocess
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING

import boto3
from botocore import UNSIGNED
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

START_SECONDS = 120.0
ATTEMPTS = 3
SERVICES = ("master", "volume", "filer", "s3")
# Sockets that weed makes beside its ports, whatever its directory is.
GRPC_SOCKET = "/tmp/seaweedfs-{service}-grpc-{port}.sock"


class NotStarted(Exception):
    """The server did not come up; the message ends with the tail of its log."""


@dataclass(frozen=True)
class S3Server:
    """A running SeaweedFS; path-style addresses, no TLS."""

    host: str
    port: int
    access_key: str
    secret_key: str
    log: Path
    region: str = "us-east-1"

    @property
    def endpoint(self) -> str:
        return f"http://{self.host}:{self.port}"

    def client(self, endpoint: str | None = None) -> S3Client:
        """A client that may do all; `endpoint` leads it through a proxy."""
        return boto3.client(
            "s3",
            endpoint_url=endpoint or self.endpoint,
            region_name=self.region,
            aws_access_key_id=self.access_key,
            aws_secret_access_key=self.secret_key,
            config=_client_config(),
        )

    def anonymous_client(self, endpoint: str | None = None) -> S3Client:
        """A client without credentials: it gets and heads objects and cannot list or write."""
        return boto3.client(
            "s3",
            endpoint_url=endpoint or self.endpoint,
            region_name=self.region,
            config=_client_config().merge(Config(signature_version=UNSIGNED)),
        )

    def new_bucket(self) -> str:
        """Make an empty bucket, which is gone with the server at the latest; return its name."""
        name = f"test-{token_hex(6)}"
        self.client().create_bucket(Bucket=name)
        return name

    def environment(self) -> dict[str, str]:
        """The variables from which programs take these credentials."""
        return {
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_DEFAULT_REGION": self.region,
        }


def _client_config() -> Config:
    return Config(
        s3={"addressing_style": "path"},
        connect_timeout=10,
        read_timeout=60,
        retries={"mode": "standard", "total_max_attempts": 3},
    )


@dataclass
class SeaweedFS:
    """Starts and stops one server whose data lie in `folder`; use it as a context manager."""

    folder: Path
    _process: subprocess.Popen[bytes] | None = field(default=None, init=False)
    _ports: tuple[int, ...] = field(default=(), init=False)

    def __enter__(self) -> S3Server:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> S3Server:
        """Start the server and wait until it stores an object.

        To be called from the main thread: the kernel kills the server when the thread that
        started it is gone, so that it outlives no test run, however that ends.
        """
        atexit.register(self.stop)
        for attempt in range(1, ATTEMPTS + 1):
            server = self._launch()
            try:
                self._await_ready(server)
                return server
            except NotStarted:
                # A port may have been taken between its choice and the server's start.
                self.stop()
                if attempt == ATTEMPTS:
                    raise
        raise AssertionError("unreachable")

    def stop(self) -> None:
        """Kill the server with all it started, and remove its data but the log."""
        atexit.unregister(self.stop)
        process, self._process = self._process, None
        if process is None:
            return
        # Not terminated: weed then waits ten seconds and longer before it ends.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        shutil.rmtree(self.folder / "data", ignore_errors=True)
        for service, port in zip(SERVICES, self._ports[len(SERVICES) :], strict=True):
            Path(GRPC_SOCKET.format(service=service, port=port)).unlink(missing_ok=True)

    def _launch(self) -> S3Server:
        data = self.folder / "data"
        data.mkdir(parents=True)
        self._ports = free_ports(2 * len(SERVICES))
        http_ports = dict(zip(SERVICES, self._ports, strict=False))
        server = S3Server(
            host="127.0.0.1",
            port=http_ports["s3"],
            access_key=token_hex(10),
            secret_key=token_hex(20),
            log=self.folder / "weed.log",
        )
        (data / "identities.json").write_text(json.dumps(_identities(server)))
        with server.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*tether(), "weed", "-logtostderr=true", "server", *_options(self._ports)],
                cwd=data,
                # One volume a bucket rather than seven.
                env={**os.environ, "WEED_MASTER_VOLUME_GROWTH_COPY_1": "1"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return server

    def _await_ready(self, server: S3Server) -> None:
        assert self._process is not None
        client = server.client()
        deadline = time.monotonic() + START_SECONDS
        while self._process.poll() is None:
            try:
                # Its own key: another server on this port would refuse it.
                with suppress(client.exceptions.BucketAlreadyOwnedByYou):
                    client.create_bucket(Bucket="ready")
                client.put_object(Bucket="ready", Key="object", Body=b"stored")
                client.delete_bucket(Bucket="ready")
                return
            except (BotoCoreError, ClientError) as refusal:
                if time.monotonic() > deadline:
                    raise NotStarted(_failure(server, f"{refusal}")) from refusal
                time.sleep(0.1)
        raise NotStarted(_failure(server, f"it ended with code {self._process.returncode}"))


def free_ports(count: int) -> tuple[int, ...]:
    """Ports of 127.0.0.1 on which nothing listens at this moment."""
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return tuple(each.getsockname()[1] for each in sockets)


def tether() -> list[str]:
    """What makes the kernel kill a command when its parent dies (util-linux, so on Linux)."""
    return ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []


def _identities(server: S3Server) -> dict[str, object]:
    owner = {"accessKey": server.access_key, "secretKey": server.secret_key}
    return {
        "identities": [
            {
                "name": "owner",
                "credentials": [owner],
                "actions": ["Admin", "Read", "Write", "List", "Tagging"],
            },
            {"name": "anonymous", "actions": ["Read"]},
        ]
    }


def _options(ports: tuple[int, ...]) -> list[str]:
    """The command line: everything on the loopback, small, and with no port by default."""
    http_ports, grpc_ports = ports[: len(SERVICES)], ports[len(SERVICES) :]
    return [
        "-dir=.",
        "-ip=127.0.0.1",
        "-ip.bind=127.0.0.1",
        *(f"-{name}.port={port}" for name, port in zip(SERVICES, http_ports, strict=True)),
        *(f"-{name}.port.grpc={port}" for name, port in zip(SERVICES, grpc_ports, strict=True)),
        "-master.telemetry=false",
        "-master.volumeSizeLimitMB=1024",
        "-volume.max=10000",
        "-volume.minFreeSpace=64MiB",
        "-filer.localSocket=filer.sock",
        "-s3",
        "-s3.config=identities.json",
        "-s3.localSocket=s3.sock",
        "-s3.port.iceberg=0",
        "-s3.port.lance=0",
        "-s3.iam=false",
        # A bucket that is not there is an error, as it is elsewhere.
        "-s3.autoCreateBucket=false",
    ]


def _failure(server: S3Server, reason: str) -> str:
    tail = server.log.read_text(errors="replace").splitlines()[-30:]
    return "\n".join([f"SeaweedFS did not start: {reason}; its log ends with", *tail])
