"""GDF against the arrays that were written, against MNE, and a file that BioSig wrote."""

from __future__ import annotations

import struct
import tracemalloc
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
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
from converter.recording.local import LocalRecording
from converter.recording.readers import gdf, open_recording
from converter.recording.signal import SignalSource

CODES = {
    **{"i1": 1, "u1": 2, "i2": 3, "u2": 4, "i4": 5, "u4": 6, "i8": 7, "u8": 8},
    **{"f4": 16, "f8": 17, "i3": 279, "u3": 535},
}
SECRET = b"Doe^Jane 1970-01-01"


@dataclass
class Column:
    """One channel to write: samples as (n_records, samples per record)."""

    samples: NDArray[Any]
    dtype: str = "i2"
    label: bytes = b"C"
    unit: bytes | int = 4275
    physical: tuple[float, float] = (-100.0, 100.0)
    digital: tuple[float, float] = (-32768, 32767)
    filters: tuple[float, float, float] = (100.0, 0.1, 50.0)  # low pass, high pass, notch

    def stored(self, record: int) -> bytes:
        values = self.samples[record]
        if self.dtype in ("i3", "u3"):
            words = values.astype("<i8").view(np.uint8).reshape(-1, 8)
            return words[:, :3].tobytes()
        return values.astype(f"<{self.dtype}").tobytes()


def written(
    columns: Sequence[Column],
    *,
    version: str = "2.20",
    duration: tuple[int, int] = (1, 1),
    records: int | None = None,
    tail: bytes = b"",
) -> bytes:
    second = version >= "1.90"
    n_records = len(columns[0].samples) if columns else 0
    head = bytearray(256)
    head[:8] = f"GDF {version}".encode()
    head[8 : 8 + len(SECRET)] = SECRET
    head[88 : 88 + len(SECRET)] = SECRET
    size = 256 * (len(columns) + 1)
    if second:
        struct.pack_into("<H", head, 184, size // 256)
    else:
        struct.pack_into("<q", head, 184, size)
        head[216:236] = b"serial-4711".ljust(20)
    struct.pack_into("<q", head, 236, n_records if records is None else records)
    struct.pack_into("<II", head, 244, *duration)
    struct.pack_into("<H" if second else "<I", head, 252, len(columns))
    fields: list[list[bytes]] = []
    for column in columns:
        low, high = column.physical
        ranges = [struct.pack("<d", low), struct.pack("<d", high)]
        spr = struct.pack("<I", column.samples.shape[1])
        code = struct.pack("<I", CODES[column.dtype])
        label, transducer = column.label.ljust(16, b"\0"), b"AgCl".ljust(80)
        if second:
            assert isinstance(column.unit, int)
            ranges += [struct.pack("<d", edge) for edge in column.digital]
            middle = [bytes(6), struct.pack("<H", column.unit), *ranges, bytes(68)]
            middle += [struct.pack("<f", edge) for edge in column.filters]
            fields.append([label, transducer, *middle, spr, code, bytes(12), bytes(20)])
        else:
            assert isinstance(column.unit, bytes)
            ranges += [struct.pack("<q", int(edge)) for edge in column.digital]
            middle = [column.unit.ljust(8), *ranges, b"HP:0.1Hz".ljust(80)]
            fields.append([label, transducer, *middle, spr, code, bytes(32)])
    table = b"".join(b"".join(cells) for cells in zip(*fields, strict=True))
    assert len(table) == 256 * len(columns)
    data = b"".join(column.stored(r) for r in range(n_records) for column in columns)
    return bytes(head) + table + data + tail


def open_bytes(tmp_path: Path, content: bytes, modality: str = "eeg") -> SignalSource:
    file = tmp_path / f"sub-01_task-rest_{modality}.gdf"
    file.write_bytes(content)
    return open_recording(LocalRecording(f"sub-01/eeg/{file.name}", modality, file))


def failure(tmp_path: Path, content: bytes) -> RecordingError:
    with pytest.raises(RecordingError) as caught:
        open_bytes(tmp_path, content)
    assert str(tmp_path) not in caught.value.message
    assert "Jane" not in caught.value.message
    return caught.value


def numbers(rng: np.random.Generator, dtype: str, shape: tuple[int, int]) -> NDArray[Any]:
    kind, size = dtype[0], int(dtype[1])
    if kind == "f":
        return rng.normal(0, 1e4, shape).astype(dtype)
    low = -(1 << (8 * size - 1)) if kind == "i" else 0
    high = (1 << (8 * size - 1)) - 1 if kind == "i" else (1 << (8 * size)) - 1
    return rng.integers(low, high, shape, dtype=np.int64 if kind == "i" else np.uint64)


@pytest.mark.parametrize("version", ["1.25", "2.20", "3.00"])
@pytest.mark.parametrize("dtype", list(CODES))
def test_sample_types(
    tmp_path: Path, version: str, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(1)
    unit: bytes | int = b"uV" if version < "1.9" else 4275
    columns = [Column(numbers(rng, dtype, (7, 5)), dtype, b"A%d" % i, unit) for i in range(3)]
    expected = np.stack([column.samples.reshape(-1) for column in columns])
    for longest in (gdf.LONG_RECORD_BYTES, 1):
        monkeypatch.setattr(gdf, "LONG_RECORD_BYTES", longest)
        source = open_bytes(tmp_path, written(columns, version=version))
        (group,) = source.groups
        assert (group.rate, group.n_samples) == (5, 35)
        assert [channel.label for channel in group.channels] == ["A0", "A1", "A2"]
        for start, stop in [(0, 35), (4, 6), (34, 35), (7, 7), (9, 28)]:
            np.testing.assert_array_equal(source.read(0, start, stop), expected[:, start:stop])
        source.close()


@settings(max_examples=30)
@given(st.data())
def test_mixed_types_and_rates(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    n_records = data.draw(st.integers(1, 6))
    columns = [
        Column(numbers(rng, dtype, (n_records, spr)), dtype)
        for dtype, spr in data.draw(
            st.lists(st.tuples(st.sampled_from([*CODES]), st.sampled_from([1, 2, 5])), min_size=1)
        )
    ]
    content = written(columns, duration=(1, 4), tail=b"\1\0\0\0")
    source = open_bytes(tmp_path_factory.mktemp("gdf"), content)
    assert sum(len(group.channels) for group in source.groups) == len(columns)
    for index, group in enumerate(source.groups):
        same = [column for column in columns if column.samples.shape[1] * 4 == group.rate]
        assert len(same) == len(group.channels)
        assert group.n_samples == n_records * same[0].samples.shape[1]
        bounds = sorted(data.draw(st.tuples(*[st.integers(0, group.n_samples)] * 2)))
        block = source.read(index, *bounds)
        for row, column in zip(block, same, strict=True):
            exact = column.samples.reshape(-1)[slice(*bounds)]
            np.testing.assert_array_equal(row, exact.astype(block.dtype))
    source.close()


@pytest.mark.parametrize("version", ["1.25", "2.20"])
def test_physical_values_equal_mne(tmp_path: Path, version: str) -> None:
    rng = np.random.default_rng(2)
    units: list[bytes | int] = [b"uV", b"uV"] if version < "1.9" else [4275, 4274]
    columns = [
        Column(numbers(rng, "i2", (6, 50)), "i2", b"Cz", units[0], (-200.0, 300.0)),
        Column(numbers(rng, "i2", (6, 50)), "i2", b"Pz", units[1], (-5.0, 5.0), (-2048, 2047)),
    ]
    source = open_bytes(tmp_path, written(columns, version=version, duration=(1, 2), tail=bytes(8)))
    (group,) = source.groups
    assert group.rate == 100
    block = source.read(0, 0, group.n_samples)
    scale = {"uV": 1e-6, "mV": 1e-3}
    ours = [
        (row.astype(float) * channel.gain + channel.offset) * scale[channel.unit]
        for row, channel in zip(block, group.channels, strict=True)
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        raw = mne.io.read_raw_gdf(tmp_path / "sub-01_task-rest_eeg.gdf", verbose="ERROR")
        theirs = raw.get_data()
    assert raw.info["sfreq"] == group.rate
    np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-18)
    source.close()


def test_a_file_written_by_biosig() -> None:
    """`biosig.gdf` is what `save2gdf` of BioSig 3.0 made of an EDF file of these ramps.

    Its version 2.51 has the record's duration as a float, and a technician, Jane.
    """
    file = Path(__file__).parent / "files" / "biosig.gdf"
    source = open_recording(LocalRecording("sub-01/eeg/sub-01_eeg.gdf", "eeg", file))
    fast, slow = source.groups
    assert (fast.rate, slow.rate) == (8, 2)
    assert [(c.label, c.type, c.unit) for c in fast.channels] == [
        ("Fp1", "EEG", "uV"),
        ("EOG left", "EOG", "mV"),
    ]
    assert [(c.label, c.unit) for c in slow.channels] == [("Temp", "n/a")]
    ramp = np.arange(40)
    # BioSig scales and cuts off again, which costs a step here and there.
    expected = [ramp * 100 - 2000, 1000 - ramp * 30]
    np.testing.assert_allclose(source.read(0, 0, 40), expected, rtol=0, atol=1)
    np.testing.assert_array_equal(source.read(1, 0, 10), [np.arange(10) * 7])
    assert "Jane" in file.read_bytes().decode("latin-1")
    assert "Jane" not in repr((source.facts, source.groups))
    gains = [(c.gain, c.offset) for g in source.groups for c in g.channels]
    digital = 65535
    np.testing.assert_allclose(
        gains,
        [
            (6400 / digital, -3200 + 32768 * 6400 / digital),
            (10 / digital, -5 + 32768 * 10 / digital),
            (60 / digital, -10 + 32768 * 60 / digital),
        ],
        rtol=1e-12,
    )
    source.close()


def test_labels_types_units_and_filters(tmp_path: Path) -> None:
    samples = np.arange(4).reshape(2, 2)
    columns = [
        Column(samples, label=b"T8-P8"),
        Column(samples, label=b"T8-P8\0Jane Doe"),
        Column(samples, label="Fürst".encode("latin-1"), filters=(np.nan, 0.0, np.inf)),
        Column(samples, label=b"EOG:ch01"),
        Column(samples, label=b"ECG", unit=4256),
        Column(samples, label=b"", unit=6048),
        Column(samples, label=b"Status", unit=512),
        Column(samples, label=b"odd", unit=65535),
    ]
    source = open_bytes(tmp_path, written(columns))
    channels = source.groups[0].channels
    assert [(c.label, c.type, c.unit, c.prefilter) for c in channels] == [
        ("T8-P8-0", "EEG", "uV", "HP:0.1Hz LP:100Hz N:50Hz"),
        ("T8-P8-1", "EEG", "uV", "HP:0.1Hz LP:100Hz N:50Hz"),
        ("Fürst", "EEG", "uV", "n/a"),
        ("EOG:ch01", "EOG", "uV", "HP:0.1Hz LP:100Hz N:50Hz"),
        ("ECG", "ECG", "V", "HP:0.1Hz LP:100Hz N:50Hz"),
        ("signal 6", "MISC", "°C", "HP:0.1Hz LP:100Hz N:50Hz"),
        ("Status", "TRIG", "n/a", "HP:0.1Hz LP:100Hz N:50Hz"),
        ("odd", "EEG", "n/a", "HP:0.1Hz LP:100Hz N:50Hz"),
    ]
    assert [channel.discrete for channel in channels] == [False] * 6 + [True, False]
    assert (channels[6].gain, channels[6].offset) == (1, 0)
    assert "Jane" not in repr((source.facts, source.groups))
    assert "4711" not in repr((source.facts, source.groups))
    source.close()


@pytest.mark.parametrize(
    ("physical", "digital"),
    [
        ((0.0, 0.0), (-1, 1)),
        ((-1.0, 1.0), (5, 5)),
        ((np.nan, 1.0), (-1, 1)),
        ((-np.inf, 1.0), (-1, 1)),
        ((-1e308, 1e308), (0, 1e-300)),
        ((0.0, 5e-324), (0, 1e300)),
    ],
)
def test_a_range_without_extent_serves_what_is_stored(
    tmp_path: Path, physical: tuple[float, float], digital: tuple[float, float]
) -> None:
    column = Column(np.arange(6).reshape(2, 3), physical=physical, digital=digital)
    source = open_bytes(tmp_path, written([column]))
    (channel,) = source.groups[0].channels
    assert (channel.gain, channel.offset, channel.unit) == (1.0, 0.0, "n/a")
    np.testing.assert_array_equal(source.read(0, 0, 6), [np.arange(6)])
    source.close()


def test_channels_without_samples_and_rates_that_are_fractions(tmp_path: Path) -> None:
    columns = [
        Column(np.arange(12).reshape(4, 3), label=b"A"),
        Column(np.empty((4, 0)), label=b"events only"),
    ]
    source = open_bytes(tmp_path, written(columns, duration=(3000, 5117)))
    (group,) = source.groups
    assert group.rate == Fraction(5117, 1000)
    assert source.facts.header_signals == 2
    assert source.facts.omitted == ("events only",)
    np.testing.assert_array_equal(source.read(0, 0, 12), [np.arange(12)])
    source.close()


def test_record_counts(tmp_path: Path) -> None:
    column = Column(np.arange(12).reshape(4, 3))
    source = open_bytes(tmp_path, written([column], records=-1, tail=b"\0" * 5))
    assert source.groups[0].n_samples == 12
    source.close()
    assert failure(tmp_path, written([column], records=0)).code is FailureCode.EMPTY_RECORDING
    assert failure(tmp_path, written([])).code is FailureCode.EMPTY_RECORDING
    for count in (5, 10**12, -2, 2**63 - 1):
        found = failure(tmp_path, written([column], records=count))
        assert found.code is FailureCode.CORRUPT_OR_TRUNCATED
        assert str(count) in found.message


def _patched(content: bytes, offset: int, layout: str, *values: int) -> bytes:
    data = bytearray(content)
    struct.pack_into(layout, data, offset, *values)
    return bytes(data)


def test_impossible_headers(tmp_path: Path) -> None:
    good = written([Column(np.arange(12).reshape(4, 3))])
    old = written([Column(np.arange(12).reshape(4, 3), unit=b"uV")], version="1.25")
    damaged = [
        b"",
        good[:200],
        good[:300],
        good[: len(good) - 1],
        b"EDF" + good[3:],
        b"GDF 9.20" + good[8:],
        _patched(good, 252, "<H", 65535),
        _patched(old, 252, "<I", 2**32 - 1),
        _patched(old, 184, "<q", -5),
        _patched(old, 184, "<q", 2**62),
        _patched(good, 184, "<H", 1),
        _patched(good, 244, "<II", 0, 1),
        _patched(good, 244, "<II", 1, 0),
        _patched(good, 256 + 216, "<I", 2**32 - 1),
    ]
    tracemalloc.start()
    for content in damaged:
        assert failure(tmp_path, content).code is FailureCode.CORRUPT_OR_TRUNCATED
    assert tracemalloc.get_traced_memory()[1] < 8 << 20
    tracemalloc.stop()
    for code in (0, 18, 255 + 12, 2**32 - 1):
        found = failure(tmp_path, _patched(good, 256 + 220, "<I", code))
        assert found.code is FailureCode.UNSUPPORTED_FORMAT


@settings(max_examples=150)
@given(st.integers(0, 1023), st.integers(0, 255), st.booleans())
def test_any_damaged_byte_is_a_source_or_a_typed_failure(
    tmp_path_factory: pytest.TempPathFactory, at: int, value: int, second: bool
) -> None:
    columns = [
        Column(np.arange(40).reshape(8, 5), dtype, b"A", 4275 if second else b"uV")
        for dtype in ("i2", "f4", "i3")
    ]
    content = bytearray(written(columns, version="2.20" if second else "1.25"))
    content[at] = value
    try:
        source = open_bytes(tmp_path_factory.mktemp("gdf"), bytes(content))
    except RecordingError:
        return
    for index, group in enumerate(source.groups):
        assert all(np.isfinite((c.gain, c.offset)).all() and c.gain for c in group.channels)
        source.read(index, 0, group.n_samples)
    source.close()
