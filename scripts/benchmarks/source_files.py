"""Source files of each format, from (channels, samples) of int16 in steps of 0.1 uV.

Written block by block where the format allows it.
"""

from __future__ import annotations

import shutil
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from fixture_formats import eeglab
from fixture_signals import Channel
from numpy.typing import NDArray

Int16 = NDArray[np.int16]

STEP = 0.1  # microvolts
STEP_TESLA = 1e-14  # of a magnetometer in a FIF file
BDF_UV, BDF_STEPS = (-262144, 262143), (-(2**23), 2**23 - 1)  # BioSemi's range in 24 bits
BLOCK_SECONDS = 10
CTF_HEADER = struct.Struct(">ih2xddh")  # samples a trial, channels, rate, its seconds, trials
CTF_HEADER_AT = 1288
CTF_MAGIC = b"MEG41CP\0"


def blocks(signal: Int16, rate: int) -> Iterator[Int16]:
    """Ten seconds at a time."""
    for start in range(0, signal.shape[1], BLOCK_SECONDS * rate):
        yield signal[:, start : start + BLOCK_SECONDS * rate]


def write_edf(path: Path, signal: Int16, rate: int) -> None:
    """EDF with data records of one second; the signal has whole seconds."""
    physical = f"{-32768 * STEP:.1f}", f"{32767 * STEP:.1f}"
    with path.open("wb") as file:
        file.write(_edf_header(b"0       ", signal, rate, physical, (-32768, 32767)))
        for block in blocks(signal, rate):
            records = block.reshape(len(block), -1, rate).swapaxes(0, 1)
            file.write(records.astype("<i2").tobytes())


def write_bdf(path: Path, signal: Int16, rate: int) -> None:
    """BDF with an electrode offset of up to 200 mV on each channel, as BioSemi's have."""
    offset = np.linspace(-200_000, 200_000, len(signal))[:, None]
    physical = str(BDF_UV[0]), str(BDF_UV[1])
    microvolts = (BDF_UV[1] - BDF_UV[0]) / (BDF_STEPS[1] - BDF_STEPS[0])
    with path.open("wb") as file:
        file.write(_edf_header(b"\xffBIOSEMI", signal, rate, physical, BDF_STEPS))
        for block in blocks(signal, rate):
            steps = (block * STEP + offset - BDF_UV[0]) / microvolts + BDF_STEPS[0]
            records = np.rint(steps).astype("<i4").reshape(len(block), -1, rate).swapaxes(0, 1)
            octets = np.ascontiguousarray(records).view(np.uint8).reshape(-1, 4)
            file.write(octets[:, :3].tobytes())


def _edf_header(
    version: bytes, signal: Int16, rate: int, physical: tuple[str, str], digital: tuple[int, int]
) -> bytes:
    def fields(width: int, *values: object) -> bytes:
        return "".join(f"{value!s:<{width}}" for value in values).encode("ascii")

    n = len(signal)
    return (
        version
        + fields(80, "X X X X", "Startdate 01-JAN-2020 X X X")
        + fields(8, "01.01.20", "00.00.00", 256 * (n + 1))
        + fields(44, "24BIT" if version[0] == 0xFF else "")
        + fields(8, signal.shape[1] // rate, 1)
        + fields(4, n)
        + fields(16, *labels(n))
        + fields(80, *[""] * n)
        + fields(8, *["uV"] * n, *[physical[0]] * n, *[physical[1]] * n)
        + fields(8, *[digital[0]] * n, *[digital[1]] * n)
        + fields(80, *[""] * n)
        + fields(8, *[rate] * n)
        + fields(32, *[""] * n)
    )


def labels(n_channels: int) -> list[str]:
    """EEG1, EEG2, ..."""
    return [f"EEG{number}" for number in range(1, n_channels + 1)]


def write_brainvision(path: Path, signal: Int16, rate: int) -> None:
    """Multiplexed INT_16; `path` is the header."""
    with _brainvision(path, len(signal), rate, "MULTIPLEXED", "INT_16", STEP).open("wb") as file:
        for block in blocks(signal, rate):
            file.write(block.T.astype("<i2").tobytes())


def write_brainvision_vectorized(path: Path, signal: Int16, rate: int) -> None:
    """Vectorized IEEE_FLOAT_32: each channel's samples in one run."""
    data = _brainvision(path, len(signal), rate, "VECTORIZED", "IEEE_FLOAT_32", 1.0)
    with data.open("wb") as file:
        for channel in signal:
            file.write((channel * np.float32(STEP)).astype("<f4").tobytes())


def _brainvision(
    path: Path, n_channels: int, rate: int, orientation: str, binary: str, resolution: float
) -> Path:
    """Write header and markers; where the data belong."""
    data, markers = path.with_suffix(".eeg"), path.with_suffix(".vmrk")
    common = f"[Common Infos]\nCodepage=UTF-8\nDataFile={data.name}\n"
    channels = "\n".join(
        f"Ch{number}={label},,{resolution:g},µV"
        for number, label in enumerate(labels(n_channels), start=1)
    )
    path.write_text(
        "Brain Vision Data Exchange Header File Version 1.0\n"
        f"{common}MarkerFile={markers.name}\n"
        f"DataFormat=BINARY\nDataOrientation={orientation}\n"
        f"NumberOfChannels={n_channels}\nSamplingInterval={1e6 / rate:g}\n"
        f"[Binary Infos]\nBinaryFormat={binary}\n[Channel Infos]\n{channels}\n",
        encoding="utf-8",
    )
    markers.write_text(
        f"Brain Vision Data Exchange Marker File, Version 1.0\n{common}[Marker Infos]\n"
        "Mk1=New Segment,,1,1,0,20200101000000000000\n",
        encoding="utf-8",
    )
    return data


def write_set(path: Path, signal: Int16, rate: int) -> None:
    """EEGLAB with the samples inside, MATLAB v5."""
    path.write_bytes(_eeglab(signal, rate, signal * np.float32(STEP)))


def write_fdt(path: Path, signal: Int16, rate: int) -> None:
    """EEGLAB with its samples in an .fdt beside it."""
    data = path.with_suffix(".fdt")
    path.write_bytes(_eeglab(signal, rate, data.name))
    with data.open("wb") as file:
        for block in blocks(signal, rate):
            file.write((block.T * np.float32(STEP)).astype("<f4").tobytes())


def _eeglab(signal: Int16, rate: int, data: NDArray[np.float32] | str) -> bytes:
    channels = [Channel(label, "EEG", "uV", ()) for label in labels(len(signal))]
    return eeglab(channels, rate, data, signal.shape[1])


def write_fif(path: Path, signal: Int16, rate: int) -> None:
    """FIF of float32 magnetometers, in MNE's default buffers."""
    import mne

    info = mne.create_info(labels(len(signal)), rate, "mag", verbose="ERROR")
    with info._unlock():
        info["dev_head_t"] = mne.transforms.Transform("meg", "head")
    raw = mne.io.RawArray(signal * STEP_TESLA, info, verbose="ERROR")
    raw.save(path, fmt="single", verbose="ERROR")


def ctf_layout(template: Path) -> tuple[int, int]:
    """Channels and rate in Hz of a CTF directory."""
    header = next(template.glob("*.res4")).read_bytes()
    _, channels, rate, _, _ = CTF_HEADER.unpack_from(header, CTF_HEADER_AT)
    return channels, round(rate)


def write_ctf(path: Path, signal: Int16, rate: int, template: Path) -> None:
    """A real CTF directory's header over one long trial.

    Channels have the mean and the deviation that they have there.
    """
    source = next(template.glob("*.res4"))
    header = bytearray(source.read_bytes())
    length, channels, exact_rate, _, _ = CTF_HEADER.unpack_from(header, CTF_HEADER_AT)
    before = np.fromfile(source.with_suffix(".meg4"), ">i4", offset=len(CTF_MAGIC))
    before = before[: channels * length].reshape(channels, length)
    length = signal.shape[1]
    fields = length, channels, exact_rate, length / exact_rate, 1
    CTF_HEADER.pack_into(header, CTF_HEADER_AT, *fields)
    shutil.copytree(template, path, copy_function=shutil.copyfile)
    path.chmod(0o755)
    for member in template.iterdir():
        if member.stem == source.stem:
            (path / member.name).rename(path / f"{path.stem}{member.suffix}")
    (path / f"{path.stem}.res4").write_bytes(header)
    with (path / f"{path.stem}.meg4").open("wb") as file:
        file.write(CTF_MAGIC)
        for real, samples in zip(before, signal, strict=True):
            file.write(_like(real, samples).astype(">i4").tobytes())


def _like(real: NDArray[np.int32], samples: Int16) -> NDArray[np.float64]:
    """Samples with the mean and the deviation of real ones; a clock ticks on."""
    like: NDArray[np.float64]
    ticks = np.diff(real)
    if (ticks > 0).all():
        like = real[0] + ticks.mean() * np.arange(len(samples))
    else:
        like = real.mean() + samples * (real.std() / max(1.0, float(samples.std())))
    return np.rint(like)
