"""The header of GDF files, versions 1 to 3.

Layout after Schlögl, GDF - A general data format for biosignals. Patient, recording, location,
equipment and technician are passed over, they are nowhere kept.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from converter.contract.codes import FailureCode, RecordingError
from converter.recording.readers import spelling
from converter.recording.readers.binary import SampleFile
from converter.recording.readers.claims import check_channels, damaged

PART_BYTES = 256  # of the header: its fixed part, and that of each channel
_VERSION = re.compile(rb"GDF ([123])\.(\d\d)")
_VERSION_2 = 190  # 1.90 to 1.99 are drafts of 2; 3 has its header
_RECORDS, _DURATION, _CHANNELS = 236, 244, 252
_HEADER_BYTES = 184
_SHORTEST, _LONGEST = 1e-9, 1e9  # data record, in seconds

# Columns of the header per channel: name, type, bytes to pass over after it.
_COLUMNS_1 = (
    *(("label", "S16"), ("transducer", "S80"), ("dimension", "S8")),
    *(("physical_min", "<f8"), ("physical_max", "<f8")),
    *(("digital_min", "<i8"), ("digital_max", "<i8")),
    *(("prefilter", "S80"), ("samples", "<u4"), ("type", "<u4"), ("reserved", "S32")),
)
_COLUMNS_2 = (
    *(("label", "S16"), ("transducer", "S80"), ("spelled", "S6"), ("dimension", "<u2")),
    *(("physical_min", "<f8"), ("physical_max", "<f8")),
    *(("digital_min", "<f8"), ("digital_max", "<f8"), ("prefilter", "S68")),
    *(("lowpass", "<f4"), ("highpass", "<f4"), ("notch", "<f4")),
    *(("samples", "<u4"), ("type", "<u4"), ("position", "S12"), ("reserved", "S20")),
)
_DTYPES = {
    **{1: "i1", 2: "u1", 3: "<i2", 4: "<u2", 5: "<i4", 6: "<u4", 7: "<i8", 8: "<u8"},
    **{16: "<f4", 17: "<f8"},
}
_INT24, _UINT24 = 255 + 24, 511 + 24

# Codes of ISO/IEEE 11073-10101: the unit's, and in the five lowest bits the decimal factor's.
_UNITS = {
    **{544: "%", 736: "deg", 768: "rad", 1280: "m", 1728: "g", 2176: "s", 2496: "Hz"},
    **{3840: "Pa", 4160: "A", 4256: "V", 4288: "Ohm", 4384: "K", 6048: "°C"},
}
_PREFIXES = {
    **{0: "", 2: "h", 3: "k", 4: "M", 5: "G", 6: "T"},
    **{16: "d", 17: "c", 18: "m", 19: "u", 20: "n", 21: "p", 22: "f", 23: "a"},
}


@dataclass(frozen=True, slots=True)
class Signal:
    """One channel; `samples` and `first_byte` count inside a data record.

    `dtype` is that of the file; of 24-bit numbers, whose `width` is 3, that of the result.
    `scaling` is gain and offset, None where the header gives no usable range.
    """

    label: str
    unit: str
    prefilter: str
    scaling: tuple[float, float] | None
    samples: int
    dtype: np.dtype[Any]
    width: int
    first_byte: int


@dataclass(frozen=True, slots=True)
class Header:
    """What the header says, checked against the size of the file.

    `sparse` are the labels of channels without samples in the records.
    """

    version: str
    n_signals: int
    data_offset: int
    n_records: int
    duration: Fraction
    record_bytes: int
    signals: tuple[Signal, ...]
    sparse: tuple[str, ...]


def read_header(file: SampleFile) -> Header:
    """Parse the header; raises CORRUPT_OR_TRUNCATED on claims that the file cannot hold."""
    fixed = file.bytes(0, PART_BYTES)
    found = _VERSION.match(fixed)
    if found is None or len(fixed) < PART_BYTES:
        raise damaged(file.name, f"begins with {fixed[:8]!r}, a header of GDF 1 to 3 was expected")
    second = int(found[1] + found[2]) >= _VERSION_2
    (n_signals,) = struct.unpack_from("<H" if second else "<I", fixed, _CHANNELS)
    check_channels(file.name, n_signals)
    smallest = PART_BYTES * (n_signals + 1)
    if smallest > file.size:
        raise damaged(
            file.name,
            f"declares {n_signals} channels, whose header takes {smallest} bytes, "
            f"and has {file.size}",
        )
    (declared,) = struct.unpack_from("<H" if second else "<q", fixed, _HEADER_BYTES)
    offset = declared * (PART_BYTES if second else 1)
    if not smallest <= offset <= file.size:
        raise damaged(
            file.name,
            f"declares a header of {offset} bytes, {smallest} to {file.size} were expected",
        )
    table = _columns(file.bytes(PART_BYTES, smallest - PART_BYTES), n_signals, second)
    signals, sparse, record_bytes = _signals(file, table)
    return Header(
        version=found[0].decode("ascii")[4:],
        n_signals=n_signals,
        data_offset=offset,
        n_records=_n_records(file, fixed, offset, record_bytes),
        duration=_duration(file, fixed),
        record_bytes=record_bytes,
        signals=signals,
        sparse=sparse,
    )


def _columns(raw: bytes, n_signals: int, second: bool) -> Mapping[str, NDArray[Any]]:
    table, at = {}, 0
    for name, dtype in _COLUMNS_2 if second else _COLUMNS_1:
        table[name] = np.frombuffer(raw, dtype, n_signals, at) if n_signals else np.empty(0, dtype)
        at += table[name].nbytes
    return table


def _signals(
    file: SampleFile, table: Mapping[str, NDArray[Any]]
) -> tuple[tuple[Signal, ...], tuple[str, ...], int]:
    """Channels with samples, the labels of those without, and the bytes of a data record."""
    signals, sparse, at = [], [], 0
    for index, code in enumerate(table["type"].tolist()):
        label = spelling.decode(bytes(table["label"][index]).split(b"\0")[0])
        samples = int(table["samples"][index])
        if samples == 0:  # its values lie in the table of events
            sparse.append(label)
            continue
        dtype, width = _dtype(file, code)
        signals.append(
            Signal(
                label=label,
                unit=_unit(table, index),
                prefilter=_prefilter(table, index),
                scaling=_scaling(table, index),
                samples=samples,
                dtype=dtype,
                width=width,
                first_byte=at,
            )
        )
        at += samples * width
    if not signals:
        raise RecordingError(
            FailureCode.EMPTY_RECORDING,
            f"{file.name} has no channel with samples, of {len(table['type'])} declared.",
        )
    return tuple(signals), tuple(sparse), at


def _dtype(file: SampleFile, code: int) -> tuple[np.dtype[Any], int]:
    if code in (_INT24, _UINT24):
        return np.dtype("<i4" if code == _INT24 else "<u4"), 3
    if code not in _DTYPES:
        raise RecordingError(
            FailureCode.UNSUPPORTED_FORMAT,
            f"{file.name} has samples of the GDF type {code}, expected one of "
            f"{', '.join(map(str, (*_DTYPES, _INT24, _UINT24)))}.",
        )
    dtype = np.dtype(_DTYPES[code])
    return dtype, dtype.itemsize


def _unit(table: Mapping[str, NDArray[Any]], index: int) -> str:
    dimension = table["dimension"][index]
    if "spelled" not in table:
        return spelling.unit(spelling.decode(bytes(dimension)))
    code = int(dimension)
    if code == 0:  # unknown, or of a writer that knows no codes
        unit = spelling.unit(spelling.decode(bytes(table["spelled"][index])))
        return "n/a" if unit == "?" else unit
    base, prefix = _UNITS.get(code & ~31), _PREFIXES.get(code & 31)
    return "n/a" if base is None or prefix is None else prefix + base


def _prefilter(table: Mapping[str, NDArray[Any]], index: int) -> str:
    if "lowpass" not in table:
        return spelling.decode(bytes(table["prefilter"][index])) or "n/a"
    edges = {
        "HP": float(table["highpass"][index]),
        "LP": float(table["lowpass"][index]),
        "N": float(table["notch"][index]),
    }
    known = [f"{key}:{hz:g}Hz" for key, hz in edges.items() if math.isfinite(hz) and hz > 0]
    return " ".join(known) or "n/a"


def _scaling(table: Mapping[str, NDArray[Any]], index: int) -> tuple[float, float] | None:
    low, high, digital_low, digital_high = (
        table[name][index].item()
        for name in ("physical_min", "physical_max", "digital_min", "digital_max")
    )
    if not all(map(math.isfinite, (low, high, digital_low, digital_high))):
        return None
    if low == high or digital_low == digital_high:
        return None
    gain = (Fraction(high) - Fraction(low)) / (Fraction(digital_high) - Fraction(digital_low))
    offset = Fraction(low) - gain * Fraction(digital_low)
    try:
        scaling = float(gain), float(offset)
    except OverflowError:
        return None
    return scaling if scaling[0] else None


def _n_records(file: SampleFile, fixed: bytes, offset: int, record_bytes: int) -> int:
    (declared,) = struct.unpack_from("<q", fixed, _RECORDS)
    found = (file.size - offset) // record_bytes
    n_records = found if declared == -1 else declared
    if not 0 <= n_records <= found:
        raise damaged(
            file.name, f"holds {found} of the {n_records} data records that its header declares"
        )
    if n_records == 0:
        raise RecordingError(FailureCode.EMPTY_RECORDING, f"{file.name} holds no data record.")
    return int(n_records)


def _duration(file: SampleFile, fixed: bytes) -> Fraction:
    # Later versions have a float here, of which no pair of plausible numbers has the bytes.
    (seconds,) = struct.unpack_from("<d", fixed, _DURATION)
    if _SHORTEST <= seconds <= _LONGEST:
        return Fraction(repr(seconds))
    numerator, denominator = struct.unpack_from("<II", fixed, _DURATION)
    if not numerator or not denominator:
        raise damaged(
            file.name, f"gives its data records a duration of {numerator}/{denominator} seconds"
        )
    return Fraction(numerator, denominator)
