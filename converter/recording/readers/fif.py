"""FIF recordings (.fif, split chains, .fif.gz), through MNE."""

from __future__ import annotations

import gzip
import io
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, cast

import mne
import numpy as np
from numpy.typing import NDArray

from converter.contract.codes import FailureCode, RecordingError
from converter.recording.local import LocalRecording
from converter.recording.readers.claims import check_unpacked
from converter.recording.readers.fif_samples import FifSamples
from converter.recording.readers.fif_tags import FifOutline, read_outline
from converter.recording.readers.gaps import check_gaps
from converter.recording.readers.maxshield import separate
from converter.recording.readers.mne_source import (
    MneSource,
    native_rate,
    reading,
    technical_facts,
)
from converter.recording.signal import Gap, SourceFacts

# Read by position, a data buffer need not be read whole: it may be the whole recording.
_SAMPLES_AT_ONCE = 1 << 12
_PIECE = 1 << 20  # bytes that are unpacked at a time
_SMALLEST_SAMPLE = 2  # bytes, of the sample types that FIF knows


def open_fif(recording: LocalRecording) -> MneSource:
    """Open a FIF recording; the members of a split chain, in the order listed, as one.

    A member is found by its listed name beside `recording.file`, never by what a file says of
    the next one, which is the name from before a renaming. Skips of the acquisition are zeros.
    A MaxShield recording is corrected in memory (see `maxshield.separate`), a compressed one is
    unpacked in memory.

    Raises RecordingError: `not_continuous` for epochs and averages, `file_read_error` for other
    content and for a reference out of the directory, `empty_recording` without samples,
    `corrupt_or_truncated` for a file cut short and a chain without its end,
    `maxshield_uncalibrated` when the site's calibration files are missing.
    """
    name = recording.file.name
    members = [PurePosixPath(path).name for path in recording.split_members] or [name]
    outlines, raws = [], []
    for member in members:
        outline, raw = _open_member(recording.file.with_name(member))
        outlines.append(outline)
        raws.append(raw)
    if outlines[-1].continues:
        raise RecordingError(
            FailureCode.CORRUPT_OR_TRUNCATED,
            f"{members[-1]} says that the recording goes on in another file, which is not among "
            f"its members ({len(members)} found).",
        )
    gaps = list(_gaps(raws))
    raw = _chain(members, raws)
    with reading(name):
        granule = round(raw.buffer_size_sec * raw.info["sfreq"])
    separation = None
    if any(outline.is_shielded for outline in outlines):
        raw, separation = separate(raw, recording.sidecars, name)
    n_channels = len(raw.ch_names)
    facts = SourceFacts("FIF", n_channels, technical=technical_facts(raw), separation=separation)
    samples = None
    if separation is None and not name.lower().endswith(".gz"):
        paths = [recording.file.with_name(member) for member in members]
        samples = FifSamples.of(paths, outlines, n_channels)
    return FifSource(raw, samples, facts, name, granule, gaps)


class FifSource(MneSource):
    """A FIF recording, whose samples MNE reads only where they lie in no simple order.

    Where this project reads them, they are as stored, and channels have their scales as gains.
    """

    def __init__(
        self,
        raw: Any,
        samples: FifSamples | None,
        facts: SourceFacts,
        name: str,
        granule: int,
        gaps: Sequence[Gap],
    ) -> None:
        self._samples = samples
        keep = range(len(raw.ch_names))
        if samples is not None and samples.n_samples == raw.n_times:
            granule = min(granule, _SAMPLES_AT_ONCE)
        try:
            super().__init__(raw, keep, facts, name, granule=granule, gaps=gaps)
        except BaseException:
            self._close_samples()
            raise
        scales = _scales(raw)
        usable = all(math.isfinite(scale) and scale != 0 for scale in scales)
        if samples is None or samples.n_samples != raw.n_times or not usable:
            self._close_samples()
            return
        (group,) = self.groups
        channels = zip(group.channels, scales, strict=True)
        scaled = tuple(replace(channel, gain=scale) for channel, scale in channels)
        self.groups = (replace(group, channels=scaled),)

    def _read(self, start: int, stop: int) -> NDArray[Any]:
        if self._samples is None:
            return super()._read(start, stop)
        return self._samples.read(start, stop)

    def _close_samples(self) -> None:
        if self._samples is not None:
            self._samples.close()
            self._samples = None

    def close(self) -> None:
        """Let go of the files; a second call does nothing."""
        self._close_samples()
        super().close()


def _open_member(path: Path) -> tuple[FifOutline, Any]:
    name = path.name
    if not path.is_file():
        raise RecordingError(
            FailureCode.CORRUPT_OR_TRUNCATED, f"{name}, a member of the recording, is missing."
        )
    packed = name.lower().endswith(".gz")
    size = path.stat().st_size
    with reading(name):
        if packed:
            unpacked = _unpacked(path)
            outline = read_outline(unpacked, unpacked.getbuffer().nbytes, name)
        else:
            with path.open("rb") as stream:
                outline = read_outline(cast(BinaryIO, stream), size, name)
    _check(name, outline)
    with reading(name):
        source = unpacked if packed else path
        raw = _OneFile(source, allow_maxshield="yes", preload=packed, verbose="ERROR")
    if len(raw.filenames) != 1:
        raise RecordingError(
            FailureCode.FILE_READ_ERROR,
            f"{name} opened together with {len(raw.filenames) - 1} other files, expected none.",
        )
    native_rate(name, raw.info["sfreq"])
    recorded = outline.data_bytes // (_SMALLEST_SAMPLE * max(1, len(raw.ch_names)))
    check_gaps(name, raw.n_times, recorded)
    # Notes of the acquisition are not needed, and may name people.
    raw.set_annotations(None)
    return outline, raw


def _unpacked(path: Path) -> io.BytesIO:
    packed, unpacked = path.stat().st_size, io.BytesIO()
    with gzip.open(path) as file:
        while piece := file.read(_PIECE):
            unpacked.write(piece)
            check_unpacked(path.name, packed, unpacked.tell())
    return unpacked


def _read_one_file(raw: Any, *args: Any, **options: Any) -> tuple[Any, None, float]:
    shell, _, buffer_seconds = mne.io.Raw._read_raw_file(raw, *args, **options)
    return shell, None, buffer_seconds


# An MNE raw object that ends where its file ends, whatever the file says of a next one.
_OneFile = type("_OneFile", (mne.io.Raw,), {"_read_raw_file": _read_one_file})


def _check(name: str, outline: FifOutline) -> None:
    if not outline.is_raw:
        code = FailureCode.NOT_CONTINUOUS if outline.is_cut else FailureCode.FILE_READ_ERROR
        found = "epochs or averages" if outline.is_cut else "no recording"
        raise RecordingError(code, f"{name} holds {found}, expected a continuous recording.")
    for reference in outline.next_files:
        if reference in ("", ".", "..") or not {"/", "\\", "\0"}.isdisjoint(reference):
            raise RecordingError(
                FailureCode.FILE_READ_ERROR,
                f"{name} refers to a file outside its directory, expected a plain file name.",
            )
    if outline.data_bytes == 0:
        raise RecordingError(FailureCode.EMPTY_RECORDING, f"{name} holds no sample.")


def _chain(names: Sequence[str], raws: Sequence[Any]) -> Any:
    """One raw object over all members, none of them read yet."""
    first = raws[0]
    for name, raw in zip(names[1:], raws[1:], strict=True):
        same = (
            raw.ch_names == first.ch_names
            and raw.info["sfreq"] == first.info["sfreq"]
            and np.array_equal(_scales(raw), _scales(first))
        )
        if not same:
            raise RecordingError(
                FailureCode.FILE_READ_ERROR,
                f"{name} has {len(raw.ch_names)} channels at {raw.info['sfreq']} Hz, expected "
                f"the channels, the scaling and the rate of {names[0]} "
                f"({len(first.ch_names)} at {first.info['sfreq']} Hz).",
            )
        bad = {*first.info["bads"], *raw.info["bads"]}
        first.info["bads"] = [label for label in first.ch_names if label in bad]
    if len(raws) == 1:
        return first
    for raw in raws[1:]:
        raw.info["bads"] = list(first.info["bads"])
    with reading(names[0]):
        return mne.concatenate_raws(list(raws), on_mismatch="ignore", verbose="ERROR")


def _gaps(raws: Sequence[Any]) -> Iterator[Gap]:
    """Skips of the acquisition, on the timeline of all members; MNE has no buffer for them."""
    start = 0
    for raw in raws:
        buffers = raw._raw_extras[0]
        bounds = (buffers["bounds"] - buffers["bounds"][0] + start).tolist()
        for buffer, *gap in zip(buffers["ent"], bounds, bounds[1:], strict=False):
            if buffer is None:
                yield gap[0], gap[1]
        start += int(raw.n_times)


def _scales(raw: Any) -> list[float]:
    return [float(entry["cal"] * entry["range"]) for entry in raw.info["chs"]]
