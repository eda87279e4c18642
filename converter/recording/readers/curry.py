"""Curry recordings: float32 samples in a .cdt or .dat file, a text header beside it.

The header of `x.cdt` is `x.cdt.dpa` (or `.dpo`), that of `x.dat` is `x.dap`, with labels in
`x.rs3`. Amplifiers, their serial numbers and dates are passed over.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import accumulate
from pathlib import Path

from converter.contract.codes import FailureCode, RecordingError
from converter.recording.local import LocalRecording
from converter.recording.readers import spelling
from converter.recording.readers.binary import MultiplexedFile, SampleFile, header_bytes
from converter.recording.readers.channel_names import channel_by_label
from converter.recording.readers.claims import check_channels, damaged
from converter.recording.readers.companions import same_stem
from converter.recording.readers.matrix_source import MatrixSource
from converter.recording.signal import Channel, SourceFacts, distinct_labels

_MAX_LINES = 100_000  # of one list
_COMPRESSED = "{2912E8D8-F5C8-4E25-A8E7-A1385967DA09}"
_SAMPLE_BYTES = 4
_MICROSECONDS = 10**6
_BLOCK = re.compile(r"(\w+)\s+(START|END|START_LIST|END_LIST)\b")
_TESLAS = {"fT": 1e-15, "pT": 1e-12, "nT": 1e-9, "T": 1.0}


@dataclass(slots=True)
class _Text:
    """A header: `values` by key, and lines of each list; `groups` are those of channels.

    Keys are in lower case and without `_`, as versions spell them differently.
    """

    values: dict[str, str] = field(default_factory=dict)
    lists: dict[str, list[str]] = field(default_factory=dict)
    groups: list[tuple[str, dict[str, str]]] = field(default_factory=list)

    def of_kind(self, name: str) -> list[str]:
        """The lines of all lists `name` and `name_...`, in the order of the file."""
        kinds = [kind for kind in self.lists if kind == name or kind.startswith(f"{name}_")]
        return [line for kind in kinds for line in self.lists[kind]]


def open_curry(recording: LocalRecording) -> MatrixSource:
    """Open a Curry recording by its file of samples.

    Raises RecordingError: `corrupt_or_truncated` without a header, on one that makes no sense
    and on samples that are missing, `unsupported_format` on ASCII, compressed and other orders
    of samples, `not_continuous` on epochs and averages, `empty_recording` without samples.
    """
    path = recording.file
    header, labels = _companions(path)
    text = _read(header)
    _check_kind(header.name, text)
    n_channels = _whole(header.name, text, "numchannels")
    n_samples = _whole(header.name, text, "numsamples")
    rate = _rate(header.name, text)
    if n_channels < 0:
        raise damaged(header.name, f"counts {n_channels} channels")
    check_channels(header.name, n_channels)
    file = SampleFile(path)
    try:
        held = file.size // (_SAMPLE_BYTES * n_channels) if n_channels else 0
        if n_samples < 0:  # the header leaves it open
            n_samples = held
        if n_samples == 0 or n_channels == 0:
            raise RecordingError(
                FailureCode.EMPTY_RECORDING,
                f"{file.name} holds {n_channels} channels of {n_samples} samples.",
            )
        if n_samples > held:
            raise damaged(
                file.name, f"holds {held} of the {n_samples} samples that its header declares"
            )
        channels = _channels(header.name, text, labels, n_channels, recording.modality)
        facts = SourceFacts("Curry", n_channels)
        matrix = MultiplexedFile(file, "<f4", n_channels)
        return MatrixSource(file.name, matrix, n_samples, rate, channels, facts)
    except BaseException:
        file.close()
        raise


def _companions(path: Path) -> tuple[Path, _Text]:
    """The header of a file of samples, and the text that has the labels."""
    if path.suffix.lower() == ".dat":
        header, named = same_stem(path, (".dap",)), same_stem(path, (".rs3",))
    else:
        beside = [path.with_name(path.name + suffix) for suffix in (".dpa", ".dpo", ".DPA", ".DPO")]
        header = named = next((each for each in beside if each.is_file()), None)
    if header is None:
        raise RecordingError(
            FailureCode.CORRUPT_OR_TRUNCATED,
            f"{path.name} has no header beside it: a Curry recording with its .cdt.dpa or .dap "
            "was expected.",
        )
    return header, _read(named) if named is not None else _Text()


def _read(path: Path) -> _Text:
    raw = header_bytes(path)
    text = _Text()
    group: dict[str, str] = {}
    current: list[str] | None = None
    for line in (line.strip() for line in re.split(r"\r\n|\r|\n", spelling.decode(raw))):
        block = _BLOCK.match(line)
        if block is None:
            if current is not None:
                current.append(line)
                if len(current) > _MAX_LINES:
                    raise damaged(path.name, f"has more than {_MAX_LINES} lines in a list")
            elif "=" in line:
                key, value = line.split("=", 1)
                key = key.strip().replace("_", "").casefold()
                text.values.setdefault(key, value.strip())
                group.setdefault(key, value.strip())
            continue
        name, edge = block[1].upper(), block[2]
        current = text.lists.setdefault(name, []) if edge == "START_LIST" else None
        group = {}
        if edge == "START" and name.startswith("DEVICE_PARAMETERS"):
            text.groups.append((name, group))
    return text


def _check_kind(name: str, text: _Text) -> None:
    values = text.values
    order = values.get("datasamporder", "SAMP").upper()
    form = values.get("dataformat", "FLOAT").upper()
    byte_order = values.get("databyteorder", "INTEL").upper()
    packed = values.get("dataguid", "").upper() == _COMPRESSED
    if packed or order != "SAMP" or form == "ASCII" or byte_order not in ("INTEL", "LITTLE"):
        raise RecordingError(
            FailureCode.UNSUPPORTED_FORMAT,
            f"{name} tells of {'compressed ' if packed else ''}samples as {form[:20]} "
            f"{byte_order[:20]} in the order {order[:20]}, FLOAT INTEL ones in the order SAMP "
            "were expected.",
        )
    trials = _whole(name, text, "numtrials", "1")
    averages = [line.split()[:1] for line in text.lists.get("EPOCH_INFORMATION", []) if line]
    if trials > 1 or any(number != ["1"] for number in averages):
        raise RecordingError(
            FailureCode.NOT_CONTINUOUS,
            f"{name} tells of {trials} epochs and {len(averages)} entries on what they average, "
            "one continuous recording was expected.",
        )


def _rate(name: str, text: _Text) -> Fraction:
    """The rate, which is given twice: where the interval is its rounding, the frequency counts."""
    frequency = spelling.number(text.values.get("samplefreqhz", ""))
    printed = text.values.get("sampletimeusec", "")
    interval = spelling.number(printed)
    if interval and interval > 0:
        rounding = Fraction(1, 2 * 10 ** len(printed.partition(".")[2][:20]))
        if frequency and abs(_MICROSECONDS / frequency - interval) <= rounding:
            return frequency
        return _MICROSECONDS / interval
    if frequency is None or frequency <= 0:
        raise damaged(name, f"gives neither SampleFreqHz nor SampleTimeUsec ({printed[:40]!r})")
    return frequency


def _channels(
    name: str, text: _Text, labels: _Text, n_channels: int, modality: str
) -> list[Channel]:
    """The channels in the order of their samples.

    Labels are listed group after group, those of channels without samples among them;
    CHAN_IN_FILE tells each one's place, from 1 on.
    """
    names = labels.of_kind("LABELS")
    places = [spelling.number(line) for line in text.of_kind("CHAN_IN_FILE") if line]
    stored = {place: index for index, place in enumerate(places) if place}
    if set(stored) == set(range(1, n_channels + 1)):
        order = [stored[Fraction(place)] for place in range(1, n_channels + 1)]
    else:
        order = list(range(min(n_channels, len(names) or n_channels)))
    if len(order) < n_channels:
        raise damaged(name, f"counts {n_channels} channels and tells of {len(order)}")
    ends, groups = _groups(name, text)
    grouped = order if ends[-1:] != [n_channels] else range(n_channels)
    found = [names[index] if index < len(names) else "" for index in order]
    distinct = distinct_labels(label or f"Ch{at + 1}" for at, label in enumerate(found))
    channels = []
    for label, told, index in zip(distinct, found, grouped, strict=True):
        at = bisect_right(ends, index)
        kind, unit = groups[at] if at < len(groups) else ("", "n/a")
        channels.append(_channel(label, told, kind, unit, modality))
    return channels


def _groups(name: str, text: _Text) -> tuple[list[int], list[tuple[str, str]]]:
    """Where each group of channels ends in the list of them all; its kind and its unit."""
    sizes = []
    for _, values in text.groups:
        given = spelling.number(values.get("numchanthisgroup", "0"))
        if given is None or given < 0:
            raise damaged(name, "gives a group of channels no size")
        sizes.append(int(given))
    units = [spelling.unit(values.get("dataunit", "")) for _, values in text.groups]
    return list(accumulate(sizes)), [
        (kind, unit) for (kind, _), unit in zip(text.groups, units, strict=True)
    ]


def _channel(label: str, told: str, kind: str, unit: str, modality: str) -> Channel:
    if "MAG" in kind:
        if unit in _TESLAS:
            return Channel(label, "MEGMAG", "T", _TESLAS[unit])
        return Channel(label, "MEGMAG", unit)
    channel = channel_by_label(label, modality, unit, (1.0, 0.0), told=told)
    if "OTHER" in kind and channel.type in spelling.DEFAULT_TYPES.values():
        channel = replace(channel, type="MISC")
    return channel


def _whole(name: str, text: _Text, key: str, default: str = "") -> int:
    given = text.values.get(key, default)
    value = spelling.number(given)
    if value is None or value.denominator != 1:
        raise damaged(name, f"gives {given[:40]!r} as {key}, a whole number was expected")
    return int(value)
