"""When the data records of EDF+D and BDF+D files begin.

Source of the rules: Kemp and Olivan 2003 (EDF+), "time-keeping annotations".
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from converter.contract.codes import FailureCode, RecordingError
from converter.recording.readers.binary import SampleFile
from converter.recording.readers.edf_header import Header
from converter.recording.signal import Gap

_ONSET = re.compile(rb"([+-]\d{1,15}(?:\.\d{1,15})?)[\x14\x15]")
_ONSET_BYTES = 64  # more than the first onset of a record can take
_ONSET_ROUNDING = 0.001  # s; onsets are often printed with three decimals
_DRIFT = 0.001  # the clock of the onsets against the count of the samples
_FLOAT_ERROR = 1e-6  # s, more than a float loses of an onset of years


@dataclass(frozen=True, slots=True)
class Run:
    """Data records that follow one another: the first one, and when it begins.

    `onset` is in seconds after the first record's.
    """

    record: int
    onset: float


@dataclass(frozen=True, slots=True)
class Clock:
    """The runs of a file; within one no record is more than `drift` seconds off the clock."""

    runs: tuple[Run, ...]
    drift: float

    def layout(self, record_samples: int, record_duration: float) -> tuple[list[Gap], float]:
        """Gaps on the timeline of signals with this many samples in a record of so many seconds.

        A run begins at the sample nearest to its onset, or where the one before it ends.
        Beside the gaps: how many seconds a record is off its onset at most.
        """
        gaps: list[Gap] = []
        before = 0  # samples of all gaps so far
        error = 0.0
        for run in self.runs:
            end = run.record * record_samples + before
            start = max(end, round(run.onset / record_duration * record_samples))
            if start > end:
                gaps.append((end, start))
                before += start - end
            error = max(error, abs(start * record_duration / record_samples - run.onset))
        return gaps, error + self.drift


CONTINUOUS = Clock((Run(0, 0.0),), 0.0)


def read_clock(file: SampleFile, header: Header) -> Clock:
    """The runs of a discontinuous file's records.

    A record follows the one before it when its onset is the other's end to within half a
    sample of the fastest signal, or the rounding of printed onsets where that is coarser, and
    when clock and samples have not drifted apart by more than a thousandth of the run.
    Raises RecordingError: `not_continuous` for records that overlap or go back in time, and
    for a file without a clock; `corrupt_or_truncated` for a record without an onset.
    """
    duration = float(header.duration)
    fastest = max(signal.samples for signal in header.data_signals)
    tolerance = max(duration / (2 * fastest), _ONSET_ROUNDING) + _FLOAT_ERROR
    runs: list[Run] = []
    drift = before = begin = first = 0.0
    for record, onset in enumerate(_onsets(file, header)):
        elapsed = (record - runs[-1].record) * duration if runs else 0.0
        step = onset - before - duration
        drifted = onset - begin - elapsed
        allowed = max(tolerance, _DRIFT * elapsed)
        if not runs or step > tolerance or drifted > allowed:
            first = first if runs else onset
            runs.append(Run(record, onset - first))
            begin = onset
        elif step < -tolerance or drifted < -allowed:
            raise RecordingError(
                FailureCode.NOT_CONTINUOUS,
                f"{file.name}: data record {record} begins at {onset:g} s, "
                f"{-min(step, drifted):g} s before the end of the one before it.",
            )
        else:
            drift = max(drift, abs(drifted))
        before = onset
    return Clock(tuple(runs), drift)


def _onsets(file: SampleFile, header: Header) -> Iterator[float]:
    """Each record's onset in seconds, with which its first annotation signal begins."""
    clock = next((signal for signal in header.signals if signal.is_annotation), None)
    if clock is None:
        raise RecordingError(
            FailureCode.NOT_CONTINUOUS,
            f"{file.name} is declared discontinuous and has no annotation signal to tell when "
            "its data records begin.",
        )
    at = header.data_offset + clock.first_sample * header.sample_bytes
    width = min(_ONSET_BYTES, clock.samples * header.sample_bytes)
    for record in range(header.n_records):
        match = _ONSET.match(file.bytes(at + record * header.record_bytes, width))
        if match is None:
            raise RecordingError(
                FailureCode.CORRUPT_OR_TRUNCATED,
                f"{file.name} is declared discontinuous and record {record} has no onset.",
            )
        yield float(match[1])
