from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from converter.recording.units import Unit, conversion, parse_unit

POWERS = {
    **{"Y": 24, "Z": 21, "E": 18, "P": 15, "T": 12, "G": 9, "M": 6, "k": 3, "h": 2, "da": 1},
    **{"": 0, "d": -1, "c": -2, "m": -3, "µ": -6, "n": -9, "p": -12, "f": -15, "a": -18},
    **{"z": -21, "y": -24},
}
# Every symbol of the specification's appendix "Units", and what its tables of channels add.
SYMBOLS = (
    "m g s A K mol cd rad sr Hz N Pa J W C V F Ω S Wb T H lm lx Bq Gy Sv kat L",
    "T/m T/cm T/mm m/s m/s^2 rad/s rad/s^2 deg deg/s deg/s^2 Am",
)
BASES = " ".join(SYMBOLS).split()


@settings(max_examples=60)
@given(st.sampled_from(BASES), *[st.sampled_from(sorted(POWERS))] * 2)
def test_factors_are_exact_powers_and_round_trip(base: str, one: str, other: str) -> None:
    there, back = conversion(one + base, other + base), conversion(other + base, one + base)
    assert there == float(Fraction(10) ** (POWERS[one] - POWERS[other]))
    assert back is not None
    assert there * back == pytest.approx(1.0, rel=4e-16)


def test_no_two_prefixed_symbols_collide() -> None:
    parsed = {prefix + base: parse_unit(prefix + base) for prefix in POWERS for base in BASES}
    assert None not in parsed.values()
    assert len(set(parsed.values())) == len(parsed)
    assert all(parse_unit(str(unit)) == unit for unit in parsed.values())


@settings(max_examples=60)
@given(st.text(max_size=12))
def test_any_text_is_a_unit_that_spells_itself_or_none(text: str) -> None:
    unit = parse_unit(text)
    assert unit is None or parse_unit(str(unit)) == unit


@pytest.mark.parametrize(
    ("text", "unit"),
    [
        *[
            (text, Unit("u", "V"))
            for text in ("uV", "\u00b5V", "\u03bcV", "ÂµV", "Î¼V", " µV ", "uv")
        ],
        *[
            (text, Unit("u", "V"))
            for text in ("microvolt", "MicroVolts", "microV", "uVolt", "µvolts")
        ],
        *[("mV", Unit("m", "V")), ("MV", Unit("M", "V")), ("Volts", Unit("", "V"))],
        *[("MVolt", Unit("M", "V")), ("mVolt", Unit("m", "V")), ("megavolt", Unit("M", "V"))],
        *[
            (text, Unit("k", "Ohm"))
            for text in ("kΩ", "k\u2126", "kOhm", "kohm", "kiloohms", "kÎ©")
        ],
        *[(text, Unit("", "m/s^2")) for text in ("m/s^2", "m/s²", "m/s2", "m / s^2")],
        *[
            ("ms", Unit("m", "s")),
            ("m", Unit("", "m")),
            ("mm", Unit("m", "m")),
            ("T", Unit("", "T")),
        ],
        *[("Pa", Unit("", "Pa")), ("hPa", Unit("h", "Pa")), ("dam", Unit("da", "m"))],
        *[
            (text, Unit("", "°C"))
            for text in ("°C", "oC", "ºC", "℃", "Celsius", "Â°C", "degrees celsius")
        ],
        *[("°", Unit("", "deg")), ("degrees", Unit("", "deg")), ("°/s", Unit("", "deg/s"))],
        *[("%", Unit("", "%")), ("a.u.", Unit("", "a.u.")), ("Arbitrary units", Unit("", "a.u."))],
        *[("N/A", Unit("", "n/a")), ("bpm", Unit("", "bpm")), ("fT/cm", Unit("f", "T/cm"))],
        *[("uT/m", Unit("u", "T/m")), ("lx", Unit("", "lx")), ("W", Unit("", "W"))],
        *[(text, Unit("", "dB")) for text in ("dB", "decibel")],
        *[(text, Unit("", "deg/s^2")) for text in ("°/s²", "deg/s^2", "deg / s2")],
        *[(text, Unit("m", "rad/s")) for text in ("mrad/s", "mrad/sec")],
        *[(text, Unit("n", "Am")) for text in ("nAm", "nA·m", "nA*m")],
        *[("percent", Unit("", "%")), ("px", Unit("", "pixel")), ("AU", Unit("", "a.u."))],
        *[("cd", Unit("", "cd")), ("mol", Unit("", "mol")), ("dag", Unit("da", "g"))],
        *[("mHz", Unit("m", "Hz")), ("MHz", Unit("M", "Hz")), ("kat", Unit("", "kat"))],
    ],
)
def test_spellings(text: str, unit: Unit) -> None:
    assert parse_unit(text) == unit


NAMES = {
    **{"m": "metre", "g": "gram", "s": "second", "A": "ampere", "K": "kelvin", "mol": "mole"},
    **{"cd": "candela", "rad": "radian", "sr": "steradian", "Hz": "hertz", "N": "newton"},
    **{"Pa": "pascal", "J": "joule", "W": "watt", "C": "coulomb", "V": "volt", "F": "farad"},
    **{"Ohm": "ohm", "S": "siemens", "Wb": "weber", "T": "tesla", "H": "henry", "lm": "lumen"},
    **{"lx": "lux", "Bq": "becquerel", "Gy": "gray", "Sv": "sievert", "kat": "katal"},
    **{"L": "litre", "deg": "degree"},
}
PREFIX_NAMES = {
    **{"Y": "yotta", "Z": "zetta", "E": "exa", "P": "peta", "T": "tera", "G": "giga", "M": "mega"},
    **{"k": "kilo", "h": "hecto", "da": "deca", "d": "deci", "c": "centi", "m": "milli"},
    **{"u": "micro", "n": "nano", "p": "pico", "f": "femto", "a": "atto", "z": "zepto"},
    **{"y": "yocto", "": ""},
}


def test_every_name_after_every_prefix() -> None:
    for symbol, name in NAMES.items():
        for prefix, word in PREFIX_NAMES.items():
            for text in (word + name, (word + name).title(), word + name + "s"):
                assert parse_unit(text) == Unit(prefix, symbol), text


def test_the_case_of_a_prefix_counts() -> None:
    for one, other in (("m", "M"), ("p", "P"), ("z", "Z"), ("y", "Y")):
        for base in BASES:
            assert conversion(one + base, other + base) == pytest.approx(
                10.0 ** (POWERS[one] - POWERS[other]), rel=1e-15
            )
    for wrong in ("K", "D", "H", "C", "N", "F", "A"):
        assert parse_unit(f"{wrong}V") is None


@pytest.mark.parametrize("micro", ["\u00b5", "\u03bc", "u"])
@pytest.mark.parametrize("base", BASES)
def test_the_spellings_of_micro(micro: str, base: str) -> None:
    assert conversion(micro + base, base) == 1e-6


@pytest.mark.parametrize(
    "text",
    [
        *["", "?V", "\ufffdV", "V?", "uuV", "m°C", "k%", "KV", "Vs", "volta", "myvolt", "V/m"],
        *["ubpm", "u", "µ", "mİcrovolt", "volt" * 100, "0V", "KHz"],
    ],
)
def test_what_is_no_unit(text: str) -> None:
    assert parse_unit(text) is None
    assert conversion(text, "V") is None


@pytest.mark.parametrize(
    ("one", "other", "factor"),
    [
        *[("V", "µV", 1e6), ("fT/cm", "T/m", 1e-13), ("T/m", "fT/cm", 1e13), ("nV", "V", 1e-9)],
        *[("pT/mm", "T/m", 1e-9), ("uT/m", "T/m", 1e-6), ("deg", "°", 1.0)],
        *[("deg", "rad", None), ("T", "T/m", None), ("V", "n/a", None), ("°C", "deg", None)],
        *[("C", "oC", 1.0), ("°C", "C", 1.0), ("mC", "°C", None), ("C", "mC", 1e3)],
        *[("K", "°C", None), ("S", "s", None), ("Ohm", "S", None), ("dB", "V", None)],
        *[("mg", "Mg", 1e-9), ("Pa", "hPa", 1e-2), ("ml", "L", 1e-3), ("%", "percent", 1.0)],
    ],
)
def test_conversion(one: str, other: str, factor: float | None) -> None:
    assert conversion(one, other) == factor
