"""Which reader opens which recording: one table, one reader module a format family."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from importlib import import_module
from pathlib import PurePath
from typing import cast

from converter.contract.codes import FailureCode, RecordingError
from converter.recording.local import LocalRecording
from converter.recording.readers.claims import check_channels
from converter.recording.signal import SignalSource

# In Hz, far beyond any recording on both sides: what lies outside is a damaged header, and its
# duration or its filter would not fit any number.
SLOWEST, FASTEST = Fraction(1, 10**6), Fraction(10**7)

# Bytes of a recording that is opened in a fraction of the memory that the least one is given: if
# it asks for more, its header lies about a size.
SMALL = 16 << 20


@dataclass(frozen=True, slots=True)
class Format:
    """A source format; `opener` is `module:function` below this package, imported when needed.

    `library` is the module that takes the time to import.
    """

    name: str
    opener: str
    library: str | None = None

    @property
    def modules(self) -> tuple[str, ...]:
        """What a process imports to read the format."""
        reader = f"{__name__}.{self.opener.partition(':')[0]}"
        return (reader,) if self.library is None else (reader, self.library)


_FIF = Format("FIF", "fif:open_fif", "mne.io.fiff")
_KIT = Format("KIT", "kit:open_kit", "mne.io.kit")
_BRAINVISION = Format("BrainVision", "brainvision:open_brainvision")
_CURRY = Format("Curry", "curry:open_curry")

_FILES = {
    ".fif": _FIF,
    ".fif.gz": _FIF,
    ".con": _KIT,
    ".sqd": _KIT,
    ".kdf": _KIT,
    ".edf": Format("EDF", "edf:open_edf"),
    ".bdf": Format("BDF", "edf:open_edf"),
    ".vhdr": _BRAINVISION,
    ".ahdr": _BRAINVISION,
    ".set": Format("EEGLAB", "eeglab:open_eeglab"),
    ".gdf": Format("GDF", "gdf:open_gdf"),
    ".cnt": Format("CNT", "cnt:open_cnt"),
    ".lay": Format("Persyst", "persyst:open_persyst"),
    ".eeg": Format("Nihon Kohden", "nihon:open_nihon"),
    ".cdt": _CURRY,
    ".dat": _CURRY,
    ".nwb": Format("NWB", "nwb:open_nwb"),
}
# A 4D/BTi recording is a directory without an extension.
_DIRECTORIES = {
    ".ds": Format("CTF", "ctf:open_ctf", "mne.io.ctf"),
    ".mefd": Format("MEF3", "mef:open_mef"),
    ".mff": Format("EGI MFF", "egi:open_egi", "mne.io.egi"),
    "": Format("4D/BTi", "bti:open_bti", "mne.io.bti"),
}


def extension_of(path: str) -> str:
    """The extension in lower case, `.fif.gz` as a whole; empty when there is none."""
    name = path.lower().rpartition("/")[2]
    if name.endswith(".fif.gz"):
        return ".fif.gz"
    dot = name.rfind(".")
    return name[dot:] if 0 < dot < len(name) - 1 else ""


def format_of(path: str, is_dir: bool) -> Format | None:
    """The format of a recording by its name, case ignored; None when no reader knows it."""
    return (_DIRECTORIES if is_dir else _FILES).get(extension_of(path))


def open_recording(recording: LocalRecording) -> SignalSource:
    """Open a recording with the reader of its format.

    Raises RecordingError: `unsupported_format` when no reader knows the name,
    `corrupt_or_truncated` on a rate outside SLOWEST to FASTEST, on more channels than any
    recording has, and when a small file can't be opened for want of memory; else what the
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
    name = PurePath(recording.path).name
    source = _opened(recording, known, name)
    try:
        _check(source, name)
    except RecordingError:
        source.close()
        raise
    return source


def _opened(recording: LocalRecording, known: Format, name: str) -> SignalSource:
    module, function = known.opener.split(":")
    opener = getattr(import_module(f"{__name__}.{module}"), function)
    try:
        return cast(Callable[[LocalRecording], SignalSource], opener)(recording)
    except MemoryError as error:
        if (size := _size(recording)) > SMALL:
            raise
        raise RecordingError(
            FailureCode.CORRUPT_OR_TRUNCATED,
            f"{name} asks for more memory than {size} bytes can need.",
        ) from error


def _check(source: SignalSource, name: str) -> None:
    """What holds for every format."""
    check_channels(name, sum(len(group.channels) for group in source.groups))
    for group in source.groups:
        if not SLOWEST <= group.rate <= FASTEST:
            raise RecordingError(
                FailureCode.CORRUPT_OR_TRUNCATED,
                f"{name}: the header gives a sampling rate of {float(group.rate):g} Hz, expected "
                f"one of {float(SLOWEST):g} to {float(FASTEST):g} Hz.",
            )


def _size(recording: LocalRecording) -> int:
    """Bytes of all files that may be the recording's: those beside its main file are."""
    folder = recording.file if recording.file.is_dir() else recording.file.parent
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
