"""Which channels are said to be stored too coarsely, of signals whose noise is known."""

from __future__ import annotations

import re
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from converter.recording.attributes import StoreContext
from converter.recording.convert import convert_recording
from converter.recording.local import LocalRecording
from converter.recording.sidecars.channels import plan_channels
from converter.recording.signal import Channel
from converter.recording.store import WrittenGroup, write_signal_group
from tests.readers.test_edf import Signal, edf_bytes
from tests.signal.test_store import ArraySource

N, RATE = 60_000, 500
TIME = np.arange(N) / RATE
DRIFT = 200_000 * np.sin(2 * np.pi * TIME / 400)  # uV: 400 mV within 100 s
RNG = np.random.default_rng(11)
CHANNELS = [Channel("quiet", "EEG", "uV"), Channel("loud", "EEG", "uV")]


def written(folder: Path, raw: NDArray[Any], channels: list[Channel], rate: int) -> WrittenGroup:
    source = ArraySource(Fraction(rate), raw, channels)
    plan = plan_channels(channels, None)
    folder.mkdir(exist_ok=True)
    return write_signal_group(source, 0, plan.channels, folder / "g", "EEG", folder)


@pytest.mark.parametrize("dtype", ["f4", "f8", "i4"])
@pytest.mark.parametrize("rate", [250, 500])
def test_a_drift_that_hides_the_noise(tmp_path: Path, dtype: str, rate: int) -> None:
    gain = 262144 / (1 << 23) if dtype == "i4" else 1.0  # as a 24-bit amplifier has it
    channels = [Channel(c.label, "EEG", "uV", gain) for c in CHANNELS]
    noises = []
    for number in range(4):  # an estimate from eight looks spreads by 3 %
        raw = np.stack([DRIFT + RNG.normal(0, 1, N), DRIFT + RNG.normal(0, 60, N)]) / gain
        raw = np.rint(raw) if dtype == "i4" else raw
        sentence = written(tmp_path / str(number), raw.astype(dtype), channels, rate).coarse
        assert sentence is not None
        assert sentence.startswith("1 of 2 channels are stored in steps coarser than their noise, ")
        assert "'quiet' most" in sentence
        step, noise = (float(x) for x in re.findall(r"of ([\d.]+) uV", sentence))
        assert step == pytest.approx(np.ptp(raw[0]) * gain / 65535, rel=0.02)
        noises.append(noise)
    if rate == 250:  # served as it is: sqrt(2) * 0.6745 of the noise's standard deviation
        assert np.mean(noises) == pytest.approx(0.954, rel=0.05)
    else:
        assert 0.5 < noise < step


@pytest.mark.parametrize("gain", [1.0, 6.2])
@pytest.mark.parametrize("dtype", ["i2", "f4"])
@pytest.mark.parametrize("rate", [250, 500, 2000])
def test_steps_of_the_source_are_no_loss(
    tmp_path: Path, gain: float, dtype: str, rate: int
) -> None:
    """16 bits that a drift fills, with noise below their last one."""
    digits = np.rint(DRIFT / np.ptp(DRIFT) * 65_000 + RNG.normal(0, 0.2, N))
    raw = np.stack([digits, digits]).astype("i2")
    if dtype == "f4":
        raw, channels = (raw * gain).astype("f4"), CHANNELS
    else:
        channels = [Channel(c.label, "EEG", "uV", gain) for c in CHANNELS]
    assert written(tmp_path, raw, channels, rate).coarse is None


def test_no_alarm_where_nothing_is_lost(tmp_path: Path) -> None:
    n = 20_000
    clicks = np.zeros(n)
    clicks[::777] = 1e6
    codes = np.repeat(RNG.integers(0, 1 << 16, n // 500), 500) + RNG.normal(0, 1e-3, n)
    half_flat = np.where(np.arange(n) < n // 2, 0, RNG.normal(0, 1, n))
    raw = np.stack([np.full(n, 2.6e5), np.zeros(n), clicks, codes, half_flat])
    channels = [Channel(label, "EEG", "uV") for label in ("constant", "zero", "clicks")]
    channels += [Channel("codes", "TRIG", "n/a", discrete=True), Channel("half", "EEG", "uV")]
    assert written(tmp_path, raw, channels, 500).coarse is None


@pytest.mark.parametrize("n", [1, 2, 3, 300])
def test_short_signals(tmp_path: Path, n: int) -> None:
    assert written(tmp_path, RNG.normal(0, 1, (2, n)), CHANNELS, 500).coarse is None


def test_the_report_of_a_24_bit_recording_says_so(tmp_path: Path) -> None:
    spr, records = 500, 120
    raw = (DRIFT + RNG.normal(0, 1, N)) * (1 << 23) / 262144
    words = np.rint(raw).astype("<i4").reshape(records, spr)
    packed = [
        words.view(np.uint8).reshape(records, spr, 4)[i, :, :3].tobytes() for i in range(records)
    ]
    signal = Signal("A1", spr, physical=("-262144", "262143"), digital=("-8388608", "8388607"))
    path = tmp_path / "sub-01_eeg.bdf"
    path.write_bytes(edf_bytes([signal], packed, version=b"\xffBIOSEMI"))
    context = StoreContext("nm099999", "a" * 40, "0", "https://x/zarr/", "2026-01-01T00:00:00Z")
    recording = LocalRecording("sub-01/eeg/sub-01_eeg.bdf", "eeg", path)
    done = convert_recording(recording, "a.zarr", tmp_path / "a.zarr", tmp_path, context)
    [warning] = done.warnings
    assert warning.startswith("eeg_250hz: 1 of 1 channels are stored in steps coarser")
    assert "'A1'" in warning


def test_no_real_recording_is_said_to_be_coarse(real_dataset: Path, tmp_path: Path) -> None:
    context = StoreContext("nm099999", "a" * 40, "0", "https://x/zarr/", "2026-01-01T00:00:00Z")
    names = {"01": "set", "06": "edf", "07": "edf", "08": "edf", "10": "edf", "11": "bdf"}
    for subject, extension in (names | {"12": "vhdr", "13": "vhdr", "14": "mff"}).items():
        path = f"sub-{subject}/eeg/sub-{subject}_task-rest_eeg.{extension}"
        recording = LocalRecording(path, "eeg", real_dataset / path)
        done = convert_recording(recording, "a", tmp_path / subject, tmp_path, context)
        assert not [warning for warning in done.warnings if "coarser" in warning], path
