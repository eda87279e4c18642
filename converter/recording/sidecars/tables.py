"""Tab-separated sidecars (channels.tsv, events.tsv, electrodes.tsv) as columns and rows."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field

from .text import decode

MISSING = "n/a"
MAX_BYTES = 256 * 2**20
# A short row is padded to the header, so a hostile header could multiply a file's size.
MAX_CELLS = 20_000_000
MAX_COLUMNS = 10_000

_LINE_END = re.compile(r"\r\n?")

Splitter = Callable[[str], list[str]]


@dataclass(frozen=True, slots=True)
class Table:
    """Cells without surrounding blanks and quotes; every row is as long as `columns`.

    Column names are distinct and not empty. `warnings` say what had to be bent to read it.
    """

    columns: list[str]
    rows: list[list[str]]
    warnings: list[str] = field(default_factory=list)

    def find(self, name: str) -> int | None:
        """Index of the column `name`: exactly, else the first that differs in case only."""
        if name in self.columns:
            return self.columns.index(name)
        folded = name.casefold()
        return next((i for i, c in enumerate(self.columns) if c.casefold() == folded), None)

    def column(self, name: str) -> list[str] | None:
        """Cells of the column `name`, found as by `find`; None when there is none."""
        index = self.find(name)
        return None if index is None else [row[index] for row in self.rows]


def is_missing(cell: str) -> bool:
    """Whether a cell holds no value: blank, or BIDS's `n/a` in any case."""
    return not cell or cell.casefold() == MISSING


def parse_number(cell: str) -> float | None:
    """The finite number of a cell; a lone comma is a decimal comma. None when it is none."""
    if not cell.isascii() or "_" in cell:
        return None
    if cell.count(",") == 1 and "." not in cell:
        cell = cell.replace(",", ".")
    try:
        value = float(cell)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def read_table(raw: bytes) -> Table:
    """The table of a .tsv file in any encoding; its first line that is not blank is the header.

    Only CR, LF and CRLF end a line. Blank lines are skipped, short rows padded with `n/a`,
    long rows cut. A file that separates by commas, semicolons or blanks instead of tabs is
    read with a warning. Raises ValueError with a sentence for a file above MAX_BYTES, or one
    of more than MAX_CELLS cells or MAX_COLUMNS columns.
    """
    if len(raw) > MAX_BYTES:
        raise ValueError(f"{len(raw)} bytes are more than the {MAX_BYTES} a table may have")
    text, warning = decode(raw)
    warnings = [] if warning is None else [warning]
    text = text.replace("\0", "").lstrip("\ufeff")
    text = _LINE_END.sub("\n", text) if "\r" in text else text
    if text.count("\n") >= MAX_CELLS:
        raise ValueError(f"more than the {MAX_CELLS} lines that a table may have")
    lines = [line for line in text.split("\n") if line.strip()]
    if not lines:
        return Table([], [], warnings)
    split = _splitter(lines[0], lines[1] if len(lines) > 1 else None, warnings)
    names = split(lines[0])
    if len(names) > MAX_COLUMNS:
        raise ValueError(
            f"{len(names)} columns are more than the {MAX_COLUMNS} that a table may have"
        )
    header = [cell.strip() for cell in _unquoted(names)]
    if len(lines) * len(header) > MAX_CELLS:
        raise ValueError(
            f"{len(lines)} lines of {len(header)} columns are more than the {MAX_CELLS} cells "
            "that a table may have"
        )
    rows = _rows(lines[1:], len(header), split, warnings)
    while header and not header[-1] and all(is_missing(row[-1]) for row in rows):
        header.pop()
        for row in rows:
            row.pop()
    return Table(_distinct(header, warnings), rows, warnings)


def _rows(lines: list[str], width: int, split: Splitter, warnings: list[str]) -> list[list[str]]:
    rows = []
    cut = 0
    for line in lines:
        cells = split(line)
        if '"' in line:
            if len(cells) > width:
                cells = _quoted(line, width) or cells
            cells = _unquoted(cells)
        cells = [cell.strip() for cell in cells]
        if len(cells) < width:
            cells.extend([MISSING] * (width - len(cells)))
        elif len(cells) > width:
            cut += any(cells[width:])
            del cells[width:]
        if any(cells):
            rows.append(cells)
    if cut:
        warnings.append(f"{cut} rows have more cells than the {width} of the header, cut")
    return rows


def _unquoted(cells: list[str]) -> list[str]:
    """Cells without the quotes around them, doubled quotes undone."""
    return [
        cell[1:-1].replace('""', '"') if len(cell) > 1 and cell[0] == cell[-1] == '"' else cell
        for cell in map(str.strip, cells)
    ]


def _quoted(line: str, width: int) -> list[str] | None:
    """Cells of a line in which quotes protect tabs, when that gives `width` cells."""
    try:
        cells = next(csv.reader([line], delimiter="\t"))
    except (csv.Error, StopIteration):
        return None
    return cells if len(cells) == width else None


def _splitter(header: str, first: str | None, warnings: list[str]) -> Splitter:
    """How to cut a line into cells, from the header and the first row."""
    if "\t" in header:
        return _by_tabs
    delimiter = max(",;", key=header.count)
    if delimiter in header and (first is None or delimiter in first):
        warnings.append(f"separated by {delimiter!r} instead of tabs")
        return lambda line: _by_delimiter(line, delimiter)
    # A lone column may have a blank in its name: only rows of as many words prove columns.
    width = len(header.split())
    if width > 1 and first is not None and "\t" not in first and len(first.split()) == width:
        warnings.append("separated by blanks instead of tabs")
        return str.split
    return _by_tabs


def _by_tabs(line: str) -> list[str]:
    return line.split("\t")


def _by_delimiter(line: str, delimiter: str) -> list[str]:
    try:
        return next(csv.reader([line], delimiter=delimiter))
    except (csv.Error, StopIteration):
        return line.split(delimiter)


def _distinct(header: list[str], warnings: list[str]) -> list[str]:
    """Column names, an empty one named after its place, a repeated one numbered from 2."""
    named = [name or f"column_{place}" for place, name in enumerate(header, 1)]
    taken, result = set(named), []
    seen: dict[str, int] = {}
    for name in named:
        seen[name] = seen.get(name, 0) + 1
        unique = name
        while seen[name] > 1 and (unique := f"{name}_{seen[name]}") in taken:
            seen[name] += 1
        taken.add(unique)
        result.append(unique)
    if result != header:
        warnings.append("duplicate or empty column names, made distinct")
    return result
