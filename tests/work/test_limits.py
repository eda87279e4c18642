"""Limits in processes of their own: a balloon ends in MemoryError, a conversion does not."""

from __future__ import annotations

import csv
import json
import resource
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import mne
import numpy as np
import pytest

from converter.recording.convert import convert_recording
from converter.recording.local import LocalRecording
from converter.work.apart import run_apart
from converter.work.limits import confined, peak_memory, time_limit

from ..fixture_outcomes import FIXTURE_DATASET, WITHHELD
from ..fuzz.conversions import CONTEXT
from ..readers.test_edf import Signal, edf_bytes
from ..readers.test_eeglab import fields, write_h5, write_v5, write_v7

MB = 1 << 20
CHUNKED = partial(write_h5, chunks=(4096, 8), compression="gzip")
SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "measure_needs.py"
on_linux = pytest.mark.skipif(sys.platform != "linux", reason="Linux alone limits memory so")


def in_a_process(function: Callable[..., Any], *arguments: Any) -> Any:
    with get_context("spawn").Pool(1) as pool:
        return pool.apply(function, arguments)


def arrays_until_refused(memory: int, array: int) -> tuple[int, bool]:
    """How many arrays fit within a limit, and whether one more does after it."""
    held: list[np.ndarray] = []
    try:
        with confined(memory):
            while len(held) < 1000:
                held.append(np.ones(array, np.uint8))
    except MemoryError:
        count = len(held)
        held.append(np.ones(array, np.uint8))
        return count, len(held) > count
    return len(held), False


@on_linux
def test_a_balloon_ends_in_memory_error() -> None:
    # 100 MB for arrays of 10 MB: nine at least, since code needs a little as well.
    assert in_a_process(arrays_until_refused, 100 * MB, 10 * MB) in [(9, True), (10, True)]


def text_until_refused(memory: int) -> int:
    lines: list[str] = []
    try:
        with confined(memory):
            while len(lines) < 10_000_000:
                lines.append(str(len(lines)) * 20)
    except MemoryError:
        return len(lines)
    return 0


@on_linux
def test_small_objects_count_too() -> None:
    assert 20_000 < in_a_process(text_until_refused, 50 * MB) < 500_000


def limits_in_turn() -> list[int]:
    """The limits on data: within one of 60 MB, within a wider one in that, and after both."""
    limits = []
    with confined(60 * MB):
        limits.append(resource.getrlimit(resource.RLIMIT_DATA)[0])
        with confined(500 * MB):
            limits.append(resource.getrlimit(resource.RLIMIT_DATA)[0])
    return [*limits, resource.getrlimit(resource.RLIMIT_DATA)[0]]


@on_linux
def test_a_limit_is_not_raised_from_within_and_gone_after_it() -> None:
    outer, inner, after = in_a_process(limits_in_turn)
    assert 60 * MB < outer == inner
    assert after == resource.getrlimit(resource.RLIMIT_DATA)[0]


def core_limit() -> int:
    with confined(MB):
        return resource.getrlimit(resource.RLIMIT_CORE)[0]


def test_no_core_file() -> None:
    assert in_a_process(core_limit) == 0


def peak_of_two() -> tuple[int, int]:
    before = peak_memory()
    np.ones(60 * MB, np.uint8)
    highest = peak_memory() - before
    np.ones(20 * MB, np.uint8)
    return highest, peak_memory() - before


def test_peak_memory_is_the_highest_so_far() -> None:
    first, second = in_a_process(peak_of_two)
    assert 55 * MB < first < 80 * MB
    assert first <= second < 80 * MB


def test_time_grows_with_size() -> None:
    assert time_limit(0, 900) == 900
    assert time_limit(10**9, 900) == 1800
    assert time_limit(114 * 10**9, 60) == 60 * 115


def within_their_needs(dataset: Path, report: Path) -> dict[str, dict[str, Any]]:
    """Convert every recording of a folder within the memory estimated for it."""
    command = [sys.executable, str(SCRIPT), str(dataset), "--confined", "--json", str(report)]
    subprocess.run(command, check=True, capture_output=True, timeout=900)
    return {row["name"]: row for row in json.loads(report.read_bytes())}


def check(rows: dict[str, dict[str, Any]], failures: dict[str, str]) -> None:
    assert {name: row["failure"] for name, row in rows.items() if row["failure"]} == failures
    for name, row in rows.items():
        assert max(row["reserved"], row["held"]) < row["need"]["memory"], name
        assert row["scratch"] < row["need"]["scratch"], name


@on_linux
def test_fixtures_are_converted_within_their_needs(tmp_path: Path) -> None:
    rows = within_their_needs(FIXTURE_DATASET, tmp_path / "report.json")
    # Of what is withheld, two fail before a conversion: an unknown format, a name that is taken.
    check(rows, {path: str(w.code) for path, w in WITHHELD.items() if path in rows})
    assert len(rows) == 14


@on_linux
@pytest.mark.slow
def test_real_recordings_are_converted_within_their_needs(
    real_dir: Path, real_dataset: Path, tmp_path: Path
) -> None:
    rows = within_their_needs(real_dataset, tmp_path / "report.json")
    with (real_dir / "expected.tsv").open(encoding="utf-8", newline="") as lines:
        expected = list(csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))
    failures = {row["path"]: row["outcome"] for row in expected if row["outcome"] != "store"}
    check(rows, {path: code for path, code in failures.items() if path in rows})
    assert len(rows) == len(expected) - 1


def held(recording: LocalRecording, work: Path) -> int:
    """Bytes of memory that a conversion takes."""

    def convert() -> bytes:
        before = peak_memory()
        done = convert_recording(recording, "a.zarr", work / "store", work, CONTEXT)
        assert done.entry.groups[0].n_samples > 100_000
        return str(peak_memory() - before).encode()

    return int(run_apart(convert, lambda _: None))


@on_linux
@pytest.mark.parametrize("write", [write_v5, write_v7, write_h5, CHUNKED])
def test_samples_inside_a_set_file_are_streamed(
    write: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the version: 48 MB of samples, 96 MB as float64, in less than half of that.

    What waits to be quantised is no part of it.
    """
    samples = np.random.default_rng(2).normal(0, 30, (8, 1_500_000)).round().astype("f4")
    path = tmp_path / "a_eeg.set"
    write(path, fields(samples, nbchan=8, pnts=samples.shape[1], chanlocs=None))
    monkeypatch.setattr("converter.recording.readers.matlab_v5.KEPT_BYTES", MB)
    monkeypatch.setattr("converter.recording.waiting.IN_MEMORY", 0)
    assert held(LocalRecording(path.name, "eeg", path), tmp_path) < 24 * MB


@on_linux
def test_a_long_record_of_one_channel_costs_no_more_than_its_samples(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spr = 2_000_000
    record = np.arange(spr, dtype="<i2").tobytes()
    path = tmp_path / "a_eeg.edf"
    path.write_bytes(edf_bytes([Signal("Cz", spr=spr)], [record] * 4, duration="2000"))
    monkeypatch.setattr("converter.recording.waiting.IN_MEMORY", 0)
    assert held(LocalRecording(path.name, "eeg", path), tmp_path) < 24 * MB


@on_linux
def test_a_fif_file_of_one_buffer_is_streamed(tmp_path: Path) -> None:
    info = mne.create_info(8, 1000.0, "eeg", verbose="ERROR")
    samples = np.random.default_rng(2).normal(0, 3e-5, (8, 1_500_000))
    path = tmp_path / "a_eeg.fif"
    raw = mne.io.RawArray(samples, info, verbose="ERROR")
    raw.save(path, buffer_size_sec=2000, verbose="ERROR")
    del raw
    assert path.stat().st_size > 45 * MB
    assert held(LocalRecording(path.name, "eeg", path), tmp_path) < 24 * MB
