"""An open MNE recording behind the common model, and what its errors mean here."""

from __future__ import annotations

import errno
import io
import logging
import math
import re
import struct
import warnings
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from converter.contract.codes import FailureCode, RecordingError
from converter.recording.signal import Channel, Gap, SignalGroup, SourceFacts, distinct_labels

# What the operating system says of a file that is not as the recording needs it. Any other
# error number (disk full, I/O error, too many open files) is a condition of this machine.
_ERRNO_OF_A_FILE = frozenset(
    {
        errno.ENOENT,
        errno.ENOTDIR,
        errno.EISDIR,
        errno.EINVAL,
        errno.ENAMETOOLONG,
        errno.ELOOP,
        errno.EOVERFLOW,
    }
)
_DAMAGE = re.compile(
    r"corrupt|truncat|broken|premature|unexpected end|end of file|not an even multiple", re.I
)
# Warnings after which the samples returned are not those of the recording.
_DAMAGE_WARNED = re.compile(r"could not be read|possibly corrupted|may be damaged", re.I)
_DIRECTORY_PART = re.compile(r"(?<![\w.])/(?:[^/'\":]+/)+")

_UNITS = {107: "V", 112: "T", 201: "T/m"}  # FIFF unit codes

_TYPES = {
    "mag": "MEGMAG",
    "grad": "MEGGRADPLANAR",
    "ref_meg": "MEGREFMAG",
    "eeg": "EEG",
    "eog": "EOG",
    "ecg": "ECG",
    "emg": "EMG",
    "ecog": "ECOG",
    "seeg": "SEEG",
    "dbs": "DBS",
    "stim": "TRIG",
    "chpi": "HLU",
    "resp": "RESP",
    "gsr": "GSR",
    "temperature": "TEMP",
    "eyegaze": "EYEGAZE",
    "pupil": "PUPIL",
}
# FIFF coil codes (low 16 bits; CTF keeps its compensation grade above them). They decide over
# MNE's type, which calls every sensor calibrated in tesla a magnetometer.
_AXIAL_GRADIOMETERS = frozenset({4, 2001, 4002, 5001, 6001, 7001, 7501, 9001, 9101, 9102})
_AXIAL_REFERENCES = frozenset({4004, 5003, 7503})
_PLANAR_REFERENCES = frozenset({4005, 5004})
# CTF calls its clock (seconds) and its head coils (metres, fit errors) by these names; MNE
# gives all of them out in volts.
_CTF_CLOCK = re.compile(r"SCLK\d+")
_CTF_HEAD_COIL = re.compile(r"HLC\d{4}")


@contextmanager
def reading(name: str) -> Iterator[None]:
    """Any error of a reader inside as a RecordingError on `name`, a file's basename.

    `corrupt_or_truncated` where the error speaks of damage, else `file_read_error`. Conditions
    of the machine pass unchanged: MemoryError, TimeoutError, ImportError, and an OSError with
    an error number that says nothing of the file. Output and warnings are kept off the
    terminal; a warning that samples are missing is an error.
    """
    log = logging.getLogger("mne")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(record=True) as caught, redirect_stdout(io.StringIO()):
            warnings.simplefilter("always")
            yield
    except (RecordingError, MemoryError, TimeoutError, ImportError):
        raise
    except Exception as error:
        number = error.errno if isinstance(error, OSError) else None
        if number is not None and number not in _ERRNO_OF_A_FILE:
            raise
        raise _as_recording_error(name, error) from error
    finally:
        log.setLevel(level)
    for warning in caught:
        if _DAMAGE_WARNED.search(str(warning.message)):
            raise _as_recording_error(name, warning.message, FailureCode.CORRUPT_OR_TRUNCATED)


@contextmanager
def parsing(name: str) -> Iterator[None]:
    """The same, with every error that a library raises as `corrupt_or_truncated`."""
    try:
        with reading(name):
            yield
    except RecordingError as error:
        if error.__cause__ is None:
            raise
        raise RecordingError(FailureCode.CORRUPT_OR_TRUNCATED, error.message) from error


def _as_recording_error(
    name: str, error: Exception | Warning | str, code: FailureCode | None = None
) -> RecordingError:
    line = next(iter(str(error).strip().splitlines()), "")
    detail = f"{type(error).__name__}: {_DIRECTORY_PART.sub('', line)}".removesuffix(": ")
    if code is None:
        damaged = isinstance(error, EOFError | zlib.error | struct.error) or _DAMAGE.search(line)
        code = FailureCode.CORRUPT_OR_TRUNCATED if damaged else FailureCode.FILE_READ_ERROR
    return RecordingError(code, f"{name} could not be read ({detail[:300]}).")


class MneSource:
    """The kept channels of an MNE raw object as one channel group.

    `raw` need not be in memory; `keep` are indices into its channels, in row order. Samples
    are float64 in V, T or T/m ("n/a" for anything else) as MNE scales them: gain 1, offset 0.
    Stretches without acquisition (FIF and EGI skips) are `gaps` on the timeline of the file.
    `name` is the basename that errors carry; `release` is called once, at `close`.

    Raises RecordingError `empty_recording` when no channel or no sample is there.
    """

    def __init__(
        self,
        raw: Any,
        keep: Sequence[int],
        facts: SourceFacts,
        name: str,
        *,
        granule: int = 1,
        gaps: Sequence[Gap] = (),
        release: Callable[[], None] | None = None,
    ) -> None:
        self._raw = raw
        self._keep = list(keep)
        self._name = name
        self._release = release
        self.facts = facts
        if not self._keep or raw.n_times < 1:
            raise RecordingError(
                FailureCode.EMPTY_RECORDING,
                f"{name} holds {len(self._keep)} signal channels of {raw.n_times} samples.",
            )
        with reading(name):  # a header may give a channel a type that there is not
            channels = _channels(raw, self._keep)
        self.groups = (
            SignalGroup(
                rate=native_rate(name, raw.info["sfreq"]),
                n_samples=int(raw.n_times),
                channels=channels,
                granule=max(1, granule),
                gaps=tuple(gaps),
            ),
        )

    def read(self, group: int, start: int, stop: int) -> NDArray[Any]:
        """Samples `start:stop` as (n_channels, stop - start) float64; see SignalSource.read."""
        del group
        if start == stop:
            return np.empty((len(self._keep), 0))
        with reading(self._name):
            samples: NDArray[Any] = self._read(start, stop)
        expected = (len(self._keep), stop - start)
        if samples.shape != expected or samples.dtype.kind == "c":
            raise RecordingError(
                FailureCode.CORRUPT_OR_TRUNCATED,
                f"{self._name}: samples {start} to {stop} read as {samples.dtype} "
                f"{samples.shape}, expected real values of shape {expected}.",
            )
        return samples

    def _read(self, start: int, stop: int) -> NDArray[Any]:
        everything = self._keep == list(range(len(self._raw.ch_names)))
        picks = slice(None) if everything else self._keep
        samples: NDArray[Any] = self._raw[picks, start:stop][0]
        return samples

    def close(self) -> None:
        """Let go of the files; a second call does nothing."""
        self._raw.close()
        if self._release is not None:
            self._release()
            self._release = None


def native_rate(name: str, hertz: float) -> Fraction:
    """The exact value of a header's rate; RecordingError unless it is finite and above zero."""
    rate = float(hertz)
    if not math.isfinite(rate) or rate <= 0:
        raise RecordingError(
            FailureCode.CORRUPT_OR_TRUNCATED,
            f"{name}: the header gives a sampling rate of {rate} Hz, expected one above 0.",
        )
    return Fraction(rate)


def technical_facts(raw: Any) -> Mapping[str, float]:
    """The filter of the acquisition, in Hz, where the header has it."""
    edges = {key: raw.info[key] for key in ("highpass", "lowpass")}
    return {
        key: float(edge) for key, edge in edges.items() if edge is not None and math.isfinite(edge)
    }


def _channels(raw: Any, keep: Sequence[int]) -> tuple[Channel, ...]:
    mne_types = raw.get_channel_types()
    labels = distinct_labels(raw.ch_names[index] for index in keep)
    channels = []
    for index, label in zip(keep, labels, strict=True):
        entry = raw.info["chs"][index]
        kind = channel_type(label, mne_types[index], int(entry["coil_type"]))
        unit = {"SYSCLOCK": "s", "HLU": "n/a"}.get(kind, _UNITS.get(int(entry["unit"]), "n/a"))
        stim = mne_types[index] == "stim"
        channels.append(Channel(label=label, type=kind, unit=unit, discrete=stim))
    return tuple(channels)


def channel_type(label: str, mne_type: str, coil: int) -> str:
    """The BIDS channel type of a channel with this MNE type and FIFF coil code."""
    coil &= 0xFFFF
    if mne_type in ("mag", "grad") and coil in _AXIAL_GRADIOMETERS:
        return "MEGGRADAXIAL"
    if mne_type == "ref_meg" and coil in _AXIAL_REFERENCES:
        return "MEGREFGRADAXIAL"
    if mne_type == "ref_meg" and coil in _PLANAR_REFERENCES:
        return "MEGREFGRADPLANAR"
    if mne_type == "eog" and label[:4].upper() in ("VEOG", "HEOG"):
        return label[:4].upper()
    if mne_type == "misc" and _CTF_CLOCK.match(label):
        return "SYSCLOCK"
    if mne_type == "misc" and _CTF_HEAD_COIL.match(label):
        return "HLU"
    return _TYPES.get(mne_type, "MISC")


def stand_in(directory: Path, name: str, members: Sequence[Path]) -> TemporaryDirectory[str]:
    """A temporary directory that holds a directory `name` of links to the members.

    For readers that insist on a name, or read more of a directory than the recording needs.
    """
    holder = TemporaryDirectory(prefix="nemar-convert-")
    inside = Path(holder.name) / name
    inside.mkdir()
    for member in members:
        (inside / member.name).symlink_to(directory.absolute() / member.name)
    return holder
