"""BrainVision: a text header (.vhdr, .ahdr) and a binary file of samples.

Layout after the BrainVision Core Data Format, versions 1 and 2. Of the markers only those of
segments are read: a BIDS dataset has its events in events.tsv.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from converter.contract.codes import FailureCode, RecordingError
from converter.recording.local import LocalRecording
from converter.recording.readers import spelling
from converter.recording.readers.binary import (
    MultiplexedFile,
    SampleFile,
    SampleMatrix,
    VectorizedFile,
    check_bounds,
    header_bytes,
)
from converter.recording.readers.brainvision_markers import joints
from converter.recording.readers.channel_names import channel_by_label
from converter.recording.readers.claims import check_channels, damaged
from converter.recording.readers.companions import named_file, refuse_directories, same_stem
from converter.recording.signal import Channel, SignalGroup, SourceFacts, distinct_labels

# Recorder, Analyzer, V-Amp and other writers word the rest of the first line differently.
_FIRST_LINE = re.compile(r"brain ?vision .*(header|data format)", re.I)
_DTYPES = {"INT_16": "i2", "UINT_16": "u2", "INT_32": "i4", "IEEE_FLOAT_32": "f4"}
_FINEST = 1 << 53  # what a float counts exactly
_DATA_SUFFIXES = (".eeg", ".dat", ".seg", ".avg", ".aeeg", ".adat")

Section = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Header:
    """What a header says; `points` is 0 where it does not count the samples a channel."""

    name: str
    data_file: str
    marker_file: str
    n_channels: int
    rate: Fraction
    dtype: str
    vectorized: bool
    points: int
    channels: tuple[Channel, ...]


def read_sections(path: Path) -> dict[str, Section]:
    """Sections of the header by name, keys in lower case; the free text of [Comment] is left.

    Text is UTF-8, else Windows-1252, else Latin-1, whatever the header's Codepage says.
    """
    lines = re.split(r"\r\n|\r|\n", _text(header_bytes(path)))
    if not _FIRST_LINE.search(lines[0]):
        raise RecordingError(
            FailureCode.CORRUPT_OR_TRUNCATED,
            f"{path.name} does not begin with the first line of a BrainVision header.",
        )
    sections: dict[str, dict[str, str]] = {}
    current: dict[str, str] = {}
    for line in (line.strip() for line in lines[1:]):
        if line.startswith("[") and line.endswith("]"):
            name = line[1:-1].strip().casefold()
            if name == "comment":
                break
            current = sections.setdefault(name, {})
        elif "=" in line and not line.startswith(";"):
            key, value = line.split("=", 1)
            current.setdefault(key.strip().casefold(), value.strip())
    return dict(sections)


def _text(raw: bytes) -> str:
    for encoding in ("utf-8-sig", "cp1252"):
        try:
            return raw.decode(encoding)
        except UnicodeDecodeError:
            continue
    return raw.decode("latin-1")


def read_header(path: Path, modality: str) -> Header:
    """Parse a header and check that this reader can follow it."""
    sections = read_sections(path)
    common = sections.get("common infos", {})
    binary = sections.get("binary infos", {})
    _check_continuous(path.name, common)
    for key in ("datafile", "markerfile"):
        if common.get(key):
            refuse_directories(path, common[key])
    data_format = common.get("dataformat", "BINARY").upper()
    if data_format != "BINARY" or common.get("datatype", "TIMEDOMAIN").upper() != "TIMEDOMAIN":
        raise RecordingError(
            FailureCode.UNSUPPORTED_FORMAT,
            f"{path.name} stores {data_format} {common.get('datatype', 'TIMEDOMAIN')} data, "
            "BINARY TIMEDOMAIN data was expected.",
        )
    binary_format = binary.get("binaryformat", "").upper()
    if binary_format not in _DTYPES:
        raise RecordingError(
            FailureCode.UNSUPPORTED_FORMAT,
            f"{path.name} gives BinaryFormat {binary_format!r}, "
            f"one of {', '.join(_DTYPES)} was expected.",
        )
    orientation = common.get("dataorientation", "MULTIPLEXED").upper()
    if orientation not in ("MULTIPLEXED", "VECTORIZED"):
        raise damaged(path.name, f"gives DataOrientation {orientation!r}")
    n_channels = _whole(path.name, common, "NumberOfChannels")
    check_channels(path.name, n_channels)
    interval = spelling.number(common.get("samplinginterval", ""))
    if interval is None or interval <= 0:
        given = common.get("samplinginterval")
        raise damaged(path.name, f"gives SamplingInterval {given!r}, microseconds were expected")
    big_endian = binary.get("usebigendianorder", "NO").upper() == "YES"
    return Header(
        name=path.name,
        data_file=common.get("datafile", ""),
        marker_file=common.get("markerfile", ""),
        n_channels=n_channels,
        rate=_rate(interval),
        dtype=(">" if big_endian else "<") + _DTYPES[binary_format],
        vectorized=orientation == "VECTORIZED",
        points=_whole(path.name, common, "DataPoints") if common.get("datapoints") else 0,
        channels=_channels(path.name, sections.get("channel infos", {}), n_channels, modality),
    )


def _rate(interval: Fraction) -> Fraction:
    """The rate in Hz whose interval in microseconds was written.

    Writers print 1e6 / rate as a float: 3333.3333333333335 is 300 Hz. Digits beyond a float's
    are dropped, as no resampling can tell them apart.
    """
    rate = Fraction(10**6) / interval
    simple = rate.limit_denominator(1000)
    if simple and float(10**6 / simple) == float(interval):
        return simple
    is_exact = max(rate.numerator, rate.denominator) <= _FINEST
    return rate if is_exact else Fraction(float(rate))


def _check_continuous(name: str, common: Section) -> None:
    segmentation = common.get("segmentationtype", "NOTSEGMENTED").upper() or "NOTSEGMENTED"
    averaged = common.get("averaged", "NO").upper() == "YES"
    if averaged or segmentation != "NOTSEGMENTED" or common.get("datatype", "") == "AVERAGED":
        kind = "averaged segments" if averaged else f"segments ({segmentation})"
        raise RecordingError(
            FailureCode.NOT_CONTINUOUS,
            f"{name} describes {kind}, one continuous recording was expected.",
        )


def _whole(name: str, section: Section, key: str) -> int:
    text = section.get(key.casefold(), "")
    if not re.fullmatch(r"\d{1,15}", text, re.ASCII):
        raise damaged(name, f"gives {key} {text[:40]!r}, a whole number was expected")
    return int(text)


def _channels(name: str, section: Section, n_channels: int, modality: str) -> tuple[Channel, ...]:
    entries = [
        section.get(f"ch{number + 1}") for number in range(min(n_channels, len(section) + 1))
    ]
    described = [entry for entry in entries if entry is not None]
    if len(described) < n_channels:
        raise damaged(
            name, f"declares {n_channels} channels and describes the first {len(described)}"
        )
    rows = [[cell.replace(r"\1", ",").strip() for cell in entry.split(",")] for entry in described]
    labels = distinct_labels(row[0] or f"Ch{index + 1}" for index, row in enumerate(rows))
    return tuple(
        _channel(name, label, row + [""] * 4, modality)
        for label, row in zip(labels, rows, strict=True)
    )


def _channel(name: str, label: str, row: list[str], modality: str) -> Channel:
    """A channel from its name, reference, resolution and unit; a unit left out is µV.

    Voltages are given in V. A resolution that is empty or 0 stands for 1.
    """
    resolution = spelling.number(row[2] or "1")
    if resolution is None:
        raise damaged(name, f"gives channel {label} the resolution {row[2][:40]!r}")
    unit = spelling.unit(row[3]) if row[3] else "uV"
    gain = resolution or Fraction(1)
    if unit in spelling.VOLT_EXPONENTS:
        gain *= Fraction(10) ** spelling.VOLT_EXPONENTS[unit]
        return channel_by_label(label, modality, "V", (float(gain), 0.0), told=row[0])
    channel = channel_by_label(label, modality, unit, (float(gain), 0.0), told=row[0])
    return channel if channel.discrete else replace(channel, unit=row[3])


def _data_file(path: Path, header: Header) -> Path:
    own = Path(header.data_file).suffix.lower()
    suffixes = sorted(_DATA_SUFFIXES, key=lambda suffix: suffix != own)
    named = header.data_file.replace("$b", path.with_suffix("").name)
    return same_stem(path, suffixes) or named_file(path, named)


def _n_samples(file: SampleFile, header: Header) -> int:
    """Samples a channel in the data file; a last frame that was cut short does not count."""
    column = np.dtype(header.dtype).itemsize
    whole, rest = divmod(file.size, header.n_channels * column)
    if file.size == 0:
        raise RecordingError(FailureCode.EMPTY_RECORDING, f"{file.name} is empty.")
    points = header.points
    if whole + bool(rest) < points or (header.vectorized and whole < points):
        raise damaged(
            file.name,
            f"holds {whole} samples of {header.n_channels} channels, {points} were expected",
        )
    if header.vectorized and rest and not points:
        raise damaged(
            file.name, f"has {file.size} bytes, no multiple of {header.n_channels} channels"
        )
    if whole == 0:
        raise RecordingError(FailureCode.EMPTY_RECORDING, f"{file.name} holds no whole frame.")
    return points if header.vectorized and points else whole


class BrainVisionSource:
    """An open BrainVision recording: one group, samples in the type of the data file.

    Types are the file's (int16, uint16, int32, float32) in native byte order; NaNs pass.
    Memory: a fraction of a megabyte and the block returned.
    """

    def __init__(self, path: Path, modality: str) -> None:
        header = read_header(path, modality)
        if header.n_channels == 0:
            raise RecordingError(FailureCode.EMPTY_RECORDING, f"{path.name} declares no channels.")
        file = SampleFile(_data_file(path, header))
        try:
            n_samples = _n_samples(file, header)
            segments = joints(path, header.marker_file.replace("$b", path.stem), n_samples)
        except BaseException:
            file.close()
            raise
        self._matrix: SampleMatrix
        if header.vectorized:
            self._matrix = VectorizedFile(file, header.dtype, header.n_channels, n_samples)
        else:
            self._matrix = MultiplexedFile(file, header.dtype, header.n_channels)
        self.groups: tuple[SignalGroup, ...] = (
            SignalGroup(header.rate, n_samples, header.channels),
        )
        self.facts = SourceFacts(
            format="BrainVision",
            header_signals=header.n_channels,
            technical={
                "binary_format": np.dtype(header.dtype).name,
                "data_orientation": "VECTORIZED" if header.vectorized else "MULTIPLEXED",
            },
            joints=tuple(float(sample / header.rate) for sample in segments),
        )

    def read(self, group: int, start: int, stop: int) -> NDArray[Any]:
        """Samples `start:stop` as (n_channels, stop - start)."""
        check_bounds(start, stop, self.groups[group].n_samples)
        return self._matrix.read(start, stop)

    def close(self) -> None:
        """Close the data file; closing twice is harmless."""
        self._matrix.close()


def open_brainvision(recording: LocalRecording) -> BrainVisionSource:
    """Open a BrainVision recording by its header file.

    Raises RecordingError: FILE_READ_ERROR on a reference that leaves the directory,
    CORRUPT_OR_TRUNCATED on a header that makes no sense and on samples that are missing,
    UNSUPPORTED_FORMAT on ASCII or frequency data, NOT_CONTINUOUS on segments and averages,
    EMPTY_RECORDING without samples.
    """
    return BrainVisionSource(recording.file, recording.modality)
