"""The one model that every reader returns: channel groups, each on one native grid."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Protocol

from numpy.typing import NDArray

# Types whose samples are codes, not a waveform: never filtered, never rescaled.
DISCRETE_TYPES = frozenset({"TRIG", "SYSCLOCK", "CTRL"})

Gap = tuple[int, int]
"""Bounds `start:stop`, in samples, of a stretch in which nothing was recorded."""


@dataclass(frozen=True, slots=True)
class Channel:
    """One channel as its file has it.

    What `SignalSource.read` returns becomes physical by `raw * gain + offset`, in `unit`; gain
    is finite and not 0.
    `type` is a BIDS channel type or `MISC`; `discrete` marks what a reader calls stim. Where
    nothing but a label made it so, `waveform` is the channel that it is if channels.tsv declares a
    type of waveforms. `unrecorded` counts the samples that this channel did not record, outside
    the gaps of its group.
    """

    label: str
    type: str
    unit: str
    gain: float = 1.0
    offset: float = 0.0
    prefilter: str = "n/a"
    discrete: bool = False
    waveform: Channel | None = None
    unrecorded: int = 0


@dataclass(frozen=True, slots=True)
class SignalGroup:
    """Channels that share one native rate.

    `rate` is exact, in Hz; `n_samples` counts samples a channel; reads whose bounds are
    multiples of `granule` samples cost the format least. `gaps` are common to all channels and
    lie in order on the timeline of the file, which `n_samples` covers; whatever is read of them
    is served as a physical 0.
    """

    rate: Fraction
    n_samples: int
    channels: tuple[Channel, ...]
    granule: int = 1
    gaps: tuple[Gap, ...] = ()


@dataclass(frozen=True, slots=True)
class SpaceSeparation:
    """Signal-Space Separation that a reader applied: file names, never paths."""

    calibration: str
    cross_talk: str
    mne_version: str
    method: str = "maxwell_filter"


@dataclass(frozen=True, slots=True)
class SourceFacts:
    """What a recording's own header says beside its samples.

    `header_signals` is the number of signals that the header counts; `omitted` names the
    signals that are no channels of the recording (annotation signals, channels that a
    reader derives); `technical` holds facts about the file, of which those are published that
    `allowed.technical` lets pass. `joints` are
    the seconds at which the file goes on after a break that it does not count as time.
    """

    format: str
    header_signals: int
    omitted: tuple[str, ...] = ()
    technical: Mapping[str, Any] = field(default_factory=dict)
    separation: SpaceSeparation | None = None
    joints: tuple[float, ...] = ()


class SignalSource(Protocol):
    """An open recording."""

    @property
    def facts(self) -> SourceFacts:
        """What the header says."""

    @property
    def groups(self) -> Sequence[SignalGroup]:
        """The channel groups, the one most channels have first."""

    def read(self, group: int, start: int, stop: int) -> NDArray[Any]:
        """Samples `start:stop` of one group as (n_channels, stop - start), any real dtype.

        The array is the caller's until the next read. Raises RecordingError where the
        file ends before its header says.
        """

    def close(self) -> None:
        """Let go of the files."""


def distinct_labels(labels: Iterable[str]) -> list[str]:
    """Labels with every repeated one numbered in file order: T8-P8, T8-P8 -> T8-P8-0, T8-P8-1."""
    names = list(labels)
    counts = Counter(names)
    taken = {name for name, count in counts.items() if count == 1}
    next_number: Counter[str] = Counter()
    result = []
    for name in names:
        if counts[name] > 1:
            base = name
            while (name := f"{base}-{next_number[base]}") in taken:
                next_number[base] += 1
            next_number[base] += 1
            taken.add(name)
        result.append(name)
    return result


def by_native_rate(rates: Sequence[Fraction]) -> list[tuple[Fraction, list[int]]]:
    """Channel indices of each native rate, in file order; the rate most channels have first."""
    members: dict[Fraction, list[int]] = {}
    for index, rate in enumerate(rates):
        members.setdefault(rate, []).append(index)
    return sorted(members.items(), key=lambda item: (-len(item[1]), -item[0]))
