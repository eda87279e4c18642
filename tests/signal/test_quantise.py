"""Quantisation against the samples it stands for."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from converter.recording.quantise import Quantiser, Range


@given(
    span=st.floats(1e-36, 1e30),
    gain=st.floats(1e-15, 1e6),
    constant=st.floats(-1e6, 1e6),
    seed=st.integers(0, 2**32 - 1),
)
@settings(max_examples=200)
def test_within_half_a_step_over_the_whole_range(span, gain, constant, seed):
    samples = (np.random.default_rng(seed).uniform(-1, 1, (2, 500)) * span).astype(np.float32)
    limits = Range(2)
    limits.include(samples[:, :100])
    limits.include(samples[:, 100:])
    quantiser = Quantiser(limits, np.full(2, gain), np.full(2, constant))
    digital = quantiser.codes([samples[:, :300], samples[:, 300:]])
    assert digital.min(axis=1).tolist() == [-32768] * 2
    assert digital.max(axis=1).tolist() == [32767] * 2
    physical = samples.astype(np.float64) * gain + constant
    published = digital * quantiser.scale[:, None] + quantiser.offset[:, None]
    rounding = np.abs(physical).max() * 1e-14
    assert (np.abs(published - physical) <= quantiser.scale[:, None] * 0.51 + rounding).all()


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("value", [0.0, 3.5, -1e30, 1e-38])
def test_a_constant_channel_keeps_its_value_exactly(value):
    samples = np.full((1, 10), value, np.float32)
    limits = Range(1)
    limits.include(samples)
    quantiser = Quantiser(limits, np.array([0.1]), np.array([7.0]))
    assert quantiser.scale.tolist() == [1.0]
    assert quantiser.offset.tolist() == [float(np.float32(value)) * 0.1 + 7.0]
    assert not quantiser.codes([samples]).any()


def test_small_integer_codes_survive_exactly():
    codes = np.array([[0, 1, 2, 5, 255, 128]], np.float32)
    limits = Range(1)
    limits.include(codes)
    quantiser = Quantiser(limits, np.ones(1), np.zeros(1))
    published = quantiser.codes([codes]) * quantiser.scale[0] + quantiser.offset[0]
    np.testing.assert_allclose(published, codes, atol=1e-9)
