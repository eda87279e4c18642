"""A signal that waits comes back as it was, from memory or from a file without a name."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from converter.recording.waiting import IN_MEMORY, WaitingSignal
from tests.open_files import open_files


def open_in(folder: Path) -> int:
    return sum(file.path.is_relative_to(folder) for file in open_files())


@pytest.mark.parametrize("beyond", [0, 1])
def test_pieces_come_back_in_their_order(tmp_path: Path, beyond: int) -> None:
    """A signal of just so many bytes stays in memory; a longer one is on the disk."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    random = np.random.default_rng(3)
    signal = random.normal(size=(5, 700)).astype(np.float32)
    bounds = [0, 1, 250, 250, 600, 700]
    pieces = [signal[:, a:b] for a, b in pairwise(bounds)]
    open_before = open_in(folder)
    waiting = WaitingSignal(IN_MEMORY // 4 + beyond, folder)
    assert open_in(folder) == open_before + beyond
    assert not list(folder.iterdir())
    for piece in pieces:
        waiting.put(piece)
    back = list(waiting.take())
    assert [piece.shape for piece in back] == [piece.shape for piece in pieces]
    assert np.array_equal(np.concatenate(back, axis=1), signal)
    assert not list(waiting.take())
    waiting.close()
    assert open_in(folder) == open_before
