from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pybv
import pytest
import zarr
from scipy.signal import resample_poly

from converter.recording.attributes import StoreContext
from converter.recording.convert import convert_recording
from converter.recording.local import LocalRecording, LocalSidecars
from converter.recording.readers import open_recording
from converter.recording.readers.channel_names import type_by_label
from tests.readers import (
    test_cnt,
    test_curry,
    test_edf,
    test_eeglab,
    test_gdf,
    test_mef,
    test_nihon,
    test_persyst,
)

CONTEXT = StoreContext("nm099999", "a" * 40, "0", "https://x/zarr/", "2026-01-01T00:00:00Z")


@pytest.mark.parametrize(
    ("label", "unit", "expected"),
    [
        ("Fp1", "uV", "SEEG"),
        ("EOG:ch01", "uV", "EOG"),
        ("HEO", "uV", "HEOG"),
        ("ECG1", "uV", "ECG"),
        ("left EMG", "mV", "EMG"),
        ("Trigger", "uV", "TRIG"),
        ("STIM A1", "uV", "SEEG"),
        ("Temp3", "uV", "SEEG"),
        ("Temp3", "°C", "TEMP"),
        ("Temp rectal", "n/a", "TEMP"),
        ("Sound", "n/a", "AUDIO"),
        ("EEG Fpz-Cz", "uV", "SEEG"),
        ("EEG EKG1-REF", "uV", "ECG"),
        ("trig", "n/a", "TRIG"),
    ],
)
def test_types(label: str, unit: str, expected: str) -> None:
    assert type_by_label(label, "ieeg", unit) == expected


def test_eeg_is_what_any_electrode_of_the_scalp_is_called() -> None:
    assert type_by_label("EEG Fpz-Cz", "emg", "uV") == "EEG"
    assert type_by_label("Fpz-Cz", "emg", "uV") == "EMG"


# Three samples of a channel STIM with a gain, in every format whose labels alone tell types.

CODES = np.array([[1, 70, 5] * 100], "i2")


def edf(folder: Path) -> Path:
    path = folder / "a_eeg.edf"
    signal = test_edf.Signal("STIM", 300, physical=("-16384", "16383.5"))
    path.write_bytes(test_edf.edf_bytes([signal], [test_edf.record(CODES)]))
    return path


def bdf(folder: Path) -> Path:
    """Of codes beyond the 17 bits of a BioSemi status word, which it is not."""
    path = folder / "a_eeg.bdf"
    signal = test_edf.Signal("STIM", 300, digital=("-8388608", "8388607"))
    packed = (CODES[0].astype("<i4") + (1 << 20)).view("u1").reshape(-1, 4)[:, :3].tobytes()
    path.write_bytes(test_edf.edf_bytes([signal], [packed], version=b"\xffBIOSEMI"))
    return path


def gdf(folder: Path) -> Path:
    path = folder / "a_eeg.gdf"
    path.write_bytes(test_gdf.written([test_gdf.Column(CODES, label=b"STIM")]))
    return path


def neuroscan(folder: Path) -> Path:
    path = folder / "a_eeg.cnt"
    path.write_bytes(test_cnt.neuroscan(CODES, ((b"STIM", 3, 1.25, 0.8),)))
    return path


def ant(folder: Path) -> Path:
    path = folder / "a_eeg.cnt"
    test_cnt.ant(path, CODES / 128, (("STIM", "uV"),))
    return path


def nihon(folder: Path) -> Path:
    block = test_nihon.Block(CODES, codes=(0,))
    return test_nihon.written(folder, [block], labels="[ELECTRODE]\n0000=STIM\n")


def mef(folder: Path) -> Path:
    path = folder / "a_ieeg.mefd"
    test_mef.Session(path).add("STIM", CODES[0])
    return path


def brainvision(folder: Path) -> Path:
    pybv.write_brainvision(
        data=CODES * 0.5e-6,
        sfreq=100,
        ch_names=["STIM"],
        fname_base="a_eeg",
        folder_out=folder,
        resolution=0.5,
        fmt="binary_int16",
    )
    return folder / "a_eeg.vhdr"


def eeglab(folder: Path) -> Path:
    path = folder / "a_eeg.set"
    locations = test_eeglab.chanlocs(["STIM"], [""])
    fields = test_eeglab.fields(CODES.astype("f4"), nbchan=1, pnts=300, chanlocs=locations)
    test_eeglab.write_v5(path, fields)
    return path


WRITTEN = [
    *(edf, bdf, gdf, neuroscan, ant, nihon, mef, brainvision, eeglab),
    lambda folder: test_curry.written(folder, CODES, groups=[("", "mV", ["STIM"])]),
    lambda folder: test_persyst.written(folder, CODES, names=("STIM",)),
]


@pytest.mark.parametrize("written", WRITTEN)
def test_a_label_tells_the_same_in_every_format(
    tmp_path: Path, written: Callable[[Path], Path]
) -> None:
    path = written(tmp_path)
    source = open_recording(LocalRecording(f"sub-01/eeg/{path.name}", "eeg", path))
    [channel] = source.groups[0].channels
    assert (channel.label, channel.type, channel.unit) == ("STIM", "TRIG", "n/a")
    assert (channel.discrete, channel.gain, channel.offset) == (True, 1.0, 0.0)
    assert channel.waveform is not None
    assert (channel.waveform.type, channel.waveform.discrete) == ("EEG", False)
    assert channel.waveform.unit in ("uV", "mV", "V")
    samples = source.read(0, 0, 300)
    np.testing.assert_array_equal(samples, CODES.astype("i4") + (1 << 20) * (written is bdf))
    source.close()


@pytest.mark.parametrize(
    ("declared", "served", "unit"),
    [("EEG", "EEG", "uV"), ("seeg", "SEEG", "uV"), ("MISC", "MISC", "n/a"), ("", "TRIG", "n/a")],
)
def test_a_type_in_channels_tsv_wins(tmp_path: Path, declared: str, served: str, unit: str) -> None:
    """A STIM of 300 Hz with a gain of 0.5: a filtered waveform, or codes as they are."""
    path = edf(tmp_path)
    sidecar = tmp_path / "channels.tsv"
    sidecar.write_text(f"name\ttype\tunits\nSTIM\t{declared or 'n/a'}\tn/a\n")
    recording = LocalRecording(
        f"sub-01/eeg/{path.name}", "eeg", path, sidecars=LocalSidecars(channels=sidecar)
    )
    store = tmp_path / "a.zarr"
    convert_recording(recording, store.name, store, tmp_path, CONTEXT)
    group = zarr.open_group(store, mode="r")["eeg_250hz"]
    [channel] = group.attrs["channels"]
    assert (channel["channel_type"], channel["unit"]) == (served, unit)
    found = group["0"][0] * channel["scale"] + channel["offset"]
    if unit == "uV":
        expected = resample_poly(CODES[0] * 0.5, 5, 6, padtype="edge")
        np.testing.assert_allclose(found, expected, atol=channel["scale"])
    else:
        assert set(np.round(found, 2)) == {1, 5, 70}
