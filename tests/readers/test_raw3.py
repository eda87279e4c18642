"""Compressed epochs of ANT: all methods and widths, against the arrays and against libeep."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from antio.libeep import InputCNT, pyeep
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from converter.contract.codes import FailureCode, RecordingError
from converter.recording.local import LocalRecording
from converter.recording.readers import open_recording
from converter.recording.readers.raw3 import DamagedEpoch, decode

COPY, TIME, TIME2, CHANNEL = range(4)
WIDE = 8


def _bits(value: int, width: int) -> str:
    return format(value & ((1 << width) - 1), f"0{width}b") if width else ""


def _left(values: list[int], method: int, before: list[int]) -> list[int]:
    steps = [b - a for a, b in pairwise(values)]
    if method == TIME2:
        return [values[0], *steps[:1], *(b - a for a, b in pairwise(steps))]
    if method == CHANNEL:
        others = [b - a for a, b in pairwise(before)]
        steps = [step - other for step, other in zip(steps, others, strict=True)]
    return [values[0], *steps]


def packed(
    samples: NDArray[Any],
    method: int,
    width: int = 8,
    longer: int = 32,
    before: NDArray[Any] | None = None,
) -> bytes:
    """One channel of an epoch, as the format has it."""
    wide, kind = bool(method & WIDE), method & 7
    if kind == COPY:
        return bytes([method << 4]) + samples.astype(">i4" if wide else ">i2").tobytes()
    first, *rest = _left(samples.tolist(), kind, [] if before is None else before.tolist())
    text = _bits(method, 4)
    if wide:
        text += _bits(width, 6) + _bits(longer, 6) + _bits(first, 32)
    else:
        text += _bits(width % 16, 4) + _bits(longer % 16, 4) + _bits(first, 16)
    lowest = -(1 << (width - 1))
    for value in rest:
        if lowest < value < -lowest or width == longer:
            text += _bits(value, width)
        else:
            text += _bits(lowest, width) + _bits(value, longer)
    text += "0" * (-len(text) % 8)
    return int(text, 2).to_bytes(len(text) // 8, "big")


def recording(
    epochs: Sequence[Sequence[bytes]],
    n_samples: int,
    length: int,
    order: Sequence[int],
    rate: str = "512.0",
) -> bytes:
    """A .cnt file of epochs of packed channels, which are stored in `order`."""

    def chunk(name: bytes, body: bytes) -> bytes:
        return name + struct.pack("<I", len(body)) + body + b"\0" * (len(body) % 2)

    parts = [b"".join(epoch) for epoch in epochs]
    offsets = np.cumsum([0, *map(len, parts)])[:-1]
    raw = chunk(b"chan", np.array(order, "<i2").tobytes()) + chunk(b"data", b"".join(parts))
    raw += chunk(b"ep  ", np.array([length, *offsets], "<u4").tobytes())
    lines = ["[File Version]", "4.1", "[Sampling Rate]", rate, "[Samples]", str(n_samples)]
    lines += ["[Channels]", str(len(order)), "[Basic Channel Data]", ";label    calibration"]
    lines += [f"C{at:<9} 2.0 0.0078125 uV REF:Cz" for at in range(len(order))]
    text = "\n".join([*lines, "[History]", "EOH", "\0"])
    body = b"CNT " + chunk(b"LIST", b"raw3" + raw) + chunk(b"eeph", text.encode())
    return chunk(b"RIFF", body)


def walk(rng: np.random.Generator, n_channels: int, n_samples: int) -> NDArray[Any]:
    """Slow waves with a jump here and there, within 16 bits."""
    steps = rng.integers(-20, 20, (n_channels, n_samples))
    steps[rng.random(steps.shape) < 0.05] *= 100
    return np.clip(np.cumsum(steps, axis=1), -8000, 8000)


METHODS = [kind + wide for wide in (0, WIDE) for kind in (COPY, TIME, TIME2, CHANNEL)]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("width", [4, 8, 15, 16])
def test_files_equal_the_array_and_libeep(tmp_path: Path, method: int, width: int) -> None:
    longer = 32 if method & WIDE else 16
    samples = walk(np.random.default_rng(method), 3, 130)
    order = [2, 0, 1]
    epochs = []
    for start in range(0, 130, 50):
        part = samples[order, start : start + 50]
        first = packed(part[0], method if method & 7 != CHANNEL else method - 2, width, longer)
        rest = [packed(part[at], method, width, longer, part[at - 1]) for at in (1, 2)]
        epochs.append([first, *rest])
    file = tmp_path / "sub-01_eeg.cnt"
    file.write_bytes(recording(epochs, 130, 50, order))
    source = open_recording(LocalRecording("sub-01/eeg/sub-01_eeg.cnt", "eeg", file))
    (group,) = source.groups
    assert [(c.label, c.gain) for c in group.channels] == [(f"C{at}", 2 / 128) for at in range(3)]
    for start, stop in [(0, 130), (49, 51), (60, 129), (129, 130), (7, 7)]:
        np.testing.assert_array_equal(source.read(0, start, stop), samples[:, start:stop])
    theirs = InputCNT(pyeep.read(str(file))).get_samples_as_nparray(0, 130)
    np.testing.assert_array_equal(source.read(0, 0, 130) * (2 / 128), theirs)
    source.close()


@settings(max_examples=100)
@given(st.data())
def test_any_numbers(data: st.DataObject) -> None:
    wide = data.draw(st.sampled_from([0, WIDE]))
    whole = 32 if wide else 16
    top = 1 << (whole - 3)  # so that second differences fit
    values = st.integers(-top, top - 1)
    rows = data.draw(
        st.integers(1, 60).flatmap(
            lambda n: st.lists(st.lists(values, min_size=n, max_size=n), min_size=1, max_size=4)
        )
    )
    samples = np.array(rows)
    parts = []
    for at, row in enumerate(samples):
        kind = data.draw(st.sampled_from([COPY, TIME, TIME2, CHANNEL][: None if at else 3]))
        width = data.draw(st.integers(2, whole))
        parts.append(packed(row, kind + wide, width, whole, samples[at - 1]))
    raw = np.frombuffer(b"".join(parts), np.uint8)
    np.testing.assert_array_equal(decode(raw, *samples.shape), samples)
    with pytest.raises(DamagedEpoch):
        decode(raw[: data.draw(st.integers(0, len(raw) - 1))], *samples.shape)


def test_sums_wrap_around() -> None:
    raw = np.frombuffer(packed(np.array([2**31 - 1, 2**31 + 4]), TIME + WIDE), np.uint8)
    np.testing.assert_array_equal(decode(raw, 1, 2), [[2**31 - 1, -(2**31) + 4]])


@settings(max_examples=300)
@given(st.binary(max_size=60), st.integers(1, 3), st.integers(1, 200))
def test_any_bytes_are_samples_or_damage(content: bytes, n_channels: int, n_samples: int) -> None:
    try:
        found = decode(np.frombuffer(content, np.uint8), n_channels, n_samples)
    except DamagedEpoch:
        return
    assert found.shape == (n_channels, n_samples)


def test_a_damaged_epoch_is_named(tmp_path: Path) -> None:
    samples = walk(np.random.default_rng(1), 1, 100)
    epochs = [[packed(samples[0, :50], TIME + WIDE)], [b"\xf0" + bytes(99)]]
    file = tmp_path / "sub-01_eeg.cnt"
    file.write_bytes(recording(epochs, 100, 50, [0]))
    source = open_recording(LocalRecording("sub-01/eeg/sub-01_eeg.cnt", "eeg", file))
    np.testing.assert_array_equal(source.read(0, 0, 50), samples[:, :50])
    with pytest.raises(RecordingError, match="epoch 1") as caught:
        source.read(0, 0, 100)
    assert caught.value.code is FailureCode.CORRUPT_OR_TRUNCATED
    source.close()


@pytest.mark.parametrize("order", [[0, 0], [0, 2], [-1, 0]])
def test_orders_that_are_none(tmp_path: Path, order: list[int]) -> None:
    file = tmp_path / "sub-01_eeg.cnt"
    part = packed(np.arange(50), TIME)
    file.write_bytes(recording([[part, part]], 50, 50, order))
    with pytest.raises(RecordingError, match="order") as caught:
        open_recording(LocalRecording("sub-01/eeg/sub-01_eeg.cnt", "eeg", file))
    assert caught.value.code is FailureCode.CORRUPT_OR_TRUNCATED
