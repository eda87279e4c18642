from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mne
import numpy as np
import pyedflib
import pytest
from numpy.typing import NDArray
from scipy.io import loadmat

from tests.fixture_outcomes import (
    FIXTURE_DATASET,
    NONFINITE_SAMPLES,
    OUTCOMES,
    PULSES,
    STORED,
    Group,
    Measured,
)

SCRIPTS = Path(__file__).resolve().parents[1] / "scripts"


def run(script: str, *arguments: Path, **environment: str) -> str:
    return subprocess.run(
        [sys.executable, SCRIPTS / script, *arguments],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
    ).stdout


def contents(root: Path) -> dict[str, bytes]:
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in root.rglob("*")
        if path.is_file() and ".git" not in path.relative_to(root).parts
    }


def test_committed_dataset_is_what_the_script_writes(tmp_path: Path) -> None:
    run("make_fixtures.py", tmp_path / "again", HOME=str(tmp_path), TZ="Pacific/Auckland")
    made, committed = contents(tmp_path / "again"), contents(FIXTURE_DATASET)
    assert made.keys() == committed.keys()
    assert [path for path in made if made[path] != committed[path]] == []
    assert sum(map(len, made.values())) < 3_000_000


def test_only_a_dataset_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(subprocess.CalledProcessError):
        run("make_fixtures.py", tmp_path, HOME=str(tmp_path))
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_repository_is_one_commit_whatever_is_configured(tmp_path: Path) -> None:
    config = tmp_path / ".gitconfig"
    config.write_text(
        "[core]\n\tautocrlf = true\n[commit]\n\tgpgSign = true\n[user]\n\tname = me\n"
    )
    hostile = {"HOME": str(tmp_path), "TZ": "Asia/Tokyo", "GIT_AUTHOR_NAME": "someone"}
    shas = {
        run("fixture_repository.py", tmp_path / "plain", HOME=str(tmp_path / "nobody")),
        run("fixture_repository.py", tmp_path / "configured", **hostile),
    }
    assert len(shas) == 1
    repository = tmp_path / "configured" / FIXTURE_DATASET.name
    assert contents(repository) == contents(FIXTURE_DATASET)
    git = ["git", "-C", str(repository), "-c", f"safe.directory={repository}"]
    tracked = subprocess.run([*git, "ls-tree", "-rz", "HEAD"], check=True, capture_output=True)
    entries = tracked.stdout.decode().rstrip("\0").split("\0")
    assert {entry.split("\t")[1] for entry in entries} == contents(FIXTURE_DATASET).keys()
    assert {entry.split()[0] for entry in entries} == {"100644"}


def from_edf(path: Path, group: Group) -> dict[str, NDArray[Any]]:
    with pyedflib.EdfReader(str(path)) as file:
        served = [
            index
            for index, rate in enumerate(file.getSampleFrequencies())
            if rate == group.native_rate_hz
        ]
        # Where channels.tsv declares another unit than the file's, it is the next larger one.
        return {
            channel.label: file.readSignal(index) * (1e-3 if channel.unit in ("mV", "V") else 1.0)
            for channel, index in zip(group.channels, served, strict=True)
        }


def from_brainvision(path: Path, group: Group) -> dict[str, NDArray[Any]]:
    flat = np.fromfile(path.with_suffix(".eeg"), "<i2")
    samples = flat.reshape(-1, len(group.channels)).T
    steps = [0.1, 0.1, 0.1, 0.05, 0.0005, 1.0]
    return {
        channel.label: row * step
        for channel, row, step in zip(group.channels, samples, steps, strict=True)
    }


def from_eeglab(path: Path, group: Group) -> dict[str, NDArray[Any]]:
    header = loadmat(path, simplify_cells=True)["EEG"]
    sidecar = path.with_suffix(".fdt")
    if sidecar.exists():
        data = np.fromfile(sidecar, "<f4").reshape(int(header["nbchan"]), -1, order="F")
    else:
        data = header["data"]
    labels = [place["labels"] for place in header["chanlocs"]]
    return dict(zip(labels, data.astype(float), strict=True))


def from_fif(path: Path, group: Group) -> dict[str, NDArray[Any]]:
    raw = mne.io.read_raw_fif(path, verbose="ERROR")
    units = {channel.label: channel.unit for channel in group.channels}
    return {
        label: row * (1e6 if units[label] == "uV" else 1.0)
        for label, row in zip(raw.ch_names, raw.get_data(), strict=True)
    }


READERS: dict[str, Callable[[Path, Group], dict[str, NDArray[Any]]]] = {
    ".edf": from_edf,
    ".bdf": from_edf,
    ".vhdr": from_brainvision,
    ".set": from_eeglab,
    ".fif": from_fif,
}


def check_channel(channel: Measured, samples: NDArray[Any], rate: float) -> None:
    """Mean and amplitudes by projection on sines of whole hertz; nothing else but noise."""
    finite = np.isfinite(samples)
    assert (~finite).sum() == NONFINITE_SAMPLES.get(channel.label, 0)
    largest = max((tone.amplitude for tone in channel.tones), default=1.0)
    time = np.arange(len(samples)) / rate
    basis = np.array(
        [np.ones_like(time), *(np.sin(2 * np.pi * tone.hz * time) for tone in channel.tones)]
    )
    wanted = np.array([channel.mean, *(tone.amplitude for tone in channel.tones)])
    relative = samples[finite] / largest
    found, *_ = np.linalg.lstsq(basis[:, finite].T, relative, rcond=None)
    np.testing.assert_allclose(found, wanted / largest, rtol=1e-7, atol=0.003)
    rest = relative - found @ basis[:, finite]
    assert np.abs(rest).max() < 0.1


@pytest.mark.parametrize(
    ("path", "group"),
    [(path, group) for path, stored in STORED.items() for group in stored.groups],
)
def test_other_software_finds_the_signals_asked_for(path: str, group: Group) -> None:
    file = FIXTURE_DATASET / path
    found = READERS[file.suffix](file, group)
    assert list(found) == [channel.label for channel in group.channels]
    for channel in group.channels:
        samples = found[channel.label]
        assert samples.shape == (group.native_samples,)
        if channel.type != "TRIG":
            check_channel(channel, samples, group.native_rate_hz)
    if path in PULSES:
        label, width, codes = PULSES[path]
        expected = np.zeros(group.native_samples, dtype=int)
        for start, code in codes.items():
            expected[start : start + width] = code
        np.testing.assert_array_equal(found[label].astype(int) & 0xFFFF, expected)


def test_shielded_recording_is_refused_as_such() -> None:
    path = next(FIXTURE_DATASET.glob("sub-17/meg/*.fif"))
    with pytest.raises(ValueError, match="Internal Active Shielding"):
        mne.io.read_raw_fif(path, verbose="ERROR")
    assert mne.io.read_raw_fif(path, allow_maxshield=True, verbose="ERROR").info["maxshield"]


def test_epoched_recording_reads_as_epochs_only() -> None:
    path = next(FIXTURE_DATASET.glob("sub-11/eeg/*.set"))
    with pytest.raises(TypeError, match="trials is 3"):
        mne.io.read_raw_eeglab(path, verbose="ERROR")
    assert mne.read_epochs_eeglab(path, verbose="ERROR").get_data().shape == (3, 2, 640)


def test_every_recording_file_has_an_outcome() -> None:
    main_files = {
        path.relative_to(FIXTURE_DATASET).as_posix()
        for path in FIXTURE_DATASET.glob("sub-*/**/*")
        if path.stem.endswith(("_eeg", "_meg", "_ieeg", "_emg"))
        and path.suffix not in {".json", ".vmrk", ".eeg", ".fdt"}
    }
    assert main_files == OUTCOMES.keys()
