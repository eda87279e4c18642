"""Vendors' formats from a commit to the published store, in one dataset."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from numpy.typing import NDArray

from converter import convert_dataset
from tests.conftest import commit_all
from tests.readers import test_cnt, test_curry, test_gdf, test_nihon, test_persyst

SECRETS = (b"Jane", b"Doe", b"secret", b"Secret")


def _gdf(folder: Path) -> Any:
    samples = np.random.default_rng(1).integers(-2000, 2000, (2, 600))
    columns = [
        test_gdf.Column(row.reshape(6, 100), label=label, physical=(-1000.0, 1000.0))
        for row, label in zip(samples, (b"Fp1", b"Cz"), strict=True)
    ]
    (folder / "x_eeg.gdf").write_bytes(test_gdf.written(columns))
    return samples * (2000 / 65535) + (-1000 + 32768 * 2000 / 65535)


def _neuroscan(folder: Path) -> Any:
    samples = np.random.default_rng(2).integers(-2000, 2000, (3, 600))
    (folder / "x_eeg.cnt").write_bytes(test_cnt.neuroscan(samples, rate=200))
    gains = np.array([[gain] for gain in (1.0, 1.25, 1.0)]) / 204.8
    return (samples - [[0], [20], [-7]]) * gains


def _persyst(folder: Path) -> Any:
    samples = np.random.default_rng(3).integers(-2000, 2000, (3, 600)).astype("<i2")
    test_persyst.written(folder, samples, times="0=0\n300=4.5").rename(folder / "x_eeg.lay")
    (folder / "sub-01_task-rest_ieeg.dat").rename(folder / "x_eeg.dat")
    pause = np.zeros((3, 600))
    return np.concatenate([samples[:, :300], pause, samples[:, 300:]], axis=1) * 0.25


def _nihon(folder: Path) -> Any:
    samples = np.random.default_rng(4).integers(-2000, 2000, (2, 600)).astype("i2")
    file = test_nihon.written(folder, [test_nihon.Block(samples, codes=(0, 17))])
    for companion in (".EEG", ".21E", ".PNT"):
        file.with_suffix(companion).rename(folder / f"x_eeg{companion}")
    return samples * (6399.902 / 65535) + (-3200 + 32768 * 6399.902 / 65535)


def _curry(folder: Path) -> Any:
    samples = np.random.default_rng(5).normal(0, 50, (2, 600)).astype("<f4")
    file = test_curry.written(folder, samples, groups=[("", "uV", ["Fp1", "Cz"])])
    file.rename(folder / "x_eeg.cdt")
    file.with_name(f"{file.name}.dpa").rename(folder / "x_eeg.cdt.dpa")
    return samples


def _ant(folder: Path) -> Any:
    # At 512 Hz, so only the range is compared.
    samples = np.random.default_rng(6).integers(-30_000, 30_000, (2, 3000)) / 128
    test_cnt.ant(folder / "x_eeg.cnt", samples, (("Fp1", "uV"), ("Cz", "uV")))
    return samples


WRITERS: dict[str, Callable[[Path], Any]] = {
    "GDF": _gdf,
    "Neuroscan CNT": _neuroscan,
    "Persyst": _persyst,
    "Nihon Kohden": _nihon,
    "Curry": _curry,
    "ANT CNT": _ant,
}


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, NDArray[Any]]]:
    root = tmp_path_factory.mktemp("vendors") / "nm000002"
    arrays = {}
    for number, (name, write) in enumerate(WRITERS.items()):
        folder = root / f"sub-{number}" / "eeg"
        folder.mkdir(parents=True)
        arrays[name] = np.asarray(write(folder), float)
        for file in list(folder.iterdir()):
            file.rename(folder / file.name.replace("x_eeg", f"sub-{number}_task-rest_eeg"))
    (root / "dataset_description.json").write_text('{"Name": "Vendors"}')
    commit_all(root)
    dest = tmp_path_factory.mktemp("serving")
    convert_dataset(root, dest=dest, jobs=1)
    return dest / root.name / "zarr", arrays


def test_every_recording_has_a_store(published: tuple[Path, Any]) -> None:
    index = json.loads((published[0] / "index.json").read_bytes())
    assert index["failures"] == index["pending"] == []
    assert index["store_count"] == index["discovered_count"] == len(WRITERS)


@pytest.mark.parametrize("number", range(len(WRITERS)))
def test_the_store_holds_what_was_written(published: tuple[Path, Any], number: int) -> None:
    name = list(WRITERS)[number]
    store = zarr.open_group(
        published[0] / f"sub-{number}/eeg/sub-{number}_task-rest_eeg.zarr", mode="r"
    )
    assert store.attrs["source_format"] == name
    (group_name,) = store.attrs["channel_groups"]
    group = store[group_name]
    expected = published[1][name]
    channels = group.attrs["channels"]
    assert len(channels) == len(expected) == store.attrs["recording_metadata"]["number_of_signals"]
    assert {channel["unit"] for channel in channels} == {"uV"}
    scale = np.array([[channel["scale"]] for channel in channels])
    offset = np.array([[channel["offset"]] for channel in channels])
    found = group["0"][:] * scale + offset
    if name == "ANT CNT":
        assert (group.attrs["original_rate"], group.attrs["rate"]) == (512, 250)
        assert found.shape == (2, -(-3000 * 125 // 256))
        return
    assert found.shape == expected.shape
    assert (np.abs(found - expected) <= 0.51 * scale + 1e-6).all()


def test_no_person_is_published(published: tuple[Path, Any]) -> None:
    for file in published[0].rglob("*"):
        if file.is_file():
            content = file.read_bytes()
            assert not [word for word in SECRETS if word in content], file.name
