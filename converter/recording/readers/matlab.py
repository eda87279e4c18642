"""Variables of a MATLAB file, v5 or v7.3 (HDF5), as text, numbers, columns and samples.

Nothing in a file is executed: MATLAB objects and function handles are data that no field asks
for. HDF5 links and storage outside the file are refused.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, Protocol

import h5py
import numpy as np
from numpy.typing import NDArray
from scipy.io import loadmat, whosmat

from converter.contract.codes import FailureCode, RecordingError
from converter.recording.readers.binary import Scratch, transpose_into

MAX_TEXT = 1 << 16
MAX_CELLS = 1 << 20
CHUNK_CACHE_BYTES = 256 << 20
DEFLATE_LIMIT = 1032  # deflate packs no more bytes than this into one


class Samples(Protocol):
    """A numeric array of the file; `shape` is MATLAB's."""

    shape: tuple[int, ...]
    granule: int

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """Columns `start:stop` of the matrix, valid until the next read."""
        ...


class MatlabFile(Protocol):
    """The fields of one struct, or the variables of a file that has no such struct."""

    def text(self, name: str) -> str | None:
        """A char array; None when the field is absent or anything else."""
        ...

    def number(self, name: str) -> Fraction | None:
        """A finite scalar; None when the field is absent or anything else."""
        ...

    def column(self, name: str, field: str) -> list[str]:
        """One field of a struct array, or of a struct of cell arrays, as text; may be empty."""
        ...

    def samples(self, name: str) -> Samples | None:
        """A real numeric array that is not empty; None when the field is absent or else."""
        ...

    def close(self) -> None:
        """Let go of the file; closing twice is harmless."""
        ...


def open_matlab(path: Path, struct: str, fields: Sequence[str], lazy: str) -> MatlabFile:
    """The fields of the variable `struct`, or the variables of the file where it is absent.

    `fields` are those that will be asked for; `lazy` is the one that may be large. v7.3 reads
    it block by block; v5 holds it in memory in its own type.
    """
    if h5py.is_hdf5(path):
        return Hdf5File(path, struct)
    return Mat5File(path, struct, fields, lazy)


def exact(value: Any) -> Fraction | None:
    """A finite real scalar as the fraction it was most likely rounded from.

    The shortest decimal that reads back as the same float, or a fraction of small numbers
    where that decimal is long (1000/3 Hz).
    """
    if not np.isfinite(value):
        return None
    decimal = Fraction(np.format_float_positional(value, trim="-"))
    simple = Fraction(float(value)).limit_denominator(1000)
    if decimal.denominator > 10_000 and type(value)(float(simple)) == value:
        return simple
    return decimal


def plain(value: Any) -> str:
    """A cell as text: a char array, or a number as MATLAB would print it."""
    array = np.asarray(value)
    if array.size != 1:
        return ""
    item = array.reshape(-1)[0]
    if isinstance(item, bytes):
        return item.decode("utf-8", "replace").strip()
    if isinstance(item, str):
        return _well_formed(item)
    if array.dtype == object:
        return plain(item) if item is not value else ""
    number = exact(item) if array.dtype.kind in "buif" else None
    return "" if number is None else f"{float(number):g}"


def _well_formed(text: str) -> str:
    """UTF-16 code units as characters; a surrogate without its other half is replaced."""
    units = text.encode("utf-16-le", "surrogatepass")
    return units.decode("utf-16-le", "replace").strip("\0 ")


class ArraySamples:
    """A matrix in memory, (n_rows, n_columns) in the type that the file stores."""

    granule = 1

    def __init__(self, array: NDArray[Any]) -> None:
        self._array = array
        self.shape: tuple[int, ...] = array.shape
        self._out = Scratch(array.dtype.newbyteorder("="))

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """Columns `start:stop`."""
        out = self._out.array(self.shape[0], stop - start)
        transpose_into(out, self._array[:, start:stop].T)
        return out


class Mat5File:
    """A file up to MATLAB v7, loaded by scipy; numbers keep the type they are stored in."""

    def __init__(self, path: Path, struct: str, fields: Sequence[str], lazy: str) -> None:
        self._path = path
        found = {name: (shape, kind) for name, shape, kind in whosmat(path)}
        self._lazy: str | None = None
        if struct in found:
            self._fields = self._load([struct])
            record = self._fields[struct]
            names = getattr(record.dtype, "names", None) or ()
            if record.size != 1:
                raise RecordingError(
                    FailureCode.FILE_READ_ERROR,
                    f"{path.name} has {record.size} data sets in {struct}, one was expected.",
                )
            self._fields = {name: record.reshape(-1)[0][name] for name in names if name in fields}
            return
        if lazy in found:
            self._lazy = lazy
            size = math.prod(found[lazy][0])
            if size > path.stat().st_size * DEFLATE_LIMIT:
                raise RecordingError(
                    FailureCode.CORRUPT_OR_TRUNCATED,
                    f"{path.name} declares {size} values, more than its bytes can hold.",
                )
        self._fields = self._load([name for name in fields if name in found and name != lazy])

    def _load(self, names: Sequence[str]) -> dict[str, Any]:
        loaded: dict[str, Any] = loadmat(self._path, variable_names=list(names))
        return {name: loaded[name] for name in names if name in loaded}

    def _field(self, name: str) -> Any:
        if name == self._lazy:
            self._fields |= self._load([name])
            self._lazy = None
        return self._fields.get(name)

    def text(self, name: str) -> str | None:
        """See MatlabFile."""
        value = self._field(name)
        is_text = isinstance(value, np.ndarray) and value.dtype.kind in "US"
        return plain(value) if is_text else None

    def number(self, name: str) -> Fraction | None:
        """See MatlabFile."""
        value = self._field(name)
        if not isinstance(value, np.ndarray) or value.size != 1 or value.dtype.kind not in "buif":
            return None
        return exact(value.reshape(-1)[0])

    def column(self, name: str, field: str) -> list[str]:
        """See MatlabFile."""
        struct = self._field(name)
        if not isinstance(struct, np.ndarray) or field not in (struct.dtype.names or ()):
            return []
        cells = struct[field].reshape(-1, order="F")
        inner = cells[0] if cells.size == 1 else None
        if isinstance(inner, np.ndarray) and inner.dtype.kind in "OUS" and inner.size > 1:
            cells = inner.reshape(-1, order="F")
        return [plain(cell) for cell in cells]

    def samples(self, name: str) -> ArraySamples | None:
        """See MatlabFile."""
        value = self._field(name)
        if not isinstance(value, np.ndarray) or value.size == 0 or value.dtype.kind not in "iuf":
            return None
        del self._fields[name]
        return ArraySamples(value)

    def close(self) -> None:
        """Let go of the arrays."""
        self._fields = {}


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
        rows = self._rows.array(stop - start, self.shape[0])
        if out.size:
            self._dataset.read_direct(rows, np.s_[start:stop])
            transpose_into(out, rows)
        return out


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
        return Hdf5Samples(_with_chunk_cache(node)) if node.size else None

    def close(self) -> None:
        """Close the file; closing twice is harmless."""
        self._file.close()


def _matlab_class(node: Any) -> str:
    return plain(node.attrs.get("MATLAB_class", ""))


def _texts(node: Any) -> list[str]:
    """Rows of a char array, which HDF5 has as columns; a number as one text."""
    if node.size > MAX_TEXT or node.dtype.kind not in "iuf":
        return []
    if node.dtype.kind != "u" or node.dtype.itemsize > 2 or _matlab_class(node) not in ("char", ""):
        return [plain(node[()])]
    columns = np.atleast_2d(node[()].T)
    return [_well_formed("".join(map(chr, row))) for row in columns.tolist()]


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
