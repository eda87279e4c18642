from __future__ import annotations

import pytest

from converter.contract.addresses import Addresses, is_dataset_id


def test_archive_addresses() -> None:
    addresses = Addresses.for_dataset("nm000103")
    assert addresses == Addresses(
        "https://zarr.nemar.org/nm000103/zarr/",
        "https://nemar.s3.us-east-2.amazonaws.com/nm000103/zarr/",
        "s3://nemar/nm000103/zarr/",
        "us-east-2",
    )
    assert addresses.events_url.endswith("amazonaws.com/nm000103/zarr/events.parquet")


@pytest.mark.parametrize("text", ["", "nm00010", "nm0001033", "NM000103", "nm000103\n", "nm०००१०३"])
def test_what_is_no_dataset_id(text: str) -> None:
    assert not is_dataset_id(text)
    with pytest.raises(ValueError, match="dataset id"):
        Addresses.for_dataset(text)


def test_bases_end_in_a_slash() -> None:
    with pytest.raises(ValueError, match="slash"):
        Addresses("https://h.org", "https://h.org/", "s3://b/", "r")
