from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import mne
import numpy as np
import pybv
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from converter.contract.codes import FailureCode, RecordingError
from converter.recording.local import LocalRecording
from converter.recording.readers.brainvision import BrainVisionSource, open_brainvision

CORRUPT = FailureCode.CORRUPT_OR_TRUNCATED
STEM = "sub-01_task-rest_eeg"
SAMPLES = np.arange(-30, 30, dtype=np.int16).reshape(20, 3).T * 1000  # (channels, samples)


def header(
    channels: list[str] | None = None,
    *,
    common: dict[str, str] | None = None,
    binary: dict[str, str] | None = None,
    first_line: str = "Brain Vision Data Exchange Header File Version 1.0",
) -> str:
    entries = ["Fp1,,0.5,µV", "Fp2,,0.5,µV", "Cz,,0.5,µV"] if channels is None else channels
    infos = {
        "DataFile": f"{STEM}.eeg",
        "MarkerFile": f"{STEM}.vmrk",
        "DataFormat": "BINARY",
        "DataOrientation": "MULTIPLEXED",
        "NumberOfChannels": str(len(entries)),
        "SamplingInterval": "1000",
    } | (common or {})
    lines = [first_line, "; a comment = no key", "", "[Common Infos]"]
    lines += [f"{key}={value}" for key, value in infos.items()]
    lines += ["", "[Binary Infos]"]
    lines += [f"{k}={v}" for k, v in ({"BinaryFormat": "INT_16"} | (binary or {})).items()]
    lines += ["", "[Channel Infos]"]
    lines += [f"Ch{number}={entry}" for number, entry in enumerate(entries, 1)]
    lines += ["", "[Comment]", "[Common Infos]", "NumberOfChannels=99"]
    return "\r\n".join(lines)


def opened(
    folder: Path,
    text: str | bytes | None = None,
    data: Any = None,
    *,
    suffix: str = ".eeg",
    extension: str = ".vhdr",
    modality: str = "eeg",
) -> BrainVisionSource:
    path = folder / f"{STEM}{extension}"
    if text is not None:
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    if data is not None:
        raw = data if isinstance(data, bytes) else np.ascontiguousarray(data).tobytes()
        path.with_suffix(suffix).write_bytes(raw)
    return open_brainvision(LocalRecording(f"sub-01/eeg/{path.name}", modality, path))


def whole(source: BrainVisionSource) -> np.ndarray[Any, Any]:
    return np.array(source.read(0, 0, source.groups[0].n_samples))


def fails(folder: Path, text: str | bytes, data: Any = None) -> RecordingError:
    with pytest.raises(RecordingError) as caught:
        opened(folder, text, data)
    assert STEM in caught.value.message
    assert str(folder) not in caught.value.message
    return caught.value


@pytest.mark.parametrize("orientation", ["MULTIPLEXED", "VECTORIZED"])
@pytest.mark.parametrize(
    ("binary_format", "dtype"),
    [("INT_16", "i2"), ("UINT_16", "u2"), ("INT_32", "i4"), ("IEEE_FLOAT_32", "f4")],
)
@pytest.mark.parametrize("big_endian", [False, True])
def test_layouts(
    tmp_path: Path, orientation: str, binary_format: str, dtype: str, big_endian: bool
) -> None:
    stored = (SAMPLES % 30000 if dtype == "u2" else SAMPLES).astype(
        (">" if big_endian else "<") + dtype
    )
    text = header(
        common={"DataOrientation": orientation},
        binary={"BinaryFormat": binary_format, "UseBigEndianOrder": "YES" if big_endian else "NO"},
    )
    source = opened(tmp_path, text, stored.T if orientation == "MULTIPLEXED" else stored)
    assert whole(source).dtype == np.dtype(dtype)
    np.testing.assert_array_equal(whole(source), stored)
    np.testing.assert_array_equal(source.read(0, 7, 12), stored[:, 7:12])


@pytest.mark.parametrize("form", ["binary_int16", "binary_float32"])
def test_files_that_pybv_writes(tmp_path: Path, form: str) -> None:
    volts = np.random.default_rng(8).normal(0, 50e-6, (3, 200))
    volts[2] *= 1e3
    resolutions = [0.1, 0.05, 25.0]
    pybv.write_brainvision(
        data=volts,
        sfreq=250,
        ch_names=["Fp1", "Cz, left", "Aux"],
        fname_base="sub-01_task-rest_eeg",
        folder_out=tmp_path,
        resolution=resolutions,
        fmt=form,
    )
    source = open_brainvision(
        LocalRecording("sub-01/eeg/x_eeg.vhdr", "eeg", tmp_path / "sub-01_task-rest_eeg.vhdr")
    )
    (group,) = source.groups
    assert group.rate == 250
    assert [(c.label, c.unit) for c in group.channels] == [
        *(("Fp1", "V"), ("Cz, left", "V"), ("Aux", "V")),
    ]
    gains = np.array([[channel.gain] for channel in group.channels])
    found = whole(source) * gains
    step = np.array([[resolution * 1e-6] for resolution in resolutions])
    allowed = np.abs(volts) * 1e-6 + 1e-12 if form == "binary_float32" else step
    assert (np.abs(found - volts) <= allowed).all()
    source.close()


@pytest.mark.parametrize("orientation", ["MULTIPLEXED", "VECTORIZED"])
def test_any_bounds(tmp_path: Path, orientation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("converter.recording.readers.binary.WINDOW_BYTES", 100)
    text = header(common={"DataOrientation": orientation})
    source = opened(tmp_path, text, SAMPLES.T if orientation == "MULTIPLEXED" else SAMPLES)

    @settings(max_examples=60)
    @given(st.tuples(st.integers(0, 20), st.integers(0, 20)).map(sorted))
    def check(bounds: list[int]) -> None:
        start, stop = bounds
        np.testing.assert_array_equal(source.read(0, start, stop), SAMPLES[:, start:stop])

    check()
    with pytest.raises(ValueError, match="asked for"):
        source.read(0, 0, 21)


@pytest.mark.parametrize("subject", ["12", "13"])
def test_real_recordings_equal_mne(real_dataset: Path, tmp_path: Path, subject: str) -> None:
    folder = real_dataset / f"sub-{subject}" / "eeg"
    path = folder / f"sub-{subject}_task-rest_eeg.vhdr"
    source = open_brainvision(LocalRecording(path.name, "eeg", path))
    (group,) = source.groups
    # MNE follows the stale names, so it gets a copy under them.
    text = path.read_bytes()
    old = next(
        line.split(b"=")[1].strip().decode()
        for line in text.splitlines()
        if line.startswith(b"DataFile=")
    )
    copy = tmp_path / old.replace(".eeg", ".vhdr")
    copy.write_bytes(text)
    for suffix in (".eeg", ".vmrk"):
        copy.with_suffix(suffix).write_bytes(path.with_suffix(suffix).read_bytes())
    raw = mne.io.read_raw_brainvision(copy, verbose="error")
    assert float(group.rate) == raw.info["sfreq"]
    assert [channel.label for channel in group.channels] == raw.ch_names
    volts = [row for row, channel in enumerate(group.channels) if channel.unit == "V"]
    assert len(volts) == (26 if subject == "12" else 29)
    gains = np.array([channel.gain for channel in group.channels])[:, None]
    np.testing.assert_allclose((whole(source) * gains)[volts], raw.get_data()[volts], rtol=1e-6)


def test_units_of_a_real_recording(real_dataset: Path) -> None:
    path = real_dataset / "sub-12" / "eeg" / "sub-12_task-rest_eeg.vhdr"
    (group,) = open_brainvision(LocalRecording(path.name, "eeg", path)).groups
    assert [(c.unit, c.gain, c.type) for c in group.channels[25:]] == [
        ("V", 5e-7, "EEG"),
        *((unit, 0.5, "MISC") for unit in ("BS", "µS", "ARU", "uS", "S", "C")),
    ]


@pytest.mark.parametrize(
    ("unit", "volts"),
    [
        ("µV", 1e-6),
        ("uV", 1e-6),
        ("ÂµV", 1e-6),
        ("?V", 1e-6),
        ("", 1e-6),
        ("nV", 1e-9),
        ("mV", 1e-3),
        ("V", 1.0),
    ],
)
@pytest.mark.parametrize("encoding", ["utf-8", "cp1252"])
def test_voltages_are_given_in_volts(
    tmp_path: Path, unit: str, volts: float, encoding: str
) -> None:
    text = header([f"Fp1,,0.0488281,{unit}"]).encode(encoding)
    (channel,) = opened(tmp_path, text, SAMPLES[0]).groups[0].channels
    assert channel.unit == "V"
    assert channel.gain == pytest.approx(0.0488281 * volts, rel=1e-15)


def test_the_greek_mu(tmp_path: Path) -> None:
    (channel,) = opened(tmp_path, header(["Fp1,,1,μV"]), SAMPLES[0]).groups[0].channels
    assert (channel.unit, channel.gain) == ("V", 1e-6)


def test_channel_entries(tmp_path: Path) -> None:
    entries = [r"Fp1\1left,,,", "Cz", "Cz,Ref,0.1,µV,extra", ",,2", "Höhe,,0,C"]
    text = header(entries).encode("latin-1")
    (group,) = opened(tmp_path, text, np.zeros(50, "i2"), modality="ieeg").groups
    assert [(c.label, c.gain, c.unit, c.type) for c in group.channels] == [
        ("Fp1,left", 1e-6, "V", "SEEG"),
        ("Cz-0", 1e-6, "V", "SEEG"),
        ("Cz-1", 1e-7, "V", "SEEG"),
        ("Ch4", 2e-6, "V", "SEEG"),
        ("Höhe", 1.0, "C", "MISC"),
    ]


@pytest.mark.parametrize(
    "first_line",
    [
        "\ufeffBrain Vision Data Exchange Header File Version 2.0",
        "BrainVision Data Exchange Header File Version 1.0",
        "Brain Vision Core Data Format File, Version 1.0",
        "Brain Vision V-Amp Data Header File Version 1.0",
    ],
)
def test_first_lines(tmp_path: Path, first_line: str) -> None:
    assert opened(tmp_path, header(first_line=first_line), SAMPLES.T).groups[0].n_samples == 20


def test_rates_are_exact(tmp_path: Path) -> None:
    for interval, rate in (("1953.125", Fraction(512)), ("3000", Fraction(1000, 3))):
        source = opened(tmp_path, header(common={"SamplingInterval": interval}), SAMPLES.T)
        assert source.groups[0].rate == rate


def test_a_last_frame_cut_short(tmp_path: Path) -> None:
    raw = SAMPLES.T.tobytes()
    source = opened(tmp_path, header(common={"DataPoints": "20"}), raw[:-3])
    np.testing.assert_array_equal(whole(source), SAMPLES[:, :19])
    assert fails(tmp_path, header(common={"DataPoints": "22"}), raw).code is CORRUPT


def test_vectorized_lengths(tmp_path: Path) -> None:
    vectorized = {"DataOrientation": "VECTORIZED"}
    counted = opened(tmp_path, header(common=vectorized | {"DataPoints": "20"}), SAMPLES)
    np.testing.assert_array_equal(whole(counted), SAMPLES)
    raw = SAMPLES.tobytes()
    assert fails(tmp_path, header(common=vectorized), raw[:-2]).code is CORRUPT
    text = header(common=vectorized | {"DataPoints": "20"})
    assert fails(tmp_path, text, raw[:-2]).code is CORRUPT


# Which data file.


def test_a_renamed_recording_uses_its_sibling(tmp_path: Path) -> None:
    (tmp_path / "old.eeg").write_bytes(bytes(6))
    text = header(common={"DataFile": "old.eeg", "MarkerFile": "old.vmrk"})
    np.testing.assert_array_equal(whole(opened(tmp_path, text, SAMPLES.T)), SAMPLES)


@pytest.mark.parametrize("suffix", [".dat", ".EEG"])
def test_other_suffixes(tmp_path: Path, suffix: str) -> None:
    text = header(common={"DataFile": f"old{suffix}"})
    np.testing.assert_array_equal(whole(opened(tmp_path, text, SAMPLES.T, suffix=suffix)), SAMPLES)
    source = opened(tmp_path, text, SAMPLES.T, suffix=suffix, extension=".ahdr")
    np.testing.assert_array_equal(whole(source), SAMPLES)


def test_a_named_file_without_a_sibling(tmp_path: Path) -> None:
    (tmp_path / "raw data.eeg").write_bytes(SAMPLES.T.tobytes())
    source = opened(tmp_path, header(common={"DataFile": "raw data.eeg"}))
    np.testing.assert_array_equal(whole(source), SAMPLES)


@pytest.mark.parametrize("key", ["DataFile", "MarkerFile"])
@pytest.mark.parametrize(
    "reference", ["/etc/passwd", "../secret.eeg", "..", r"C:\lab\a.eeg", "sub/a.eeg", "D:a.eeg"]
)
def test_paths_are_refused(tmp_path: Path, key: str, reference: str) -> None:
    error = fails(tmp_path, header(common={key: reference}), SAMPLES.T)
    assert error.code is FailureCode.FILE_READ_ERROR
    assert "refused" in error.message


# What cannot be read.


def test_missing_and_empty_data(tmp_path: Path) -> None:
    assert fails(tmp_path, header()).code is CORRUPT
    assert fails(tmp_path, header(), b"").code is FailureCode.EMPTY_RECORDING
    assert fails(tmp_path, header(), b"12345").code is FailureCode.EMPTY_RECORDING


@pytest.mark.parametrize(
    ("common", "binary", "code"),
    [
        ({"DataFormat": "ASCII"}, {}, FailureCode.UNSUPPORTED_FORMAT),
        ({"DataType": "FREQUENCYDOMAIN"}, {}, FailureCode.UNSUPPORTED_FORMAT),
        ({}, {"BinaryFormat": "INT_7"}, FailureCode.UNSUPPORTED_FORMAT),
        ({"SegmentationType": "MARKERBASED"}, {}, FailureCode.NOT_CONTINUOUS),
        ({"Averaged": "YES"}, {}, FailureCode.NOT_CONTINUOUS),
        ({"NumberOfChannels": "4"}, {}, CORRUPT),
        ({"NumberOfChannels": "999999999999"}, {}, CORRUPT),
        ({"NumberOfChannels": "-3"}, {}, CORRUPT),
        ({"NumberOfChannels": "0"}, {}, FailureCode.EMPTY_RECORDING),
        ({"SamplingInterval": "0"}, {}, CORRUPT),
        ({"SamplingInterval": "fast"}, {}, CORRUPT),
        ({"DataOrientation": "DIAGONAL"}, {}, CORRUPT),
        ({"DataPoints": "999999999"}, {}, CORRUPT),
    ],
)
def test_headers_that_cannot_be_followed(
    tmp_path: Path, common: dict[str, str], binary: dict[str, str], code: FailureCode
) -> None:
    assert fails(tmp_path, header(common=common, binary=binary), SAMPLES.T).code is code


@pytest.mark.parametrize("text", ["", "/annex/objects/MD5E-s9--0.vhdr\n", "\0\x01\x02", "x" * 99])
def test_no_header_at_all(tmp_path: Path, text: str) -> None:
    assert fails(tmp_path, text, SAMPLES.T).code is CORRUPT


def test_not_a_number_passes_through(tmp_path: Path) -> None:
    values = np.array([1.5, np.nan, np.inf], "<f4")
    text = header(["Fp1,,1,µV"], binary={"BinaryFormat": "IEEE_FLOAT_32"})
    np.testing.assert_array_equal(whole(opened(tmp_path, text, values)), [values])


@pytest.mark.parametrize("digits", [101, 5000])
def test_numbers_of_absurd_length_are_damage(tmp_path: Path, digits: int) -> None:
    error = fails(tmp_path, header(common={"SamplingInterval": "1" * digits}), SAMPLES.T)
    assert error.code is CORRUPT


@pytest.mark.parametrize("hertz", [300, 1024, 600.615, 44100 / 7])
def test_the_rate_behind_a_printed_float(tmp_path: Path, hertz: float) -> None:
    """Writers print 1e6 / rate; what comes back is small numbers, or no finer than a float."""
    text = header(common={"SamplingInterval": repr(1e6 / hertz)})
    rate = opened(tmp_path, text, SAMPLES.T).groups[0].rate
    assert float(rate) == pytest.approx(hertz, rel=1e-15)
    assert rate.numerator < 2**54
    if hertz == int(hertz):
        assert rate == int(hertz)
