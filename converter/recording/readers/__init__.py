"""Which reader opens which recording: one table, one reader module a format family."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import PurePath
from typing import cast

from converter.contract.codes import FailureCode, RecordingError
from converter.recording.local import LocalRecording
from converter.recording.signal import SignalSource

_IN_BLOCKS = "a few blocks, whatever the length"


@dataclass(frozen=True, slots=True)
class Format:
    """A source format.

    `opener` is the dotted name `module:function` below this package, imported when first
    needed. `streamed` tells whether samples are read block by block; `memory` says in words
    what a conversion holds of them.
    """

    name: str
    opener: str
    streamed: bool = True
    memory: str = _IN_BLOCKS


_FIF = Format(
    "FIF",
    "fif:open_fif",
    memory=f"{_IN_BLOCKS}; MaxShield: 8 bytes a sample and channel, twice a float32 file",
)
_FIF_GZ = Format(
    "FIF",
    "fif:open_fif",
    streamed=False,
    memory="the unpacked file and 8 bytes a sample and channel",
)
_KIT = Format("KIT", "kit:open_kit")
_EDF = Format("EDF", "edf:open_edf")
_BRAINVISION = Format("BrainVision", "brainvision:open_brainvision")

_FILES = {
    ".fif": _FIF,
    ".fif.gz": _FIF_GZ,
    ".con": _KIT,
    ".sqd": _KIT,
    ".kdf": _KIT,
    ".edf": _EDF,
    ".bdf": Format("BDF", _EDF.opener),
    ".vhdr": _BRAINVISION,
    ".ahdr": _BRAINVISION,
    ".set": Format("EEGLAB", "eeglab:open_eeglab"),
}
# A 4D/BTi recording is a directory without an extension.
_DIRECTORIES = {
    ".ds": Format("CTF", "ctf:open_ctf"),
    ".mff": Format("EGI MFF", "egi:open_egi", memory=f"{_IN_BLOCKS}, and 8 bytes a sample"),
    "": Format("4D/BTi", "bti:open_bti"),
}


def extension_of(path: str) -> str:
    """The extension in lower case, `.fif.gz` as a whole; empty when there is none."""
    pure = PurePath(path.lower())
    return ".fif.gz" if pure.name.endswith(".fif.gz") else pure.suffix


def format_of(path: str, is_dir: bool) -> Format | None:
    """The format of a recording by its name, case ignored; None when no reader knows it."""
    return (_DIRECTORIES if is_dir else _FILES).get(extension_of(path))


def open_recording(recording: LocalRecording) -> SignalSource:
    """Open a recording with the reader of its format.

    Raises RecordingError: `unsupported_format` when no reader knows the name, else what the
    reader finds wrong with the files.
    """
    is_dir = recording.file.is_dir()
    known = format_of(recording.path, is_dir)
    if known is None:
        kind = "directory" if is_dir else "file"
        extension = extension_of(recording.path)
        raise RecordingError(
            FailureCode.UNSUPPORTED_FORMAT,
            f"{PurePath(recording.path).name}: no reader for a {kind} "
            f"{f'with the extension {extension}' if extension else 'without an extension'}; "
            f"known are {', '.join(sorted([*_FILES, *filter(None, _DIRECTORIES)]))} "
            "and 4D/BTi directories.",
        )
    module, function = known.opener.split(":")
    opener = getattr(import_module(f"{__name__}.{module}"), function)
    return cast(Callable[[LocalRecording], SignalSource], opener)(recording)
