"""Units of measurement as BIDS spells them, and the factor from one to another.

Source of the prefixes and symbols: the BIDS specification, appendix "Units", and the
column `units` of channels.tsv.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from functools import lru_cache

# Symbol, name, power of ten.
_PREFIXES = (
    ("Y", "yotta", 24),
    ("Z", "zetta", 21),
    ("E", "exa", 18),
    ("P", "peta", 15),
    ("T", "tera", 12),
    ("G", "giga", 9),
    ("M", "mega", 6),
    ("k", "kilo", 3),
    ("h", "hecto", 2),
    ("da", "deca", 1),
    ("d", "deci", -1),
    ("c", "centi", -2),
    ("m", "milli", -3),
    ("u", "micro", -6),
    ("n", "nano", -9),
    ("p", "pico", -12),
    ("f", "femto", -15),
    ("a", "atto", -18),
    ("z", "zepto", -21),
    ("y", "yocto", -24),
)
_EXPONENTS = {"": 0} | {symbol: exponent for symbol, _, exponent in _PREFIXES}
_PREFIX_NAMES = {name: symbol for symbol, name, _ in _PREFIXES}
# Base -> the base it is measured in and the power of ten to it, where it is not its own.
_MEASURED_IN = {"T/cm": ("T/m", 2), "T/mm": ("T/m", 3)}


def _by_spelling(spellings: dict[str, tuple[str, ...]]) -> dict[str, str]:
    return {text: base for base, texts in spellings.items() for text in texts}


_PER_SECOND = ("/s", "/sec")
_PER_SECOND_SQUARED = ("/s^2", "/s2", "/s/s", "/s**2", "/sec^2", "/sec2")


def _rates(symbol: str, *spellings: str) -> dict[str, tuple[str, ...]]:
    """A quantity's first and second derivative by time."""
    return {
        f"{symbol}/s": tuple(name + per for name in spellings for per in _PER_SECOND),
        f"{symbol}/s^2": tuple(name + per for name in spellings for per in _PER_SECOND_SQUARED),
    }


# Symbols that take a prefix: all of the specification's, and what is measured in them by time or
# by length. They are case-sensitive, but a lone "v" can mean nothing but volt.
_PREFIXED = _by_spelling(
    {base: (base,) for base in ("m", "g", "s", "A", "K", "mol", "cd", "rad", "sr", "Hz", "N")}
    | {base: (base,) for base in ("Pa", "J", "W", "C", "F", "S", "Wb", "T", "H", "lm", "lx")}
    | {base: (base,) for base in ("Bq", "Gy", "Sv", "kat", "deg")}
    | {base: (base,) for base in ("T/m", "T/cm", "T/mm")}
    | {"V": ("V", "v"), "Ohm": ("Ω", "Ohm", "ohm", "OHM"), "L": ("L", "l")}
    | {"Am": ("Am", "A.m", "A*m", "A·m")}
    | _rates("m", "m")
    | _rates("rad", "rad")
    | _rates("deg", "deg")
)
_UNPREFIXED = _by_spelling(
    {
        "deg": ("°",),
        "°C": ("°C", "oC", "degC", "C°"),
        "Hz": ("hz", "HZ"),
        "dB": ("dB", "db", "DB"),
    }
    | _rates("deg", "°")
)
# Whole words in any case, with or without a plural s, after a prefix's name or none.
_NAMES = _by_spelling(
    {
        "V": ("volt",),
        "T": ("tesla",),
        "S": ("siemens",),
        "Ohm": ("ohm",),
        "g": ("gram",),
        "m": ("meter", "metre"),
        "L": ("liter", "litre"),
        "rad": ("radian",),
        "sr": ("steradian",),
        "deg": ("degree",),
        "Pa": ("pascal",),
        "lx": ("lux",),
        "lm": ("lumen",),
        "cd": ("candela",),
        "Hz": ("hertz",),
        "s": ("second", "sec"),
        "N": ("newton",),
        "J": ("joule",),
        "W": ("watt",),
        "A": ("ampere", "amp"),
        "K": ("kelvin",),
        "mol": ("mole",),
        "C": ("coulomb",),
        "F": ("farad",),
        "H": ("henry",),
        "Wb": ("weber",),
        "Bq": ("becquerel",),
        "Gy": ("gray",),
        "Sv": ("sievert",),
        "kat": ("katal",),
    }
)
_PHRASES = _by_spelling(
    {
        "°C": ("celsius", "degree celsius", "degrees celsius", "deg c", "deg. c"),
        "a.u.": (
            "a.u.",
            "a.u",
            "au",
            "arb. unit",
            "arb. units",
            "arbitrary",
            "arbitrary unit",
            "arbitrary units",
        ),
        "%": ("%", "percent", "per cent", "pct"),
        "bpm": ("bpm", "beats per minute", "beats/min"),
        "dB": ("decibel", "decibels"),
        "pixel": ("pixel", "pixels", "px"),
        "n/a": ("n/a",),
    }
)
# "C" is the coulomb; software of amplifiers means the degree by it.
_SAME = frozenset({("C", "°C"), ("°C", "C")})
# UTF-8 read as Windows-1252 or Latin-1.
_MANGLED = {"Âµ": "µ", "Î¼": "μ", "Î©": "Ω", "â„¦": "Ω", "Â°": "°", "Â²": "²"}
_WORD = re.compile(
    rf"(?P<word>{'|'.join(_PREFIX_NAMES)})?(?P<base>{'|'.join(_NAMES)})s?", re.IGNORECASE | re.ASCII
)
_WORD_AND_V = re.compile(rf"(?P<word>{'|'.join(_PREFIX_NAMES)})v", re.IGNORECASE | re.ASCII)
_SYMBOL_AND_WORD = re.compile(
    rf"(?P<prefix>{'|'.join(filter(None, _EXPONENTS))})(?P<base>(?i:{'|'.join(_NAMES)}))s?",
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class Unit:
    """A decimal prefix (`u` for micro, `` for none) and a base, both in one spelling."""

    prefix: str
    base: str

    @property
    def quantity(self) -> str:
        """The base that values of this unit can be measured in: T/m for fT/cm."""
        return _MEASURED_IN.get(self.base, (self.base, 0))[0]

    @property
    def exponent(self) -> int:
        """The power of ten from this unit to `quantity`."""
        return _EXPONENTS[self.prefix] + _MEASURED_IN.get(self.base, ("", 0))[1]

    def __str__(self) -> str:
        return self.prefix + self.base


@lru_cache(maxsize=1024)  # channels mostly have the same
def spelling(text: str) -> str:
    """`text` without surrounding blanks and with wrongly decoded signs mended."""
    text = text.strip()
    for wrong, right in _MANGLED.items():
        text = text.replace(wrong, right)
    return text


@lru_cache(maxsize=1024)
def parse_unit(text: str) -> Unit | None:
    """The unit that `text` spells; None when it spells none.

    Prefixes and symbols are case-sensitive (mV is not MV), names are not (`Microvolts`);
    the micro sign may be U+00B5, U+03BC or u, ohm U+2126, U+03A9 or a name. A lost character
    (`?V`) is not guessed.
    """
    if len(text) > 64:
        return None
    # Compatibility forms make one micro sign, one ohm sign and plain digits.
    text = unicodedata.normalize("NFKC", spelling(text))
    text = re.sub(r"\s*/\s*", "/", text)
    return _symbol(text) or _name(text)


@lru_cache(maxsize=1024)
def conversion(from_unit: str, to_unit: str) -> float | None:
    """The factor that turns values in `from_unit` into values in `to_unit`.

    A power of ten, correctly rounded; None when one of them is no known unit or they
    measure different things. A lone C may be a degree Celsius.
    """
    source, target = parse_unit(from_unit), parse_unit(to_unit)
    if source is None or target is None:
        return None
    if (str(source), str(target)) in _SAME:
        return 1.0
    if source.quantity != target.quantity:
        return None
    return float(f"1e{source.exponent - target.exponent}")


def _symbol(text: str) -> Unit | None:
    if text in _UNPREFIXED:
        return Unit("", _UNPREFIXED[text])
    if text in _PREFIXED:
        return Unit("", _PREFIXED[text])
    for length in (1, 2):
        prefix, base = text[:length].replace("μ", "u"), text[length:]
        if prefix in _EXPONENTS and base in _PREFIXED:
            return Unit(prefix, _PREFIXED[base])
    return None


def _name(text: str) -> Unit | None:
    if text.casefold() in _PHRASES:
        return Unit("", _PHRASES[text.casefold()])
    if match := _WORD.fullmatch(text):
        word = match["word"]
        return Unit(_PREFIX_NAMES[word.lower()] if word else "", _NAMES[match["base"].lower()])
    if match := _WORD_AND_V.fullmatch(text):
        return Unit(_PREFIX_NAMES[match["word"].lower()], "V")
    if match := _SYMBOL_AND_WORD.fullmatch(text.replace("μ", "u")):
        return Unit(match["prefix"], _NAMES[match["base"].lower()])
    return None
