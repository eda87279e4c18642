"""The transfers that are compared: this project's, and rclone's with 16 at once."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.servers.seaweedfs import S3Server

from .measuring import Command, JobFailed

AT_ONCE = 16
COPY = "copy"  # the prefix of the dataset's copy in its bucket
STORE = "sub-01.zarr"

MODULES = (
    "converter.storage.s3_destination",
    "converter.storage.download",
    "converter.dataset.fetching",
    "boto3.s3.transfer",
)


@dataclass(frozen=True, slots=True)
class Objects:
    """A bucket and the store in it."""

    server: S3Server
    bucket: str

    @property
    def rclone_path(self) -> str:
        """Where rclone finds the store."""
        return f"server:{self.bucket}/{COPY}/{STORE}"

    def rclone(self, source: str, target: str) -> Command:
        """A copy by rclone, from its start to its end."""
        remote = {
            "TYPE": "s3",
            "PROVIDER": "Other",
            "ENDPOINT": self.server.endpoint,
            "REGION": self.server.region,
            "ACCESS_KEY_ID": self.server.access_key,
            "SECRET_ACCESS_KEY": self.server.secret_key,
        }
        environment = {f"RCLONE_CONFIG_SERVER_{name}": value for name, value in remote.items()}
        environment["RCLONE_CONFIG"] = os.devnull
        return Command(["rclone", "copy", "--transfers", str(AT_ONCE), source, target], environment)


@dataclass(frozen=True, slots=True)
class Upload:
    """A store placed at a destination, which takes it from `folder`."""

    objects: Objects
    source: Path
    folder: Path

    def prepare(self) -> None:
        """Make the store that is given away, of links to the files."""
        shutil.copytree(self.source, self.folder, copy_function=os.link)
        os.environ.update(self.objects.server.environment())

    def run(self) -> Mapping[str, float]:
        """Place it, with a client made for it."""
        from converter.storage.s3_client import S3Options
        from converter.storage.s3_destination import S3Destination

        server = self.objects.server
        options = S3Options(endpoint_url=server.endpoint, region=server.region)
        S3Destination(self.objects.bucket, f"{COPY}/", options).place_store(self.folder, STORE)
        return {}


@dataclass
class Fetch:
    """The store's objects fetched as content is, without credentials, each with its digest.

    `source` holds the same files, `folder` gets them.
    """

    objects: Objects
    source: Path
    folder: Path

    def prepare(self) -> None:
        """Make the folders, and know size and digest of each file, as an annex key tells them."""
        from converter.storage.objects import Address, Bucket, Checksum, Place, Wanted, hashing

        server = self.objects.server
        bucket = Bucket(server.endpoint, self.objects.bucket, server.region)
        new = hashing("md5")
        assert new is not None
        self._wanted: list[Wanted] = []
        for file in sorted(path for path in self.source.rglob("*") if path.is_file()):
            name, content = file.relative_to(self.source), file.read_bytes()
            target = self.folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            key = f"{COPY}/{STORE}/{name}"
            place = Place.whole("server", Address(bucket.url(key), bucket, key))
            checksum = Checksum("MD5", hashlib.md5(content).hexdigest(), new)
            self._wanted.append(Wanted(target, (place,), len(content), len(content), checksum))

    def run(self) -> Mapping[str, float]:
        """Fetch all. Raises JobFailed."""
        from converter.dataset.fetching import CONNECTIONS
        from converter.storage.download import Downloader
        from converter.storage.hosts import HostGuard

        server = self.objects.server
        guard = HostGuard(frozenset({f"{server.host}:{server.port}"}))
        with Downloader(guard, connections=CONNECTIONS) as downloader:
            failures = downloader.fetch_all(self._wanted)
        if failures:
            raise JobFailed(f"{failures[0].wanted.target.name}: {failures[0].attempts}")
        return {}
