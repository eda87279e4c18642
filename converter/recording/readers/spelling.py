"""How headers spell text, numbers, physical dimensions and channel types."""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache

from converter.recording.units import parse_unit
from converter.recording.units import spelling as mended

# Powers of ten that turn a voltage into volts.
VOLT_EXPONENTS = {"V": 0, "mV": -3, "uV": -6, "nV": -9, "pV": -12, "kV": 3}
# The micro sign, the Greek mu, and what is left of them where they were decoded wrongly: Shift-JIS
# read as Latin-1, a replacement character and its own UTF-8 bytes.
_MICRO = ("µ", "μ", "\x83Ê", "\ufffd", "ï¿½")
# Code page 437 and 850 have the micro sign at 0xE6; "?" stands for a character that was lost, and
# some software writes U. Before a V nothing else is plausible.
_MICRO_BEFORE_VOLT = ("æ", "?", "U")

_LONGEST_NUMBER = 100  # characters
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,2})?", re.ASCII)

DEFAULT_TYPES = {"eeg": "EEG", "ieeg": "SEEG", "emg": "EMG", "meg": "MISC"}


def decode(raw: bytes) -> str:
    """Text of a header field: UTF-8 where it is valid, else Latin-1; NULs and spaces trimmed."""
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        text = raw.decode("latin-1")
    return text.strip("\0 \t\r\n")


@lru_cache(1024)  # the channels of a file mostly share their ranges
def number(text: str) -> Fraction | None:
    """The exact value of a decimal, with a point or a comma; None when it is none.

    At most two digits of exponent, so that a few characters cannot claim gigabytes, and at
    most _LONGEST_NUMBER characters: any such number is a finite float.
    """
    text = text.strip("\0 \t").replace(",", ".")
    is_one = len(text) <= _LONGEST_NUMBER and _NUMBER.fullmatch(text)
    return Fraction(text) if is_one else None


@lru_cache(1024)  # so do they their units
def unit(text: str) -> str:
    """A physical dimension with its micro sign as `u`, a voltage as BIDS spells it.

    `n/a` when there is none.
    """
    text = mended(text.strip("\0 \t[]"))
    for sign in _MICRO:
        if text.startswith(sign) and len(text) > len(sign):
            text = "u" + text[len(sign) :]
            break
    if text[:1] in _MICRO_BEFORE_VOLT and text[1:] in ("V", "v"):
        text = "uV"
    found = parse_unit(text)
    return str(found) if found is not None and found.quantity == "V" else text or "n/a"


def known_unit(text: str) -> str:
    """A physical dimension of a long field, which could hold anything else: a unit or `n/a`."""
    found = unit(text)
    return "n/a" if parse_unit(found) is None else found


def default_type(modality: str, unit: str) -> str:
    """BIDS type of a channel of which only the unit is known; other than voltages are MISC."""
    if unit == "n/a" or unit in VOLT_EXPONENTS:
        return DEFAULT_TYPES.get(modality, "MISC")
    return "MISC"
