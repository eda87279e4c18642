"""JSON sidecars: tolerant reading, and merging by BIDS inheritance."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .tables import parse_number
from .text import decode

MAX_BYTES = 4 * 2**20
MAX_DEPTH = 100

# Possessive repeats and alternatives that reach the end of the text keep these linear.
_STRING = r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?'
_COMMENT = re.compile(rf"({_STRING})|//[^\n]*+|/\*(?:(?!\*/).)*+(?:\*/)?", re.DOTALL)
_TRAILING_COMMA = re.compile(rf"({_STRING})|,(?=\s*+[\]}}])", re.DOTALL)
_BRACKETS = re.compile(rf"{_STRING}|([\[{{])|([\]}}])", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Metadata:
    """Merged fields, and what of the documents could not be used."""

    values: dict[str, Any]
    warnings: list[str] = field(default_factory=list)


def merge_json(documents: Iterable[bytes]) -> Metadata:
    """Fields of JSON documents given from the least to the most specific; the last wins.

    Accepts any encoding of `decode`, comments, trailing commas, duplicated keys (the last
    wins) and raw control characters. NaN and infinite numbers are read as null, and a null
    declares nothing. A document that is no JSON object, is nested deeper than MAX_DEPTH or
    larger than MAX_BYTES adds a warning instead of fields.
    """
    values: dict[str, Any] = {}
    warnings = []
    for document in documents:
        try:
            found = read_json(document)
        except ValueError as error:
            warnings.append(str(error))
        else:
            values |= {name: value for name, value in found.items() if value is not None}
    return Metadata(values, warnings)


def read_json(raw: bytes) -> dict[str, Any]:
    """The object of one JSON sidecar; ValueError with a sentence where there is none."""
    if len(raw) > MAX_BYTES:
        raise ValueError(f"a JSON sidecar of {len(raw)} bytes is ignored, at most {MAX_BYTES}")
    text = decode(raw)[0].strip("\ufeff\0 \t\r\n")
    try:
        value = _loads(text)
    except json.JSONDecodeError:
        plain = _TRAILING_COMMA.sub(r"\1", _COMMENT.sub(r"\1", text))
        try:
            value = _loads(plain)
        except json.JSONDecodeError as error:
            raise ValueError(f"a JSON sidecar is ignored, not valid: {error}") from None
    if not isinstance(value, dict):
        raise ValueError(f"a JSON sidecar is ignored, {type(value).__name__} instead of an object")
    return value


def power_line_frequency(metadata: Mapping[str, Any]) -> float | None:
    """`PowerLineFrequency` in Hz, a number or the text of one; None when not declared."""
    value = metadata.get("PowerLineFrequency")
    if isinstance(value, str):
        value = parse_number(value.strip())
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        frequency = float(value)
    except OverflowError:
        return None
    return frequency if math.isfinite(frequency) and frequency > 0 else None


def _loads(text: str) -> Any:
    if _too_deep(text):
        raise ValueError(f"a JSON sidecar is ignored, nested deeper than {MAX_DEPTH} levels")
    return json.loads(
        text,
        strict=False,
        parse_constant=lambda _: None,
        parse_float=_finite,
        parse_int=_integer,
    )


def _too_deep(text: str) -> bool:
    """Whether brackets outside strings are nested deeper than MAX_DEPTH."""
    if text.count("{") + text.count("[") <= MAX_DEPTH:
        return False
    depth = 0
    for match in _BRACKETS.finditer(text):
        if match.lastindex is not None:
            depth += 1 if match.lastindex == 1 else -1
        if depth > MAX_DEPTH:
            return True
    return False


def _finite(digits: str) -> float | None:
    value = float(digits)
    return value if math.isfinite(value) else None


def _integer(digits: str) -> int | None:
    # Python refuses to parse integers of thousands of digits.
    return int(digits) if len(digits) <= 1000 else None
