"""The data file that a header refers to, looked for in the header's own directory only."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from converter.contract.codes import FailureCode, RecordingError

_LEAVES_DIRECTORY = re.compile(r"[/\\\0]|^[A-Za-z]:|^\.{0,2}$")


def same_stem(header: Path, suffixes: Iterable[str]) -> Path | None:
    """The first existing sibling of `header` that differs from it in the suffix alone.

    It comes before the name inside the header, which a renamed dataset leaves stale.
    """
    for suffix in suffixes:
        for spelling in (suffix, suffix.lower(), suffix.upper()):
            sibling = header.with_suffix(spelling)
            if sibling != header and sibling.is_file():
                return sibling
    return None


def is_bare(reference: str) -> bool:
    """Whether `reference` is a file name without any directory, drive or `..`."""
    return _LEAVES_DIRECTORY.search(reference) is None


def refuse_directories(header: Path, reference: str) -> None:
    """Raise FILE_READ_ERROR unless `reference` is bare: no header chooses what is published."""
    if not is_bare(reference):
        raise RecordingError(
            FailureCode.FILE_READ_ERROR,
            f"{header.name} refers to a file by a path, which is refused: "
            "the name of a file in the same directory was expected.",
        )


def named_file(header: Path, reference: str) -> Path:
    """The file called `reference` beside `header`; CORRUPT_OR_TRUNCATED when there is none.

    The error does not quote the name: recorders ask for one, and are given the patient's.
    """
    refuse_directories(header, reference)
    named = header.with_name(reference)
    try:
        found = named.is_file()
    except (OSError, ValueError):  # longer than a file name may be, or not encodable
        found = False
    if not found:
        raise RecordingError(
            FailureCode.CORRUPT_OR_TRUNCATED,
            f"{header.name} names a file of samples, and neither that file nor one of the "
            "header's own stem is beside it.",
        )
    return named
