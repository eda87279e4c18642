"""Bytes of a text sidecar as text, whatever encoding its author's software wrote."""

from __future__ import annotations

import codecs

# UTF-32 first: its little-endian mark starts with that of UTF-16.
_MARKS = (
    (codecs.BOM_UTF8, "utf-8", "UTF-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le", "UTF-32"),
    (codecs.BOM_UTF32_BE, "utf-32-be", "UTF-32"),
    (codecs.BOM_UTF16_LE, "utf-16-le", "UTF-16"),
    (codecs.BOM_UTF16_BE, "utf-16-be", "UTF-16"),
)
_PROBE_BYTES = 4096


def decode(raw: bytes) -> tuple[str, str | None]:
    """The text of `raw` and, where it is not the UTF-8 that BIDS asks for, a warning.

    Byte order marks decide first, then the pattern of NUL bytes that UTF-16 leaves in ASCII
    text, then what is valid: UTF-8, Windows-1252, Latin-1. Never fails; the text holds no
    byte order mark at its start and no lone surrogate.
    """
    for mark, codec, name in _MARKS:
        if raw.startswith(mark):
            return _marked(raw[len(mark) :], codec, name)
    if (utf16 := _utf16_without_mark(raw)) is not None:
        return _marked(raw, utf16, "UTF-16")
    try:
        return raw.decode("utf-8"), None
    except UnicodeDecodeError:
        pass
    try:
        return raw.decode("cp1252"), "Windows-1252 instead of UTF-8"
    except UnicodeDecodeError:
        return raw.decode("latin-1"), "Latin-1 instead of UTF-8"


def _marked(raw: bytes, codec: str, name: str) -> tuple[str, str | None]:
    try:
        text, warning = raw.decode(codec), None if name == "UTF-8" else f"{name} instead of UTF-8"
    except UnicodeDecodeError as error:
        text = raw.decode(codec, errors="replace")
        warning = f"{name}, but invalid at byte {error.start}, bad characters replaced"
    return text.lstrip("\ufeff"), warning


def _utf16_without_mark(raw: bytes) -> str | None:
    """The UTF-16 codec whose NULs lie in one half of the byte pairs only, if it is one."""
    probe = raw[: min(_PROBE_BYTES, len(raw) // 2 * 2)]
    pairs = len(probe) // 2
    even, odd = probe[0::2].count(0), probe[1::2].count(0)
    if odd > pairs / 2 and even == 0:
        return "utf-16-le"
    if even > pairs / 2 and odd == 0:
        return "utf-16-be"
    return None
