"""MATLAB files of version 7.3, which are HDF5 files.

Links to elsewhere and storage in other files are refused.
"""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from isal import isal_zlib
from numpy.typing import NDArray

from converter.contract.codes import FailureCode, RecordingError
from converter.recording.readers.binary import Scratch, transpose_into
from converter.recording.readers.claims import check_unpacked
from converter.recording.readers.matlab import (
    DEFLATE_LIMIT,
    MAX_CELLS,
    MAX_TEXT,
    exact,
    number_text,
    well_formed,
)

CHUNK_CACHE_BYTES = 256 << 20


class Hdf5Samples:
    """A matrix of an HDF5 file, which stores MATLAB's columns as rows, read by hyperslab."""

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset
        self.shape: tuple[int, ...] = dataset.shape[::-1]
        self.granule: int = dataset.chunks[0] if dataset.chunks else 1
        self._rows = Scratch(dataset.dtype)
        self._out = Scratch(dataset.dtype.newbyteorder("="))

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """Columns `start:stop`."""
        out = self._out.array(self.shape[0], stop - start)
        if out.size:
            self._fill(out, start, stop)
        return out

    def _fill(self, out: NDArray[Any], start: int, stop: int) -> None:
        rows = self._rows.array(stop - start, self.shape[0])
        self._dataset.read_direct(rows, np.s_[start:stop])
        transpose_into(out, rows)


class DeflatedSamples(Hdf5Samples):
    """A matrix whose chunks are deflated and nothing else, inflated here: HDF5 takes twice as long.

    Any chunk that a read touches is inflated, so reads of whole granules cost least.
    """

    @classmethod
    def fits(cls, dataset: Any) -> bool:
        """Whether the dataset is stored like this, with no chunk left out."""
        if not dataset.chunks or len(dataset.shape) != 2:
            return False
        filters = dataset.id.get_create_plist()
        if filters.get_nfilters() != 1 or filters.get_filter(0)[0] != h5py.h5z.FILTER_DEFLATE:
            return False
        sizes = zip(dataset.shape, dataset.chunks, strict=True)
        expected = math.prod(-(-length // size) for length, size in sizes)
        return bool(dataset.id.get_num_chunks() == expected)

    def _fill(self, out: NDArray[Any], start: int, stop: int) -> None:
        height, width = self._dataset.chunks
        for row in range(start // height * height, stop, height):
            first, last = max(start, row), min(stop, row + height)
            for column in range(0, self.shape[0], width):
                target = out[column : column + width, first - start : last - start]
                chunk = self._chunk(row, column)
                transpose_into(target, chunk[first - row : last - row, : len(target)])

    def _chunk(self, row: int, column: int) -> NDArray[Any]:
        skipped, content = self._dataset.id.read_direct_chunk((row, column))
        chunks, dtype = self._dataset.chunks, self._dataset.dtype
        size = math.prod(chunks) * dtype.itemsize
        if not skipped:
            content = isal_zlib.decompressobj().decompress(content, size)
        return np.frombuffer(content, dtype, math.prod(chunks)).reshape(chunks)


class Hdf5File:
    """A MATLAB v7.3 file."""

    def __init__(self, path: Path, struct: str) -> None:
        self._name = path.name
        self._size = path.stat().st_size
        self._file = h5py.File(path, "r", locking=False)
        try:
            top = self._node(self._file, struct)
        except BaseException:
            self.close()
            raise
        self._top = top if isinstance(top, h5py.Group) else self._file

    def _node(self, group: Any, name: str) -> Any:
        link = group.get(name, getlink=True)
        if link is None:
            return None
        if not isinstance(link, h5py.HardLink):
            raise self._refused(f"has a link to elsewhere in place of {name}")
        node = group[name]
        if isinstance(node, h5py.Dataset) and (node.external or node.is_virtual):
            raise self._refused(f"keeps {name} in other files")
        return node

    def _refused(self, sentence: str) -> RecordingError:
        return RecordingError(
            FailureCode.FILE_READ_ERROR, f"{self._name} {sentence}, which is refused."
        )

    def _dataset(self, name: str) -> Any:
        node = self._node(self._top, name)
        if not isinstance(node, h5py.Dataset) or "MATLAB_empty" in node.attrs:
            return None
        return node

    def text(self, name: str) -> str | None:
        """See MatlabFile."""
        node = self._dataset(name)
        if node is None or _matlab_class(node) != "char":
            return None
        return next(iter(_texts(node)), "")

    def number(self, name: str) -> Fraction | None:
        """See MatlabFile."""
        node = self._dataset(name)
        if node is None or node.size != 1 or node.dtype.kind not in "iuf":
            return None
        return exact(node[()].reshape(-1)[0])

    def column(self, name: str, field: str) -> list[str]:
        """See MatlabFile."""
        struct = self._node(self._top, name)
        cells = self._node(struct, field) if isinstance(struct, h5py.Group) else None
        if not isinstance(cells, h5py.Dataset) or "MATLAB_empty" in cells.attrs:
            return []
        if h5py.check_ref_dtype(cells.dtype) is None:
            return _texts(cells)
        if cells.size > MAX_CELLS:
            return []
        return [self._cell(reference) for reference in cells[()].reshape(-1)]

    def _cell(self, reference: Any) -> str:
        node = self._file[reference] if reference else None
        if not isinstance(node, h5py.Dataset) or "MATLAB_empty" in node.attrs:
            return ""
        if node.external or node.is_virtual:
            raise self._refused("keeps a cell in other files")
        return next(iter(_texts(node)), "")

    def samples(self, name: str) -> Hdf5Samples | None:
        """See MatlabFile."""
        node = self._dataset(name)
        if node is None or _matlab_class(node) == "char" or node.dtype.kind not in "iuf":
            return None
        stored, claimed = node.id.get_storage_size(), math.prod(node.shape) * node.dtype.itemsize
        if claimed > stored * (DEFLATE_LIMIT if node.compression else 1):
            raise RecordingError(
                FailureCode.CORRUPT_OR_TRUNCATED,
                f"{self._name} stores {stored} bytes of {name}, {claimed} were expected.",
            )
        if not node.size:
            return None
        if node.chunks:
            # Chunks are unpacked whole, and may be far larger than the dataset.
            sizes = zip(node.shape, node.chunks, strict=True)
            whole = math.prod(-(-length // size) * size for length, size in sizes)
            check_unpacked(self._name, stored, whole * node.dtype.itemsize)
        if DeflatedSamples.fits(node):
            return DeflatedSamples(node)
        return Hdf5Samples(_with_chunk_cache(node))

    def close(self) -> None:
        """Close the file; closing twice is harmless."""
        self._file.close()


def _matlab_class(node: Any) -> str:
    name = node.attrs.get("MATLAB_class", b"")
    return name.decode("ascii", "replace") if isinstance(name, bytes) else str(name)


def _texts(node: Any) -> list[str]:
    """Rows of a char array, which HDF5 has as columns; a number as one text."""
    if node.size > MAX_TEXT or node.dtype.kind not in "iuf":
        return []
    if node.dtype.kind != "u" or node.dtype.itemsize > 2 or _matlab_class(node) not in ("char", ""):
        return [number_text(node[()].reshape(-1)[0])] if node.size == 1 else []
    columns = np.atleast_2d(node[()].T)
    return [well_formed("".join(map(chr, row))) for row in columns.tolist()]


def _with_chunk_cache(dataset: Any) -> Any:
    """The dataset with a cache for one band of chunks: each is unpacked once, in file order."""
    if not dataset.chunks:
        return dataset
    across = -(-dataset.shape[-1] // dataset.chunks[-1])
    band = across * math.prod(dataset.chunks) * dataset.dtype.itemsize
    access = h5py.h5p.create(h5py.h5p.DATASET_ACCESS)
    access.set_chunk_cache(10 * across + 1, min(2 * band, CHUNK_CACHE_BYTES), 1.0)
    parent, name = dataset.parent.id, dataset.name.rsplit("/", 1)[-1].encode()
    return h5py.Dataset(h5py.h5d.open(parent, name, access))
