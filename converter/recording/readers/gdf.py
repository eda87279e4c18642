"""GDF, versions 1 to 3: data records of samples whose type each channel has of its own."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from converter.recording.local import LocalRecording
from converter.recording.readers.binary import PIECE_BYTES, SampleFile, Scratch, check_bounds
from converter.recording.readers.channel_names import channel_by_label
from converter.recording.readers.gdf_header import Signal, read_header
from converter.recording.signal import (
    Channel,
    SignalGroup,
    SourceFacts,
    by_native_rate,
    distinct_labels,
)

LONG_RECORD_BYTES = 4 << 20  # longer records are read channel by channel, never as a whole


def _channel(signal: Signal, label: str, modality: str) -> Channel:
    return channel_by_label(
        label, modality, signal.unit, signal.scaling, signal.prefilter, told=signal.label
    )


def _numbers(stored: NDArray[np.uint8], signal: Signal) -> NDArray[Any]:
    """Samples out of their bytes, whose last axis is contiguous: (..., n * width) -> (..., n)."""
    if signal.width != 3:
        return stored.view(signal.dtype)
    words = np.zeros((*stored.shape[:-1], stored.shape[-1] // 3, 4), np.uint8)
    words[..., 1:] = stored.reshape(*stored.shape[:-1], -1, 3)
    numbers: NDArray[Any] = words.view(signal.dtype)[..., 0]
    return numbers >> 8


class GdfSource:
    """An open GDF file: one group per native rate, samples in the type that holds its channels'.

    Gain and offset come from the physical and digital ranges. Where a range is missing or has
    no extent, samples are served as stored (gain 1, offset 0, unit "n/a"); so are those of a
    Status or Trigger channel, which is discrete. Channels that have values at events alone are
    named in `facts.omitted`. Memory: one data record of at most four megabytes, and the block
    returned.
    """

    def __init__(self, path: Path, modality: str) -> None:
        self._file = SampleFile(path)
        try:
            self.header = read_header(self._file)
        except BaseException:
            self.close()
            raise
        header = self.header
        self._long_records = header.record_bytes > LONG_RECORD_BYTES
        self._records_at_once = max(1, PIECE_BYTES // header.record_bytes)
        self._bytes = Scratch(np.uint8)
        signals = header.signals
        labels = distinct_labels(
            signal.label or f"signal {index + 1}" for index, signal in enumerate(signals)
        )
        rates = [Fraction(signal.samples) / header.duration for signal in signals]
        self._members: list[list[Signal]] = []
        self._out: list[Scratch] = []
        groups = []
        for rate, members in by_native_rate(rates):
            own = [signals[index] for index in members]
            self._members.append(own)
            self._out.append(Scratch(np.result_type(*{signal.dtype for signal in own})))
            spr = own[0].samples
            groups.append(
                SignalGroup(
                    rate=rate,
                    n_samples=spr * header.n_records,
                    channels=tuple(_channel(signals[i], labels[i], modality) for i in members),
                    granule=1 if self._long_records else spr,
                )
            )
        self.groups: tuple[SignalGroup, ...] = tuple(groups)
        self.facts = SourceFacts(
            format="GDF",
            header_signals=header.n_signals,
            omitted=header.sparse,
            technical={
                "gdf_version": header.version,
                "data_records": header.n_records,
                "record_duration_s": float(header.duration),
            },
        )

    def read(self, group: int, start: int, stop: int) -> NDArray[Any]:
        """Samples `start:stop` of a group as (n_channels, stop - start)."""
        check_bounds(start, stop, self.groups[group].n_samples)
        members = self._members[group]
        spr = members[0].samples
        if self._long_records:
            out = self._out[group].array(len(members), stop - start)
            self._read_signals(members, start, out)
            return out
        first, last = start // spr, -(-stop // spr)
        whole = self._out[group].array(len(members), (last - first) * spr)
        self._read_records(members, first, whole)
        return whole[:, start - first * spr : stop - first * spr]

    def _read_records(self, members: list[Signal], first: int, out: NDArray[Any]) -> None:
        """Fill `out` with all samples of the data records from `first` on."""
        spr, size = members[0].samples, self.header.record_bytes
        n_records = out.shape[1] // spr
        for at in range(0, n_records, self._records_at_once):
            count = min(self._records_at_once, n_records - at)
            raw = self._bytes.array(count * size)
            self._file.fill(raw, self.header.data_offset + (first + at) * size)
            records = raw.reshape(count, size)
            for signal, row in zip(members, out, strict=True):
                end = signal.first_byte + spr * signal.width
                stored = _numbers(records[:, signal.first_byte : end], signal)
                row[at * spr : (at + count) * spr].reshape(count, spr)[...] = stored

    def _read_signals(self, members: list[Signal], start: int, out: NDArray[Any]) -> None:
        """Fill `out` with the samples from `start` on, touching this group's bytes alone."""
        spr, at = members[0].samples, 0
        while at < out.shape[1]:
            record, first = divmod(start + at, spr)
            count = min(spr - first, out.shape[1] - at)
            base = self.header.data_offset + record * self.header.record_bytes
            for signal, row in zip(members, out, strict=True):
                raw = self._bytes.array(count * signal.width)
                self._file.fill(raw, base + signal.first_byte + first * signal.width)
                row[at : at + count] = _numbers(raw, signal)
            at += count

    def close(self) -> None:
        """Close the file; closing twice is harmless."""
        self._file.close()


def open_gdf(recording: LocalRecording) -> GdfSource:
    """Open a GDF file.

    Raises RecordingError: CORRUPT_OR_TRUNCATED on a header that cannot be or that the file
    does not hold, EMPTY_RECORDING without samples, UNSUPPORTED_FORMAT on 128-bit and bit-wise
    sample types.
    """
    return GdfSource(recording.file, recording.modality)
