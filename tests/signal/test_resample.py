"""The block-wise resampler against scipy.signal.resample_poly on the whole signal."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.signal import resample_poly

from converter.recording.filters import MAX_TABULATED
from converter.recording.resample import NearestSample, Resampler, output_length
from tests.signal.test_passes import in_lanes

RATIOS = [(1, 4), (1, 2), (125, 256), (125, 512), (5, 24), (225, 916), (25, 32), (97, 101), (3, 4)]


def in_blocks(x, ratio, sizes, constant=None):
    """The whole result, computed in stretches of these lengths from what each needs."""
    constant = np.zeros(len(x)) if constant is None else constant
    resampler = Resampler(ratio, x.shape[1], constant)
    relative = (x - constant[:, None]).astype(np.float32)
    parts, first, turn = [], 0, 0
    while first < resampler.n_out:
        last = min(first + sizes[turn % len(sizes)], resampler.n_out)
        start, stop = resampler.inputs(first, last)
        needed = in_lanes(relative[:, start:stop])
        parts.append(resampler.outputs(needed, first, last))
        first, turn = last, turn + 1
    return np.concatenate(parts, axis=1).astype(np.float64) + constant[:, None]


@given(
    ratio=st.sampled_from(RATIOS),
    n=st.integers(1, 4000),
    sizes=st.lists(st.integers(1, 900), min_size=1, max_size=6),
    dc=st.floats(-3e5, 3e5),
    seed=st.integers(0, 2**32 - 1),
)
@example(ratio=(97, 101), n=1, sizes=[1], dc=0.0, seed=3221225534)  # one sample, no range
@settings(max_examples=150)
def test_equals_resample_poly_for_any_block_sizes_and_offset(ratio, n, sizes, dc, seed):
    x = np.random.default_rng(seed).normal(size=(3, n)) * np.array([[1], [50], [0]]) + dc
    expected = resample_poly(x, *ratio, axis=1, padtype="edge")
    got = in_blocks(x, Fraction(*ratio), sizes, constant=x[:, 0].copy())
    assert got.shape == expected.shape
    scale = np.maximum(np.ptp(x, axis=1), 1e-3 * np.abs(x).max(axis=1)).max()
    tolerance = 1e-6 * scale + 1e-9
    assert np.abs(got - expected).max() <= tolerance


def test_a_ratio_with_millions_of_phases_follows_the_exact_time():
    native = Fraction(1017.7777709960938)
    ratio = Fraction(250) / native
    assert max(ratio.numerator, ratio.denominator) > MAX_TABULATED
    n = 30_000
    t_in, t_out = np.arange(n) / float(native), np.arange(output_length(n, ratio)) / 250
    got = in_blocks(np.sin(2 * np.pi * 7 * t_in)[None], ratio, [1000])[0]
    inner = slice(50, -50)
    # 7 Hz lies in the pass band, where the filter's gain is within 1e-3 of 1.
    assert np.abs(got - np.sin(2 * np.pi * 7 * t_out))[inner].max() < 2e-3
    near = Fraction(225, 916)
    expected = resample_poly(np.sin(2 * np.pi * 7 * t_in), 225, 916, padtype="edge")
    drift = n * abs(float(ratio - near))
    assert np.abs(got[: len(expected)] - expected)[inner].max() < 1e-5 + drift


@pytest.mark.parametrize("ratio", [(1, 2), (5, 24), (2, 5), (125, 512)])
@pytest.mark.parametrize("block", [1, 7, 1000])
def test_discrete_channels_take_the_nearest_sample(ratio, block):
    n, (up, down) = 1003, ratio
    codes = np.arange(n, dtype=np.float32)[None]
    picker = NearestSample(Fraction(up, down), n)
    bounds = range(0, picker.n_out, block)
    parts = [picker.sources(i, min(i + block, picker.n_out)) for i in bounds]
    got = codes[0, np.concatenate(parts)]
    times = np.arange(output_length(n, Fraction(up, down))) * down / up
    assert len(got) == len(times)
    assert np.abs(got - np.minimum(times, n - 1)).max() <= 0.5


def test_upsampling_is_refused():
    with pytest.raises(ValueError, match="below the native rate"):
        Resampler(Fraction(5, 4), 100, np.zeros(1))
