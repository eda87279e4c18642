"""What of a file's header may be published: what is named here, and nothing else.

Vendors put patients, technicians, serial numbers and paths into any field of any header. What a
reader finds passes through here on its way to a store, whatever the reader thinks of it: free
text never does, apart from the labels and units of channels, which are the recording.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

# Technical facts that are numbers, or true or false.
_NUMBERS = frozenset(
    {
        "data_records",
        "electrical_series",
        "epoch_samples",
        "highpass",
        "lowpass",
        "mef_version",
        "record_duration_s",
        "record_onset_error_s",
        "sample_bits",
        "samples_inside",
        "stretches",
    }
)
# Those that are one of a few words.
_WORDS: dict[str, frozenset[str]] = {
    "binary_format": frozenset({"int16", "uint16", "int32", "float32"}),
    "data_orientation": frozenset({"MULTIPLEXED", "VECTORIZED"}),
}
_VERSIONS = frozenset({"gdf_version", "nwb_version"})
_VERSION = re.compile(r"\d{1,3}(\.\d{1,3}){0,3}", re.ASCII)

# All words that say what a filter does; others may be anything, a name among them.
_OF_FILTERS = {
    *("hp", "lp", "bp", "bs", "n", "hpf", "lpf", "bpf", "hff", "lff", "tc", "dc", "ac"),
    *("high", "low", "band", "pass", "stop", "cut", "cutoff", "notch", "filter", "filters"),
    *("highpass", "lowpass", "bandpass", "bandstop", "filtered", "hardware", "software"),
    *("hz", "khz", "s", "ms", "sec", "us", "db", "oct", "octave", "dec", "order", "st", "nd"),
    *("rd", "th", "butterworth", "bessel", "chebyshev", "fir", "iir", "none", "no", "off", "on"),
    *("na", "a", "to", "and", "e"),
}
_LONGEST_FILTER = 80  # characters, of an EDF header's field
_WORD, _LONG_NUMBER = re.compile(r"[^\W\d_]+"), re.compile(r"\d{8}")


def technical(facts: Mapping[str, Any]) -> dict[str, Any]:
    """The facts of a header that may be published, in the order given."""
    return {name: fact for name, fact in facts.items() if _is_allowed(name, fact)}


def _is_allowed(name: str, fact: Any) -> bool:
    if isinstance(fact, str):
        is_version = name in _VERSIONS and _VERSION.fullmatch(fact) is not None
        return is_version or fact in _WORDS.get(name, ())
    return name in _NUMBERS and isinstance(fact, int | float) and math.isfinite(fact)


def prefilter(text: str) -> str:
    """A channel's filters as its header words them; `n/a` where other words are among them."""
    words = [word.casefold() for word in _WORD.findall(text)]
    says_filters = bool(words) and _OF_FILTERS.issuperset(words)
    is_plain = len(text) <= _LONGEST_FILTER and not _LONG_NUMBER.search(text)
    return text if says_filters and is_plain else "n/a"
