"""A group of a store from a source made here, against numpy and scipy on the whole signal."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.signal import resample_poly

from converter.contract.codes import FailureCode, RecordingError
from converter.recording.sidecars.channels import plan_channels
from converter.recording.signal import Channel, SignalGroup, SourceFacts
from converter.recording.store import write_signal_group


class ArraySource:
    """Raw samples in memory, one group."""

    def __init__(self, rate: Fraction, raw: NDArray[Any], channels: list[Channel]) -> None:
        self.facts = SourceFacts("array", len(channels))
        self.groups = (SignalGroup(rate, raw.shape[1], tuple(channels)),)
        self._raw = raw

    def read(self, group: int, start: int, stop: int) -> NDArray[Any]:
        return self._raw[:, start:stop]

    def close(self) -> None:
        pass


def served(folder: Path, rate: Fraction, raw: NDArray[Any], channels: list[Channel]) -> zarr.Group:
    source = ArraySource(rate, raw, channels)
    plan = plan_channels(channels, None)
    write_signal_group(source, 0, plan.channels, folder / "group", "EEG", folder)
    return zarr.open_group(folder / "group", mode="r")


def physical(group: zarr.Group) -> NDArray[np.float64]:
    scale, offset = (np.array(group["0"].attrs[key])[:, None] for key in ("scale", "offset"))
    return np.asarray(group["0"][:] * scale + offset)


@given(
    n=st.integers(1, 3000),
    rate=st.sampled_from([100, 250, 256, 500, 511, 1000, Fraction(2048, 3)]),
    dtype=st.sampled_from(["i2", "i4", "f4", "f8"]),
    gains=st.lists(st.sampled_from([1.0, -0.5, 1e-9, 3.3e4]), min_size=1, max_size=4),
    seed=st.integers(0, 2**32 - 1),
)
@settings(max_examples=60)
def test_any_source_is_served_to_half_a_step(
    tmp_path_factory: pytest.TempPathFactory,
    n: int,
    rate: int | Fraction,
    dtype: str,
    gains: list[float],
    seed: int,
) -> None:
    rng = np.random.default_rng(seed)
    raw = (rng.normal(size=(len(gains), n)) * 3000 + 9000).astype(dtype)
    channels = [Channel(f"c{i}", "MISC", "n/a", gain, 7.0) for i, gain in enumerate(gains)]
    group = served(tmp_path_factory.mktemp("s"), Fraction(rate), raw, channels)
    ratio = min(Fraction(1), Fraction(250) / Fraction(rate))
    for row, gain in enumerate(gains):
        whole = raw[row].astype(np.float64) * gain + 7.0
        expected = resample_poly(whole, ratio.numerator, ratio.denominator, padtype="edge")
        step = group["0"].attrs["scale"][row] if np.ptp(expected) else 0
        tolerance = step * 0.51 + 1e-6 * np.ptp(whole) + 1e-9 * np.abs(whole).max()
        assert np.abs(physical(group)[row] - expected).max() <= tolerance


@pytest.mark.parametrize("rate", [128, 250, 500, 1000])
def test_a_constant_channel_is_its_value(tmp_path: Path, rate: int) -> None:
    raw = np.full((1, 4000), 1000, np.int16)
    group = served(tmp_path, Fraction(rate), raw, [Channel("c", "EEG", "n/a", 260.0)])
    assert group["0"].attrs["scale"] == [1.0]
    assert group["0"].attrs["offset"] == [260_000.0]
    assert not group["0"][:].any()


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 3e38])
@pytest.mark.parametrize("at", [0, 700, slice(0, 900)])
def test_what_no_sensor_measures_is_filled_and_counted(
    tmp_path: Path, dtype: str, bad: float, at: int | slice
) -> None:
    raw = np.sin(np.arange(2000) / 20)[None].astype(dtype)
    whole = raw[0].astype(np.float64)
    whole[at] = 0
    raw[0, at] = bad
    group = served(tmp_path, Fraction(500), raw, [Channel("c", "EEG", "n/a")])
    [channel] = group.attrs["channels"]
    assert channel["nonfinite_samples"] == np.size(whole[at])
    assert not channel["usable_for_inference"]
    expected = resample_poly(whole, 1, 2, padtype="edge")
    assert np.abs(physical(group)[0] - expected).max() < 1e-4


def test_a_gain_beyond_numbers_is_a_typed_failure(tmp_path: Path) -> None:
    raw = np.array([[0.0, 1e29]])
    with pytest.raises(RecordingError, match="'c'") as caught:
        served(tmp_path, Fraction(100), raw, [Channel("c", "EEG", "n/a", 1e300)])
    assert caught.value.code is FailureCode.FILE_READ_ERROR


def test_codes_beside_a_waveform_stay_codes(tmp_path: Path) -> None:
    codes = np.repeat(np.arange(20) % 7, 100).astype(np.float32)
    raw = np.stack([np.sin(np.arange(2000) / 9).astype(np.float32), codes])
    channels = [Channel("w", "EEG", "n/a"), Channel("t", "TRIG", "n/a", discrete=True)]
    group = served(tmp_path, Fraction(1000), raw, channels)
    np.testing.assert_array_equal(np.rint(physical(group)[1]), codes[::4])
    assert [c["anti_aliased"] for c in group.attrs["channels"]] == [True, False]


@pytest.mark.parametrize("rate", [Fraction("511.7"), Fraction(678.1699829101562)])
def test_the_last_second_of_an_hour_is_in_its_place(tmp_path: Path, rate: Fraction) -> None:
    n = round(3600 * rate)
    raw = np.sin(2 * np.pi * 5 * np.arange(n) / float(rate)).astype(np.float32)[None]
    group = served(tmp_path, rate, raw, [Channel("c", "EEG", "n/a")])
    assert group["0"].shape[1] == -(-n * 250 // rate)
    inside = slice(3599 * 250, 3600 * 250 - 50)
    scale, offset = (group["0"].attrs[key][0] for key in ("scale", "offset"))
    got = group["0"][0, inside] * scale + offset
    # A hundredth of a sample would be off by 1.3e-3; the filter's gain by 1e-3 at most.
    times = np.arange(inside.start, inside.stop) / 250
    assert np.abs(got - np.sin(2 * np.pi * 5 * times)).max() < 2e-3


@given(
    bounds=st.lists(st.integers(0, 2500), min_size=2, max_size=8, unique=True),
    rate=st.sampled_from([250, 512, 1000]),
    junk=st.sampled_from([0.0, np.nan, 1e35, -12345.0]),
)
@settings(max_examples=30)
def test_whatever_is_read_of_a_gap_is_a_physical_0(
    tmp_path_factory: pytest.TempPathFactory, bounds: list[int], rate: int, junk: float
) -> None:
    edges = sorted(bounds)[: len(bounds) // 2 * 2]
    gaps = tuple(zip(edges[::2], edges[1::2], strict=True))
    raw = np.random.default_rng(len(bounds)).normal(size=(3, 2500)) * 300 + 9000
    raw[2] = np.rint(raw[2])
    gain, offset = np.array([[0.5], [-2.0], [1.0]]), np.array([[7.0], [-40_000.0], [0.0]])
    whole = raw * gain + offset
    for start, stop in gaps:
        raw[:, start:stop] = junk
        whole[:, start:stop] = 0
    channels = [Channel("a", "EEG", "n/a", 0.5, 7.0), Channel("b", "EEG", "n/a", -2.0, -40_000.0)]
    channels.append(Channel("t", "TRIG", "n/a", discrete=True))
    source = ArraySource(Fraction(rate), raw, channels)
    source.groups = (replace(source.groups[0], gaps=gaps),)
    folder = tmp_path_factory.mktemp("gaps")
    plan = plan_channels(channels, None)
    write_signal_group(source, 0, plan.channels, folder / "g", "EEG", folder)
    group = zarr.open_group(folder / "g", mode="r")
    ratio = Fraction(250, rate)
    expected = resample_poly(whole, ratio.numerator, ratio.denominator, axis=1, padtype="edge")
    nearest = np.floor(np.arange(expected.shape[1]) * rate / 250 + 0.5).astype(int)
    expected[2] = whole[2, np.minimum(nearest, 2499)]
    steps = np.array(group["0"].attrs["scale"])
    assert (np.abs(physical(group) - expected).max(axis=1) <= 0.51 * steps + 0.01).all()
    assert not any("nonfinite_samples" in channel for channel in group.attrs["channels"])
