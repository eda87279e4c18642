"""A serving copy as those read it who have no credentials and can list nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from io import BytesIO
from itertools import product
from typing import Any

import google_crc32c
import numpy as np
import pyarrow.parquet as pq
import zarr
from fsspec.implementations.http import HTTPFileSystem
from numcodecs import blosc
from numpy.typing import NDArray

from converter.contract.validation import validate_index

from .archive import Copy
from .independent import check_views

Read = Callable[[str, str], bytes]


class UndatedHTTP(HTTPFileSystem):
    """HTTP for DuckDB, which asks for a file's time, and here gets always the same one."""

    def modified(self, path: str) -> datetime:
        return datetime(2000, 1, 1, tzinfo=UTC)


def window(read: Read, array: str) -> NDArray[np.int16]:
    """The first chunk of a sharded int16 array, decoded by hand from two ranged reads.

    `read` gets a range of an object by its name, the whole of it for "".
    """
    document = json.loads(read(f"{array}/zarr.json", ""))
    assert document["data_type"] == "int16"
    shard = document["chunk_grid"]["configuration"]["chunk_shape"]
    [sharding] = document["codecs"]
    assert sharding["name"] == "sharding_indexed"
    chunk = sharding["configuration"]["chunk_shape"]
    count = shard[1] // chunk[1]
    tail = read(f"{array}/c/0/0", f"bytes=-{16 * count + 4}")
    index, checksum = tail[:-4], tail[-4:]
    assert google_crc32c.value(index) == int.from_bytes(checksum, "little")
    offset, size = np.frombuffer(index, "<u8")[:2].tolist()
    frame = read(f"{array}/c/0/0", f"bytes={offset}-{offset + size - 1}")
    samples = np.frombuffer(blosc.decompress(frame), "<i2").reshape(chunk)
    return samples[:, : document["shape"][1]]


def check_readable(copy: Copy) -> dict[str, Any]:
    """Check that what the index names is there for anybody, and whole; return the index."""
    index: dict[str, Any] = json.loads(copy.read("index.json"))
    validate_index(index)
    entries = [entry for array in ("stores", "failures", "pending") for entry in index[array]]
    assert len({entry["path"] for entry in entries}) == len(entries) == index["discovered_count"]
    for entry in index["stores"]:
        root = zarr.open_group(copy.url + entry["zarr"], mode="r")
        for group in entry["groups"]:
            level_0 = root[group["name"]]["0"]
            assert level_0.shape[1] == group["n_samples"]
            views = [f"view/{level}" for level in root[group["name"]].attrs["view_levels"]]
            for array in (level_0, *(root[group["name"]][view] for view in views)):
                check_chunks(copy, f"{entry['zarr']}/{array.path}", array)
        check_views(copy.url + entry["zarr"])
    if "events_parquet" in index:
        assert index["events_parquet"].endswith("/events.parquet")
        assert pq.read_table(BytesIO(copy.read("events.parquet"))).num_rows
    return index


def check_chunks(copy: Copy, name: str, array: zarr.Array) -> None:
    """Check that each chunk or shard is an object: zarr takes a missing one for zeros."""
    outer = array.shards or array.chunks
    counts = (range(-(-n // step)) for n, step in zip(array.shape, outer, strict=True))
    for position in product(*counts):
        assert copy.read(f"{name}/c/{'/'.join(map(str, position))}")
