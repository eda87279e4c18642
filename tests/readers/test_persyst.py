"""Persyst recordings against the arrays that were written and against MNE."""

from __future__ import annotations

import warnings
from fractions import Fraction
from pathlib import Path
from typing import Any

import mne
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from converter.contract.codes import FailureCode, RecordingError
from tests.readers.opening import failure, opened

PATIENT = """[Patient]
First=Jane
Last=Doe
ID=4711-secret
BirthDate=01/02/70
TestDate=03/04/2010
TestTime=10:11:12
Technician=Jim Secret
Hand=Right
Sex=F
[Comments]
0.5,0.0,0,100,Jane moved = secret
"""
NAMES = ("Fp1-Ref", "EKG-REF", "Cz-Ref")


def written(
    folder: Path,
    samples: NDArray[Any],
    *,
    names: tuple[str, ...] = NAMES,
    numbers: tuple[int, ...] | None = None,
    times: str = "",
    header: bytes = b"",
    encoding: str = "utf-8",
    **info: str,
) -> Path:
    """`x.lay` and `x.dat` of `samples` (n_channels, n_samples) in int16 or int32."""
    values = {
        "File": "renamed.dat",
        "FileType": "Interleaved",
        "SamplingRate": "200",
        "HeaderLength": str(len(header)),
        "Calibration": "0.25",
        "WaveformCount": str(len(names)),
        "DataType": "7" if samples.dtype.itemsize == 4 else "0",
    } | info
    lines = ["[FileInfo]", *(f"{key}={value}" for key, value in values.items()), "[ChannelMap]"]
    places = numbers or tuple(range(1, len(names) + 1))
    lines += [f"{name}={place}" for name, place in zip(names, places, strict=True)]
    text = "\r\n".join([*lines, "[SampleTimes]", times, *PATIENT.splitlines()])
    file = folder / "sub-01_task-rest_ieeg.lay"
    file.write_bytes(text.encode(encoding))
    file.with_suffix(".dat").write_bytes(header + np.ascontiguousarray(samples.T).tobytes())
    return file


def numbers(dtype: str, n_samples: int = 100) -> NDArray[Any]:
    top = np.iinfo(dtype).max
    return np.random.default_rng(5).integers(-top, top, (3, n_samples)).astype(dtype)


@pytest.mark.parametrize("dtype", ["<i2", "<i4"])
@pytest.mark.parametrize("header", [b"", b"h" * 37])
def test_samples(tmp_path: Path, dtype: str, header: bytes) -> None:
    samples = numbers(dtype)
    source = opened(written(tmp_path, samples, header=header))
    (group,) = source.groups
    assert (group.rate, group.n_samples) == (200, 100)
    assert [(c.label, c.type, c.unit, c.gain) for c in group.channels] == [
        ("Fp1", "SEEG", "uV", 0.25),
        ("EKG", "ECG", "uV", 0.25),
        ("Cz", "SEEG", "uV", 0.25),
    ]
    for start, stop in [(0, 100), (13, 57), (99, 100), (5, 5)]:
        np.testing.assert_array_equal(source.read(0, start, stop), samples[:, start:stop])
    assert source.facts.header_signals == 3
    told = repr((source.facts, source.groups))
    assert not any(word in told for word in ("Jane", "Doe", "secret", "Jim", "2010", "1970"))
    source.close()
    source.close()


@pytest.mark.parametrize("dtype", ["<i2", "<i4"])
def test_physical_values_equal_mne(tmp_path: Path, dtype: str) -> None:
    file = written(tmp_path, numbers(dtype), File="sub-01_task-rest_ieeg.dat")
    source = opened(file)
    gains = np.array([[c.gain] for c in source.groups[0].channels])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        raw = mne.io.read_raw_persyst(file, verbose="ERROR")
        theirs = raw.get_data()
    assert raw.ch_names == [c.label.upper() for c in source.groups[0].channels]
    np.testing.assert_allclose(source.read(0, 0, 100) * gains * 1e-6, theirs, rtol=1e-12)
    source.close()


def test_channels_are_where_the_map_numbers_them(tmp_path: Path) -> None:
    names = ("A-Ref", "B=1", "A-Ref", "Ü-Ref")
    samples = np.arange(8, dtype="<i2").reshape(4, 2)
    source = opened(
        written(tmp_path, samples, names=names, numbers=(3, 1, 2, 4), encoding="cp1252")
    )
    assert [c.label for c in source.groups[0].channels] == ["B=1", "A-0", "A-1", "Ü"]
    np.testing.assert_array_equal(source.read(0, 0, 2), samples)
    source.close()


def test_pauses_are_zeros(tmp_path: Path) -> None:
    """Of 200 samples a second: 50, a pause of 1.5 s, 30 right after 40, then a day that ends."""
    samples = numbers("<i2", 150) | 1
    times = "0=86398.0\r\n50=86399.75\r\n90=86399.95\r\n120=1.1\r\n4000=9999"
    source = opened(written(tmp_path, samples, times=times))
    expected = np.concatenate(
        [
            samples[:, :50],
            np.zeros((3, 300), "<i2"),
            samples[:, 50:120],
            np.zeros((3, 200), "<i2"),
            samples[:, 120:],
        ],
        axis=1,
    )
    assert source.groups[0].n_samples == 650
    assert source.groups[0].gaps == ((50, 350), (420, 620))
    for start, stop in [(0, 650), (49, 351), (60, 300), (349, 350), (400, 640), (50, 350), (0, 0)]:
        np.testing.assert_array_equal(source.read(0, start, stop), expected[:, start:stop])
    source.close()


def test_short_pauses_do_not_add_up(tmp_path: Path) -> None:
    """60 times 10 s, with pauses of 0.4 s: no sample is half a second off its time."""
    samples = np.repeat(np.arange(1, 61, dtype="<i2"), 2000)
    times = "\n".join(f"{2000 * at}={10.4 * at:.1f}" for at in range(60))
    source = opened(written(tmp_path, np.stack([samples] * 3), times=times))
    found = source.read(0, 0, source.groups[0].n_samples)[0]
    places = [int(np.argmax(found == at + 1)) / 200 for at in range(60)]
    assert np.abs(np.array(places) - 10.4 * np.arange(60)).max() <= 0.5
    np.testing.assert_array_equal(found[found > 0], samples)
    source.close()
    times = "\n".join(f"{2000 * at}={9.6 * at:.1f}" for at in range(60))
    found = failure(written(tmp_path, np.stack([samples] * 3), times=times))
    assert found.code is FailureCode.NOT_CONTINUOUS


def test_drift_is_no_pause(tmp_path: Path) -> None:
    samples = np.zeros((3, 2_000_000), "<i2")
    times = "0=0\n1000=5.3\n500000=2500.2\n1999999=9999.2"
    source = opened(written(tmp_path, samples, times=times))
    assert source.groups[0].n_samples == 2_000_000
    source.close()


@pytest.mark.parametrize(
    ("times", "code"),
    [
        ("0=100\n50=90", FailureCode.NOT_CONTINUOUS),
        ("0=0\n50=10\n50=20", None),
        ("0=0\n60=10\n50=20", FailureCode.CORRUPT_OR_TRUNCATED),
        ("0=0\n50=1e12", FailureCode.FILE_READ_ERROR),
        ("0=nan\n50=inf\n1.5=7\n-3=2", None),
    ],
)
def test_times_that_make_no_sense(tmp_path: Path, times: str, code: FailureCode | None) -> None:
    file = written(tmp_path, numbers("<i2"), times=times)
    if code is None:
        opened(file).close()
    else:
        assert failure(file).code is code


@pytest.mark.parametrize(
    "name", ["/etc/hostname", "../secret.dat", r"C:\data\x.dat", r"..\x.dat", "sub/x.dat", ".."]
)
def test_paths_are_refused(tmp_path: Path, name: str) -> None:
    for has_sibling in (True, False):
        file = written(tmp_path, numbers("<i2"), File=name)
        if not has_sibling:
            file.with_suffix(".dat").unlink()
        found = failure(file)
        assert found.code is FailureCode.FILE_READ_ERROR
        assert name not in found.message


def test_the_file_that_the_header_names(tmp_path: Path) -> None:
    file = written(tmp_path, numbers("<i2"))
    file.with_suffix(".dat").rename(tmp_path / "renamed.dat")
    source = opened(file)
    assert source.groups[0].n_samples == 100
    source.close()
    (tmp_path / "renamed.dat").unlink()
    found = failure(file)
    assert found.code is FailureCode.CORRUPT_OR_TRUNCATED
    assert "renamed" not in found.message


@pytest.mark.parametrize(
    ("key", "value", "code"),
    [
        ("SamplingRate", "0", FailureCode.CORRUPT_OR_TRUNCATED),
        ("SamplingRate", "nan", FailureCode.CORRUPT_OR_TRUNCATED),
        ("SamplingRate", "-5", FailureCode.CORRUPT_OR_TRUNCATED),
        ("SamplingRate", "1e99", FailureCode.CORRUPT_OR_TRUNCATED),
        ("SamplingRate", "", FailureCode.CORRUPT_OR_TRUNCATED),
        ("Calibration", "0", FailureCode.CORRUPT_OR_TRUNCATED),
        ("Calibration", "inf", FailureCode.CORRUPT_OR_TRUNCATED),
        ("WaveformCount", "1000000", FailureCode.CORRUPT_OR_TRUNCATED),
        ("WaveformCount", "-3", FailureCode.CORRUPT_OR_TRUNCATED),
        ("WaveformCount", "2.5", FailureCode.CORRUPT_OR_TRUNCATED),
        ("HeaderLength", "-1", FailureCode.CORRUPT_OR_TRUNCATED),
        ("HeaderLength", "1e12", FailureCode.EMPTY_RECORDING),
        ("HeaderLength", "9" * 90, FailureCode.EMPTY_RECORDING),
        ("DataType", "9", FailureCode.UNSUPPORTED_FORMAT),
        ("FileType", "Sequential", FailureCode.UNSUPPORTED_FORMAT),
    ],
)
def test_headers_that_make_no_sense(
    tmp_path: Path, key: str, value: str, code: FailureCode
) -> None:
    assert failure(written(tmp_path, numbers("<i2"), **{key: value})).code is code


def test_empty_files(tmp_path: Path) -> None:
    file = written(tmp_path, numbers("<i2", 0))
    assert failure(file).code is FailureCode.EMPTY_RECORDING
    file.write_bytes(b"")
    assert failure(file).code is FailureCode.CORRUPT_OR_TRUNCATED


def test_a_header_without_end(tmp_path: Path) -> None:
    times = "\n".join(f"{at}={at}" for at in range(200_000))
    file = written(tmp_path, numbers("<i2"), times=times)
    assert failure(file).code is FailureCode.CORRUPT_OR_TRUNCATED
    file.write_bytes(b"[FileInfo]\n" + b";" * (17 << 20))
    assert failure(file).code is FailureCode.CORRUPT_OR_TRUNCATED


def test_rates_are_exact(tmp_path: Path) -> None:
    source = opened(written(tmp_path, numbers("<i2"), SamplingRate="511.7"))
    assert source.groups[0].rate == Fraction("511.7")
    source.close()


@settings(max_examples=100)
@given(st.data())
def test_any_damaged_byte_is_a_source_or_a_typed_failure(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("lay")
    file = written(folder, numbers("<i2", 20), times="0=0\n10=5")
    content = bytearray(file.read_bytes())
    content[data.draw(st.integers(0, 260))] = data.draw(st.integers(0, 255))
    file.write_bytes(content)
    try:
        source = opened(file)
    except RecordingError:
        return
    source.read(0, 0, source.groups[0].n_samples)
    source.close()
