"""Nihon Kohden recordings against the arrays that were written and against MNE."""

from __future__ import annotations

import struct
import tracemalloc
import warnings
from dataclasses import dataclass
from datetime import datetime, timedelta
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

SIGNATURE = b"EEG-1100C V01.00"
CODES = (0, 17, 42, 76)  # FP1, CZ, DC01, Mark1
LABELS = """[ELECTRODE]
0000=Fp1
0017=Cz
0042=DC01
[REFERENCE]
0255=Z
[SD_DEF]
0000=secret
"""


@dataclass
class Block:
    """Samples (n_channels, n_samples) as int16, and when they begin (yymmddhhmmss)."""

    samples: NDArray[Any]
    start: str = "100102030405"
    rate: int = 200
    codes: tuple[int, ...] = CODES
    tenths: int | None = None

    def content(self) -> bytes:
        n_channels, length = self.samples.shape
        head = bytearray(0x27)
        head[1:17] = SIGNATURE
        head[0x14:0x1A] = bytes.fromhex(self.start)
        tenths = length * 10 // self.rate if self.tenths is None else self.tenths
        struct.pack_into("<HI", head, 0x1A, self.rate | 0xC000, tenths)
        head[0x26] = n_channels
        table = b"".join(bytes([code]) + bytes(9) for code in self.codes)
        marks = np.full((1, length), 99)
        stored = (np.concatenate([self.samples, marks]) + 0x8000).astype("<u2")
        return bytes(head) + table + np.ascontiguousarray(stored.T).tobytes()


def written(folder: Path, *controls: list[Block], labels: str | None = LABELS) -> Path:
    """`x.EEG` of control blocks that hold blocks of samples, `x.21E` and a `x.PNT` of a patient."""
    head = bytearray(0x1800)
    head[:16] = SIGNATURE
    head[0x20:0x28] = b"Jane Doe"
    head[0x81:0x91] = SIGNATURE
    head[0x91] = len(controls)
    head[0x17FE] = 1
    body = bytearray()
    for index, blocks in enumerate(controls):
        at = len(head) + len(body)
        struct.pack_into("<I", head, 0x92 + 20 * index, at)
        control = bytearray(0x12 + 20 * len(blocks))
        control[1:17] = SIGNATURE
        control[0x11] = len(blocks)
        contents = [block.content() for block in blocks]
        position = at + len(control)
        for number, content in enumerate(contents):
            struct.pack_into("<I", control, 0x12 + 20 * number, position)
            position += len(content)
        body += control + b"".join(contents)
    file = folder / "sub-01_task-rest_ieeg.EEG"
    file.write_bytes(bytes(head + body))
    if labels is not None:
        file.with_suffix(".21E").write_text(labels)
    patient = bytearray(0x80)
    patient[:16] = SIGNATURE
    patient[0x40:0x4E] = b"20100102030405"
    patient[0x60:0x68] = b"Jane Doe"
    file.with_suffix(".PNT").write_bytes(patient)
    return file


def numbers(n_samples: int, seed: int = 6) -> NDArray[Any]:
    return np.random.default_rng(seed).integers(-32768, 32768, (4, n_samples)).astype("i2")


def test_samples(tmp_path: Path) -> None:
    samples = numbers(400)
    source = opened(written(tmp_path, [Block(samples)]))
    (group,) = source.groups
    assert (group.rate, group.n_samples, source.facts.header_signals) == (200, 400, 4)
    assert [(c.label, c.type, c.unit, c.discrete) for c in group.channels] == [
        ("Fp1", "SEEG", "uV", False),
        ("Cz", "SEEG", "uV", False),
        ("DC01", "MISC", "mV", False),
        ("Mark1", "TRIG", "n/a", True),
    ]
    for start, stop in [(0, 400), (13, 57), (399, 400), (5, 5)]:
        block = source.read(0, start, stop)
        assert block.dtype == np.int16
        np.testing.assert_array_equal(block, samples[:, start:stop])
    told = repr((source.facts, source.groups))
    assert not any(word in told for word in ("Jane", "Doe", "secret", "2010"))
    source.close()
    source.close()


def test_physical_values_equal_mne(tmp_path: Path) -> None:
    samples = numbers(400)
    file = written(tmp_path, [Block(samples[:3], codes=CODES[:3])])
    source = opened(file)
    scale = {"uV": 1e-6, "mV": 1e-3}
    gains = np.array(
        [[c.gain * scale[c.unit], c.offset * scale[c.unit]] for c in source.groups[0].channels]
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        raw = mne.io.read_raw_nihon(file, verbose="ERROR")
        theirs = raw.get_data()
    assert raw.ch_names == [channel.label for channel in source.groups[0].channels]
    assert raw.info["sfreq"] == source.groups[0].rate
    ours = source.read(0, 0, 400) * gains[:, :1] + gains[:, 1:]
    np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-13)
    source.close()


def test_labels_without_their_file(tmp_path: Path) -> None:
    codes = (0, 25, 36, 41, 42, 73, 74, 77, 99, 100, 103, 104, 253, 254, 255)
    samples = np.zeros((len(codes), 200), "i2")
    source = opened(written(tmp_path, [Block(samples, codes=codes)], labels=None))
    assert [channel.label for channel in source.groups[0].channels] == [
        *("FP1", "T2", "X11", "NA5", "DC01", "DC32", "BN1", "Mark2", "NA27"),
        *("X12/BP1", "X15/BP4", "X16", "X165", "NA28", "Z"),
    ]
    source.close()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        raw = mne.io.read_raw_nihon(tmp_path / "sub-01_task-rest_ieeg.EEG", verbose="ERROR")
    assert raw.ch_names == [channel.label for channel in source.groups[0].channels]


def test_labels_of_any_spelling(tmp_path: Path) -> None:
    file = written(tmp_path, [Block(numbers(200))], labels=None)
    text = "[ELECTRODE]\r\n0000=Ü1\r\n17=Ü1\r\n99999=x\r\n-1=x\r\n²=x\r\nnonsense\r\n0042=\r\n"
    file.with_suffix(".21e").write_bytes(text.encode("latin-1"))
    source = opened(file)
    labels = [channel.label for channel in source.groups[0].channels]
    assert labels == ["Ü1-0", "Ü1-1", "Ch3", "Mark1"]
    source.close()


def test_blocks_that_follow_each_other_are_joined(tmp_path: Path) -> None:
    parts = [numbers(500, 1), numbers(300, 2), numbers(200, 3)]
    starts = ("100102235958", "100103000001", "100103000002")  # 2.5 s, 1.5 s and 1 s long
    blocks = [Block(part, start) for part, start in zip(parts, starts, strict=True)]
    whole = np.concatenate(parts, axis=1)
    for controls in ([blocks], [blocks[:1], blocks[1:]]):
        source = opened(written(tmp_path, *controls))
        assert source.groups[0].n_samples == 1000
        for start, stop in [(0, 1000), (499, 501), (450, 900), (800, 800)]:
            np.testing.assert_array_equal(source.read(0, start, stop), whole[:, start:stop])
        source.close()


def test_pauses_are_zeros(tmp_path: Path) -> None:
    parts = [numbers(500, 1) | 1, numbers(300, 2) | 1]
    blocks = [Block(parts[0], "100102030405"), Block(parts[1], "100102030412")]
    source = opened(written(tmp_path, blocks))
    empty = np.zeros((4, 900), "i2")  # 7 s from start to start, less 2.5 s
    whole = np.concatenate([parts[0], empty, parts[1]], axis=1)
    assert source.groups[0].n_samples == 1700
    assert source.groups[0].gaps == ((500, 1400),)
    for start, stop in [(0, 1700), (600, 700), (499, 1401), (1399, 1400)]:
        np.testing.assert_array_equal(source.read(0, start, stop), whole[:, start:stop])
    source.close()


def test_pauses_within_the_step_of_the_clock_do_not_add_up(tmp_path: Path) -> None:
    """60 blocks of 10 s, one every 11 s: each within a second of when its clock says."""
    starts = [datetime(2010, 1, 2, 3, 4, 5) + timedelta(seconds=11 * at) for at in range(60)]
    blocks = [
        Block(np.full((4, 200), at + 1, "i2"), f"{start:%y%m%d%H%M%S}", rate=20)
        for at, start in enumerate(starts)
    ]
    source = opened(written(tmp_path, blocks))
    found = source.read(0, 0, source.groups[0].n_samples)[0]
    places = [int(np.argmax(found == at + 1)) / 20 for at in range(60)]
    assert np.abs(np.array(places) - 11 * np.arange(60)).max() <= 1
    assert [np.count_nonzero(found == at + 1) for at in range(60)] == [200] * 60
    assert source.groups[0].n_samples / 20 == pytest.approx(659, abs=1)
    source.close()


def test_overlaps_within_the_step_of_the_clock_do_not_add_up(tmp_path: Path) -> None:
    blocks = [Block(numbers(220), f"1001020304{10 * at:02}", rate=20) for at in range(6)]
    opened(written(tmp_path, blocks[:2])).close()
    found = failure(written(tmp_path, blocks))  # of 11 s, one every 10 s
    assert found.code is FailureCode.NOT_CONTINUOUS


@pytest.mark.parametrize(
    ("second", "code"),
    [
        (Block(numbers(200), "100102030401"), FailureCode.NOT_CONTINUOUS),
        (Block(numbers(200), "ffffffffffff"), FailureCode.NOT_CONTINUOUS),
        (Block(numbers(200), "101302030405"), FailureCode.NOT_CONTINUOUS),
        (Block(numbers(500), "100102030410", rate=500), FailureCode.NOT_CONTINUOUS),
        (Block(numbers(200), "100102030410", codes=(0, 1, 2, 3)), FailureCode.NOT_CONTINUOUS),
        (Block(numbers(200), "680102030410"), FailureCode.FILE_READ_ERROR),
        (Block(numbers(200), tenths=2**32 - 1), FailureCode.CORRUPT_OR_TRUNCATED),
        (Block(numbers(200), tenths=0), None),
    ],
)
def test_second_blocks_that_make_no_sense(
    tmp_path: Path, second: Block, code: FailureCode | None
) -> None:
    file = written(tmp_path, [Block(numbers(400)), second])
    if code is None:
        opened(file).close()
    else:
        assert failure(file).code is code


def test_other_files_called_eeg(tmp_path: Path) -> None:
    file = tmp_path / "sub-01_eeg.eeg"
    for content, code in (
        (b"", FailureCode.EMPTY_RECORDING),
        (bytes(4000), FailureCode.UNSUPPORTED_FORMAT),
        (b"Version 3.0".ljust(4000, b"\0"), FailureCode.NOT_CONTINUOUS),
        (SIGNATURE, FailureCode.CORRUPT_OR_TRUNCATED),
    ):
        file.write_bytes(content)
        assert failure(file).code is code


def test_impossible_headers(tmp_path: Path) -> None:
    file = written(tmp_path, [Block(numbers(400))])
    good = file.read_bytes()
    block = 0x1800 + 0x12 + 20
    damaged = [
        good[: block + 0x1A] + b"\0\xc0" + good[block + 0x1C :],  # rate
        good[:0x1900],
        good[:-1],
        good[:0x81] + b"x" + good[0x82:],
        good[:0x17FE] + b"\0" + good[0x17FF:],
        good[:0x92] + b"\xff\xff\xff\x7f" + good[0x96:],
        good[:0x1811] + b"\xff" + good[0x1812:],
        # The one block twice: no file holds more samples than it has bytes.
        good[:0x91] + b"\2" + good[0x92:0xA6] + good[0x92:0xA6] + good[0xBA:],
    ]
    tracemalloc.start()
    for content in damaged:
        file.write_bytes(content)
        assert failure(file).code is FailureCode.CORRUPT_OR_TRUNCATED
    assert tracemalloc.get_traced_memory()[1] < 8 << 20
    tracemalloc.stop()
    file.write_bytes(good[:0x91] + b"\0" + good[0x92:])
    assert failure(file).code is FailureCode.EMPTY_RECORDING


@settings(max_examples=100)
@given(st.one_of(st.integers(0x80, 0xA8), st.integers(0x17F0, 0x18A0)), st.integers(0, 255))
def test_any_damaged_byte_is_a_source_or_a_typed_failure(
    tmp_path_factory: pytest.TempPathFactory, at: int, value: int
) -> None:
    folder = tmp_path_factory.mktemp("eeg")
    file = written(folder, [Block(numbers(40)), Block(numbers(60), "100102030410")])
    content = bytearray(file.read_bytes())
    content[at] = value
    file.write_bytes(content)
    try:
        source = opened(file)
    except RecordingError:
        return
    source.read(0, 0, source.groups[0].n_samples)
    source.close()
