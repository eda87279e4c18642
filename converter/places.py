"""Where a run reads from and where it writes to, by its settings."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from .contract.addresses import Addresses, is_dataset_id
from .dataset.clone import (
    REPOSITORY_TEMPLATE,
    FetchedDataset,
    default_cache,
    fetch_dataset,
)
from .dataset.repository import Repository, RepositoryError
from .settings import Settings
from .storage.destination import Destination
from .storage.local_destination import LocalDestination

S3 = "s3://"


class Misplaced(Exception):
    """Settings name no dataset, or no place; the message is one sentence."""


@dataclass(frozen=True, slots=True)
class Source:
    """A dataset's repository with the commit that is converted.

    `fetched` is the cache that it is, to which other commits can be fetched, or None.
    """

    dataset_id: str
    repository: Repository
    commit: str
    fetched: FetchedDataset | None = None

    def has(self, commit: str) -> bool:
        """Whether another commit's tree can be read."""
        if self.fetched is not None:
            return self.fetched.fetch_commit(commit)
        try:
            return self.repository.resolve(commit) == commit
        except RepositoryError:
            return False


def open_source(settings: Settings) -> Source:
    """The repository of a folder, or of a dataset id, which is fetched.

    Raises Misplaced and RepositoryError.
    """
    folder = _folder(settings.dataset, settings)
    if not folder.exists() and is_dataset_id(settings.dataset):
        return _fetched(settings.dataset, settings)
    name = folder.resolve().name.removesuffix(".git")
    dataset_id = settings.dataset_id or name
    if not is_dataset_id(dataset_id):
        raise Misplaced(
            f"the folder's name {name!r} is no dataset id (two lower-case letters and six "
            "digits, such as nm000103); say which with --dataset-id"
            if settings.dataset_id is None
            else f"the dataset id {dataset_id!r} was found, two lower-case letters and six digits "
            "were expected, such as nm000103"
        )
    repository = Repository(folder)
    return Source(dataset_id, repository, repository.resolve(settings.commit))


def _fetched(dataset_id: str, settings: Settings) -> Source:
    if settings.dataset_id not in (None, dataset_id):
        raise Misplaced(
            f"the dataset is {dataset_id} and --dataset-id says {settings.dataset_id!r}; one of "
            "the two was expected"
        )
    template = settings.repository or os.environ.get("NEMAR_REPOSITORY") or REPOSITORY_TEMPLATE
    fetched = fetch_dataset(
        dataset_id,
        settings.commit,
        template=template,
        cache=_folder(settings.cache or default_cache(), settings),
    )
    return Source(dataset_id, Repository(fetched.path), fetched.commit, fetched)


def open_destination(settings: Settings, dataset_id: str) -> Destination:
    """A dataset's place below a folder or an s3:// address. Raises Misplaced."""
    if not settings.dest.startswith(S3):
        return LocalDestination(_folder(settings.dest, settings) / dataset_id / "zarr")
    from .storage.s3_client import S3Options
    from .storage.s3_destination import S3Destination

    bucket, prefix = _bucket(settings.dest)
    addresses(settings, dataset_id)  # what is wrong there is told before a server is asked
    options = S3Options(endpoint_url=settings.endpoint_url, region=settings.region)
    return S3Destination(bucket, f"{prefix}{dataset_id}/zarr/", options)


def _folder(path: Path | str, settings: Settings) -> Path:
    """A folder as it was told; from the root where other machines must find it too."""
    return Path(path) if settings.dask is None else Path(path).absolute()


def addresses(settings: Settings, dataset_id: str) -> Addresses:
    """Where readers find the copy. Raises Misplaced."""
    bucket, prefix = _bucket(settings.dest) if settings.dest.startswith(S3) else (None, "")
    try:
        return Addresses.for_dataset(
            dataset_id,
            contract_base=settings.contract_base,
            data_base=settings.data_base,
            bucket=bucket,
            prefix=prefix,
            region=settings.region,
            endpoint_url=settings.endpoint_url,
        )
    except ValueError as error:
        raise Misplaced(str(error)) from error


def _bucket(address: str) -> tuple[str, str]:
    """Bucket and prefix of an s3:// address; the prefix is empty or ends in a slash."""
    bucket, _, prefix = address.removeprefix(S3).partition("/")
    prefix = prefix.strip("/")
    if not bucket or not {"", ".", ".."}.isdisjoint(prefix.split("/") if prefix else ()):
        raise Misplaced(f"--dest {address!r} found, s3://bucket or s3://bucket/prefix expected")
    return bucket, f"{prefix}/" if prefix else ""
