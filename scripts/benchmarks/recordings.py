"""Recordings made for the benchmark: EEG-like noise, the same on every run, in each format."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.signal import lfilter

from converter.recording.local import LocalRecording

from . import source_files
from .source_files import BLOCK_SECONDS, STEP, Int16

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]

CTF_TEMPLATE = (
    Path(__file__).resolve().parents[3] / "shared/real/dataset/sub-23/meg/sub-23_task-rest_meg.ds"
)


@dataclass(frozen=True, slots=True)
class Shape:
    """What is recorded; `rate` in whole Hz."""

    channels: int
    rate: int
    seconds: int

    def __str__(self) -> str:
        length = f"{self.seconds} s" if self.seconds < 600 else f"{self.seconds / 60:g} min"
        return f"{self.channels} channels, {self.rate} Hz, {length}"


@dataclass(frozen=True, slots=True)
class SourceFormat:
    """`write(path, signal, rate)` writes (channels, samples) in steps of 0.1 uV.

    `layout` is (channels, rate) where the format's template dictates them.
    """

    name: str
    extension: str
    modality: str
    write: Callable[[Path, Int16, int], None]
    layout: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Recording:
    """A recording on disk; `size` is that of all its files, in bytes."""

    path: Path
    modality: str
    shape: Shape
    size: int

    def local(self) -> LocalRecording:
        """What a conversion is given: the files, without sidecars."""
        path = f"sub-01/{self.modality}/{self.path.name}"
        return LocalRecording(path, self.modality, self.path)


def source_formats() -> dict[str, SourceFormat]:
    """All formats by name. CTF, which nothing writes, needs a real header beside the checkout."""
    formats = [
        SourceFormat("EDF", ".edf", "eeg", source_files.write_edf),
        SourceFormat("BDF", ".bdf", "eeg", source_files.write_bdf),
        SourceFormat("BrainVision int16", ".vhdr", "eeg", source_files.write_brainvision),
        SourceFormat(
            "BrainVision float32", ".vhdr", "eeg", source_files.write_brainvision_vectorized
        ),
        SourceFormat("EEGLAB inline", ".set", "eeg", source_files.write_set),
        SourceFormat("EEGLAB .fdt", ".set", "eeg", source_files.write_fdt),
        SourceFormat("FIF", ".fif", "meg", source_files.write_fif),
    ]
    if CTF_TEMPLATE.is_dir():
        write = partial(source_files.write_ctf, template=CTF_TEMPLATE)
        layout = source_files.ctf_layout(CTF_TEMPLATE)
        formats.append(SourceFormat("CTF", ".ds", "meg", write, layout))
    return {one.name: one for one in formats}


def make_recording(made: SourceFormat, shape: Shape, folder: Path, cache: Path) -> Recording:
    """Write a recording into a new folder; `cache` keeps signals that other formats share."""
    if made.layout is not None:
        shape = Shape(*made.layout, shape.seconds)
    signal = _signal(shape, cache)
    folder.mkdir()
    path = folder / f"sub-01_task-rest_{made.modality}{made.extension}"
    made.write(path, signal, shape.rate)
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    return Recording(path, made.modality, shape, size)


def _signal(shape: Shape, folder: Path) -> Int16:
    """The shape's signal (channels, samples), made once and kept in the folder."""
    path = folder / f"signal-{shape.channels}-{shape.rate}-{shape.seconds}.npy"
    if not path.exists():
        size = (shape.channels, shape.rate * shape.seconds)
        made = np.lib.format.open_memmap(path, mode="w+", dtype=np.int16, shape=size)
        noise = _Noise(shape)
        for start in range(0, size[1], noise.length):
            made[:, start : start + noise.length] = noise.block(start)[:, : size[1] - start]
    signal: np.memmap[tuple[int, int], np.dtype[np.int16]] = np.load(path, mmap_mode="r")
    return signal


class _Noise:
    """1/f noise, 10 Hz waves that come and go, 50 Hz of the mains, and amplifier noise.

    The 1/f spectrum is a sum of first-order low-passes, their corners a decade apart.
    """

    def __init__(self, shape: Shape) -> None:
        self._random = np.random.default_rng(20)
        self._rate = shape.rate
        self.length = BLOCK_SECONDS * shape.rate
        corners = [0.1, 1.0, 10.0, 100.0]
        self._poles = [float(np.exp(-2 * np.pi * corner / shape.rate)) for corner in corners]
        self._states = [np.zeros((shape.channels, 1), np.float32) for _ in corners]
        self._phase = self._random.uniform(0, 2 * np.pi, (shape.channels, 1))
        self._mains = self._random.uniform(0, 5, (shape.channels, 1))

    def block(self, start: int) -> Int16:
        """The next ten seconds, which begin at sample `start`, in steps of 0.1 uV."""
        turns = 2 * np.pi * (start + np.arange(self.length)) / self._rate
        wave = _sine(10 * turns, self._phase)
        wave *= 10 + 10 * np.sin(0.1 * turns).astype(np.float32)
        signal = wave + _sine(50 * turns, self._phase) * self._mains.astype(np.float32)
        signal += self._random.standard_normal(signal.shape, np.float32)
        drive = self._random.standard_normal(signal.shape, np.float32)
        for index, pole in enumerate(self._poles):
            gain = 7 * np.sqrt(1 - pole * pole)  # 7 uV a component
            coefficients = np.array([gain], np.float32), np.array([1.0, -pole], np.float32)
            part, self._states[index] = lfilter(*coefficients, drive, zi=self._states[index])
            signal += part
        signal /= np.float32(STEP)
        codes: Int16 = np.clip(np.rint(signal, out=signal), -32768, 32767).astype(np.int16)
        return codes


def _sine(turns: Float64, phase: Float64) -> Float32:
    """sin(turns + phase), (len(phase), len(turns)), with a sine a sample, not one a value."""
    cosine, sine = np.cos(phase).astype(np.float32), np.sin(phase).astype(np.float32)
    made: Float32 = cosine * np.sin(turns).astype(np.float32)
    made += sine * np.cos(turns).astype(np.float32)
    return made
