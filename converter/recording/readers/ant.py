"""ANT Neuro recordings (.cnt): a RIFF file of compressed epochs, through `antio`.

Names and dates of people are in companion files, which are not opened, and are asked for nowhere.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from converter.contract.codes import FailureCode, RecordingError
from converter.recording.readers import spelling
from converter.recording.readers.binary import SampleFile, check_bounds
from converter.recording.readers.channel_names import type_by_label
from converter.recording.readers.mne_source import reading
from converter.recording.signal import Channel, SignalGroup, SourceFacts, distinct_labels

_LONGEST_HEADER = 4 << 20  # bytes; a channel takes about 60
_MOST_BYTES_AN_EPOCH = 256 << 20  # of unpacked samples
_SAMPLES_A_BYTE = 8  # more than any compression leaves of them
_MOST_CHUNKS = 4096
_BIPOLAR = re.compile(r"BIP\d+", re.I)


@dataclass(frozen=True, slots=True)
class _Header:
    rate: Fraction
    n_samples: int
    n_channels: int
    epoch: int  # samples a channel


def open_ant(path: Path, modality: str) -> AntSource:
    """Open an ANT recording.

    Raises RecordingError: `unsupported_format` without the `ant` extra,
    `corrupt_or_truncated` on a header that the file cannot hold, `empty_recording` without
    samples, `file_read_error` when the library refuses the file.
    """
    try:
        from antio.libeep import InputCNT, pyeep
    except ImportError:
        raise RecordingError(
            FailureCode.UNSUPPORTED_FORMAT,
            f"{path.name} is an ANT recording, which the extra 'ant' reads: "
            "pip install 'nemar-convert[ant]'.",
        ) from None
    header = _read_header(path)
    # The library looks for files beside it, of which there are none at a place of its own.
    holder = TemporaryDirectory(prefix="nemar-convert-")
    try:
        alone = Path(holder.name) / "recording.cnt"
        alone.symlink_to(path.resolve())
        with reading(path.name):
            library = InputCNT(pyeep.read(str(alone)))
        return AntSource(library, header, path.name, modality)
    finally:
        holder.cleanup()


class AntSource:
    """An open ANT recording: one group, samples as float32 in the units of the file.

    Memory: one epoch of the file and the block returned.
    """

    def __init__(self, library: Any, header: _Header, name: str, modality: str) -> None:
        self._library: Any = library
        self._name = name
        found = (library.get_channel_count(), library.get_sample_count())
        if found != (header.n_channels, header.n_samples):
            raise _damaged(
                name,
                f"opened with {found[0]} channels of {found[1]} samples, its header has "
                f"{header.n_channels} of {header.n_samples}",
            )
        with reading(name):
            told = [
                library.get_channel(index, encoding="latin-1") for index in range(header.n_channels)
            ]
        names = [spelling.decode(cells[0].encode("latin-1")) for cells in told]
        labels = distinct_labels(text or f"Ch{at + 1}" for at, text in enumerate(names))
        units = [spelling.unit(cells[1]) for cells in told]
        channels = tuple(
            Channel(label, _type(text, modality, unit), unit)
            for label, text, unit in zip(labels, names, units, strict=True)
        )
        self.groups = (SignalGroup(header.rate, header.n_samples, channels, header.epoch),)
        self.facts = SourceFacts(
            "ANT CNT", header.n_channels, technical={"epoch_samples": header.epoch}
        )

    def read(self, group: int, start: int, stop: int) -> NDArray[Any]:
        """Samples `start:stop` as (n_channels, stop - start) float32."""
        check_bounds(start, stop, self.groups[group].n_samples)
        if start == stop:
            return np.empty((len(self.groups[group].channels), 0), np.float32)
        with reading(self._name):
            samples: NDArray[Any] = self._library.get_samples_as_nparray(start, stop)
        return samples

    def close(self) -> None:
        """Let go of the file; a second call does nothing."""
        self._library = None


def _type(label: str, modality: str, unit: str) -> str:
    if _BIPOLAR.fullmatch(label):
        return "MISC"
    kind = type_by_label(label, modality, unit)
    return "MISC" if kind == "TRIG" else kind  # they are waveforms here


def _read_header(path: Path) -> _Header:
    file = SampleFile(path)
    try:
        is_64 = file.bytes(0, 4) == b"RF64"
        chunks = _chunks(file, is_64)
        text = _text(file, chunks)
        epoch, n_epochs = _epochs(file, chunks, is_64)
    finally:
        file.close()
    rate, n_samples, n_channels = (
        spelling.number(text.get(key, "")) for key in ("sampling rate", "samples", "channels")
    )
    if rate is None or n_samples is None or n_channels is None or rate <= 0:
        raise _damaged(path.name, "has no sampling rate, no number of samples or of channels")
    if n_samples < 1 or n_channels < 1:
        raise RecordingError(
            FailureCode.EMPTY_RECORDING,
            f"{path.name} holds {float(n_channels):g} channels of {float(n_samples):g} samples.",
        )
    if n_samples * n_channels > _SAMPLES_A_BYTE * file.size:
        raise _damaged(
            path.name,
            f"declares {float(n_channels):g} channels of {float(n_samples):g} samples, and has "
            f"{file.size} bytes",
        )
    if epoch < 1 or epoch * n_channels * 4 > _MOST_BYTES_AN_EPOCH:
        raise _damaged(path.name, f"has epochs of {epoch} samples and {n_channels} channels")
    if not epoch * (n_epochs - 1) < n_samples <= epoch * n_epochs:
        raise _damaged(
            path.name, f"has {n_epochs} epochs of {epoch} samples for {n_samples} samples"
        )
    return _Header(rate, int(n_samples), int(n_channels), epoch)


def _chunks(file: SampleFile, is_64: bool) -> dict[bytes, tuple[int, int]]:
    """Offset and size of each chunk's content, those of lists too."""
    layout = "<4sQ" if is_64 else "<4sI"
    head = struct.calcsize(layout)
    found: dict[bytes, tuple[int, int]] = {}
    at = head + 4
    for _ in range(_MOST_CHUNKS):
        raw = file.bytes(at, head)
        if len(raw) < head:
            break
        name, size = struct.unpack(layout, raw)
        at += head
        if name == b"LIST":
            at += 4
            continue
        if at + size > file.size:
            raise _damaged(file.name, f"has {file.size} bytes, a chunk ends at byte {at + size}")
        found.setdefault(name, (at, size))
        at += size + size % 2
    return found


def _text(file: SampleFile, chunks: dict[bytes, tuple[int, int]]) -> dict[str, str]:
    """The first line below each [heading] of the header, headings in lower case."""
    offset, size = chunks.get(b"eeph", (0, 0))
    lines = file.bytes(offset, min(size, _LONGEST_HEADER)).decode("latin-1").splitlines()
    found: dict[str, str] = {}
    for heading, line in pairwise(lines):
        if heading.startswith("["):
            found.setdefault(heading.strip("[] \t").lower(), line.strip())
    return found


def _epochs(file: SampleFile, chunks: dict[bytes, tuple[int, int]], is_64: bool) -> tuple[int, int]:
    """Samples of an epoch, and how many epochs there are: their offsets follow."""
    width = 8 if is_64 else 4
    offset, size = chunks.get(b"ep  ", (0, 0))
    raw = file.bytes(offset, width)
    if size < width or len(raw) < width:
        raise _damaged(file.name, "has no table of epochs")
    return int.from_bytes(raw, "little"), size // width - 1


def _damaged(name: str, sentence: str) -> RecordingError:
    return RecordingError(FailureCode.CORRUPT_OR_TRUNCATED, f"{name} {sentence}.")
