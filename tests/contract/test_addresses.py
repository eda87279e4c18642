from __future__ import annotations

from typing import Any

import pytest
from jsonschema import Draft202012Validator

from converter.contract.addresses import Addresses, is_dataset_id
from converter.contract.validation import INDEX_SCHEMA, read_schema


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


@pytest.mark.parametrize(
    ("given", "data_base", "s3_uri"),
    [
        (
            {"bucket": "mine", "prefix": "/a/b_c+d/", "region": "eu-west-1"},
            "https://mine.s3.eu-west-1.amazonaws.com/a/b_c%2Bd/nm000103/zarr/",
            "s3://mine/a/b_c+d/nm000103/zarr/",
        ),
        (
            {"bucket": "data.org", "region": "cn-north-1"},
            "https://s3.cn-north-1.amazonaws.com.cn/data.org/nm000103/zarr/",
            "s3://data.org/nm000103/zarr/",
        ),
        (
            {"bucket": "mine", "prefix": "p", "endpoint_url": "http://127.0.0.1:8333/"},
            "http://127.0.0.1:8333/mine/p/nm000103/zarr/",
            "s3://mine/p/nm000103/zarr/",
        ),
        (
            {"bucket": "mine", "endpoint_url": "http://s3.lan", "data_base": "https://cdn.org/x/"},
            "https://cdn.org/x/nm000103/zarr/",
            "s3://mine/nm000103/zarr/",
        ),
        (
            {"data_base": "http://[::1]:80"},
            "http://[::1]:80/nm000103/zarr/",
            "s3://nemar/nm000103/zarr/",
        ),
    ],
)
def test_addresses_of_another_place(given: dict[str, Any], data_base: str, s3_uri: str) -> None:
    addresses = Addresses.for_dataset("nm000103", **given, contract_base="https://z.org/base")
    assert addresses.contract_base == "https://z.org/base/nm000103/zarr/"
    assert (addresses.data_base, addresses.s3_uri) == (data_base, s3_uri)
    assert addresses.s3_region == given.get("region", "us-east-2")
    fields = read_schema(INDEX_SCHEMA)["properties"]
    for name in ("contract_base", "data_base", "s3_uri", "s3_region"):
        Draft202012Validator(fields[name]).validate(getattr(addresses, name))


@pytest.mark.parametrize(
    "given",
    [
        {"data_base": "https://h.org/{dataset_id}/"},
        {"data_base": "ftp://h.org"},
        {"data_base": "https://h.org/a b"},
        {"contract_base": "h.org"},
        {"contract_base": "https://h.org/?token=hush"},
        {"contract_base": "https://user:hush@h.org/"},
        {"endpoint_url": "http://"},
        {"endpoint_url": "https://user:hush@h.org/"},
        {"bucket": "a/b"},
        {"prefix": "a//b"},
        {"prefix": "a/../b"},
        {"prefix": "a b"},
        {"region": "us east"},
    ],
)
def test_what_is_no_address_is_said(given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"was found, .* expected") as caught:
        Addresses.for_dataset("nm000103", **given)
    assert "hush" not in str(caught.value)
