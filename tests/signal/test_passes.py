"""The compiled passes, of each library that the machine can run, against plain numpy."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from converter.recording import passes

FOLDER = Path(passes.__file__).parent
LIBRARIES = [FOLDER / "libpasses.so"]
if passes._opened(LIBRARIES[0], passes._digest()).has_avx2():
    LIBRARIES.append(FOLDER / "libpasses_avx2.so")

channels, seeds = st.integers(1, 40), st.integers(0, 2**32 - 1)


@pytest.fixture(params=LIBRARIES, ids=lambda path: path.stem, autouse=True, scope="module")
def library(request):
    """Every test runs with either library."""
    own = passes._library
    passes._library = passes._opened(request.param, passes._digest())
    yield
    passes._library = own


def in_lanes(rows, first=None, sign=None):
    """Rows (n_channels, n) as a block."""
    n_channels, n = rows.shape
    block = passes.empty_block(n_channels, n)
    block[...] = np.nan
    passes.to_lanes(
        rows,
        passes.lane_values(np.zeros(n_channels) if first is None else first),
        passes.lane_values(np.ones(n_channels) if sign is None else sign, np.float32),
        block,
    )
    return block


LAYOUTS = {
    "rows": lambda rows: rows,
    "frames": lambda rows: np.ascontiguousarray(rows.T).T,
    "part of rows": lambda rows: np.pad(rows, ((0, 1), (3, 2)))[:-1, 3:-2],
    "part of frames": lambda rows: np.pad(rows.T, ((3, 2), (0, 5)))[3:-2, :-5].T,
    "every second": lambda rows: np.repeat(rows, 2, axis=1)[:, ::2],
    "backwards": lambda rows: np.ascontiguousarray(rows[::-1])[::-1],
    "unaligned": lambda rows: unaligned(rows),
}


def unaligned(rows):
    raw = np.frombuffer(b"x" + rows.tobytes(), np.uint8)[1:]
    return raw.view(rows.dtype).reshape(rows.shape)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", ["i1", "i2", ">i2", "u2", "i4", ">i4", "f4", "f8", ">f8", "i8"])
@given(n_channels=channels, n=st.integers(1, 300), seed=seeds)
@settings(max_examples=8)
def test_lanes_hold_differences_of_any_samples(layout, dtype, n_channels, n, seed):
    rng = np.random.default_rng(seed)
    kind = np.dtype(dtype)
    scale = 1e6 if kind.kind == "f" else min(2.0 ** (8 * kind.itemsize - 1) - 1, 2.0**40)
    exact = rng.uniform(0 if kind.kind == "u" else -scale, scale, (n_channels, n)).astype(kind)
    sign = rng.choice([-1, 1], n_channels)
    first = exact[:, 0].astype(np.float64)
    block = in_lanes(LAYOUTS[layout](exact), first, sign)
    wanted = (exact.astype(np.float64) - first[:, None]) * sign[:, None]
    got = block.transpose(0, 2, 1).reshape(-1, n)
    np.testing.assert_allclose(got[:n_channels], wanted, rtol=2e-7, atol=scale * 2e-13)
    assert not got[n_channels:].any()
    np.testing.assert_array_equal(passes.to_rows(block, n_channels), got[:n_channels])


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 2e30, -1e31])
def test_samples_that_are_no_measured_numbers_are_counted(dtype, bad):
    rows = np.ones((18, 40), dtype)
    rows[3, 7] = rows[17, 39] = rows[17, 0] = bad
    block = passes.empty_block(18, 40)
    zeros, ones = passes.lane_values(np.zeros(18)), passes.lane_values(np.ones(18), np.float32)
    assert passes.to_lanes(rows, zeros, ones, block) == 3
    assert passes.to_lanes(np.ones((18, 40), dtype), zeros, ones, block) == 0


@given(n_channels=channels, width=st.integers(1, 60), n=st.integers(1, 30), seed=seeds)
@settings(max_examples=60)
def test_products_are_those_of_matrices(n_channels, width, n, seed):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(n_channels, width + 50)).astype(np.float32)
    weights = rng.normal(size=(5, width, passes.OUTPUTS)).astype(np.float32)
    ripple = rng.normal(size=(5, passes.OUTPUTS)).astype(np.float32)
    constant = rng.normal(size=n_channels).astype(np.float32)
    starts, which = rng.integers(0, 51, n), rng.integers(0, 5, n)
    out = np.full((n_channels, passes.OUTPUTS * n + 3), np.nan, np.float32)
    lanes = passes.lane_values(constant, np.float32)
    passes.resample(in_lanes(rows), starts, which, weights, ripple, lanes, out[:, :-3])
    wanted = [
        rows[:, start : start + width].astype(np.float64) @ weights[number]
        + constant[:, None] * ripple[number]
        for start, number in zip(starts, which, strict=True)
    ]
    np.testing.assert_allclose(out[:, :-3], np.concatenate(wanted, axis=1), atol=1e-4)
    assert np.isnan(out[:, -3:]).all()


@given(n_channels=channels, n=st.integers(1, 70), seed=seeds)
@settings(max_examples=60)
def test_codes_are_the_nearest(n_channels, n, seed):
    rng = np.random.default_rng(seed)
    samples = rng.uniform(-1, 1, (n_channels, n)).astype(np.float32)
    low, per_step = np.full(n_channels, -1, np.float32), np.full(n_channels, 32767.5, np.float32)
    lowest, out = np.full(n_channels, -32768, np.float32), np.zeros((n_channels, n + 2), np.int16)
    passes.quantise(samples, low, per_step, lowest, out[:, 1:-1])
    exact = (samples.astype(np.float64) + 1) * 32767.5 - 32768
    assert (np.abs(out[:, 1:-1] - exact) <= 0.51).all()
    assert not out[:, [0, -1]].any()


def test_halves_go_to_the_even_code():
    samples = np.arange(-4, 4.5, 0.5, dtype=np.float32)[None]
    out = np.empty(samples.shape, np.int16)
    one, zero = np.ones(1, np.float32), np.zeros(1, np.float32)
    passes.quantise(samples, zero, one, zero, out)
    assert out.tolist() == np.rint(samples).tolist()


@given(n_channels=channels, n=st.integers(0, 70), seed=seeds)
@settings(max_examples=60)
def test_folds_are_extremes(n_channels, n, seed):
    codes = np.random.default_rng(seed).integers(-32768, 32768, (2, n_channels, 4 * n + 3), "i2")
    low, high = codes[:, :, : 4 * n]
    folded = np.zeros((2, n_channels, n + 1), np.int16)
    passes.fold(low, high, folded[:, :, 1:])
    assert not folded[:, :, 0].any()
    folded = folded[:, :, 1:]
    np.testing.assert_array_equal(folded[0], low.reshape(n_channels, n, 4).min(axis=2))
    np.testing.assert_array_equal(folded[1], high.reshape(n_channels, n, 4).max(axis=2))


def test_nothing_beyond_an_array_is_touched():
    block, out = in_lanes(np.zeros((2, 10), np.float32)), np.empty((2, 4), np.float32)
    weights, ripple = np.zeros((1, 4, 4), np.float32), np.zeros((1, 4), np.float32)
    lanes = passes.lane_values(np.zeros(2), np.float32)

    def run(start=0, which=0, weights=weights, block=block, out=out, lanes=lanes):
        passes.resample(block, np.array([start]), np.array([which]), weights, ripple, lanes, out)

    run(start=6)
    for wrong in (
        {"start": 7},
        {"start": -1},
        {"which": 1},
        {"which": -1},
        {"weights": np.zeros((1, 4, 3), np.float32)},
        {"weights": weights.astype(np.float64)},
        {"block": block[:, :, :8]},
        {"out": np.empty((2, 5), np.float32)},
        {"out": np.empty((17, 4), np.float32)},
        {"out": np.empty((2, 8), np.float32)[:, ::2]},
        {"lanes": lanes[:8]},
    ):
        with pytest.raises(ValueError, match="another type, shape or layout"):
            run(**wrong)
    with pytest.raises(ValueError, match="another type"):
        passes.to_rows(block, 17)
    codes, out = np.zeros((2, 8), np.int16), np.zeros((2, 2, 2), np.int16)
    passes.fold(codes, codes, out)
    for low, high, into in (
        (codes, codes[:, :4], out),
        (codes[:, :4], codes[:, :4], out),
        (codes, codes[::-1], out),
        (codes, codes, out[:1]),
        (codes, codes, out[:, :1]),
        (codes, codes, out.astype(np.int32)),
        (codes, codes, np.zeros((2, 2, 4), np.int16)[:, :, ::2]),
    ):
        with pytest.raises(ValueError, match="another type"):
            passes.fold(low, high, into)


def test_a_library_of_another_source_is_refused(tmp_path):
    with pytest.raises(ImportError, match=r"libpasses\.so is not of this passes\.c, install"):
        passes._opened(LIBRARIES[0], "0" * 64)
    with pytest.raises(ImportError, match=r"absent\.so can't be loaded, install"):
        passes._opened(tmp_path / "absent.so", "0" * 64)
    assert ctypes.CDLL(str(LIBRARIES[0])).has_avx2() in (0, 1)
