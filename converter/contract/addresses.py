"""Where a dataset's serving copy is read from.

Source of the rules: the index contract, "Top-level fields".
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_DATASET_ID = re.compile(r"[a-z]{2}[0-9]{6}")

_CONTRACT_HOST = "https://zarr.nemar.org"
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
    def for_dataset(cls, dataset_id: str) -> Addresses:
        """The archive's addresses of a dataset; ValueError when the id is none."""
        if not is_dataset_id(dataset_id):
            raise ValueError(
                f"{dataset_id!r} is no dataset id: two lower-case letters and six digits, "
                "such as nm000103."
            )
        return cls(
            contract_base=f"{_CONTRACT_HOST}/{dataset_id}/zarr/",
            data_base=f"https://{_BUCKET}.s3.{_REGION}.amazonaws.com/{dataset_id}/zarr/",
            s3_uri=f"s3://{_BUCKET}/{dataset_id}/zarr/",
            s3_region=_REGION,
        )

    @property
    def events_url(self) -> str:
        """The address of events.parquet that the index names."""
        return f"{self.data_base}events.parquet"
