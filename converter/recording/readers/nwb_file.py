"""An NWB file's objects, which are HDF5's, reached one link at a time.

Hard links and soft links are followed within the file. A link to another file is refused, so
are datasets whose content lies in other files.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from converter.contract.codes import FailureCode, RecordingError
from converter.recording.readers.hdf5_heaps import CheckedHdf5
from converter.recording.readers.hdf5_samples import check_stored
from converter.recording.readers.matlab import exact
from converter.recording.readers.spelling import decode

_MOST_SOFT_LINKS = 16  # one after the other
_LONGEST_TEXT = 256
_MOST_TEXT = 16 << 20  # bytes of all texts of a column


class NwbFile:
    """An open NWB file, and typed access to what hangs on its groups.

    What is absent, or of another kind than asked for, is None.
    """

    def __init__(self, path: Path) -> None:
        self.name = path.name
        if not h5py.is_hdf5(path):
            raise self.damaged("is no HDF5 file, which every NWB file is")
        self._checked = CheckedHdf5(path)
        self._file = self._checked.root

    def damaged(self, sentence: str) -> RecordingError:
        """CORRUPT_OR_TRUNCATED on this file."""
        return RecordingError(FailureCode.CORRUPT_OR_TRUNCATED, f"{self.name} {sentence}.")

    def _refused(self, sentence: str) -> RecordingError:
        return RecordingError(
            FailureCode.FILE_READ_ERROR, f"{self.name} {sentence}, which is refused."
        )

    def child(self, group: Any, name: str, depth: int = 0) -> Any:
        """The object that a link of the group leads to, in this file."""
        link = group.get(name, getlink=True)
        if link is None:
            return None
        if isinstance(link, h5py.SoftLink):
            return self._behind(group, link.path, name, depth + 1)
        if not isinstance(link, h5py.HardLink):
            raise self._refused(f"has a link to another file in place of {name[:100]}")
        node = group[name]
        if isinstance(node, h5py.Dataset) and (node.external or node.is_virtual):
            raise self._refused(f"keeps {name[:100]} in other files")
        return node

    def _behind(self, group: Any, path: str, name: str, depth: int) -> Any:
        """What a soft link leads to: each step on the way is a link to be looked at, too."""
        if depth > _MOST_SOFT_LINKS:
            raise self._refused(f"has a chain of links in place of {name[:100]}")
        node = self._file if path.startswith("/") else group
        for step in path.split("/"):
            if step in ("", "."):
                continue
            node = self.child(node, step, depth) if isinstance(node, h5py.Group) else None
        return node

    def group(self, *path: str) -> Any:
        """A group by the names of the links from the root to it."""
        node = self._file
        for name in path:
            node = self.child(node, name) if isinstance(node, h5py.Group) else None
        return node if isinstance(node, h5py.Group) else None

    def groups(self, group: Any) -> Iterator[tuple[str, Any]]:
        """The groups inside a group, with their names, sorted by these."""
        for name in sorted(group):
            node = self.child(group, name)
            if isinstance(node, h5py.Group):
                yield name, node

    def dataset(self, group: Any, name: str) -> Any:
        """A dataset whose claimed size is one that its stored bytes can unpack to."""
        node = self.child(group, name)
        if not isinstance(node, h5py.Dataset) or node.shape is None:
            return None
        check_stored(self.name, name, node)
        return node

    def samples(self, dataset: Any) -> Any:
        """The same dataset, of numbers, as it is read fastest."""
        return self._checked.samples(dataset)

    def referred(self, node: Any, name: str) -> Any:
        """The group that a reference in an attribute of the object leads to, in this file."""
        reference = _attribute(node, name)
        if not isinstance(reference, h5py.Reference) or not reference:
            return None
        target = self._file[reference]
        return target if isinstance(target, h5py.Group) else None

    def text(self, node: Any, name: str) -> str:
        """A text attribute; empty when it is none."""
        return _text(_attribute(node, name))

    def number(self, node: Any, name: str) -> Fraction | None:
        """A number in an attribute, as the fraction that it was most likely rounded from."""
        return _number(_attribute(node, name))

    def scalar(self, dataset: Any) -> Fraction | None:
        """The same for a dataset of one number."""
        is_number = dataset.size == 1 and dataset.dtype.kind in "iuf"
        return _number(dataset[()]) if is_number else None

    def numbers(self, dataset: Any, most: int) -> NDArray[Any] | None:
        """A dataset of one dimension with at most so many numbers."""
        if len(dataset.shape) != 1 or dataset.size > most or dataset.dtype.kind not in "iuf":
            return None
        content: NDArray[Any] = dataset[()]
        return content

    def texts(self, dataset: Any, rows: list[int]) -> list[str]:
        """Some rows of a column of texts or whole numbers; one that is too long is empty."""
        if len(dataset.shape) != 1 or dataset.dtype.itemsize > _MOST_TEXT:
            return []
        found, left = [], _MOST_TEXT
        for row in rows:
            value = dataset[row]
            if isinstance(value, np.integer):
                value = str(value)
            left -= len(value) if isinstance(value, bytes | str) else 0
            if left < 0:
                raise self.damaged("has more text in one column than a table of electrodes holds")
            found.append(_text(value))
        return found

    def close(self) -> None:
        """Close the file; closing twice is harmless."""
        self._checked.close()


def _attribute(node: Any, name: str) -> Any:
    """The value of an attribute that holds a single one."""
    if name not in node.attrs or math.prod(node.attrs.get_id(name).shape or ()) != 1:
        return None
    return node.attrs[name]


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        value = decode(value[: _LONGEST_TEXT + 1])
    if not isinstance(value, str) or len(value) > _LONGEST_TEXT:
        return ""
    return value.encode("utf-8", "replace").decode().strip("\0 \t\r\n")


def _number(value: Any) -> Fraction | None:
    if value is None:
        return None
    content = np.asarray(value)
    if content.size != 1 or content.dtype.kind not in "iuf":
        return None
    return exact(content.reshape(-1)[0])
