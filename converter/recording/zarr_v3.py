"""Zarr v3 nodes on local disk: metadata documents, chunks, and shards written as they grow.

A shard is a file of encoded chunks with an index at its end, so it can be appended to chunk
by chunk; zarr-python would hold a whole shard, a quarter of a gigabyte for a large implant,
and its encoded copy in memory. Every chunk is written, an all-zero one too: a reader that
computes its URLs takes a missing object for an error. The bytes follow the Zarr v3
specification: `sharding_indexed` with its index at the end, `blosc`, `crc32c`.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import google_crc32c
import msgspec
import numpy as np
from numcodecs import blosc
from numpy.typing import NDArray

# Chosen by scripts/measure_compression.py over real recordings; the README has the figures.
COMPRESSION_LEVEL = 5
BYTE_SHUFFLE = 1
MISSING = 2**64 - 1  # index entry of a chunk beyond the end of the array

blosc.use_threads = False  # conversions already run side by side, one to a core

JsonObject = Mapping[str, Any]


def encode(chunk: NDArray[Any]) -> bytes:
    """One Blosc frame of a C-contiguous, little-endian chunk."""
    return bytes(
        blosc.compress(np.ascontiguousarray(chunk), b"zstd", COMPRESSION_LEVEL, BYTE_SHUFFLE)
    )


def _codecs(itemsize: int) -> list[JsonObject]:
    return [
        {"name": "bytes", "configuration": {"endian": "little"}},
        {
            "name": "blosc",
            "configuration": {
                "cname": "zstd",
                "clevel": COMPRESSION_LEVEL,
                "shuffle": "shuffle",
                "typesize": itemsize,
                "blocksize": 0,
            },
        },
    ]


def _write_node(path: Path, document: JsonObject) -> None:
    path.mkdir(parents=True, exist_ok=True)
    (path / "zarr.json").write_bytes(msgspec.json.encode(document))


def write_group(path: Path, attributes: JsonObject | None = None) -> None:
    """A group node with its attributes."""
    _write_node(
        path, {"zarr_format": 3, "node_type": "group", "attributes": dict(attributes or {})}
    )


def _write_array(
    path: Path,
    dtype: np.dtype[Any],
    shape: Sequence[int],
    chunk: Sequence[int],
    codecs: Sequence[JsonObject],
    attributes: JsonObject,
) -> None:
    _write_node(
        path,
        {
            "zarr_format": 3,
            "node_type": "array",
            "shape": list(shape),
            "data_type": dtype.name,
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": list(chunk)}},
            "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
            "fill_value": 0,
            "codecs": list(codecs),
            "attributes": dict(attributes),
            "storage_transformers": [],
        },
    )


class ChunkedArray:
    """An array whose chunks are objects of their own, and span all dimensions but the last.

    Chunks at the end come padded.
    """

    def __init__(
        self,
        path: Path,
        dtype: type,
        shape: Sequence[int],
        chunk: Sequence[int],
        attributes: JsonObject,
    ) -> None:
        self._dtype = np.dtype(dtype)
        _write_array(path, self._dtype, shape, chunk, _codecs(self._dtype.itemsize), attributes)
        # Chunks lie side by side along the last dimension.
        self._folder = path.joinpath("c", *["0"] * (len(shape) - 1))
        self._folder.mkdir(parents=True)

    def write(self, index: int, chunk: NDArray[Any]) -> None:
        """Write the chunk at a position along the last dimension."""
        frame = encode(chunk.astype(self._dtype, copy=False))
        (self._folder / str(index)).write_bytes(frame)


class ShardedArray:
    """A (rows, columns) int16 array; shards span all rows and a whole number of chunks.

    Chunks are appended in order; each shard is closed as soon as it is full. A `with` block
    around the appending closes the last one.
    """

    def __init__(
        self, path: Path, shape: tuple[int, int], chunk: int, shard: int, attributes: JsonObject
    ) -> None:
        self._chunk_shape = (shape[0], chunk)
        self._per_shard = shard // chunk
        self._index = np.full((self._per_shard, 2), MISSING, "<u8")
        self._in_shard = self._shard = self._position = 0
        sharding = {
            "name": "sharding_indexed",
            "configuration": {
                "chunk_shape": list(self._chunk_shape),
                "codecs": _codecs(2),
                "index_codecs": [
                    {"name": "bytes", "configuration": {"endian": "little"}},
                    {"name": "crc32c"},
                ],
                "index_location": "end",
            },
        }
        _write_array(path, np.dtype(np.int16), shape, (shape[0], shard), [sharding], attributes)
        self._folder = path / "c" / "0"
        self._folder.mkdir(parents=True)
        self._file = (self._folder / "0").open("wb")

    def __enter__(self) -> ShardedArray:
        return self

    def __exit__(self, failure: type[BaseException] | None, *_: object) -> None:
        if failure is None:
            self._finish_shard()
        self._file.close()

    def encode(self, chunk: NDArray[np.int16]) -> bytes:
        """The frame of a chunk; the array's last one may be narrower."""
        if chunk.shape != self._chunk_shape:
            padded = np.zeros(self._chunk_shape, np.int16)
            padded[:, : chunk.shape[1]] = chunk
            chunk = padded
        return encode(chunk)

    def append(self, frame: bytes) -> None:
        """Append the frame of the next chunk."""
        if self._in_shard == self._per_shard:
            self._finish_shard()
            self._file = (self._folder / str(self._shard)).open("wb")
        self._file.write(frame)
        self._index[self._in_shard] = self._position, len(frame)
        self._position += len(frame)
        self._in_shard += 1

    def _finish_shard(self) -> None:
        index = self._index.tobytes()
        self._file.write(index + struct.pack("<I", google_crc32c.value(index)))
        self._file.close()
        self._index[:] = MISSING
        self._shard += 1
        self._in_shard = self._position = 0


def write_vector(path: Path, dtype: str, values: Sequence[float]) -> None:
    """A one-dimensional array in one chunk; an empty one has none."""
    data = np.asarray(values, dtype=np.dtype(dtype).newbyteorder("<"))
    length = max(1, len(data))
    array = ChunkedArray(path, data.dtype.type, (len(data),), (length,), {})
    if len(data):
        array.write(0, data)
