"""Where a dataset's serving copy is read from.

Source of the rules: the index contract, "Top-level fields".
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import quote

_DATASET_ID = re.compile(r"[a-z]{2}[0-9]{6}")

# As the index's schema has it, and without credentials.
_PREFIX = re.compile(r"https?://[^\s/?#@{}]+(?:/[^\s?#{}]*)?")
_BUCKET_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_REGION_NAME = re.compile(r"[A-Za-z0-9-]+")

_CONTRACT_PREFIX = "https://zarr.nemar.org"
_BUCKET = "nemar"
_REGION = "us-east-2"


def is_dataset_id(text: str) -> bool:
    """Whether the text is a dataset id: two lower-case letters and six digits."""
    return _DATASET_ID.fullmatch(text) is not None


@dataclass(frozen=True, slots=True)
class Addresses:
    """Bases of one dataset's copy, each ending in a slash.

    `contract_base` is stable, `data_base` where the bytes are today, `s3_uri` the same as an
    s3:// address. Raises ValueError when a base does not end in a slash.
    """

    contract_base: str
    data_base: str
    s3_uri: str
    s3_region: str

    def __post_init__(self) -> None:
        for base in (self.contract_base, self.data_base, self.s3_uri):
            if not base.endswith("/"):
                raise ValueError(f"The base address {base!r} must end in a slash.")

    @classmethod
    def for_dataset(
        cls,
        dataset_id: str,
        *,
        contract_base: str | None = None,
        data_base: str | None = None,
        bucket: str | None = None,
        prefix: str = "",
        region: str | None = None,
        endpoint_url: str | None = None,
    ) -> Addresses:
        """The addresses of a dataset whose copy lies at s3://bucket/prefix/<id>/zarr/.

        `contract_base` and `data_base` are http(s) URL prefixes, to which `<id>/zarr/` is
        appended. Without a `data_base` it is <endpoint_url>/<bucket>/<prefix>/<id>/zarr/, or where
        no endpoint is given AWS's own address of the bucket. What is None is the archive's.
        Raises ValueError when the id is none or a part is not of its form.
        """
        if not is_dataset_id(dataset_id):
            raise ValueError(
                f"{dataset_id!r} is no dataset id: two lower-case letters and six digits, "
                "such as nm000103."
            )
        bucket = _checked("bucket", bucket or _BUCKET, _BUCKET_NAME)
        region = _checked("region", region or _REGION, _REGION_NAME)
        steps = [*_steps(prefix), dataset_id, "zarr"]
        data = "/".join([_bucket_url(bucket, region, endpoint_url), *map(quote, steps), ""])
        if data_base is not None:
            data = f"{_prefix('data base', data_base)}/{dataset_id}/zarr/"
        contract = _prefix("contract base", contract_base or _CONTRACT_PREFIX)
        return cls(
            contract_base=f"{contract}/{dataset_id}/zarr/",
            data_base=data,
            s3_uri="/".join(["s3:/", bucket, *steps, ""]),
            s3_region=region,
        )

    @property
    def events_url(self) -> str:
        """The address of events.parquet that the index names."""
        return f"{self.data_base}events.parquet"


def _bucket_url(bucket: str, region: str, endpoint: str | None) -> str:
    """The bucket by its own host name, or below an endpoint by its path.

    A name with dots is not covered by the certificate of AWS's hosts either.
    """
    if endpoint is not None:
        return f"{_prefix('endpoint', endpoint)}/{bucket}"
    domain = "amazonaws.com.cn" if region.startswith("cn-") else "amazonaws.com"
    if "." in bucket:
        return f"https://s3.{region}.{domain}/{bucket}"
    return f"https://{bucket}.s3.{region}.{domain}"


def _prefix(what: str, url: str) -> str:
    """A URL that more steps can follow, without its last slash."""
    if not _PREFIX.fullmatch(url):
        shown = url.rpartition("@")[2].partition("?")[0]
        raise ValueError(
            f"The {what} {shown!r} was found, a URL such as https://host/path was expected, with "
            "neither user, query nor {}."
        )
    return url.rstrip("/")


def _steps(prefix: str) -> list[str]:
    steps = prefix.strip("/").split("/") if prefix.strip("/") else []
    if not {"", ".", ".."}.isdisjoint(steps) or re.search(r"[\s?#\x00-\x1f\x7f]", prefix):
        raise ValueError(
            f"The prefix {prefix!r} was found, names separated by single slashes and without "
            "spaces, '?' and '#' were expected."
        )
    return steps


def _checked(what: str, text: str, form: re.Pattern[str]) -> str:
    if not form.fullmatch(text):
        raise ValueError(f"{text!r} was found, the name of a {what} was expected.")
    return text
