"""MATLAB files of version 7.3, which are HDF5 files.

Links to elsewhere and storage in other files are refused.
"""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from converter.contract.codes import FailureCode, RecordingError
from converter.recording.readers.hdf5_heaps import CheckedHdf5
from converter.recording.readers.hdf5_samples import Hdf5Samples, check_stored, open_samples
from converter.recording.readers.matlab import (
    MAX_CELLS,
    MAX_TEXT,
    exact,
    number_text,
    well_formed,
)


class Hdf5File:
    """A MATLAB v7.3 file."""

    def __init__(self, path: Path, struct: str) -> None:
        self._name = path.name
        self._checked = CheckedHdf5(path)
        self._file = self._checked.root
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
        check_stored(self._name, name, node)
        return open_samples(self._checked.samples(node)) if node.size else None

    def close(self) -> None:
        """Close the file; closing twice is harmless."""
        self._checked.close()


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
