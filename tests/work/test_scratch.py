"""Scratch folders: gone with their run, and never while it lives."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from converter.work.scratch import scratch_folder


def test_runs_that_begin_at_once_leave_each_others_folders_alone(tmp_path: Path) -> None:
    def use(_: int) -> bool:
        with scratch_folder(tmp_path) as folder:
            (folder / "file").touch()
            time.sleep(0.001)
            return (folder / "file").exists()

    with ThreadPoolExecutor(8) as executor:
        assert all(executor.map(use, range(200)))
    assert list(tmp_path.iterdir()) == []
