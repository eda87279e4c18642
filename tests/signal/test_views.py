"""View levels against the extremes of the level-0 samples under each column."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from converter.recording.views import Pyramid, chunk_columns, level_lengths


def build(digital, sizes):
    levels: dict[int, dict[int, np.ndarray]] = {}
    pyramid = Pyramid(digital.shape[0], digital.shape[1])
    start = turn = 0
    while start < digital.shape[1]:
        size = sizes[turn % len(sizes)]
        for chunk in pyramid.push(digital[:, start : start + size]):
            levels.setdefault(chunk.level, {})[chunk.index] = chunk.columns
        start, turn = start + size, turn + 1
    for chunk in pyramid.finish():
        levels.setdefault(chunk.level, {})[chunk.index] = chunk.columns
    return [
        np.concatenate([levels[n][i] for i in sorted(levels[n])], axis=2)
        for n in range(1, len(pyramid.lengths) + 1)
    ]


@given(
    n=st.integers(1, 40_000),
    sizes=st.lists(st.integers(1, 9000), min_size=1, max_size=4),
    seed=st.integers(0, 2**32 - 1),
)
@settings(max_examples=60)
def test_every_column_is_the_extremes_of_the_samples_under_it(n, sizes, seed):
    digital = np.random.default_rng(seed).integers(-32768, 32768, (2, n)).astype(np.int16)
    lengths = level_lengths(n)
    below = n
    for level, (columns, length) in enumerate(zip(build(digital, sizes), lengths, strict=True), 1):
        assert length == below // 4
        assert columns.shape[2] == -(-length // chunk_columns(length)) * chunk_columns(length)
        starts = np.arange(length) * 4**level
        np.testing.assert_array_equal(
            columns[0, :, :length], np.minimum.reduceat(digital, starts, axis=1)
        )
        np.testing.assert_array_equal(
            columns[1, :, :length], np.maximum.reduceat(digital, starts, axis=1)
        )
        assert not columns[:, :, length:].any()
        below = length
    assert not lengths or lengths[-1] <= 512 or len(lengths) == 12


def test_pyramid_heights():
    assert level_lengths(512) == []
    assert level_lengths(513) == [128]
    assert level_lengths(30504) == [7626, 1906, 476]
