"""Persyst recordings: a text header (.lay) and a file of interleaved samples (.dat).

Sections [Patient] and [Comments] are passed over: they are nowhere kept.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

from converter.contract.codes import FailureCode, RecordingError
from converter.recording.local import LocalRecording
from converter.recording.readers import spelling
from converter.recording.readers.binary import (
    MultiplexedFile,
    SampleFile,
    SampleMatrix,
    header_bytes,
)
from converter.recording.readers.channel_names import channel_by_label
from converter.recording.readers.claims import check_channels, damaged
from converter.recording.readers.companions import named_file, refuse_directories, same_stem
from converter.recording.readers.gapped import GappedMatrix, Stretch, places
from converter.recording.readers.gaps import check_gaps
from converter.recording.readers.matrix_source import MatrixSource
from converter.recording.signal import Channel, SourceFacts, distinct_labels

_MAX_LINES = 100_000  # of one section
_READ_SECTIONS = frozenset({"fileinfo", "channelmap", "sampletimes"})
_DTYPES = {"0": "<i2", "7": "<i4"}
_REFERENCE = re.compile(r"-ref$", re.I)
_DAY = 86400
_CLOCK_STEP = Fraction(1, 2)  # second: what it may take to write down an entry of [SampleTimes]

Section = Mapping[str, str]


def open_persyst(recording: LocalRecording) -> MatrixSource:
    """Open a Persyst recording by its .lay file.

    Labels are without the suffix "-Ref". A pause that [SampleTimes] tells of is zeros.
    Raises RecordingError: `file_read_error` on a reference that leaves the directory,
    `corrupt_or_truncated` on a header that makes no sense and on samples that are missing,
    `unsupported_format` on other sample types, `not_continuous` where time runs backwards,
    `empty_recording` without samples.
    """
    path = recording.file
    sections = _read_sections(path)
    info = sections.get("fileinfo", {})
    reference = info.get("file", "")
    if reference:
        refuse_directories(path, reference)  # even where it is not used
    kind = info.get("datatype", "")
    if kind not in _DTYPES or info.get("filetype", "interleaved").casefold() != "interleaved":
        raise RecordingError(
            FailureCode.UNSUPPORTED_FORMAT,
            f"{path.name} has {info.get('filetype', '')[:40]!r} samples of type {kind[:40]!r}, "
            "interleaved ones of type 0 or 7 were expected.",
        )
    n_channels = _whole(path.name, info, "waveformcount")
    check_channels(path.name, n_channels)
    skipped = _whole(path.name, info, "headerlength", "0")
    rate = spelling.number(info.get("samplingrate", ""))
    gain = spelling.number(info.get("calibration", "1"))
    if rate is None or rate <= 0 or not gain:
        raise damaged(
            path.name,
            f"gives SamplingRate {info.get('samplingrate', '')[:40]!r} and Calibration "
            f"{info.get('calibration', '')[:40]!r}, numbers were expected",
        )
    channels = _channels(path.name, sections, n_channels, float(gain), recording.modality)
    file = SampleFile(_data_file(path, reference))
    try:
        dtype = _DTYPES[kind]
        n_samples = max(0, file.size - skipped) // (max(1, n_channels) * int(dtype[-1]))
        starts = _starts(path.name, sections.get("sampletimes", {}), n_samples, rate)
        bits = 8 * int(dtype[-1])
        technical = {"sample_bits": bits, "stretches": len(starts)}
        facts = SourceFacts("Persyst", n_channels, technical=technical)
        stored = MultiplexedFile(file, dtype, n_channels, skipped)
        matrix = _on_timeline(path.name, stored, starts, n_samples)
        return MatrixSource(
            file.name, matrix, matrix.n_samples, rate, channels, facts, gaps=matrix.gaps
        )
    except BaseException:
        file.close()
        raise


def _data_file(path: Path, reference: str) -> Path:
    if sibling := same_stem(path, (".dat",)):
        return sibling
    try:
        return named_file(path, reference)
    except RecordingError:  # its message has the name, which is often a patient's
        raise damaged(path.name, "has no file of samples beside it") from None


def _read_sections(path: Path) -> dict[str, Section]:
    """The sections that tell of samples, by name, both and keys of [FileInfo] in lower case."""
    raw = header_bytes(path)
    text = raw.decode("utf-8-sig", "replace") if _is_utf8(raw) else raw.decode("cp1252", "replace")
    sections: dict[str, dict[str, str]] = {}
    current: dict[str, str] | None = None
    name = ""
    for line in (line.strip() for line in re.split(r"\r\n|\r|\n", text)):
        if line.startswith("[") and line.endswith("]"):
            name = line[1:-1].strip().casefold()
            current = sections.setdefault(name, {}) if name in _READ_SECTIONS else None
        elif current is not None and "=" in line:
            # A label may hold the sign; its number, as any value here that counts, does not.
            key, value = line.rsplit("=", 1) if name == "channelmap" else line.split("=", 1)
            key = key.strip()
            if name == "channelmap":
                key = f"{len(current)}={key}"  # repeated labels are channels of their own
            current.setdefault(key.casefold() if name == "fileinfo" else key, value.strip())
            if len(current) > _MAX_LINES:
                raise damaged(path.name, f"has more than {_MAX_LINES} lines in a section")
    if "fileinfo" not in sections:
        raise damaged(path.name, "has no section [FileInfo]")
    return dict(sections)


def _is_utf8(raw: bytes) -> bool:
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _channels(
    name: str, sections: Mapping[str, Section], n_channels: int, gain: float, modality: str
) -> tuple[Channel, ...]:
    """Channels in the order of their samples, which [ChannelMap] numbers from 1 on."""
    listed = [
        (spelling.number(number), _REFERENCE.sub("", key.partition("=")[2]))
        for key, number in sections.get("channelmap", {}).items()
    ]
    if len(listed) != n_channels:
        raise damaged(name, f"counts {n_channels} channels and names {len(listed)}")
    if {number for number, _ in listed} == set(range(1, n_channels + 1)):
        listed.sort(key=lambda entry: entry[0] or 0)
    labels = distinct_labels(text or f"Ch{at + 1}" for at, (_, text) in enumerate(listed))
    return tuple(
        channel_by_label(label, modality, "uV", (gain, 0.0), told=text)
        for label, (_, text) in zip(labels, listed, strict=True)
    )


def _starts(name: str, times: Section, n_samples: int, rate: Fraction) -> list[tuple[int, int]]:
    """Where stretches begin, on the timeline and in the file.

    After the pairs of sample and second of [SampleTimes]. Entries past the last sample are
    left: clips of a recording keep those of the whole.
    """
    entries = [(spelling.number(key), spelling.number(value)) for key, value in times.items()]
    known = [
        (int(at), second)
        for at, second in entries
        if at is not None and second is not None and 0 <= at < n_samples and at.denominator == 1
    ]
    for (before, _), (at, _) in pairwise(known):
        if at <= before:
            raise damaged(name, f"lists sample {at} after sample {before} in [SampleTimes]")
    starts = [(0, 0)]
    samples = [at for at, _ in known]
    onsets = zip(samples, _ascending(second for _, second in known), strict=True)
    for at, place in zip(samples, places(name, onsets, rate, _CLOCK_STEP), strict=True):
        start, first = starts[-1]
        if place - at != start - first:
            starts.append((place, at))
    return starts


def _ascending(seconds: Iterable[Fraction]) -> Iterator[Fraction]:
    """Seconds of the day, counted on past midnight."""
    days, before = 0, None
    for second in seconds:
        if before is not None and second - before < -_DAY // 2:
            days += 1
        before = second
        yield second + days * _DAY


def _on_timeline(
    name: str, stored: SampleMatrix, starts: list[tuple[int, int]], n_samples: int
) -> GappedMatrix:
    """The `n_samples` of a file at their places on its timeline."""
    ends = [first for _, first in starts[1:]] + [n_samples]
    gapped = GappedMatrix(
        [
            Stretch(start, end - first, stored, first)
            for (start, first), end in zip(starts, ends, strict=True)
        ]
    )
    check_gaps(name, gapped.n_samples, n_samples)
    return gapped


def _whole(name: str, info: Section, key: str, default: str = "") -> int:
    given = info.get(key, default)
    value = spelling.number(given)
    if value is None or value.denominator != 1 or value < 0:
        raise damaged(name, f"gives {given[:40]!r} as its {key}, a whole number was expected")
    return int(value)
