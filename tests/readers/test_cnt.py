"""Neuroscan and ANT .cnt files against the arrays that were written, MNE and libeep."""

from __future__ import annotations

import struct
import tracemalloc
import warnings
from fractions import Fraction
from pathlib import Path
from typing import Any

import mne
import numpy as np
import pytest
from antio.libeep import pyeep
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from converter.contract.codes import FailureCode, RecordingError
from converter.recording.local import LocalRecording
from converter.recording.readers import open_recording
from converter.recording.signal import SignalSource

Labels = tuple[tuple[bytes, int, float, float], ...]  # name, baseline, sensitivity, calibration
LABELS: Labels = ((b"FP1", 0, 1.0, 1.0), (b"VEOG", 20, 0.5, 2.5), (b"CZ", -7, 1.25, 0.8))


def neuroscan(
    samples: NDArray[Any],
    labels: Labels = LABELS,
    *,
    width: int = 2,
    block: int = 1,
    told: int | None = None,
    n_samples: int | None = None,
    events: int | None = None,
    rate: int = 500,
) -> bytes:
    """A file of `samples` (n_channels, n_samples); `told` is the flag of the sample width."""
    head = bytearray(900)
    head[:12] = b"Version 3.0\0"
    head[21:30] = b"secret-id"
    head[121:129] = b"Jane Doe"
    head[225:247] = b"01/02/99  12:30:00    "
    n_channels, length = samples.shape
    table = bytearray()
    for name, baseline, sensitivity, calibration in labels:
        cell = bytearray(75)
        cell[: len(name)] = name
        struct.pack_into("<h", cell, 47, baseline)
        struct.pack_into("<f", cell, 59, sensitivity)
        struct.pack_into("<f", cell, 71, calibration)
        table += cell
    padded = np.zeros((n_channels, -(-length // block) * block), f"<i{width}")
    padded[:, :length] = samples
    blocks = padded.reshape(n_channels, -1, block).transpose(1, 0, 2)
    data = blocks.tobytes()
    end = 900 + len(table) + len(data)
    struct.pack_into("<H", head, 370, n_channels)
    struct.pack_into("<H", head, 376, rate)
    struct.pack_into("<I", head, 864, length if n_samples is None else n_samples)
    struct.pack_into("<I", head, 886, end if events is None else events)
    struct.pack_into("<i", head, 894, block * width if block > 1 else 0)
    tail = struct.pack("<Bll", 1, 8, 0) + struct.pack("<HBcl", 5, 0, b"\0", 900 + len(table))
    if told is not None:
        struct.pack_into("<I", head, 12, end + len(tail))
        tail += bytes(52) + bytes([told])
    return bytes(head) + bytes(table) + data + tail


def opened(file: Path) -> SignalSource:
    return open_recording(LocalRecording(f"sub-01/eeg/{file.name}", "eeg", file))


def open_bytes(folder: Path, content: bytes) -> SignalSource:
    file = folder / "sub-01_task-rest_eeg.cnt"
    file.write_bytes(content)
    return opened(file)


def failure(folder: Path, content: bytes) -> RecordingError:
    with pytest.raises(RecordingError) as caught:
        open_bytes(folder, content)
    assert str(folder) not in caught.value.message
    assert "Jane" not in caught.value.message
    return caught.value


def numbers(width: int, length: int = 100) -> NDArray[Any]:
    top = 1 << (8 * width - 2)
    return np.random.default_rng(3).integers(-top, top, (3, length))


@pytest.mark.parametrize("width", [2, 4])
@pytest.mark.parametrize("block", [1, 20])
@pytest.mark.parametrize("told", [None, True])
def test_layouts(tmp_path: Path, width: int, block: int, told: bool | None) -> None:
    samples = numbers(width)
    flag = None if told is None else int(width == 4)
    source = open_bytes(tmp_path, neuroscan(samples, width=width, block=block, told=flag))
    (group,) = source.groups
    assert (group.rate, group.n_samples) == (500, 100)
    assert source.facts.format == "Neuroscan CNT"
    assert source.facts.header_signals == 3
    for start, stop in [(0, 100), (3, 41), (20, 40), (99, 100), (7, 7)]:
        block_read = source.read(0, start, stop)
        assert block_read.dtype == np.dtype(f"i{width}")
        np.testing.assert_array_equal(block_read, samples[:, start:stop])
    assert [(c.label, c.type, c.unit) for c in group.channels] == [
        ("FP1", "EEG", "uV"),
        ("VEOG", "VEOG", "uV"),
        ("CZ", "EEG", "uV"),
    ]
    source.close()


@pytest.mark.parametrize("width", [2, 4])
@pytest.mark.parametrize("block", [1, 20])
def test_physical_values_equal_mne(tmp_path: Path, width: int, block: int) -> None:
    source = open_bytes(tmp_path, neuroscan(numbers(width), width=width, block=block))
    gains = np.array([[c.gain, c.offset] for c in source.groups[0].channels])
    ours = source.read(0, 0, 100) * gains[:, :1] + gains[:, 1:]
    file = tmp_path / "sub-01_task-rest_eeg.cnt"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        raw = mne.io.read_raw_cnt(
            file, data_format="int32" if width == 4 else "int16", verbose="ERROR"
        )
        theirs = raw.get_data()
    np.testing.assert_allclose(ours * 1e-6, theirs, rtol=1e-7, atol=1e-15)
    source.close()


def test_the_position_of_events_counts_where_the_number_of_samples_is_wrong(
    tmp_path: Path,
) -> None:
    for width in (2, 4):
        samples = numbers(width)
        for wrong in (0, 70, 2**31):
            content = neuroscan(samples, width=width, told=int(width == 4), n_samples=wrong)
            source = open_bytes(tmp_path, content)
            np.testing.assert_array_equal(source.read(0, 0, 100), samples)
            assert source.groups[0].n_samples == 100
            source.close()
    # A position that is none, as in files beyond its 32 bits: the number of samples counts.
    source = open_bytes(tmp_path, neuroscan(samples, width=4, told=1, events=2**32 - 1))
    assert source.groups[0].n_samples == 100
    source.close()


def test_positions_beyond_32_bits(tmp_path: Path) -> None:
    """A sparse file of more than 4 GB, whose last samples are found."""
    n_channels, n_samples = 200, 11_000_000
    samples = np.full((n_channels, 1), 5)
    labels = tuple((b"C%d" % at, 0, 1.0, 1.0) for at in range(n_channels))
    start = 900 + 75 * n_channels
    end = start + n_channels * n_samples * 2
    content = neuroscan(samples, labels, n_samples=n_samples, events=end % 2**32)
    file = tmp_path / "sub-01_eeg.cnt"
    with file.open("wb") as stream:
        stream.write(content[:start])
        stream.seek(end - 2 * n_channels)
        stream.write(np.arange(n_channels, dtype="<i2").tobytes())
        stream.write(bytes(30))
    source = opened(file)
    assert source.groups[0].n_samples == n_samples
    last = source.read(0, n_samples - 2, n_samples)
    np.testing.assert_array_equal(last, np.stack([np.zeros(200), np.arange(200)], axis=1))
    source.close()


def test_a_last_block_that_is_not_full(tmp_path: Path) -> None:
    for told in (None, 0):
        samples = numbers(2, 90)
        source = open_bytes(tmp_path, neuroscan(samples, block=40, told=told))
        np.testing.assert_array_equal(source.read(0, 0, 90), samples)
        assert source.groups[0].n_samples == 90
        source.close()


def test_a_file_cut_short(tmp_path: Path) -> None:
    for block in (1, 20):
        content = neuroscan(numbers(2), block=block)
        assert failure(tmp_path, content[:1500]).code is FailureCode.CORRUPT_OR_TRUNCATED


def test_a_width_that_nothing_tells(tmp_path: Path) -> None:
    found = failure(tmp_path, neuroscan(numbers(2), n_samples=99))
    assert found.code is FailureCode.FILE_READ_ERROR
    assert "16-bit" in found.message


def test_labels_and_gains_that_make_no_sense(tmp_path: Path) -> None:
    labels: Labels = (
        (b"Cz", 0, 1.0, 0.0),
        (b"Cz", 5, np.nan, 1.0),
        (b"", 5, np.inf, 1.0),
        (b"STATUS", 0, 1.0, 1.0),
    )
    samples = np.arange(8).reshape(4, 2)
    source = open_bytes(tmp_path, neuroscan(samples, labels))
    found = source.groups[0].channels
    assert [(c.label, c.type, c.unit, c.gain, c.offset) for c in found] == [
        ("Cz-0", "EEG", "n/a", 1, 0),
        ("Cz-1", "EEG", "n/a", 1, 0),
        ("Ch3", "EEG", "n/a", 1, 0),
        ("STATUS", "TRIG", "n/a", 1, 0),
    ]
    assert "Jane" not in repr((source.facts, source.groups))
    assert "secret" not in repr((source.facts, source.groups))
    source.close()


def test_impossible_headers(tmp_path: Path) -> None:
    good = neuroscan(numbers(2), told=0)
    damaged = [
        good[:500],
        good[:1000],
        good[:376] + b"\0\0" + good[378:],  # rate
        good[:370] + b"\xff\xff" + good[372:],  # channels
        good[:894] + struct.pack("<i", 2**31 - 1) + good[898:],  # bytes of a block
        neuroscan(numbers(2), told=0, n_samples=2**32 - 1, events=0),
        neuroscan(numbers(2), told=0, n_samples=10**9, events=2**32 - 1),
    ]
    tracemalloc.start()
    for content in damaged:
        assert failure(tmp_path, content).code is FailureCode.CORRUPT_OR_TRUNCATED
    assert tracemalloc.get_traced_memory()[1] < 8 << 20
    tracemalloc.stop()
    none = good[:370] + b"\0\0" + good[372:]
    assert failure(tmp_path, none).code is FailureCode.EMPTY_RECORDING
    assert failure(tmp_path, b"").code is FailureCode.EMPTY_RECORDING
    assert failure(tmp_path, b"EEP V2.0" * 9).code is FailureCode.UNSUPPORTED_FORMAT


@settings(max_examples=150)
@given(st.one_of(st.sampled_from([*range(12, 16), *range(370, 378), *range(864, 900)])), st.data())
def test_any_damaged_byte_is_a_source_or_a_typed_failure(
    tmp_path_factory: pytest.TempPathFactory, at: int, data: st.DataObject
) -> None:
    content = bytearray(neuroscan(numbers(2, 40), block=data.draw(st.sampled_from([1, 8])), told=0))
    content[at] = data.draw(st.integers(0, 255))
    try:
        source = open_bytes(tmp_path_factory.mktemp("cnt"), bytes(content))
    except RecordingError:
        return
    source.read(0, 0, source.groups[0].n_samples)
    source.close()


def ant(
    file: Path, samples: NDArray[Any], channels: tuple[tuple[str, str], ...], is_64: bool = False
) -> None:
    """A file that libeep writes: samples (n_channels, n_samples) in the channels' units."""
    info = pyeep.create_channel_info()
    for label, unit in channels:
        pyeep.add_channel(info, label, "REF", unit)
    handle = pyeep.write_cnt(str(file), 512, info, int(is_64))
    pyeep.add_samples(handle, [float(value) for value in samples.T.ravel()], len(channels))
    pyeep.close(handle)
    pyeep.close_channel_info(info)


ANT_CHANNELS = (("Fp1", "uV"), ("Cz", "mV"), ("Fp1", "uV"), ("BIP1", "uV"))


@pytest.fixture(scope="module", params=[False, True], ids=["RIFF", "RF64"])
def ant_file(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("ant") / "sub-01_task-rest_eeg.cnt"
    ant(file, ant_samples(), ANT_CHANNELS, request.param)
    return file


def ant_samples() -> NDArray[Any]:
    return np.random.default_rng(4).integers(-30_000, 30_000, (4, 3000)) / 128


def test_ant_samples(ant_file: Path) -> None:
    source = opened(ant_file)
    (group,) = source.groups
    assert (group.rate, group.n_samples, group.granule) == (512, 3000, 512)
    assert source.facts.format == "ANT CNT"
    assert [(c.label, c.type, c.unit) for c in group.channels] == [
        ("Fp1-0", "EEG", "uV"),
        ("Cz", "EEG", "mV"),
        ("Fp1-1", "EEG", "uV"),
        ("BIP1", "MISC", "uV"),
    ]
    gains = np.array([[channel.gain] for channel in group.channels])
    for start, stop in [(0, 3000), (510, 515), (2999, 3000), (4, 4)]:
        block = source.read(0, start, stop) * gains
        np.testing.assert_array_equal(block, ant_samples()[:, start:stop])
    source.close()
    source.close()


def test_ant_rates_are_those_of_the_header(ant_file: Path, tmp_path: Path) -> None:
    content = ant_file.read_bytes().replace(b"512.0000000000", b"511.7000000000")
    source = open_bytes(tmp_path, content)
    assert source.groups[0].rate == Fraction("511.7")
    source.close()


def test_ant_factors_that_no_number_holds(ant_file: Path, tmp_path: Path) -> None:
    """Of 1e390 and of 1e-390: samples as stored."""
    content = ant_file.read_bytes()
    width = 8 if content.startswith(b"RF64") else 4
    for digits in (b"9" * 95 + b"e+99", b"0." + b"0" * 92 + b"1e-99"):
        factor = b"1.0000000000e+00 7.8125000000e-03 uV"
        absurd = b" ".join([digits.ljust(100), digits.ljust(100), b"uV"])
        absurd += b" " * ((len(absurd) - len(factor)) % 2)
        changed = content.replace(b"Fp1        " + factor, b"Fp1        " + absurd, 1)
        at = changed.index(b"eeph") + 4
        size = int.from_bytes(changed[at : at + width], "little") + len(changed) - len(content)
        changed = changed[:at] + size.to_bytes(width, "little") + changed[at + width :]
        source = open_bytes(tmp_path, changed)
        first, second, *_ = source.groups[0].channels
        assert (first.label, first.unit, first.gain) == ("Fp1-0", "n/a", 1.0)
        assert (second.label, second.unit, second.gain) == ("Cz", "mV", 2**-7)
        np.testing.assert_array_equal(source.read(0, 0, 3000)[0], ant_samples()[0] * 128)
        source.close()


def test_ant_files_by_other_names(ant_file: Path, tmp_path: Path) -> None:
    file = tmp_path / "sub-01_eeg.CNT"
    file.write_bytes(ant_file.read_bytes())
    opened(file).close()


def test_ant_headers_that_make_no_sense(ant_file: Path, tmp_path: Path) -> None:
    good = ant_file.read_bytes()
    table = good.index(b"ep  ") + (12 if good.startswith(b"RF64") else 8)
    damaged = [
        good[: len(good) // 2],
        good[:20],
        good.replace(b"[Samples]\n3000", b"[Samples]\n10e9"),
        good.replace(b"[Samples]\n3000", b"[Samples]\n3073"),
        good.replace(b"[Samples]", b"[Simples]"),
        good.replace(b"512.0000000000", b"nan           "),
        good.replace(b"512.0000000000", b"0.000000000000"),
        good.replace(b"512.0000000000", b"-512.000000000"),
        good[:table] + b"\xff\xff\xff\x7f" + good[table + 4 :],
        good[:table] + bytes(4) + good[table + 4 :],
    ]
    for content in damaged:
        assert failure(tmp_path, content).code in (
            FailureCode.CORRUPT_OR_TRUNCATED,
            FailureCode.FILE_READ_ERROR,
        )
    none = good.replace(b"[Samples]\n3000", b"[Samples]\n0000")
    assert failure(tmp_path, none).code is FailureCode.EMPTY_RECORDING
