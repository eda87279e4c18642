"""EGI recordings (.mff directories), through MNE and mffpy."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import mffpy
import mne

from converter.contract.codes import FailureCode, RecordingError
from converter.recording.local import LocalRecording
from converter.recording.readers.claims import check_channels
from converter.recording.readers.gaps import check_gaps
from converter.recording.readers.mne_source import (
    MneSource,
    reading,
    stand_in,
    technical_facts,
)
from converter.recording.signal import Gap, SourceFacts

_SIGNAL = re.compile(r"signal\d+\.bin")
_SAMPLE_BYTES = 4
_LONGEST_XML = 4 << 20  # a layout of 256 sensors takes 80 kB

# Encodings in which markup is its ASCII bytes, zeros aside. Others (UTF-7, EBCDIC) hide it.
_DECLARED_ENCODING = re.compile(
    rb"(?:\xef\xbb\xbf|\xff\xfe|\xfe\xff)?<\?xml\s[^>]*?encoding\s*=\s*[\"']([^\"']*)"
)
_SHOWS_MARKUP = re.compile(
    rb"utf-?(?:8|16|32)(?:-?[lb]e)?|us-ascii|iso-8859-\d+|latin-?1|windows-125\d", re.I
)
_EBCDIC = "<?xm".encode("cp037")


def open_egi(recording: LocalRecording) -> MneSource:
    """Open an MFF directory: EEG channels, then physiological ones; gaps between epochs are zero.

    MNE derives a stim channel, one value a sample in memory, from every event code; the event
    tracks are kept from it, and a stim channel that it makes all the same is left out and
    named in `facts.omitted`. Raises RecordingError: `not_continuous` for segmented and averaged
    files, `corrupt_or_truncated` when a signal file ends inside a block.
    """
    directory, name = recording.file, recording.file.name
    members = [path for path in directory.iterdir() if _is_needed(path)]
    blocks: list[int] = []
    for member in members:
        if _SIGNAL.fullmatch(member.name):
            with reading(f"{name}/{member.name}"):
                blocks = max(blocks, list(_block_lengths(member)), key=sum)
        elif member.suffix.lower() == ".xml":
            _refuse_entities(name, member)
    holder = stand_in(directory, f"{directory.stem}.mff", members)
    try:
        return _open(Path(holder.name) / f"{directory.stem}.mff", name, blocks, holder)
    except BaseException:
        holder.cleanup()
        raise


def _open(source: Path, name: str, blocks: list[int], holder: TemporaryDirectory[str]) -> MneSource:
    with reading(name):
        reader = mffpy.Reader(str(source))
        spans = [(epoch.beginTime, epoch.endTime) for epoch in reader.epochs.epochs]
        ticks = sum(end - begin for begin, end in spans)
        if ticks < 1 or not blocks:
            raise ValueError(f"{len(spans)} epochs and {len(blocks)} blocks of samples")
        segmented = reader.mff_flavor == "segmented" and any(reader.categories.categories.values())
    if segmented:
        raise RecordingError(
            FailureCode.NOT_CONTINUOUS,
            f"{name} is cut into the segments of categories.xml, expected a continuous recording.",
        )
    recorded = sum(blocks)
    check_gaps(name, max(end for _, end in spans) * recorded // ticks, recorded)
    with reading(name):
        raw = mne.io.read_raw_egi(source, preload=False, verbose="ERROR")
        derived = [kind == "stim" for kind in raw.get_channel_types()]
        keep = [index for index, is_derived in enumerate(derived) if not is_derived]
        omitted = [raw.ch_names[index] for index, is_derived in enumerate(derived) if is_derived]
        facts = SourceFacts("EGI MFF", len(keep), tuple(omitted), technical_facts(raw))
        gaps = list(_gaps(raw))
    return MneSource(raw, keep, facts, name, granule=blocks[0], gaps=gaps, release=holder.cleanup)


def _gaps(raw: Any) -> Iterator[Gap]:
    """Pauses between the epochs, and what MNE puts before the first one."""
    epochs = raw._raw_extras[0]
    end = 0
    for first, last in zip(epochs["first_samps"], epochs["last_samps"], strict=True):
        if first > end:
            yield end, int(first)
        end = int(last)


def _is_needed(path: Path) -> bool:
    return path.is_file() and not path.name.startswith((".", "Events"))


def _block_lengths(path: Path) -> Iterator[int]:
    """Samples of every signal block; EOFError when the file ends inside one.

    The layout of a block is as mffpy documents it.
    """
    size = path.stat().st_size
    length = block_bytes = position = 0
    with path.open("rb") as file:
        while position < size:
            file.seek(position)
            (has_header,) = struct.unpack("<i", file.read(4))
            position += 4
            if has_header:
                header_bytes, block_bytes, n_channels = struct.unpack("<3i", file.read(12))
                if header_bytes < 16 or block_bytes < 1 or n_channels < 1:
                    raise ValueError(f"a block of {block_bytes} bytes, {n_channels} channels")
                check_channels(path.name, n_channels)
                length = block_bytes // n_channels // _SAMPLE_BYTES
                position += header_bytes - 4
            elif block_bytes == 0:
                raise ValueError("its first block has no header")
            position += block_bytes
            if position > size:
                raise EOFError(f"{size} bytes, but its last block ends at byte {position}")
            yield length


def _refuse_entities(name: str, path: Path) -> None:
    # An entity can name any file of this machine.
    size = path.stat().st_size
    if size > _LONGEST_XML:
        raise RecordingError(
            FailureCode.FILE_READ_ERROR,
            f"{name}/{path.name} has {size} bytes of XML, at most {_LONGEST_XML} were expected.",
        )
    text = path.read_bytes().replace(b"\0", b"")
    declared = _DECLARED_ENCODING.match(text)
    if text.startswith(_EBCDIC) or (declared and not _SHOWS_MARKUP.fullmatch(declared[1])):
        raise RecordingError(
            FailureCode.FILE_READ_ERROR,
            f"{name}/{path.name} is XML in an encoding other than Unicode and Latin ones.",
        )
    if b"<!ENTITY" in text:
        raise RecordingError(
            FailureCode.FILE_READ_ERROR,
            f"{name}/{path.name} declares XML entities, expected none.",
        )
