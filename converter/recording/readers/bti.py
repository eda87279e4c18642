"""4D Neuroimaging/BTi recordings: a directory with a `c,rf*` file and `config`, through MNE."""

from __future__ import annotations

import io
import os
import struct
from dataclasses import dataclass
from pathlib import Path

import mne

from converter.contract.codes import FailureCode, RecordingError
from converter.recording.local import LocalRecording
from converter.recording.readers.mne_source import MneSource, reading, technical_facts
from converter.recording.signal import SourceFacts

_SAMPLE_BYTES = {1: 2, 2: 4, 3: 4, 4: 8}  # by the header's data format
_FIXED_BYTES, _EPOCH_BYTES, _CHANNEL_BYTES = 96, 56, 104
_COUNTS = (20, 24, 48, 60)  # where the header counts events, processes and classes of events
_LONGEST_CONFIG = 16 << 20  # one of 279 channels takes 188 kB
_POSITION_MASK = 2**31 - 1  # some writers leave other bits above a 31-bit position


class _Config(io.BytesIO):
    """The `config` file; EOFError where a size or a count in it leads beyond its end.

    MNE would ask for as much memory, or go on reading nothing as many times.
    """

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            content = file.read(_LONGEST_CONFIG + 1)
        if len(content) > _LONGEST_CONFIG:
            raise ValueError(f"config has more than {_LONGEST_CONFIG} bytes")
        super().__init__(content)

    def read(self, size: int | None = -1, /) -> bytes:
        """As of any file, but never less than asked for."""
        content = super().read(size)
        if size is not None and len(content) < size:
            raise EOFError(f"config ends {size - len(content)} bytes before it should")
        return content


@dataclass(frozen=True, slots=True)
class _Header:
    position: int
    sample_bytes: int
    n_samples: int
    columns: tuple[int, ...]  # each channel's column in the data, channels by number


def open_bti(recording: LocalRecording) -> MneSource:
    """Open a 4D/BTi directory: every channel of its data file under its own name, in file order.

    Of several data files `c,rfDC` is taken, else the first by name. Epochs that the file
    counts follow one another without a gap. Raises RecordingError: `file_read_error` when the
    data file or `config` is missing, `corrupt_or_truncated` when the data file is shorter than
    its header says.
    """
    directory, name = recording.file, recording.file.name
    data = _data_file(directory)
    with reading(data.name):
        header = _read_header(data)
    _check(data, header)
    with reading(data.name):
        raw = mne.io.read_raw_bti(
            data,
            config_fname=_Config(directory / "config"),
            head_shape_fname=None,
            convert=False,
            rename_channels=False,
            sort_by_ch_name=False,
            preload=False,
            verbose="ERROR",
        )
        facts = SourceFacts("BTi", len(header.columns), technical=technical_facts(raw))
    return MneSource(raw, range(len(raw.ch_names)), facts, name)


def _data_file(directory: Path) -> Path:
    names = sorted(entry.name for entry in directory.iterdir() if entry.is_file())
    found = sorted((name for name in names if name.startswith("c,rf")), key=_unfiltered_first)
    present = {"c,rf*": bool(found), "config": "config" in names}
    missing = [what for what, is_there in present.items() if not is_there]
    if missing:
        raise RecordingError(
            FailureCode.FILE_READ_ERROR,
            f"{directory.name} has no file {' and no '.join(missing)}, expected both of a 4D/BTi "
            "recording.",
        )
    return directory / found[0]


def _unfiltered_first(name: str) -> tuple[bool, str]:
    return name != "c,rfDC", name


def _read_header(path: Path) -> _Header:
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        file.seek(max(0, size - 8))
        (position,) = struct.unpack(">q", file.read(8))
        if not 0 <= position < size:
            position &= _POSITION_MASK
        position += -position % 8
        if position + _FIXED_BYTES > size:
            raise EOFError(f"its last bytes place the header at byte {position} of {size}")
        file.seek(position)
        block = file.read()
    (data_format,) = struct.unpack_from(">h", block, 8)
    (n_epochs,) = struct.unpack_from(">i", block, 12)
    (n_channels,) = struct.unpack_from(">h", block, 52)
    channels = _FIXED_BYTES + n_epochs * _EPOCH_BYTES
    if n_epochs < 0 or n_channels < 0 or channels + n_channels * _CHANNEL_BYTES > len(block):
        raise EOFError(
            f"a header of {len(block)} bytes for {n_epochs} epochs and {n_channels} channels"
        )
    for at in _COUNTS:
        (count,) = struct.unpack_from(">i", block, at)
        if not 0 <= count <= len(block):
            raise EOFError(f"a header of {len(block)} bytes for {count} entries of one kind")
    lengths = [
        struct.unpack_from(">i", block, _FIXED_BYTES + i * _EPOCH_BYTES)[0] for i in range(n_epochs)
    ]
    entries = [channels + i * _CHANNEL_BYTES for i in range(n_channels)]
    numbered = sorted(
        (struct.unpack_from(">h", block, at + 16)[0], struct.unpack_from(">i", block, at + 64)[0])
        for at in entries
    )
    columns = tuple(column for _, column in numbered)
    return _Header(position, _SAMPLE_BYTES.get(data_format, 0), sum(lengths), columns)


def _check(path: Path, header: _Header) -> None:
    n_channels = len(header.columns)
    if n_channels < 1 or header.n_samples < 1:
        raise RecordingError(
            FailureCode.EMPTY_RECORDING,
            f"{path.name} holds {n_channels} channels of {header.n_samples} samples.",
        )
    needed = n_channels * header.n_samples * header.sample_bytes
    if not 0 < needed <= header.position:
        raise RecordingError(
            FailureCode.CORRUPT_OR_TRUNCATED,
            f"{path.name} has {header.position} bytes of samples, but its header "
            f"counts {n_channels} channels of {header.n_samples} samples, "
            f"{header.sample_bytes} bytes each.",
        )
    # MNE takes the channel numbers for the order of the columns.
    if header.columns != tuple(range(n_channels)):
        raise RecordingError(
            FailureCode.FILE_READ_ERROR,
            f"{path.name} numbers its channels in another order than it stores them, "
            "expected the same order.",
        )
