"""What a store should hold, computed by another route than the converter's.

Whole recordings are read by MNE (or edfio, where MNE would put mixed rates on one grid), then
resampled by scipy on the whole signal. Nothing here imports the converter.
"""

from __future__ import annotations

import warnings
from fractions import Fraction
from pathlib import Path

import edfio
import mne
import numpy as np
import zarr
from scipy.signal import resample_poly

mne.set_log_level("ERROR")
CAPS = {"EEG": 250, "MEG": 250, "IEEG": 1000, "EMG": 1000}
# Published unit -> how many of it make one of the reader's.
FACTORS = {"uV": 1e6, "µV": 1e6, "μV": 1e6, "mV": 1e3, "nV": 1e9, "V": 1.0, "µS": 1e6, "uS": 1e6}


class Whole:
    """A recording as arrays: label -> (native rate, values, unit)."""

    def __init__(self) -> None:
        self.signals: dict[str, tuple[Fraction, np.ndarray, str]] = {}

    def add(self, label: str, rate: Fraction, values: np.ndarray, unit: str) -> None:
        assert label not in self.signals
        self.signals[label] = rate, np.asarray(values, np.float64), unit


def read_edf(path: Path) -> Whole:
    """Each signal at its own rate, in the header's unit."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        edf = (edfio.read_bdf if path.suffix.lower() == ".bdf" else edfio.read_edf)(path)
    whole, labels = Whole(), [signal.label for signal in edf.signals]
    seen: dict[str, int] = {}
    for signal in edf.signals:
        label = signal.label
        if labels.count(label) > 1:
            seen[label] = seen.get(label, -1) + 1
            label = f"{label}-{seen[label]}"
        rate = Fraction(signal.samples_per_data_record) / Fraction(str(edf.data_record_duration))
        if label == "Status":
            codes = signal.digital.astype(np.int64)
            if path.suffix.lower() == ".bdf":
                codes &= 0x1FFFF  # 16 bits of trigger and one that marks the start of an epoch
            whole.add(label, rate, codes.astype(np.float64), "n/a")
        else:
            whole.add(label, rate, signal.data, signal.physical_dimension)
    return whole


def from_raw(raw: mne.io.BaseRaw) -> Whole:
    whole = Whole()
    units = {107: "V", 112: "T", 201: "T/m"}
    data = raw.get_data()
    for row, channel in enumerate(raw.info["chs"]):
        unit = units.get(int(channel["unit"]), "n/a")
        whole.add(channel["ch_name"], Fraction(raw.info["sfreq"]), data[row], unit)
    return whole


def expected_level_0(
    values: np.ndarray, native: Fraction, served: Fraction, *, discrete: bool
) -> np.ndarray:
    values = np.nan_to_num(values, nan=0.0, posinf=0.0, neginf=0.0)
    ratio = served / native
    if ratio == 1:
        return values
    if discrete:
        n_out = -(-len(values) * ratio.numerator // ratio.denominator)
        nearest = np.floor(np.arange(n_out) / float(ratio) + 0.5).astype(int)
        return values[np.minimum(nearest, len(values) - 1)]
    if max(ratio.numerator, ratio.denominator) > 20_000:
        ratio = ratio.limit_denominator(20_000)
    return resample_poly(values, ratio.numerator, ratio.denominator, padtype="edge")


def check_store(store: Path, whole: Whole, modality: str) -> int:
    """Compare every level-0 value with the whole recording's; return the channels compared.

    Half a quantisation step is allowed, and 1e-6 of the channel's range for float32.
    """
    root = zarr.open_group(store, mode="r")
    compared = 0
    for name in root.attrs["channel_groups"]:
        group = root[name]
        digital = group["0"][:].astype(np.float64)
        scale, offset = (np.array(group["0"].attrs[key]) for key in ("scale", "offset"))
        physical = digital * scale[:, None] + offset[:, None]
        for channel in group.attrs["channels"]:
            native, values, unit = whole.signals[channel["label"]]
            served = min(native, Fraction(CAPS[modality]))
            assert channel["original_rate"] == float(native)
            assert channel["target_rate"] == group.attrs["rate"] == float(served)
            factor = FACTORS.get(channel["unit"], 1.0) / FACTORS.get(unit, 1.0)
            discrete = channel["channel_type"] in ("TRIG", "SYSCLOCK", "CTRL")
            expected = expected_level_0(values * factor, native, served, discrete=discrete)
            got = physical[channel["row_index"]]
            assert abs(len(got) - len(expected)) <= 1, channel["label"]
            n = min(len(got), len(expected))
            tolerance = channel["scale"] / 2 + 1e-6 * np.ptp(expected)
            tolerance += 1e-12 * np.abs(expected).max()
            worst = np.abs(got[:n] - expected[:n]).max()
            assert worst <= tolerance, (channel["label"], worst, tolerance, channel["scale"])
            compared += 1
    return compared


def check_views(store: Path | str) -> None:
    """Each view column is the extremes of exactly the level-0 samples under it."""
    root = zarr.open_group(store, mode="r")
    for name in root.attrs["channel_groups"]:
        group, below = root[name], root[name]["0"].shape[1]
        digital = group["0"][:]
        for level in group.attrs["view_levels"]:
            columns = group[f"view/{level}"][:]
            below //= 4
            starts = np.arange(below) * 4**level
            assert columns.shape == (2, digital.shape[0], below)
            np.testing.assert_array_equal(columns[0], np.minimum.reduceat(digital, starts, axis=1))
            np.testing.assert_array_equal(columns[1], np.maximum.reduceat(digital, starts, axis=1))
