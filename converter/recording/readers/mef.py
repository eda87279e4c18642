"""MEF 3: a directory (.mefd) of channels, each with its own blocks of compressed samples."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from converter.contract.codes import FailureCode, RecordingError
from converter.recording.local import LocalRecording
from converter.recording.readers import mef_files, mef_red
from converter.recording.readers.binary import SampleFile, Scratch, check_bounds
from converter.recording.readers.channel_names import channel_by_label
from converter.recording.readers.gaps import check_gaps
from converter.recording.readers.mef_timeline import SECOND
from converter.recording.readers.mne_source import parsing
from converter.recording.readers.timeline import (
    Stretch,
    common_gaps,
    parts,
    shifted,
    with_unrecorded,
)
from converter.recording.signal import (
    Channel,
    SignalGroup,
    SourceFacts,
    by_native_rate,
    distinct_labels,
)

_VALUES_AT_ONCE = 1 << 23  # samples of all channels of a group
_MOST_HELD_VALUES = 1 << 26  # samples of one block of each channel
# Of a batch that is decoded side by side.
_MOST_LANES, _BATCH_BYTES = 1024, 96 << 20


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A block, and where it goes: `out[row, target]` is samples `part` of it."""

    row: int
    first: int  # sample of the channel
    block: mef_red.Block
    target: slice
    part: slice


class _Group:
    """Channels of one rate on the timeline of the session."""

    def __init__(
        self,
        name: str,
        rate: Fraction,
        members: Sequence[mef_files.Channel],
        channels: Sequence[Channel],
        origin: int,
    ) -> None:
        self._members = members
        self._stretches: list[tuple[Stretch, ...]] = []
        for member in members:
            later = (_start(member) - origin) * float(rate) / SECOND
            self._stretches.append(shifted(member.timeline.stretches, round(later)))
        n_samples = max(stretches[-1].end for stretches in self._stretches)
        check_gaps(name, n_samples * len(members), sum(member.n_samples for member in members))
        granule = min(n_samples, max(1, _VALUES_AT_ONCE // len(members)))
        gaps = common_gaps(self._stretches)
        described = with_unrecorded(channels, self._stretches, n_samples, gaps)
        self.described = SignalGroup(rate, n_samples, described, granule, gaps)
        self._out = Scratch(np.int32)
        # The last block of each channel: (its first sample, its samples). The next read may
        # begin in the middle of it.
        self._held: dict[int, tuple[int, NDArray[np.int32]]] = {}

    def read(self, start: int, stop: int) -> NDArray[Any]:
        out = self._out.array(len(self._members), stop - start)
        out[:] = 0
        for batch in self._batches(out, start, stop):
            decoded = mef_red.decode([wanted.block for wanted in batch])
            for wanted, samples in zip(batch, decoded, strict=True):
                out[wanted.row, wanted.target] = samples[wanted.part]
                self._held[wanted.row] = wanted.first, samples
        return _with_codes_as_numbers(out)

    def _batches(self, out: NDArray[np.int32], start: int, stop: int) -> Iterator[list[_Wanted]]:
        batch: list[_Wanted] = []
        longest = 0
        for wanted in self._wanted(out, start, stop):
            longest = max(longest, wanted.block.cost)
            size = longest * (len(batch) + 1)
            if batch and (size > _BATCH_BYTES or len(batch) == _MOST_LANES):
                yield batch
                batch, longest = [], wanted.block.cost
            batch.append(wanted)
        if batch:
            yield batch

    def _wanted(self, out: NDArray[np.int32], start: int, stop: int) -> Iterator[_Wanted]:
        """All blocks of samples `start:stop`; what a held one has of them is put into `out`."""
        for row, (member, stretches) in enumerate(zip(self._members, self._stretches, strict=True)):
            for target, stored in parts(stretches, start, stop):
                first, samples = self._held.get(row, (0, _NOTHING))
                skip = max(0, min(first + len(samples), stored.stop) - stored.start)
                if first <= stored.start and skip:
                    held = samples[stored.start - first :][:skip]
                    out[row, target.start : target.start + skip] = held
                    target = slice(target.start + skip, target.stop)
                    stored = slice(stored.start + skip, stored.stop)
                yield from _blocks(row, member, target, stored)


_NOTHING = np.empty(0, np.int32)


def _start(member: mef_files.Channel) -> int:
    """The time of the first sample in microseconds; the channel has one."""
    assert member.timeline.start is not None
    return member.timeline.start


def _blocks(row: int, member: mef_files.Channel, target: slice, stored: slice) -> Iterator[_Wanted]:
    """The blocks that hold samples `stored` of a channel."""
    base = 0
    for segment in member.segments:
        start, stop = max(stored.start, base), min(stored.stop, base + segment.n_samples)
        if start < stop:
            with SampleFile(segment.data) as data:
                for first, entry in _overlapping(segment, start - base, stop - base):
                    last = first + int(entry["n_samples"])
                    begin, end = max(start, base + first), min(stop, base + last)
                    yield _Wanted(
                        row,
                        base + first,
                        _block(data, entry),
                        slice(
                            target.start + begin - stored.start, target.start + end - stored.start
                        ),
                        slice(begin - base - first, end - base - first),
                    )
        base += segment.n_samples


def _overlapping(
    segment: mef_files.Segment, start: int, stop: int
) -> Iterator[tuple[int, np.void]]:
    """Entries of the blocks with samples `start:stop` of a segment, with their first sample."""
    for _, first, entries in segment.entries(start, stop):
        ends = first + np.cumsum(entries["n_samples"], dtype=np.int64)
        low = int(np.searchsorted(ends, start, "right"))
        high = min(int(np.searchsorted(ends, stop, "left")) + 1, len(entries))
        for index in range(low, high):
            entry = entries[index]
            yield int(ends[index]) - int(entry["n_samples"]), entry


def _block(data: SampleFile, entry: np.void) -> mef_red.Block:
    content = np.empty(int(entry["n_bytes"]), np.uint8)
    data.fill(content, int(entry["offset"]))
    header = content[: mef_red.HEADER_BYTES].view(mef_red.HEADER)[0]
    if (header["n_samples"], header["block_bytes"]) != (entry["n_samples"], entry["n_bytes"]):
        raise RecordingError(
            FailureCode.CORRUPT_OR_TRUNCATED,
            f"{data.name} has a block of {header['n_samples']} samples in "
            f"{header['block_bytes']} bytes, the index one of {entry['n_samples']} in "
            f"{entry['n_bytes']}.",
        )
    if header["flags"] & mef_files.ENCRYPTED:
        raise mef_files.encrypted(data.name)
    # Libraries disagree on how such samples are restored.
    if (header["scale_factor"], header["detrend_slope"], header["detrend_intercept"]) != (1, 0, 0):
        raise RecordingError(
            FailureCode.UNSUPPORTED_FORMAT,
            f"{data.name} has blocks that were compressed with a loss; blocks that hold every "
            "sample were expected.",
        )
    return mef_red.Block(header, content[mef_red.HEADER_BYTES :])


def _with_codes_as_numbers(samples: NDArray[np.int32]) -> NDArray[Any]:
    """Samples as stored; as float64 where codes for missing or clipped ones are among them."""
    if samples.min() > mef_red.LOWEST and samples.max() < mef_red.HIGHEST:
        return samples
    numbers = samples.astype(np.float64)
    for code, number in (
        (mef_red.MISSING, np.nan),
        (mef_red.LOWEST, -np.inf),
        (mef_red.HIGHEST, np.inf),
    ):
        numbers[samples == code] = number
    return numbers


class MefSource:
    """An open MEF 3 session: one group a native rate, samples as int32.

    All groups begin with the earliest sample of any channel. Where a channel did not record
    its samples are 0. Missing samples that are stored as such are NaN. Memory: about 150 MB,
    and a block of each channel.
    """

    def __init__(self, path: Path, modality: str) -> None:
        self._name = path.name
        with parsing(path.name):
            self._open(path, modality)

    def _open(self, path: Path, modality: str) -> None:
        everything = list(mef_files.channels(path))
        found = [channel for channel in everything if channel.n_samples]
        if not found:
            raise RecordingError(
                FailureCode.EMPTY_RECORDING, f"{path.name} holds no samples of any channel."
            )
        if sum(channel.longest_block for channel in found) > _MOST_HELD_VALUES:
            raise RecordingError(
                FailureCode.RECORDING_TOO_LARGE,
                f"{path.name} has blocks of more than {_MOST_HELD_VALUES} samples, those of one "
                f"time in {len(found)} channels, which can't be held at once.",
            )
        found.sort(key=lambda channel: channel.metadata.number)
        origin = min(map(_start, found))
        labels = distinct_labels(channel.label for channel in found)
        described = [
            _described(label, channel.label, channel.metadata, modality)
            for label, channel in zip(labels, found, strict=True)
        ]
        self._groups = [
            _Group(path.name, rate, [found[i] for i in rows], [described[i] for i in rows], origin)
            for rate, rows in by_native_rate([channel.metadata.rate for channel in found])
        ]
        self.groups = tuple(group.described for group in self._groups)
        self.facts = SourceFacts(
            format="MEF3", header_signals=len(everything), technical={"mef_version": 3}
        )

    def read(self, group: int, start: int, stop: int) -> NDArray[Any]:
        """Samples `start:stop` as (n_channels, stop - start)."""
        check_bounds(start, stop, self.groups[group].n_samples)
        if start == stop:
            return np.empty((len(self.groups[group].channels), 0), np.int32)
        with parsing(self._name):
            return self._groups[group].read(start, stop)

    def close(self) -> None:
        """Nothing is kept open between reads."""


def _described(label: str, told: str, metadata: mef_files.Metadata, modality: str) -> Channel:
    return channel_by_label(label, modality, metadata.unit, (metadata.factor, 0.0), told=told)


def open_mef(recording: LocalRecording) -> MefSource:
    """Open a MEF 3 session that is not encrypted.

    Raises RecordingError: FILE_READ_ERROR on encryption, links to other directories and segments
    that differ, CORRUPT_OR_TRUNCATED on what is damaged or contradicts itself, EMPTY_RECORDING
    without samples, UNSUPPORTED_FORMAT on other versions and lossy compression,
    RECORDING_TOO_LARGE on blocks that can't be held.
    """
    return MefSource(recording.file, recording.modality)
