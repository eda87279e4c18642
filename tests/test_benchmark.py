"""The scripts that measure speed: they run, and what they measure is what it is said to be."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

from converter.recording.readers import open_recording
from scripts.benchmarks.conversions import convert
from scripts.benchmarks.phases import FUNCTIONS, MODULES, phase
from scripts.benchmarks.recordings import Shape, make_recording, source_formats

SCRIPTS = Path(__file__).resolve().parents[1] / "scripts"
SIDES = {"ours, 1 thread", "ours, 2 threads", "biosigIO", "limit"}


def run(script: str, *arguments: object) -> str:
    done = subprocess.run(
        [sys.executable, SCRIPTS / script, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


def benchmark(folder: Path, part: str, *options: str) -> dict[str, Any]:
    found = folder / "found.json"
    table = run("benchmark.py", part, "--quick", "--json", found, "--folder", folder, *options)
    document = json.loads(found.read_bytes())
    measured: dict[str, Any] = document["parts"][part]
    assert measured["failures"] == []
    for target in measured["targets"]:
        bound = target.get("most", target.get("least"))
        assert target["met"] == (
            target["value"] <= bound if "most" in target else target["value"] >= bound
        )
    assert f"of {len(measured['targets'])} targets met" in table
    assert sorted(folder.iterdir()) == [found]
    return measured


def test_all_sides_convert_one_recording(tmp_path: Path) -> None:
    measured = benchmark(tmp_path, "signal", "--only", "EDF short", "--longest", "8")
    (case,) = measured["cases"].values()
    assert case["recording"]["bytes"] == 256 * 130 + 2 * 129 * 500 * 8
    assert set(case["sides"]) == SIDES
    assert all(side["cpu"] > 0 and side["wall"] > 0 for side in case["sides"].values())
    assert case["stores"]["ours, 1 thread"]["bytes"] > 2 * 129 * 250 * 8 / 2
    # Another filter or another unit would be apart by thousands of steps.
    assert case["difference_steps"] < 2
    assert len(measured["targets"]) == 6


@pytest.mark.parametrize("name", sorted(source_formats()))
def test_recordings_hold_the_signal_that_is_written(name: str, tmp_path: Path) -> None:
    """In tenths of a microvolt, in FIF of 1e-14 T."""
    made = source_formats()[name]
    recording = make_recording(made, Shape(3, 200, 12), tmp_path / "made", tmp_path)
    (signal_path,) = tmp_path.glob("signal-*.npy")
    signal = np.load(signal_path)
    source = open_recording(recording.local())
    (group,) = source.groups
    raw = source.read(0, 0, group.n_samples).astype(np.float64)
    source.close()
    assert raw.shape == signal.shape
    if name == "CTF":  # whose channels have the deviation of real ones
        varying = np.flatnonzero(raw.std(axis=1))
        alike = [abs(np.corrcoef(raw[row], signal[row])[0, 1]) for row in varying]
        assert len(varying) > 300
        assert np.median(alike) > 0.99
        return
    steps = {"uV": 0.1, "V": 1e-7, "T": 1e-14}
    for channel, samples, written in zip(group.channels, raw, signal, strict=True):
        found = (samples * channel.gain + channel.offset) / steps[channel.unit]
        apart = found - written
        if name == "BDF":  # with an electrode offset a channel, in steps of 1/32 uV
            apart -= np.round(apart.mean() / 2e6) * 2e6
        assert np.abs(apart).max() < (0.17 if name == "BDF" else 1e-3)


def test_every_phase_is_that_of_code_that_runs(tmp_path: Path) -> None:
    recording = make_recording(
        source_formats()["EDF"], Shape(16, 500, 20), tmp_path / "made", tmp_path
    )
    found: set[str] = set()
    functions: set[tuple[str, str]] = set()

    def see(frame: FrameType, _event: str, _argument: object) -> None:
        found.add(phase(frame))
        functions.add((Path(frame.f_code.co_filename).stem, frame.f_code.co_name))

    sys.setprofile(see)
    try:
        convert(recording.local(), tmp_path / "store.zarr", tmp_path, 1)
    finally:
        sys.setprofile(None)
    assert found == {*FUNCTIONS.values(), *MODULES.values(), "other"}
    assert {(Path(module).name, name) for module, name in FUNCTIONS} <= functions


def test_profile_shows_the_phases(tmp_path: Path) -> None:
    recording = make_recording(
        source_formats()["EDF"], Shape(64, 500, 60), tmp_path / "made", tmp_path
    )
    lines = run("profile.py", recording.path, "--repeats", 5, "--threads", 2).splitlines()
    shares = [(line.split()[0], line.split()[-2]) for line in lines if "%" in line]
    # What takes a tenth of the time is met by one sample at least.
    assert {"read", "compress"} <= {name for name, _ in shares}
    assert {name for name, _ in shares} <= {*FUNCTIONS.values(), *MODULES.values(), "other"}
    assert 95 <= sum(int(share.rstrip("%")) for _, share in shares) <= 105
    assert "Ordered by: internal time" in run("profile.py", recording.path, "--functions")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("part", "only", "cases"),
    [
        ("transfer", "small", {"upload small", "fetch small"}),
        ("scale", "1000", {"1000"}),
        ("pool", "processes", {"processes"}),
        ("pool", "dask", {"dask"}),
    ],
)
def test_other_parts_run(part: str, only: str, cases: set[str], tmp_path: Path) -> None:
    measured = benchmark(tmp_path, part, "--only", only)
    assert set(measured["cases"]) == cases
