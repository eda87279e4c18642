from __future__ import annotations

import re
import time
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import edfio
import mne
import numpy as np
import pyedflib
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from converter.contract.codes import FailureCode, RecordingError
from converter.recording.local import LocalRecording
from converter.recording.readers import edf, spelling
from converter.recording.readers.edf import EdfSource, open_edf

CORRUPT = FailureCode.CORRUPT_OR_TRUNCATED


@dataclass
class Signal:
    label: str | bytes = "Fp1"
    spr: int | str = 4
    dimension: bytes = b"uV"
    physical: tuple[str, str] = ("-100", "100")
    digital: tuple[str, str] = ("-32768", "32767")


def edf_bytes(
    signals: list[Signal],
    records: list[bytes],
    *,
    n_records: int | str | None = None,
    duration: str = "1",
    reserved: str = "",
    version: bytes = b"0",
    n_signals: int | str | None = None,
    pad: bytes = b" ",
) -> bytes:
    """An EDF file spelt out field by field."""

    def cell(value: Any, width: int) -> bytes:
        raw = value if isinstance(value, bytes) else str(value).encode("latin-1")
        return raw.ljust(width, pad)[:width]

    count = len(records) if n_records is None else n_records
    head = [
        *[(version, 8), ("patient X", 80), ("recording Y", 80), ("01.01.01", 8), ("00.00.00", 8)],
        *[(256 * (len(signals) + 1), 8), (reserved, 44), (count, 8), (duration, 8)],
        (len(signals) if n_signals is None else n_signals, 4),
    ]
    columns: list[list[tuple[Any, int]]] = [
        [(s.label, 16) for s in signals],
        [("", 80) for s in signals],
        [(s.dimension, 8) for s in signals],
        [(s.physical[0], 8) for s in signals],
        [(s.physical[1], 8) for s in signals],
        [(s.digital[0], 8) for s in signals],
        [(s.digital[1], 8) for s in signals],
        [("HP:0.1Hz", 80) for s in signals],
        [(s.spr, 8) for s in signals],
        [("", 32) for s in signals],
    ]
    fields = head + [field for column in columns for field in column]
    return b"".join(cell(value, width) for value, width in fields) + b"".join(records)


def record(*samples: Any) -> bytes:
    return b"".join(np.asarray(part, "<i2").tobytes() for part in samples)


def tal(onset: str, n_samples: int) -> bytes:
    return f"{onset}\x14\x14".encode().ljust(2 * n_samples, b"\0")


def opened(path: Path, content: bytes | None = None, modality: str = "eeg") -> EdfSource:
    if content is not None:
        path.write_bytes(content)
    return open_edf(LocalRecording(f"sub-01/eeg/{path.name}", modality, path))


def whole(source: EdfSource, group: int = 0) -> np.ndarray[Any, Any]:
    return np.array(source.read(group, 0, source.groups[group].n_samples))


def physical(source: EdfSource, group: int = 0) -> np.ndarray[Any, Any]:
    channels = source.groups[group].channels
    gain = np.array([channel.gain for channel in channels])[:, None]
    offset = np.array([channel.offset for channel in channels])[:, None]
    return np.asarray(whole(source, group) * gain + offset)


def real(dataset: Path, subject: str, extension: str = "edf") -> Path:
    return dataset / f"sub-{subject}" / "eeg" / f"sub-{subject}_task-rest_eeg.{extension}"


def fails(path: Path, content: bytes) -> RecordingError:
    with pytest.raises(RecordingError) as caught:
        opened(path, content)
    assert path.name in caught.value.message
    assert str(path.parent) not in caught.value.message
    return caught.value


# Against other libraries.


@pytest.mark.parametrize("subject", ["06", "07", "08", "10"])
def test_real_edf_equals_edfio(real_dataset: Path, subject: str) -> None:
    path = real(real_dataset, subject)
    source = opened(path)
    unseen = list(edfio.read_edf(path).signals)
    for index, group in enumerate(source.groups):
        stored, values = whole(source, index), physical(source, index)
        for row, channel in enumerate(group.channels):
            label = re.sub(r"-[01]$", "", channel.label)
            signal = next(s for s in unseen if s.label in (channel.label, label))
            unseen.remove(signal)
            assert signal.sampling_frequency == float(group.rate)
            np.testing.assert_array_equal(stored[row], signal.digital)
            if not channel.discrete:
                np.testing.assert_allclose(values[row], signal.data, atol=1e-9)
    assert not unseen


def test_real_bdf_equals_mne(real_dataset: Path) -> None:
    path = real(real_dataset, "11", "bdf")
    raw = mne.io.read_raw_bdf(path, verbose="error")
    source = opened(path)
    (group,) = source.groups
    assert source.facts.format == "BDF"
    assert group.rate == 500
    values = physical(source)
    np.testing.assert_allclose(values[:3] * 1e-6, raw.get_data()[:3], rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(values[3], raw.get_data()[3])
    status = group.channels[3]
    assert (status.type, status.unit, status.gain, status.discrete) == ("TRIG", "n/a", 1.0, True)


def test_bdf_written_by_pyedflib(tmp_path: Path) -> None:
    path = tmp_path / "sub-01_eeg.bdf"
    digital = np.random.default_rng(0).integers(-(1 << 23), 1 << 23, (3, 1000), dtype=np.int32)
    digital[0, :2] = -(1 << 23), (1 << 23) - 1
    writer = pyedflib.EdfWriter(str(path), 3, file_type=pyedflib.FILETYPE_BDFPLUS)
    for index in range(3):
        header: dict[str, Any] = {"label": f"C{index}", "dimension": "uV"}
        header |= {"sample_frequency": 100, "physical_max": 262144, "physical_min": -262144}
        header |= {"digital_max": 8388607, "digital_min": -8388608}
        writer.setSignalHeader(index, header)
    writer.writeSamples(list(digital), digital=True)
    writer.close()
    source = opened(path)
    assert source.facts.format == "BDF+"
    assert source.facts.omitted == ("BDF Annotations",)
    assert whole(source).dtype == np.int32
    np.testing.assert_array_equal(whole(source), digital)
    reader = pyedflib.EdfReader(str(path))
    expected = np.array([reader.readSignal(index) for index in range(3)])
    reader.close()
    np.testing.assert_allclose(physical(source), expected, rtol=1e-9, atol=1e-9)


# The corpus: what is expected of each file.


def test_mixed_rates_keep_their_grids(real_dataset: Path) -> None:
    source = opened(real(real_dataset, "07"))
    assert [(g.rate, g.n_samples) for g in source.groups] == [
        (Fraction(100), 11000),
        (Fraction(64, 5), 1408),
    ]
    many = opened(real(real_dataset, "06"))
    assert many.groups[0].rate == 512
    assert many.groups[0].n_samples == 3072
    assert sum(len(group.channels) for group in many.groups) == 139
    assert many.facts.header_signals == 140
    assert many.facts.omitted == ("EDF Annotations",)


def test_repeated_labels_are_all_kept(real_dataset: Path) -> None:
    (group,) = opened(real(real_dataset, "08")).groups
    labels = [channel.label for channel in group.channels]
    assert labels == ["EEG F1-Ref-0", "EEG F2-Ref", "EEG F1-Ref-1"]


def test_annotations_only_and_truncation(real_dataset: Path) -> None:
    folder = real_dataset / "sub-09" / "eeg"
    with pytest.raises(RecordingError) as caught:
        opened(folder / "sub-09_task-sleep_eeg.edf")
    assert caught.value.code is FailureCode.EMPTY_RECORDING
    with pytest.raises(RecordingError, match="holds 1 of the 6 data records") as caught:
        opened(real(real_dataset, "16"))
    assert caught.value.code is CORRUPT


# Reading any bounds.

_SPRS = [3, 3, 5, 3, 3]
_RECORDS = 7


def _mixed(sample_bytes: int) -> tuple[bytes, dict[int, np.ndarray[Any, Any]]]:
    """Groups of 3 and 5 samples a record, an annotation signal in their middle."""
    rng = np.random.default_rng(1)
    limit = 1 << (8 * sample_bytes - 1)
    values = [rng.integers(-limit, limit, (_RECORDS, spr), dtype=np.int32) for spr in _SPRS]
    signals = [Signal(f"S{i}", spr) for i, spr in enumerate(_SPRS)]
    signals.insert(1, Signal("EDF Annotations", 4))
    records = []
    for index in range(_RECORDS):
        parts = [v[index].astype("<i4").view(np.uint8).reshape(-1, 4) for v in values]
        cut = [part[:, :sample_bytes].tobytes() for part in parts]
        cut.insert(1, bytes(4 * sample_bytes))
        records.append(b"".join(cut))
    version = b"0" if sample_bytes == 2 else b"\xffBIOSEMI"
    three = np.array([v.reshape(-1) for v, spr in zip(values, _SPRS, strict=True) if spr == 3])
    return edf_bytes(signals, records, version=version), {0: three, 1: values[2].reshape(1, -1)}


@pytest.mark.parametrize("sample_bytes", [2, 3])
@pytest.mark.parametrize("long_records", [False, True])
def test_any_bounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sample_bytes: int, long_records: bool
) -> None:
    monkeypatch.setattr(edf, "LONG_RECORD_BYTES", 0 if long_records else 1 << 20)
    monkeypatch.setattr(edf, "PIECE_BYTES", 150)  # some records at a time
    content, expected = _mixed(sample_bytes)
    source = opened(tmp_path / "a_eeg.edf", content)
    assert [group.granule for group in source.groups] == ([1, 1] if long_records else [3, 5])

    @settings(max_examples=60)
    @given(st.data())
    def check(data: st.DataObject) -> None:
        group = data.draw(st.sampled_from([0, 1]))
        n_samples = source.groups[group].n_samples
        start = data.draw(st.integers(0, n_samples))
        stop = data.draw(st.integers(start, n_samples))
        np.testing.assert_array_equal(
            source.read(group, start, stop), expected[group][:, start:stop]
        )

    check()
    with pytest.raises(ValueError, match="asked for"):
        source.read(0, 0, source.groups[0].n_samples + 1)


def test_status_keeps_the_trigger_bits(tmp_path: Path) -> None:
    words = np.array([0xFE0001, 0x9100FF, 0x00FFFF, 0x010000], "<u4")
    packed = words.view(np.uint8).reshape(-1, 4)[:, :3].tobytes()
    content = edf_bytes([Signal("Status")], [packed], version=b"\xffBIOSEMI")
    np.testing.assert_array_equal(
        whole(opened(tmp_path / "a_eeg.bdf", content)), [[0x1, 0x100FF, 0xFFFF, 0x10000]]
    )


# Tolerance.


def test_nul_padding_and_decimal_commas(tmp_path: Path) -> None:
    signal = Signal("Fp1", 4, physical=("-0,5", "0,5"), digital=("-1000", "1000"))
    content = edf_bytes([signal], [record([0, 1, -1, 1000])], duration="0,5", pad=b"\0")
    source = opened(tmp_path / "a_eeg.edf", content)
    assert source.groups[0].rate == 8
    np.testing.assert_allclose(physical(source), [[0, 0.0005, -0.0005, 0.5]], atol=1e-15)


def test_a_range_without_extent_serves_what_is_stored(tmp_path: Path) -> None:
    signals = [
        Signal("flat", physical=("0", "0")),
        Signal("flat digital", digital=("5", "5")),
        Signal("blank", physical=("", "")),
        Signal("inverted", physical=("100", "-100"), digital=("-100", "100")),
    ]
    rows = np.arange(16).reshape(4, 4)
    source = opened(tmp_path / "a_eeg.edf", edf_bytes(signals, [record(rows)]))
    channels = source.groups[0].channels
    assert [(c.gain, c.offset, c.unit) for c in channels[:3]] == [(1.0, 0.0, "n/a")] * 3
    np.testing.assert_array_equal(physical(source), [*rows[:3], -rows[3]])


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"uV", "uV"),
        (b"\xb5V", "uV"),
        ("µV".encode(), "uV"),
        ("μV".encode(), "uV"),
        (b"\xe6V", "uV"),
        (b"?V", "uV"),
        ("\ufffdV".encode(), "uV"),
        (b"UV", "uV"),
        (b"mV", "mV"),
        (b"MV", "MV"),
        (b"\xb5S", "uS"),
        (b"?", "?"),
        (b"", "n/a"),
        (b"\0\0", "n/a"),
        (b"%", "%"),
        (b"Microvolts", "uV"),
        (b"mVolt", "mV"),
        (b"kv", "kV"),
        (b"VOLT", "V"),
        ("Âµvolt".encode(), "uV"),
        (b"\x83\xcaV", "uV"),
        ("Â°C".encode(), "°C"),
        (b"T/m", "T/m"),
        (b"[degC]", "degC"),
    ],
)
def test_units(raw: bytes, expected: str) -> None:
    assert spelling.unit(spelling.decode(raw)) == expected


def test_types(tmp_path: Path) -> None:
    labels = ["EEG Fpz-Cz", "ECG", "EOG(L)", "EMG chin", "Resp nasal", "Fp1", "Trigger"]
    signals = [Signal(label) for label in labels] + [Signal("SpO2", dimension=b"%")]
    content = edf_bytes(signals, [record(np.zeros(32))])
    for modality, eeg in (("eeg", "EEG"), ("ieeg", "SEEG")):
        (group,) = opened(tmp_path / "a_eeg.edf", content, modality).groups
        assert [channel.type for channel in group.channels] == [
            *(eeg, "ECG", "EOG", "EMG", "RESP", eeg, "TRIG", "MISC")
        ]
    assert group.channels[0].label == "EEG Fpz-Cz"
    assert group.channels[0].prefilter == "HP:0.1Hz"


def test_latin1_labels(tmp_path: Path) -> None:
    (group,) = opened(
        tmp_path / "a_eeg.edf", edf_bytes([Signal("Höhe")], [record(np.zeros(4))])
    ).groups
    assert group.channels[0].label == "Höhe"


def test_record_counts(tmp_path: Path) -> None:
    path, records = tmp_path / "a_eeg.edf", [record(np.arange(4) + i) for i in range(5)]
    unknown = opened(path, edf_bytes([Signal()], records, n_records=-1) + b"\0\0\0")
    assert unknown.groups[0].n_samples == 20
    longer = opened(path, edf_bytes([Signal()], records, n_records=3))
    assert longer.groups[0].n_samples == 12
    error = fails(path, edf_bytes([Signal()], records, n_records=6))
    assert error.code is CORRUPT
    assert "holds 5 of the 6 data records" in error.message
    assert fails(path, edf_bytes([Signal()], [])).code is FailureCode.EMPTY_RECORDING


def test_a_symlinked_file(tmp_path: Path) -> None:
    (tmp_path / "content").write_bytes(edf_bytes([Signal()], [record(np.arange(4))]))
    link = tmp_path / "a_eeg.edf"
    link.symlink_to("content")
    np.testing.assert_array_equal(whole(opened(link)), [[0, 1, 2, 3]])


# Headers that lie.


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"/annex/objects/MD5E-s1--d41d8cd98f00b204e9800998ecf8427e.edf\n",
        edf_bytes([Signal()], [record(np.zeros(4))], version=b"nonsense"),
        edf_bytes([Signal()], [record(np.zeros(4))], n_signals=9999),
        edf_bytes([Signal()], [record(np.zeros(4))], n_signals=-1),
        edf_bytes([Signal()], [record(np.zeros(4))], n_signals="x"),
        edf_bytes([Signal(spr=99999999)], [record(np.zeros(4))]),
        edf_bytes([Signal(spr=99999999)], [record(np.zeros(4))], n_records=99999999),
        edf_bytes([Signal(spr=-4)], [record(np.zeros(4))]),
        edf_bytes([Signal(spr="1e99")], [record(np.zeros(4))]),
        edf_bytes([Signal(spr="four")], [record(np.zeros(4))]),
        edf_bytes([Signal()], [record(np.zeros(4))], n_records="many"),
        edf_bytes([Signal()], [record(np.zeros(4))], n_records=-7),
        edf_bytes([Signal()], [record(np.zeros(4))], duration="0"),
        edf_bytes([Signal()], [record(np.zeros(4))], duration="-1"),
        edf_bytes([Signal()], [record(np.zeros(4))], duration="1e999999"),
        edf_bytes([Signal()], [record(np.zeros(4))], duration="nan"),
    ],
)
def test_impossible_headers(tmp_path: Path, content: bytes) -> None:
    began = time.process_time()
    assert fails(tmp_path / "a_eeg.edf", content).code is CORRUPT
    assert time.process_time() - began < 1


def test_a_file_that_shrinks_while_read(tmp_path: Path) -> None:
    path = tmp_path / "a_eeg.edf"
    content = edf_bytes([Signal()], [record(np.zeros(4))] * 3)
    source = opened(path, content)
    path.write_bytes(content[:-3])
    with pytest.raises(RecordingError) as caught:
        whole(source)
    assert caught.value.code is CORRUPT
    source.close()
    source.close()


def test_a_missing_file_and_a_directory(tmp_path: Path) -> None:
    with pytest.raises(RecordingError) as caught:
        opened(tmp_path / "absent_eeg.edf")
    assert caught.value.code is CORRUPT
    with pytest.raises(RecordingError) as caught:
        opened(tmp_path)
    assert caught.value.code is FailureCode.FILE_READ_ERROR
