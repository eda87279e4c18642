"""The header of EDF, EDF+, BDF and BDF+ files.

Layout after Kemp et al. 1992 (EDF), Kemp and Olivan 2003 (EDF+) and BioSemi (BDF).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate

from converter.contract.codes import FailureCode, RecordingError
from converter.recording.readers import spelling
from converter.recording.readers.binary import SampleFile
from converter.recording.readers.claims import check_channels, damaged

FIXED_BYTES = 256  # the header's fixed part, and its part for each signal
# Width of each field of the fixed part and of the part per signal, in file order.
_FIXED_FIELDS = {
    "version": 8,
    "patient": 80,
    "recording": 80,
    "date": 8,
    "time": 8,
    "header_bytes": 8,
    "reserved": 44,
    "records": 8,
    "duration": 8,
    "signals": 4,
}
_SIGNAL_FIELDS = {
    "label": 16,
    "transducer": 80,
    "dimension": 8,
    "physical_min": 8,
    "physical_max": 8,
    "digital_min": 8,
    "digital_max": 8,
    "prefilter": 80,
    "samples": 8,
    "reserved": 32,
}
_ANNOTATIONS = frozenset({"edf annotations", "bdf annotations"})


@dataclass(frozen=True, slots=True)
class Signal:
    """One signal of the header; `samples` and `first_sample` count inside a data record."""

    label: str
    dimension: str
    physical: tuple[Fraction | None, Fraction | None]
    digital: tuple[Fraction | None, Fraction | None]
    prefilter: str
    samples: int
    first_sample: int

    @property
    def is_annotation(self) -> bool:
        """Whether it holds text (TALs), no samples."""
        return self.label.casefold() in _ANNOTATIONS

    def scaling(self) -> tuple[Fraction, Fraction] | None:
        """Gain and offset to physical values; None where the header gives no usable range."""
        return _scaling(*self.physical, *self.digital)


@lru_cache(1024)  # the channels of a file mostly share their ranges
def _scaling(
    low: Fraction | None,
    high: Fraction | None,
    digital_low: Fraction | None,
    digital_high: Fraction | None,
) -> tuple[Fraction, Fraction] | None:
    if low is None or high is None or digital_low is None or digital_high is None:
        return None
    if low == high or digital_low == digital_high:
        return None
    gain = (high - low) / (digital_high - digital_low)
    return gain, low - gain * digital_low


@dataclass(frozen=True, slots=True)
class Header:
    """What the header says, checked against the size of the file."""

    format: str
    sample_bytes: int
    discontinuous: bool
    data_offset: int
    n_records: int
    duration: Fraction
    signals: tuple[Signal, ...]

    @property
    def record_samples(self) -> int:
        """Samples of all signals in one data record."""
        return sum(signal.samples for signal in self.signals)

    @property
    def record_bytes(self) -> int:
        """Bytes of one data record."""
        return self.record_samples * self.sample_bytes

    @property
    def data_signals(self) -> list[Signal]:
        """The signals that hold samples, in file order."""
        return [signal for signal in self.signals if not signal.is_annotation]


def read_header(file: SampleFile) -> Header:
    """Parse the header; raises CORRUPT_OR_TRUNCATED on claims that the file cannot hold."""
    fixed = file.bytes(0, FIXED_BYTES)
    if len(fixed) < FIXED_BYTES:
        raise damaged(file.name, f"has {len(fixed)} bytes, a header of at least 256 was expected")
    fields = dict(zip(_FIXED_FIELDS, _split(fixed, _FIXED_FIELDS.values()), strict=True))
    reserved = spelling.decode(fields["reserved"])
    family = _family(file, fields["version"], reserved)
    n_signals = _whole(file, fields["signals"], "number of signals")
    if n_signals < 0:
        raise damaged(file.name, f"declares {n_signals} signals")
    check_channels(file.name, n_signals)
    size = FIXED_BYTES * (n_signals + 1)
    if size > file.size:
        raise damaged(
            file.name,
            f"declares {n_signals} signals, whose header takes {size} bytes, and has {file.size}",
        )
    signals = _signals(file, file.bytes(FIXED_BYTES, size - FIXED_BYTES), n_signals)
    n_records = _whole(file, fields["records"], "number of data records")
    declared = spelling.number(spelling.decode(fields["header_bytes"]))
    header = Header(
        format=f"{family}+" if reserved[:4] == f"{family}+" else family,
        sample_bytes=3 if family == "BDF" else 2,
        discontinuous=reserved.upper().startswith(("EDF+D", "BDF+D")),
        data_offset=int(declared) if declared is not None and declared > size else size,
        n_records=n_records,
        duration=_duration(file, fields["duration"]),
        signals=signals,
    )
    return _with_checked_records(file, header)


def _with_checked_records(file: SampleFile, header: Header) -> Header:
    if not header.data_signals:
        raise RecordingError(
            FailureCode.EMPTY_RECORDING,
            f"{file.name} has no signal other than annotations, of {len(header.signals)} declared.",
        )
    if header.duration <= 0:
        raise damaged(
            file.name, f"gives its data records a duration of {float(header.duration):g} s"
        )
    found = max(0, file.size - header.data_offset) // header.record_bytes
    n_records = found if header.n_records == -1 else header.n_records
    if n_records < 0:
        raise damaged(file.name, f"declares {n_records} data records")
    if found < n_records or header.data_offset > file.size:
        raise damaged(
            file.name, f"holds {found} of the {n_records} data records that its header declares"
        )
    if n_records == 0:
        raise RecordingError(
            FailureCode.EMPTY_RECORDING, f"{file.name} holds no whole data record."
        )
    return replace(header, n_records=n_records)


def _family(file: SampleFile, version: bytes, reserved: str) -> str:
    if version[0] == 0xFF and version[1:].upper() == b"BIOSEMI":
        return "BDF"
    if version.strip(b"\0 ") != b"0":
        raise damaged(
            file.name,
            f"begins with {_shown(version)}, the version field of EDF or BDF was expected",
        )
    return "BDF" if reserved.upper().startswith(("BDF", "24BIT")) else "EDF"


def _signals(file: SampleFile, raw: bytes, n_signals: int) -> tuple[Signal, ...]:
    columns: dict[str, list[bytes]] = {}
    at = 0
    for name, width in _SIGNAL_FIELDS.items():
        columns[name] = list(_split(raw[at:], [width] * n_signals))
        at += width * n_signals
    texts = {name: [spelling.decode(cell) for cell in cells] for name, cells in columns.items()}
    numbers = {
        name: [spelling.number(text) for text in texts[name]]
        for name in ("physical_min", "physical_max", "digital_min", "digital_max")
    }
    samples = [_whole(file, cell, "samples per data record") for cell in columns["samples"]]
    if min(samples, default=1) < 1:
        raise damaged(file.name, f"declares a signal of {min(samples)} samples per data record")
    firsts = accumulate(samples, initial=0)
    return tuple(
        Signal(
            label=texts["label"][index],
            dimension=texts["dimension"][index],
            physical=(numbers["physical_min"][index], numbers["physical_max"][index]),
            digital=(numbers["digital_min"][index], numbers["digital_max"][index]),
            prefilter=texts["prefilter"][index],
            samples=samples[index],
            first_sample=first,
        )
        for index, first in zip(range(n_signals), firsts, strict=False)
    )


def _split(raw: bytes, widths: Iterable[int]) -> Iterator[bytes]:
    at = 0
    for width in widths:
        yield raw[at : at + width]
        at += width


def _whole(file: SampleFile, cell: bytes, what: str) -> int:
    text = spelling.decode(cell)
    value = spelling.number(text)
    if value is None or value.denominator != 1:
        raise damaged(file.name, f"gives {_shown(cell)} as its {what}, a whole number was expected")
    return int(value)


def _duration(file: SampleFile, cell: bytes) -> Fraction:
    text = spelling.decode(cell)
    value = spelling.number(text)
    if value is None:
        raise damaged(
            file.name,
            f"gives {_shown(cell)} as the duration of a data record, seconds were expected",
        )
    return value


def _shown(cell: bytes) -> str:
    """A field for an error: as it is only if it has no word, which might be a person's name."""
    text = cell.decode("latin-1").strip("\0 ")
    return repr(text) if re.fullmatch(r"[\d.,+\-]*", text, re.ASCII) else "text"
