"""Curry recordings against the arrays that were written and against Curry's own reader."""

from __future__ import annotations

import tracemalloc
from fractions import Fraction
from pathlib import Path
from typing import Any

import curryreader
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from converter.contract.codes import FailureCode, RecordingError
from tests.readers.opening import failure, opened

Group = tuple[str, str, list[str]]  # suffix of its lists, unit, labels
GROUPS: list[Group] = [("", "uV", ["Fp1", "Cz"]), ("_OTHERS", "mV", ["VEO", "Aux", "Trigger"])]


def parameters(
    samples: NDArray[Any], groups: list[Group], places: list[int] | None, values: dict[str, str]
) -> str:
    """What a .dap file holds, and the first part of a .cdt.dpa file."""
    n_channels, n_samples = samples.shape
    given = {
        "NumSamples": str(n_samples),
        "NumChannels": str(n_channels),
        "NumTrials": "1",
        "SampleFreqHz": "250",
        "TriggerOffsetUsec": "0",
        "DataFormat": "FLOAT",
        "DataSampOrder": "SAMP",
        "SampleTimeUsec": "4000",
        "StartYear": "1999",
        "AmplifierInfo": "secret serial 4711",
    } | values
    lines = ["DATA_PARAMETERS START"]
    lines += [f"   {key:20} = {value}" for key, value in given.items() if value]
    lines += ["DATA_PARAMETERS END", ""]
    for suffix, unit, labels in groups:
        lines += [f"DEVICE_PARAMETERS{suffix} START", f"   DataUnit = {unit}"]
        lines += [f"   NumChanThisGroup = {len(labels)}", f"DEVICE_PARAMETERS{suffix} END", ""]
    if places is not None:
        lines += ["CHAN_IN_FILE START", "   ListType = 1", "CHAN_IN_FILE END"]
        lines += ["CHAN_IN_FILE START_LIST  # Do not edit!"]
        lines += [*map(str, places), "CHAN_IN_FILE END_LIST", ""]
    lines += ["IMPEDANCE_VALUES START_LIST # Do not edit!", "-1\t" * n_channels]
    return "\n".join([*lines, "IMPEDANCE_VALUES END_LIST", ""])


def names(groups: list[Group]) -> str:
    lines = []
    for suffix, _, labels in groups:
        lines += [f"LABELS{suffix} START", "   ListDescription = labels", f"LABELS{suffix} END"]
        lines += [f"LABELS{suffix} START_LIST  # Do not edit!", *labels]
        lines += [f"LABELS{suffix} END_LIST", ""]
    return "\n".join(["", *lines])


def written(
    folder: Path,
    samples: NDArray[Any],
    extension: str = ".cdt",
    groups: list[Group] = GROUPS,
    places: list[int] | None = None,
    **values: str,
) -> Path:
    file = folder / f"sub-01_task-rest_eeg{extension}"
    file.write_bytes(np.ascontiguousarray(samples.T, "<f4").tobytes())
    text = parameters(samples, groups, places, values)
    if extension == ".dat":
        file.with_suffix(".dap").write_text(text)
        file.with_suffix(".rs3").write_text(names(groups))
    else:
        file.with_name(f"{file.name}.dpa").write_text(text + names(groups))
    return file


def numbers(n_channels: int = 5, n_samples: int = 100) -> NDArray[Any]:
    return np.random.default_rng(7).normal(0, 1e3, (n_channels, n_samples)).astype("<f4")


@pytest.mark.parametrize("extension", [".cdt", ".dat"])
def test_samples(tmp_path: Path, extension: str) -> None:
    samples = numbers()
    source = opened(written(tmp_path, samples, extension))
    (group,) = source.groups
    assert (group.rate, group.n_samples, source.facts.header_signals) == (250, 100, 5)
    assert [(c.label, c.type, c.unit) for c in group.channels] == [
        ("Fp1", "EEG", "uV"),
        ("Cz", "EEG", "uV"),
        ("VEO", "VEOG", "mV"),
        ("Aux", "MISC", "mV"),
        ("Trigger", "TRIG", "n/a"),
    ]
    for start, stop in [(0, 100), (13, 57), (99, 100), (5, 5)]:
        np.testing.assert_array_equal(source.read(0, start, stop), samples[:, start:stop])
    told = repr((source.facts, source.groups))
    assert "secret" not in told
    assert "4711" not in told
    source.close()
    source.close()


@pytest.mark.parametrize("extension", [".cdt", ".dat"])
def test_samples_labels_and_rate_equal_those_of_the_maker(tmp_path: Path, extension: str) -> None:
    file = written(tmp_path, numbers(), extension)
    theirs = curryreader.read(str(file), plotdata=0, verbosity=1)
    source = opened(file)
    (group,) = source.groups
    np.testing.assert_array_equal(source.read(0, 0, 100), theirs["data"].T)
    assert [channel.label for channel in group.channels] == theirs["labels"]
    assert float(group.rate) == theirs["info"]["samplingfreq"]
    source.close()


def test_channels_that_the_file_leaves_out(tmp_path: Path) -> None:
    groups: list[Group] = [("", "uV", ["B", "Ref", "A"]), ("_OTHERS", "mV", ["C"])]
    samples = numbers(3)
    source = opened(written(tmp_path, samples, groups=groups, places=[2, 0, 1, 3]))
    assert [(c.label, c.unit) for c in source.groups[0].channels] == [
        ("A", "uV"),
        ("B", "uV"),
        ("C", "mV"),
    ]
    np.testing.assert_array_equal(source.read(0, 0, 100), samples)
    source.close()


def test_magnetic_channels(tmp_path: Path) -> None:
    groups: list[Group] = [("_MAG1", "fT", ["M1", "M1"]), ("", "uV", ["Cz"])]
    source = opened(written(tmp_path, numbers(3), groups=groups))
    assert [(c.label, c.type, c.unit, c.gain) for c in source.groups[0].channels] == [
        ("M1-0", "MEGMAG", "T", 1e-15),
        ("M1-1", "MEGMAG", "T", 1e-15),
        ("Cz", "EEG", "uV", 1.0),
    ]
    source.close()


def test_keys_of_version_6_and_companions_of_other_names(tmp_path: Path) -> None:
    file = written(tmp_path, numbers())
    header = file.with_name(f"{file.name}.dpa")
    text = header.read_text().replace("NumSamples", "NUM_SAMPLES")
    text = text.replace("NumChannels", "NUM_CHANNELS").replace("SampleFreqHz", "SAMPLE_FREQ_HZ")
    header.unlink()
    file.with_name(f"{file.name}.dpo").write_text(text)
    source = opened(file)
    assert source.groups[0].n_samples == 100
    source.close()


def test_no_labels(tmp_path: Path) -> None:
    file = written(tmp_path, numbers(), ".dat")
    file.with_suffix(".rs3").unlink()
    source = opened(file)
    assert [c.label for c in source.groups[0].channels] == ["Ch1", "Ch2", "Ch3", "Ch4", "Ch5"]
    source.close()


@pytest.mark.parametrize(
    ("frequency", "interval", "expected"),
    [
        ("250", "4000", Fraction(250)),
        ("600", "1666.667", Fraction(600)),
        ("1017", "983.04", Fraction(10**8, 98304)),
        ("0", "4000", Fraction(250)),
        ("511.7", "0", Fraction("511.7")),
        ("511.7", "", Fraction("511.7")),
    ],
)
def test_rates(tmp_path: Path, frequency: str, interval: str, expected: Fraction) -> None:
    file = written(tmp_path, numbers(), SampleFreqHz=frequency, SampleTimeUsec=interval)
    source = opened(file)
    assert source.groups[0].rate == expected
    source.close()


def test_a_number_of_samples_that_is_left_open(tmp_path: Path) -> None:
    source = opened(written(tmp_path, numbers(), NumSamples="-1"))
    assert source.groups[0].n_samples == 100
    source.close()


@pytest.mark.parametrize(
    ("key", "value", "code"),
    [
        ("NumSamples", "101", FailureCode.CORRUPT_OR_TRUNCATED),
        ("NumSamples", "1e12", FailureCode.CORRUPT_OR_TRUNCATED),
        ("NumSamples", "0", FailureCode.EMPTY_RECORDING),
        ("NumSamples", "nan", FailureCode.CORRUPT_OR_TRUNCATED),
        ("NumSamples", "", FailureCode.CORRUPT_OR_TRUNCATED),
        ("NumChannels", "1000000", FailureCode.CORRUPT_OR_TRUNCATED),
        ("NumChannels", "-5", FailureCode.CORRUPT_OR_TRUNCATED),
        ("NumTrials", "12", FailureCode.NOT_CONTINUOUS),
        ("DataFormat", "ASCII", FailureCode.UNSUPPORTED_FORMAT),
        ("DataSampOrder", "CHAN", FailureCode.UNSUPPORTED_FORMAT),
        (
            "DataGuid",
            "{2912E8D8-F5C8-4E25-A8E7-A1385967DA09}",
            FailureCode.UNSUPPORTED_FORMAT,
        ),
    ],
)
def test_headers_that_make_no_sense(
    tmp_path: Path, key: str, value: str, code: FailureCode
) -> None:
    assert failure(written(tmp_path, numbers(), **{key: value})).code is code


@pytest.mark.parametrize(
    ("n_samples", "n_channels", "code"),
    [
        ("0", "10000000", FailureCode.CORRUPT_OR_TRUNCATED),
        ("-1", "10000000", FailureCode.CORRUPT_OR_TRUNCATED),
        ("-1", "30000", FailureCode.EMPTY_RECORDING),
        ("0", "30000", FailureCode.EMPTY_RECORDING),
        ("-1", "0", FailureCode.EMPTY_RECORDING),
        ("1", "30000", FailureCode.CORRUPT_OR_TRUNCATED),
    ],
)
def test_channels_that_no_sample_bears_out(
    tmp_path: Path, n_samples: str, n_channels: str, code: FailureCode
) -> None:
    file = written(tmp_path, numbers(), NumSamples=n_samples, NumChannels=n_channels)
    tracemalloc.start()
    assert failure(file).code is code
    assert tracemalloc.get_traced_memory()[1] < 20 << 20  # the text is given 16 MB
    tracemalloc.stop()


def test_many_channels_without_labels(tmp_path: Path) -> None:
    file = written(tmp_path, np.zeros((5000, 2)), groups=[], NumChannels="5000")
    source = opened(file)
    assert [len(group.channels) for group in source.groups] == [5000]
    source.close()


def test_rates_that_make_no_sense(tmp_path: Path) -> None:
    for frequency in ("nan", "0", "-4", ""):
        file = written(tmp_path, numbers(), SampleFreqHz=frequency, SampleTimeUsec="0")
        assert failure(file).code is FailureCode.CORRUPT_OR_TRUNCATED


@pytest.mark.parametrize(
    ("entries", "is_one"), [("1 1 0 1 1 0 0", True), ("40 40 0 1 1 0 0", False)]
)
def test_averages(tmp_path: Path, entries: str, is_one: bool) -> None:
    file = written(tmp_path, numbers())
    header = file.with_name(f"{file.name}.dpa")
    text = f"EPOCH_INFORMATION START_LIST\n{entries}\nEPOCH_INFORMATION END_LIST\n"
    header.write_text(header.read_text() + text)
    if is_one:
        opened(file).close()
    else:
        assert failure(file).code is FailureCode.NOT_CONTINUOUS


def test_a_header_that_is_absent(tmp_path: Path) -> None:
    for extension in (".cdt", ".dat"):
        file = tmp_path / f"sub-01_eeg{extension}"
        file.write_bytes(bytes(100))
        assert failure(file).code is FailureCode.CORRUPT_OR_TRUNCATED


def test_a_header_without_end(tmp_path: Path) -> None:
    file = written(tmp_path, numbers())
    header = file.with_name(f"{file.name}.dpa")
    good = header.read_text()
    header.write_text(good + "CHAN_IN_FILE START_LIST\n" + "1\n" * 200_000)
    assert failure(file).code is FailureCode.CORRUPT_OR_TRUNCATED
    header.write_text(good + "x" * (17 << 20))
    assert failure(file).code is FailureCode.CORRUPT_OR_TRUNCATED


def test_groups_of_absurd_size(tmp_path: Path) -> None:
    file = written(tmp_path, numbers())
    header = file.with_name(f"{file.name}.dpa")
    good = header.read_text()
    for size in ("-1", "nan", "1.5"):
        header.write_text(good.replace("NumChanThisGroup = 2", f"NumChanThisGroup = {size}"))
        if size == "1.5":
            opened(file).close()
        else:
            assert failure(file).code is FailureCode.CORRUPT_OR_TRUNCATED
    header.write_text(good.replace("NumChanThisGroup = 2", "NumChanThisGroup = 1e15"))
    source = opened(file)
    assert [channel.unit for channel in source.groups[0].channels][:4] == ["uV"] * 4
    source.close()


@settings(max_examples=100)
@given(st.data())
def test_any_damaged_byte_is_a_source_or_a_typed_failure(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    file = written(tmp_path_factory.mktemp("cdt"), numbers(), places=[1, 2, 3, 4, 5])
    header = file.with_name(f"{file.name}.dpa")
    content = bytearray(header.read_bytes())
    content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    header.write_bytes(content)
    try:
        source = opened(file)
    except RecordingError:
        return
    source.read(0, 0, source.groups[0].n_samples)
    source.close()
