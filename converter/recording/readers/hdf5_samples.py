"""Sample matrices of HDF5 files, read block by block; what a file claims is checked first."""

from __future__ import annotations

import math
from typing import Any

import h5py
import numpy as np
from isal import isal_zlib
from numpy.typing import NDArray

from converter.contract.codes import FailureCode, RecordingError
from converter.recording.readers.binary import Scratch, native_order
from converter.recording.readers.claims import check_unpacked

CHUNK_CACHE_BYTES = 256 << 20


def check_stored(file_name: str, name: str, dataset: Any) -> None:
    """Raise RecordingError when a dataset claims more than what is stored of it.

    CORRUPT_OR_TRUNCATED when samples are not there: nothing is stored, or fewer bytes than the
    samples take that no filter packs. FILE_READ_ERROR when what is stored would unpack to more
    than a recording (`check_unpacked`), whatever the filter.
    """
    # Entries of a chunk index may claim any size, or the same bytes more than once.
    stored = min(dataset.id.get_storage_size(), dataset.file.id.get_filesize())
    claimed = math.prod(dataset.shape) * dataset.dtype.itemsize
    is_packed = stored > 0 and dataset.id.get_create_plist().get_nfilters() > 0
    if claimed > stored and not is_packed:
        raise RecordingError(
            FailureCode.CORRUPT_OR_TRUNCATED,
            f"{file_name} stores {stored} bytes of {name}, {claimed} were expected.",
        )
    if dataset.chunks:
        # Chunks are unpacked whole, and may be far larger than the dataset.
        sizes = zip(dataset.shape, dataset.chunks, strict=True)
        whole = math.prod(-(-length // size) * size for length, size in sizes)
        check_unpacked(file_name, stored, whole * dataset.dtype.itemsize)


def open_samples(dataset: Any, largest_granule: float = math.inf) -> Hdf5Samples:
    """The fastest way to a dataset's samples, for reads of up to `largest_granule` of them."""
    if DeflatedSamples.fits(dataset) and dataset.chunks[0] <= largest_granule:
        return DeflatedSamples(dataset)
    return Hdf5Samples(_with_chunk_cache(dataset))


class Hdf5Samples:
    """A matrix of an HDF5 file, stored sample after sample, read by hyperslab.

    A dataset of one dimension holds one channel. `shape` is the dataset's, reversed.
    """

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset
        self.shape: tuple[int, ...] = dataset.shape[::-1]
        self.granule: int = dataset.chunks[0] if dataset.chunks else 1
        self._n_rows: int = dataset.shape[1] if len(dataset.shape) > 1 else 1
        self._frames = Scratch(dataset.dtype)
        self.dtype: np.dtype[Any] = dataset.dtype.newbyteorder("=")

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """Samples `start:stop` as (n_channels, stop - start), valid until the next read."""
        frames = self._frames.array(stop - start, self._n_rows)
        if frames.size:
            self._fill(frames, start, stop)
        return native_order(frames).T

    def _fill(self, frames: NDArray[Any], start: int, stop: int) -> None:
        stored = frames.reshape(stop - start, *self._dataset.shape[1:])
        self._dataset.read_direct(stored, np.s_[start:stop])


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

    def _fill(self, frames: NDArray[Any], start: int, stop: int) -> None:
        height, width = self._dataset.chunks
        for row in range(start // height * height, stop, height):
            first, last = max(start, row), min(stop, row + height)
            for column in range(0, self.shape[0], width):
                target = frames[first - start : last - start, column : column + width]
                target[...] = self._chunk(row, column)[first - row : last - row, : target.shape[1]]

    def _chunk(self, row: int, column: int) -> NDArray[Any]:
        skipped, content = self._dataset.id.read_direct_chunk((row, column))
        chunks, dtype = self._dataset.chunks, self._dataset.dtype
        size = math.prod(chunks) * dtype.itemsize
        if not skipped:
            content = isal_zlib.decompressobj().decompress(content, size)
        return np.frombuffer(content, dtype, math.prod(chunks)).reshape(chunks)


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
