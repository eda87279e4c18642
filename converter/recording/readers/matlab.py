"""What a reader asks of a MATLAB file, whatever its version."""

from __future__ import annotations

from fractions import Fraction
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

MAX_TEXT = 1 << 16  # characters of one text
MAX_CELLS = 1 << 16


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


def well_formed(text: str) -> str:
    """UTF-16 code units as characters; a surrogate without its other half is replaced."""
    units = text.encode("utf-16-le", "surrogatepass")
    return units.decode("utf-16-le", "replace").strip("\0 ")


def number_text(value: Any) -> str:
    """A scalar as MATLAB would print it; empty for NaN and infinity."""
    number = exact(value)
    return "" if number is None else f"{float(number):g}"
