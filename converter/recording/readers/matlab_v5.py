"""MATLAB files of version 5 to 7: tagged data elements, each variable deflated or not.

Only what is asked for is read; anything else, objects and function handles among it, is
skipped by its byte count. Layout after MathWorks, "MAT-File Format", version 5.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from converter.contract.codes import FailureCode, RecordingError
from converter.recording.readers.binary import SampleFile
from converter.recording.readers.claims import check_unpacked
from converter.recording.readers.matlab import (
    MAX_CELLS,
    MAX_TEXT,
    exact,
    number_text,
    well_formed,
)
from converter.recording.readers.matlab_v5_bytes import (
    ArraySamples,
    FileSamples,
    Inflated,
    InflatedSamples,
    Plain,
    Stream,
    damaged,
)

HEADER_BYTES = 128
KEPT_BYTES = 64 << 20  # deflated arrays of up to this size are kept when they come by
MAX_DEPTH = 8  # a cell in a struct array in a struct is three deep

_MATRIX, _COMPRESSED, _UTF8 = 14, 15, 16
_NUMBERS = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8"}
_NUMBERS |= {12: "i8", 13: "u8"}
_UNITS = {1: "u1", 2: "u1", 4: "u2", 17: "u2", 6: "u4", 18: "u4"}  # code units of a char array
_CELL, _STRUCT, _OBJECT, _CHAR = 1, 2, 3, 4
_NUMERIC_CLASSES = range(6, 16)
_COMPLEX = 0x800


@dataclass(frozen=True, slots=True)
class _Variable:
    """Where a variable's own bytes are, and whether they are deflated."""

    offset: int
    size: int
    deflated: bool


@dataclass(slots=True)
class _Array:
    """An array; one of `rows`, `scalar`, `cells` and `columns` is filled by its class.

    `number_type` and `position` tell where the values of a numeric array are; `values` holds
    them if they had to be inflated and are few enough.
    """

    shape: tuple[int, ...] = (0, 0)
    rows: list[str] = field(default_factory=list)
    scalar: Any = None
    cells: list[_Array] = field(default_factory=list)
    columns: dict[str, list[_Array]] = field(default_factory=dict)
    number_type: str = ""
    position: int = 0
    values: NDArray[Any] | None = None
    variable: _Variable | None = None

    def texts(self) -> list[str]:
        """As text: rows of a char array, each cell of a cell array, or a number."""
        if self.cells:
            return [next(iter(cell.texts()), "") for cell in self.cells if not cell.cells]
        return self.rows if self.scalar is None else [number_text(self.scalar)]


class _Parser:
    """Reads the arrays of one variable; of structs the fields in `wanted` only."""

    def __init__(
        self, name: str, stream: Stream, order: str, variable: _Variable, wanted: Collection[str]
    ) -> None:
        self._name = name
        self._stream = stream
        self._order = order
        self._variable = variable
        self._wanted = wanted
        self._room = KEPT_BYTES

    def _tag(self) -> tuple[int, int, bytes]:
        """Type, byte count and, of a small element, the data."""
        raw = self._stream.read(8)
        first, second = np.frombuffer(raw, self._order + "u4").tolist()
        if first >> 16:
            return first & 0xFFFF, first >> 16, raw[4 : 4 + min(4, first >> 16)]
        return first, second, b""

    def _element(self) -> tuple[int, bytes]:
        """Type and data of an element that is small by nature."""
        kind, size, data = self._tag()
        if data or size == 0:
            return kind, data
        if size > 4 * MAX_TEXT:
            raise damaged(self._name)
        data = self._stream.read(size)
        self._stream.skip(-size % 8)
        return kind, data

    def _head(self) -> tuple[int, tuple[int, ...], str]:
        """Class (0 for complex numbers), dimensions and name of a matrix."""
        flags = np.frombuffer(self._element()[1], self._order + "u4")
        shape = np.frombuffer(self._element()[1], self._order + "i4").tolist()
        name = self._element()[1].decode("latin-1").rstrip("\0")
        if flags.size == 0 or len(shape) < 2 or min(shape) < 0:
            raise damaged(self._name)
        kind = 0 if int(flags[0]) & _COMPLEX else int(flags[0]) & 0xFF
        return kind, tuple(shape), name

    def variable(self) -> tuple[str, _Array | None]:
        """Name of the matrix and, where its name is wanted, the matrix itself."""
        kind, size, _ = self._tag()
        if kind != _MATRIX or size == 0:
            return "", None
        matrix_class, shape, name = self._head()
        if name not in self._wanted:
            return name, None
        return name, self._body(matrix_class, shape, 0)

    def _matrix(self, depth: int) -> _Array:
        """The next matrix, as nested in a cell or struct; its bytes are consumed exactly."""
        end = self._next_end()
        if end == self._stream.position:
            return _Array()
        kind, shape, _ = self._head()
        array = self._body(kind, shape, depth)
        if self._stream.position > end:
            raise damaged(self._name)
        self._stream.skip(end - self._stream.position)
        return array

    def _next_end(self) -> int:
        kind, size, small = self._tag()
        if kind != _MATRIX or small:
            raise damaged(self._name)
        return self._stream.position + size

    def _skip_matrix(self) -> None:
        self._stream.skip(self._next_end() - self._stream.position)

    def _body(self, kind: int, shape: tuple[int, ...], depth: int) -> _Array:
        array = _Array(shape, variable=self._variable)
        count = math.prod(shape)
        if depth < MAX_DEPTH and count <= MAX_CELLS:
            if kind == _CHAR:
                array.rows = self._rows(shape)
            elif kind == _CELL:
                array.cells = [self._matrix(depth + 1) for _ in range(count)]
            elif kind in (_STRUCT, _OBJECT):
                self._fill_columns(array, kind, count, depth)
        if kind in _NUMERIC_CLASSES:
            self._locate_numbers(array, count)
        return array

    def _rows(self, shape: tuple[int, ...]) -> list[str]:
        kind, data = self._element()
        if kind == _UTF8:
            text = data.decode("utf-8", "replace")
        elif kind in _UNITS:
            units = np.frombuffer(data, self._order + _UNITS[kind]).tolist()
            text = "".join(chr(unit) if unit < 0x110000 else "\ufffd" for unit in units)
        else:
            raise damaged(self._name)
        n_rows = shape[0] if 0 < shape[0] * shape[1] == len(text) else 1
        return [well_formed(text[row::n_rows]) for row in range(n_rows)]

    def _fill_columns(self, array: _Array, kind: int, count: int, depth: int) -> None:
        if kind == _OBJECT:
            self._element()  # the name of its class
        width = np.frombuffer(self._element()[1], self._order + "i4")
        names = self._element()[1]
        if width.size != 1 or width[0] < 1:
            raise damaged(self._name)
        step = int(width[0])
        fields = [
            names[at : at + step].split(b"\0")[0].decode("latin-1")
            for at in range(0, len(names), step)
        ]
        for _ in range(count):
            for name in fields:
                if name in self._wanted:
                    array.columns.setdefault(name, []).append(self._matrix(depth + 1))
                else:
                    self._skip_matrix()

    def _locate_numbers(self, array: _Array, count: int) -> None:
        kind, size, small = self._tag()
        if count == 0 or kind not in _NUMBERS:
            return
        dtype = np.dtype(self._order + _NUMBERS[kind])
        if size != count * dtype.itemsize:
            raise damaged(self._name)
        array.number_type = dtype.str
        array.position = self._stream.position - (4 if small else 0)
        if count == 1:
            array.scalar = np.frombuffer(small or self._stream.read(size), dtype)[0]
        elif isinstance(self._stream, Inflated) and not small and size <= self._room:
            self._room -= size
            array.values = np.empty(count, dtype)
            self._stream.fill(array.values.view(np.uint8))


class Mat5File:
    """The fields of the variable `struct`, or the variables of a file that has none.

    `wanted` names the fields and subfields that will be asked for. See MatlabFile.
    """

    def __init__(self, path: Path, struct: str, wanted: Collection[str]) -> None:
        self._file = SampleFile(path)
        try:
            self._order = self._byte_order()
            found = self._variables({struct, *wanted})
        except BaseException:
            self.close()
            raise
        self._fields = found
        if struct in found:
            columns = found[struct].columns
            sets = max(map(len, columns.values()), default=0)
            if sets > 1:
                self.close()
                raise RecordingError(
                    FailureCode.FILE_READ_ERROR,
                    f"{path.name} has {sets} data sets in {struct}, one was expected.",
                )
            self._fields = {name: column[0] for name, column in columns.items()}

    def _byte_order(self) -> str:
        mark = self._file.bytes(HEADER_BYTES - 2, 2)
        if mark not in (b"IM", b"MI"):
            raise RecordingError(
                FailureCode.CORRUPT_OR_TRUNCATED,
                f"{self._file.name} is no MATLAB file of version 5 or 7.3.",
            )
        return "<" if mark == b"IM" else ">"

    def _variables(self, wanted: Collection[str]) -> dict[str, _Array]:
        found: dict[str, _Array] = {}
        at = HEADER_BYTES
        while at + 8 <= self._file.size:
            kind, size = np.frombuffer(self._file.bytes(at, 8), self._order + "u4").tolist()
            if at + 8 + size > self._file.size:
                raise damaged(self._file.name)
            if kind in (_MATRIX, _COMPRESSED):
                variable = _Variable(at, size + 8, kind == _COMPRESSED)
                parser = _Parser(
                    self._file.name, self._stream(variable), self._order, variable, wanted
                )
                name, array = parser.variable()
                if array is not None:
                    found.setdefault(name, array)
            at += 8 + size
        return found

    def _stream(self, variable: _Variable) -> Plain | Inflated:
        if variable.deflated:
            return self._inflated(variable)
        return Plain(self._file, variable.offset)

    def _inflated(self, variable: _Variable) -> Inflated:
        return Inflated(self._file, variable.offset + 8, variable.size - 8)

    def text(self, name: str) -> str | None:
        """See MatlabFile."""
        array = self._fields.get(name)
        return array.rows[0] if array and array.rows else None

    def number(self, name: str) -> Fraction | None:
        """See MatlabFile."""
        array = self._fields.get(name)
        return exact(array.scalar) if array and array.scalar is not None else None

    def column(self, name: str, field: str) -> list[str]:
        """See MatlabFile."""
        array = self._fields.get(name)
        cells = array.columns.get(field, []) if array else []
        if len(cells) == 1:
            return cells[0].texts()
        return [next(iter(cell.texts()), "") for cell in cells]

    def samples(self, name: str) -> ArraySamples | InflatedSamples | FileSamples | None:
        """See MatlabFile."""
        array = self._fields.get(name)
        if array is None or not array.number_type or array.variable is None:
            return None
        variable, shape = array.variable, array.shape
        size = math.prod(shape) * np.dtype(array.number_type).itemsize
        if variable.deflated:
            check_unpacked(self._file.name, variable.size, size)
        elif size > variable.size:
            raise damaged(self._file.name)
        if array.values is not None:
            return ArraySamples(array.values.reshape(shape, order="F"))
        if not variable.deflated:
            return FileSamples(self._file, array.position, array.number_type, shape)
        return InflatedSamples(
            lambda: self._inflated(variable), array.position, array.number_type, shape
        )

    def close(self) -> None:
        """Close the file; closing twice is harmless."""
        self._file.close()
