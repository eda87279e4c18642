"""Files of the fixtures' formats, from samples in whole steps, the same bytes on every run."""

from __future__ import annotations

import io
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import edfio
import mne
import numpy as np
from fixture_signals import Channel, Steps
from numpy.typing import NDArray
from scipy.io import savemat

# BioSemi's range in uV: 2**24 steps of 1/32, wide enough for electrode offsets.
BDF_RANGE = (-262144, 262143)
BDF_STEP = (BDF_RANGE[1] - BDF_RANGE[0]) / (2**24 - 1)
# The digital value next to 0 uV, which no digital value is in that range.
_BDF_ZERO = 15
_BDF_DIGITAL = (-(2**23), 2**23 - 1)
_EDF_DIGITAL = (-(2**15), 2**15 - 1)

_MAT_TEXT = b"MATLAB 5.0 MAT-file, written for nemar-convert"
_MNE_TYPES = {"MEGMAG": "mag", "MEGGRADPLANAR": "grad", "EEG": "eeg", "TRIG": "stim"}
_FIF_TAG = struct.Struct(">iIii")
_FIF_ID_TYPE = 31


def edf(
    signals: Sequence[tuple[Channel, Steps, int]],
    annotations: Sequence[tuple[float, float | None, str]] | None = None,
) -> bytes:
    """EDF of (channel, samples, rate in Hz), with annotations (onset, duration, text) EDF+C."""
    written = []
    for channel, samples, rate in signals:
        low, high = round(-32768 * channel.step, 6), round(32767 * channel.step, 6)
        written.append(
            edfio.EdfSignal(
                _physical(samples, _EDF_DIGITAL, (low, high)),
                rate,
                label=channel.label,
                physical_dimension=channel.unit,
                physical_range=(low, high),
                digital_range=_EDF_DIGITAL,
            )
        )
    notes = None if annotations is None else [edfio.EdfAnnotation(*note) for note in annotations]
    return _written(edfio.Edf(written, annotations=notes))


def bdf(signals: Sequence[tuple[Channel, Steps]], rate: int) -> bytes:
    """BDF of (channel, samples); a channel with the unit "Boolean" holds bare integers."""
    written = []
    for channel, samples in signals:
        is_status = channel.unit == "Boolean"
        extent = _BDF_DIGITAL if is_status else BDF_RANGE
        written.append(
            edfio.BdfSignal(
                _physical(samples if is_status else samples + _BDF_ZERO, _BDF_DIGITAL, extent),
                rate,
                label=channel.label,
                physical_dimension=channel.unit,
                physical_range=extent,
                digital_range=_BDF_DIGITAL,
                prefiltering="" if is_status else f"HP: DC; LP: {rate // 5} Hz",
            )
        )
    return _written(edfio.Bdf(written))


def _physical(digital: Steps, stored: tuple[int, int], extent: tuple[float, float]) -> NDArray[Any]:
    """Physical values, which edfio turns into the same digital ones again."""
    return (digital - stored[0]) * ((extent[1] - extent[0]) / (stored[1] - stored[0])) + extent[0]


def _written(recording: edfio.Edf | edfio.Bdf) -> bytes:
    buffer = io.BytesIO()
    recording.write(buffer)
    return buffer.getvalue()


def brainvision_header(
    channels: Sequence[Channel], rate: int, data_file: str, marker_file: str
) -> bytes:
    """The .vhdr of multiplexed int16 samples, resolutions and units as the channels have them."""
    lines = [
        "Brain Vision Data Exchange Header File Version 1.0",
        "; Written for nemar-convert",
        "",
        "[Common Infos]",
        "Codepage=UTF-8",
        f"DataFile={data_file}",
        f"MarkerFile={marker_file}",
        "DataFormat=BINARY",
        "DataOrientation=MULTIPLEXED",
        f"NumberOfChannels={len(channels)}",
        f"SamplingInterval={1_000_000 // rate}",
        "",
        "[Binary Infos]",
        "BinaryFormat=INT_16",
        "",
        "[Channel Infos]",
        *(f"Ch{i}={c.label},,{c.step:g},{c.unit}" for i, c in enumerate(channels, 1)),
        "",
    ]
    return "\r\n".join(lines).encode()


def brainvision_markers(data_file: str, codes: Mapping[int, int]) -> bytes:
    """The .vmrk with a stimulus marker at each (zero-based) sample."""
    lines = [
        "Brain Vision Data Exchange Marker File, Version 1.0",
        "",
        "[Common Infos]",
        "Codepage=UTF-8",
        f"DataFile={data_file}",
        "",
        "[Marker Infos]",
        "Mk1=New Segment,,1,1,0",
        *(
            f"Mk{number}=Stimulus,S{code:3d},{sample + 1},1,0"
            for number, (sample, code) in enumerate(codes.items(), 2)
        ),
        "",
    ]
    return "\r\n".join(lines).encode()


def multiplexed(samples: Sequence[NDArray[Any]], dtype: str) -> bytes:
    """All channels of the first sample, then of the second, and so on."""
    return np.stack(list(samples), axis=1).astype(dtype).tobytes()


def eeglab(
    channels: Sequence[Channel],
    rate: int,
    data: NDArray[np.float32] | str,
    n_points: int,
    n_trials: int = 1,
) -> bytes:
    """A MAT v5 .set; `data` is (channels, points[, trials]) in uV or the name of the .fdt."""
    places = np.zeros((1, len(channels)), dtype=[(n, object) for n in ("labels", "type", "X")])
    for place, channel in zip(places[0], channels, strict=True):
        place["labels"], place["type"], place["X"] = channel.label, channel.kind, np.zeros((0, 0))
    empty = np.zeros((0, 0))
    fields: dict[str, Any] = {
        "setname": "rest",
        "filename": "",
        "filepath": "",
        "nbchan": float(len(channels)),
        "trials": float(n_trials),
        "pnts": float(n_points),
        "srate": float(rate),
        "xmin": 0.0,
        "xmax": (n_points - 1) / rate,
        "times": empty,
        "data": data,
        "datfile": data if isinstance(data, str) else "",
        "icawinv": empty,
        "icasphere": empty,
        "icaweights": empty,
        "icachansind": empty,
        "chanlocs": places,
        "event": empty,
        "epoch": empty,
        "ref": "common",
    }
    buffer = io.BytesIO()
    savemat(buffer, {"EEG": fields}, oned_as="row")
    # The text that opens a MAT file otherwise tells the machine and the time of writing.
    return _MAT_TEXT.ljust(116) + buffer.getvalue()[116:]


def fif(signals: Sequence[tuple[Channel, Steps]], rate: int, *, shielded: bool = False) -> bytes:
    """FIF of float32 samples; shielded: marked as acquired with internal active shielding."""
    channels = [channel for channel, _ in signals]
    info = mne.create_info(
        [channel.label for channel in channels],
        rate,
        [_MNE_TYPES[channel.kind] for channel in channels],
    )
    data = np.array([samples * channel.step for channel, samples in signals])
    raw = mne.io.RawArray(data, info, verbose="ERROR")
    with raw.info._unlock():
        raw.info["maxshield"] = shielded
        raw.info["dev_head_t"] = mne.transforms.Transform("meg", "head")
    with TemporaryDirectory() as directory:
        path = Path(directory) / "rest_meg.fif"
        raw.save(path, fmt="single", verbose="ERROR")
        return _anonymous(bytearray(path.read_bytes()))


def _anonymous(content: bytearray) -> bytes:
    """The file without the machine and the time that its identifiers were made of."""
    position = 0
    while position < len(content):
        _, kind, size, _ = _FIF_TAG.unpack_from(content, position)
        body = position + _FIF_TAG.size
        if kind == _FIF_ID_TYPE:
            content[body + 4 : body + size] = bytes(size - 4)
        position = body + size
    return bytes(content)
