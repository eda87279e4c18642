"""Mutants of every format end in a store or in a failure with a code, soon and in little memory."""

from __future__ import annotations

import math
import mmap
import os
import random
import shutil
import signal
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, Final

import pytest

from converter.contract.codes import FailureCode, RecordingError
from converter.recording.convert import convert_recording
from converter.recording.local import LocalRecording
from converter.work.enclosure import is_possible
from tests.conftest import SHARED_REAL

from . import conversions
from .conversions import MEMORY, SECRET, Mutant, converted
from .mutations import mutant
from .seeds import Corpus, Seed, seeds

FEWEST: Final = 2000
SALT: Final = ""  # another text makes other mutants
CORPUS = SHARED_REAL / "dataset" if SHARED_REAL.is_dir() else None
AT_ONCE: Final = 40
SOUND: Final = {"store", *map(str, FailureCode)}


def _mutants(seed: Seed, count: int, folder: Path) -> Iterator[Mutant]:
    """The same ones every time."""
    secret = folder / "secret.eeg"
    secret.write_bytes(SECRET * 1000)
    _write(seed.files, folder / "seed")
    for number in range(count):
        name = f"{seed.name}-{number}"
        files = dict(seed.files)
        if seed.mutants:
            files = mutant(files, random.Random(name + SALT), ("../secret.eeg", str(secret)))
        place = folder / str(number)
        changed = {path: data for path, data in files.items() if data != seed.files[path]}
        _write(changed, place)
        for path in files.keys() - changed.keys():
            (place / path).parent.mkdir(parents=True, exist_ok=True)
            (place / path).hardlink_to(folder / "seed" / path)
        yield Mutant(name, seed, place)


def _write(files: Mapping[str, bytes], folder: Path) -> None:
    folder.mkdir()
    for path, content in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)


def outcomes(seed: Seed, count: int, folder: Path) -> dict[str, str]:
    """What becomes of mutants of one seed, a few at a time, in a new folder."""
    folder.mkdir()
    scratch = folder / "scratch"
    scratch.mkdir()
    found: dict[str, str] = {}
    mutants = _mutants(seed, count, folder)
    while batch := list(islice(mutants, AT_ONCE)):
        found |= converted(batch, scratch)
        for each in batch:
            shutil.rmtree(each.folder)
    return found


def unsound(found: dict[str, str]) -> dict[str, str]:
    return {name: outcome for name, outcome in found.items() if outcome not in SOUND}


def crash(*_: Any) -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def stray(*_: Any) -> None:
    raise KeyError("a mistake")


def loop(*_: Any) -> None:
    while True:
        with suppress(Exception):
            stray()


def balloon(*_: Any) -> None:
    bytearray(2 * MEMORY)


def swell(*arguments: Any) -> Any:
    with mmap.mmap(-1, 2 * MEMORY) as shared:  # no limit of a process's data counts it
        for _ in range(0, 2 * MEMORY, MEMORY // 10):
            shared.write(bytes(MEMORY // 10))
    return convert_recording(*arguments)


def leave(*arguments: Any) -> Any:
    (arguments[3] / "left").touch()
    return convert_recording(*arguments)


def tell(recording: LocalRecording, *_: Any) -> None:
    raise RecordingError(FailureCode.FILE_READ_ERROR, f"it says {SECRET.decode()}")


def publish(*arguments: Any) -> Any:
    done = convert_recording(*arguments)
    (arguments[2] / "0").write_bytes(SECRET)
    return done


def follow(recording: LocalRecording, *_: Any) -> None:
    (recording.file.parent.parent / "secret.eeg").read_bytes()


@pytest.mark.parametrize(
    ("deed", "outcome"),
    [
        (convert_recording, "store"),
        (crash, "crash: status -11"),
        (stray, "KeyError"),
        (loop, "too long"),
        (balloon, "MemoryError"),
        (swell, "too much memory"),
        (leave, "left in scratch"),
        (tell, "told a secret"),
        (publish, "published a secret"),
        (follow, "PermissionError"),
    ],
)
def test_what_is_wrong_shows(
    deed: Any, outcome: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if deed is follow and not is_possible():
        pytest.skip("this kernel has no Landlock")
    monkeypatch.setattr(conversions, "convert_recording", deed)
    if deed is loop:
        monkeypatch.setattr(conversions, "SECONDS", 0.5)
    seed = next(iter(Corpus(None, tmp_path).fixture("sub-16/eeg/sub-16_task-rest_eeg.edf")))
    (tmp_path / "secret.eeg").write_bytes(SECRET)
    for name in ("a", "b", "scratch"):
        (tmp_path / name).mkdir()
    for name in ("a", "b"):
        (tmp_path / name / seed.recording).write_bytes(seed.files[seed.recording])
    mutants = [Mutant(name, seed, tmp_path / name) for name in ("a", "b")]
    found = converted(mutants, tmp_path / "scratch")
    assert set(found) == {"a", "b"}
    assert all(each.startswith(outcome) for each in found.values()), found
    assert len(unsound(found)) == (0 if outcome == "store" else 2)


def test_seeds_convert_as_they_are(tmp_path: Path) -> None:
    """Else their mutants would prove little. Two need what they have not."""
    found = {}
    for number, seed in enumerate(seeds(CORPUS, tmp_path)):
        found |= outcomes(replace(seed, mutants=0), 1, tmp_path / str(number))
    failed = {name: outcome for name, outcome in found.items() if outcome != "store"}
    assert failed == {
        "sub-12_task-rest_eeg.edf-0": "corrupt_or_truncated",
        "sub-17_task-rest_meg.fif-0": "maxshield_uncalibrated",
    }


@pytest.mark.slow
def test_every_mutant_has_a_typed_outcome(tmp_path: Path) -> None:
    chosen = list(seeds(CORPUS, tmp_path))
    times = math.ceil(FEWEST / sum(seed.mutants for seed in chosen))
    found: dict[str, str] = {}
    for number, seed in enumerate(chosen):
        found |= outcomes(seed, times * seed.mutants, tmp_path / str(number))
    assert unsound(found) == {}
    assert len(found) >= FEWEST
    counts = Counter(found.values())
    # They are neither all harmless nor all hopeless.
    assert counts["store"] > FEWEST // 10
    assert len(found) - counts["store"] > FEWEST // 10
