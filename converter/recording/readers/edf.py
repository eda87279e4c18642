"""EDF, EDF+, BDF and BDF+: data records of 16-bit or 24-bit samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from converter.recording.local import LocalRecording
from converter.recording.readers import spelling
from converter.recording.readers.binary import PIECE_BYTES, SampleFile, Scratch, check_bounds
from converter.recording.readers.channel_names import channel_by_label
from converter.recording.readers.edf_clock import CONTINUOUS, Clock, read_clock
from converter.recording.readers.edf_header import Header, Signal, read_header
from converter.recording.readers.gaps import Timeline, check_gaps
from converter.recording.signal import (
    Channel,
    SignalGroup,
    SourceFacts,
    by_native_rate,
    distinct_labels,
)

LONG_RECORD_BYTES = 4 << 20  # longer records are read signal by signal, never as a whole
# The low 16 bits of a BioSemi status word are the trigger inputs, bit 16 marks a new epoch;
# above them lie states of the amplifier (speed mode, CMS in range, battery). MNE serves the
# same 17 bits, of signals of these names.
STATUS_MASK = (1 << 17) - 1
_STATUS = frozenset({"status", "trigger"})


def _channel(signal: Signal, label: str, modality: str, has_status: bool) -> Channel:
    """A channel as its label tells; a status word, of which bits are left out, is nothing else."""
    unit, ranges = spelling.unit(signal.dimension), signal.scaling()
    scaling = None if ranges is None else (float(ranges[0]), float(ranges[1]))
    prefilter = signal.prefilter or "n/a"
    channel = channel_by_label(label, modality, unit, scaling, prefilter, told=signal.label)
    return replace(channel, waveform=None) if has_status and _is_status(signal) else channel


def _is_status(signal: Signal) -> bool:
    return signal.label.casefold() in _STATUS


@dataclass(frozen=True, slots=True)
class _Run:
    """Signals of one group that lie side by side in a record: rows `row:row + n_signals`."""

    row: int
    n_signals: int
    first_sample: int


def _runs(signals: Sequence[Signal]) -> list[_Run]:
    runs: list[_Run] = []
    for row, signal in enumerate(signals):
        last = runs[-1] if runs else None
        if last and signal.first_sample == last.first_sample + last.n_signals * signal.samples:
            runs[-1] = _Run(last.row, last.n_signals + 1, last.first_sample)
        else:
            runs.append(_Run(row, 1, signal.first_sample))
    return runs


def _timelines(name: str, header: Header, clock: Clock) -> tuple[dict[int, Timeline], float]:
    """The timeline of the signals of each number of samples in a record.

    Beside them: how many seconds a record is off its onset at most, at the finest of them.
    """
    timelines: dict[int, Timeline] = {}
    error = 0.0
    for spr in sorted({signal.samples for signal in header.data_signals}):
        gaps, error = clock.layout(spr, float(header.duration))
        n_recorded = spr * header.n_records
        check_gaps(name, n_recorded + sum(stop - start for start, stop in gaps), n_recorded)
        timelines[spr] = Timeline(n_recorded, gaps)
    return timelines, error


class EdfSource:
    """An open EDF or BDF file: one group per native rate, samples as int16 or int32.

    Gain and offset come from the header's physical and digital ranges. Where a range is
    missing or has no extent, samples are served as stored (gain 1, offset 0, unit "n/a"). A
    signal whose label tells a trigger is a discrete TRIG channel of stored integers; of Status and
    Trigger in BDF they are the 17 bits that `STATUS_MASK` keeps. Memory: one data record of at
    most four megabytes, and the block returned.
    """

    def __init__(self, path: Path, modality: str) -> None:
        self._file = SampleFile(path)
        try:
            self.header = header = read_header(self._file)
            clock = read_clock(self._file, header) if header.discontinuous else CONTINUOUS
            self._timelines, error = _timelines(path.name, header, clock)
        except BaseException:
            self.close()
            raise
        self._record_samples = header.record_samples
        self._long_records = header.record_bytes > LONG_RECORD_BYTES
        self._records_at_once = max(1, PIECE_BYTES // header.record_bytes)
        self._out_is_24_bit = header.sample_bytes == 3
        self._bytes = Scratch(np.uint8)
        self._out = Scratch(np.int32 if self._out_is_24_bit else np.int16)
        self._joined = Scratch(self._out.dtype)
        signals = header.data_signals
        labels = distinct_labels(
            signal.label or f"signal {index + 1}" for index, signal in enumerate(signals)
        )
        rates = [Fraction(signal.samples) / header.duration for signal in signals]
        self._members: list[list[Signal]] = []
        groups = []
        for rate, members in by_native_rate(rates):
            self._members.append([signals[index] for index in members])
            spr = signals[members[0]].samples
            groups.append(
                SignalGroup(
                    rate=rate,
                    n_samples=self._timelines[spr].n_samples,
                    channels=tuple(
                        _channel(signals[i], labels[i], modality, self._out_is_24_bit)
                        for i in members
                    ),
                    granule=1 if self._long_records else spr,
                    gaps=self._timelines[spr].gaps,
                )
            )
        self._runs = [_runs(members) for members in self._members]
        self.groups: tuple[SignalGroup, ...] = tuple(groups)
        self._status_rows = [
            [row for row, each in enumerate(own) if self._out_is_24_bit and _is_status(each)]
            for own in self._members
        ]
        technical = {"data_records": header.n_records, "record_duration_s": float(header.duration)}
        if header.discontinuous:
            technical["record_onset_error_s"] = round(error, 6)
        self.facts = SourceFacts(
            format=header.format,
            header_signals=len(header.signals),
            omitted=tuple(signal.label for signal in header.signals if signal.is_annotation),
            technical=technical,
        )

    def read(self, group: int, start: int, stop: int) -> NDArray[Any]:
        """Samples `start:stop` of a group as (n_channels, stop - start), int16 or int32.

        Gaps are stored zeros.
        """
        check_bounds(start, stop, self.groups[group].n_samples)
        if not self.groups[group].gaps:
            return self._recorded(group, start, stop)
        out = self._joined.array(len(self._members[group]), stop - start)
        out[...] = 0
        timeline = self._timelines[self._members[group][0].samples]
        for at, first, last in timeline.recorded(start, stop):
            out[:, at : at + last - first] = self._recorded(group, first, last)
        return out

    def _recorded(self, group: int, start: int, stop: int) -> NDArray[Any]:
        """Recorded samples `start:stop`, gaps not counted."""
        spr = self._members[group][0].samples
        if self._long_records:
            out = self._out.array(len(self._members[group]), stop - start)
            self._read_signals(group, start, out)
        else:
            first, last = start // spr, -(-stop // spr)
            whole = self._out.array(len(self._members[group]), (last - first) * spr)
            self._read_records(group, first, whole)
            out = whole[:, start - first * spr : stop - first * spr]
        for row in self._status_rows[group]:
            out[row] &= STATUS_MASK
        return out

    def _read_records(self, group: int, first: int, out: NDArray[Any]) -> None:
        """Fill `out` with all samples of the data records from `first` on."""
        width = self._record_samples
        spr = self._members[group][0].samples
        for at in range(0, out.shape[1] // spr, self._records_at_once):
            count = min(self._records_at_once, out.shape[1] // spr - at)
            records = self._stored((first + at) * width, count * width).reshape(count, width)
            for run in self._runs[group]:
                stored = records[:, run.first_sample : run.first_sample + run.n_signals * spr]
                rows = out[run.row : run.row + run.n_signals, at * spr : (at + count) * spr]
                self._convert(
                    stored.reshape(count, run.n_signals, spr).transpose(1, 0, 2),
                    rows.reshape(run.n_signals, count, spr),
                )

    def _read_signals(self, group: int, start: int, out: NDArray[Any]) -> None:
        """Fill `out` with the samples from `start` on, touching this group's bytes alone."""
        spr = self._members[group][0].samples
        at = 0
        while at < out.shape[1]:
            record, first = divmod(start + at, spr)
            count = min(spr - first, out.shape[1] - at)
            for signal, row in zip(self._members[group], out, strict=True):
                stored = record * self._record_samples + signal.first_sample + first
                self._convert(self._stored(stored, count), row[at : at + count])
            at += count

    def _stored(self, first: int, count: int) -> NDArray[Any]:
        """Samples `first:first + count` of the whole file, in file order.

        24-bit samples are the upper three bytes of 32-bit words that overlap: each begins
        one byte before its sample.
        """
        width = self.header.sample_bytes
        raw = self._bytes.array(4 + count * width)
        self._file.fill(raw[4:], self.header.data_offset + first * width)
        if width == 2:
            return np.ndarray((count,), "<i2", raw.data, 4)
        return np.ndarray((count,), "<i4", raw.data, 3, (3,))

    def _convert(self, stored: NDArray[Any], target: NDArray[Any]) -> None:
        if self._out_is_24_bit:
            np.right_shift(stored, 8, out=target)
        else:
            target[...] = stored

    def close(self) -> None:
        """Close the file; closing twice is harmless."""
        self._file.close()


def open_edf(recording: LocalRecording) -> EdfSource:
    """Open an EDF, EDF+, BDF or BDF+ file; its content tells which.

    Raises RecordingError: CORRUPT_OR_TRUNCATED on a header that cannot be or that the file
    does not hold, EMPTY_RECORDING without signals, NOT_CONTINUOUS on records that overlap,
    FILE_READ_ERROR on records with almost nothing but gaps between them.
    """
    return EdfSource(recording.file, recording.modality)
