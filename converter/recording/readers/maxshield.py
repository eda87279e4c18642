"""Signal-Space Separation of recordings made with internal active shielding (MaxShield)."""

from __future__ import annotations

from pathlib import Path
from typing import Any, BinaryIO, cast

import mne

from converter.contract.codes import FailureCode, RecordingError
from converter.recording.local import LocalSidecars
from converter.recording.readers.fif_tags import read_outline
from converter.recording.readers.mne_source import reading
from converter.recording.signal import SpaceSeparation

# In metres, where no sphere fits the digitised head: the customary origin in head coordinates.
_HEAD_ORIGIN = (0.0, 0.0, 0.04)


def separate(raw: Any, sidecars: LocalSidecars, name: str) -> tuple[Any, SpaceSeparation]:
    """The corrected recording, in memory, and what was applied to it.

    `mne.preprocessing.maxwell_filter` with the site's fine calibration and cross-talk, around
    the digitised head, or in device coordinates for an empty room. Channels that the file
    itself marks bad are left out of the fit and reconstructed. The result takes 8 bytes a
    sample and channel: twice a float32 file, four times a 16-bit one.

    Raises RecordingError: `maxshield_uncalibrated` unless both site files apply, and what is
    wrong with a damaged one.
    """
    calibration, cross_talk = sidecars.calibration, sidecars.crosstalk
    if calibration is None or cross_talk is None:
        lacking = {"calibration": calibration, "cross-talk": cross_talk}
        raise RecordingError(
            FailureCode.MAXSHIELD_UNCALIBRATED,
            f"{name} was recorded with internal active shielding, whose correction needs the "
            "site's calibration and cross-talk files; the dataset has no "
            f"{' and no '.join(what for what, path in lacking.items() if path is None)} file.",
        )
    _check_fif(cross_talk)
    with reading(name):
        frame, origin = _centre(raw.info)
        corrected = mne.preprocessing.maxwell_filter(
            raw,
            origin=origin,
            coord_frame=frame,
            calibration=str(calibration),
            cross_talk=str(cross_talk),
            verbose="ERROR",
        )
    return corrected, SpaceSeparation(calibration.name, cross_talk.name, mne.__version__)


def _check_fif(path: Path) -> None:
    with reading(path.name), path.open("rb") as stream:
        read_outline(cast(BinaryIO, stream), path.stat().st_size, path.name)


def _centre(info: Any) -> tuple[str, tuple[float, ...]]:
    """The coordinate frame of the expansion and its origin in it, in metres."""
    if info["dev_head_t"] is None or not info["dig"]:
        return "meg", (0.0, 0.0, 0.0)
    try:
        _, origin, _ = mne.bem.fit_sphere_to_headshape(info, units="m", verbose="ERROR")
    except (RuntimeError, ValueError):
        return "head", _HEAD_ORIGIN
    return "head", tuple(float(value) for value in origin)
