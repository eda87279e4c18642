"""Mutants of every format end in a store or in a failure with a code, soon and in little memory."""

from __future__ import annotations

import math
import random
import resource
import shutil
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Final

import pytest

from converter.contract.codes import FailureCode
from tests.conftest import SHARED_REAL

from .conversions import MEMORY, SECRET, Mutant, converted
from .mutations import mutant
from .seeds import Seed, seeds

FEWEST: Final = 2000
SALT = ""
AT_ONCE: Final = 40
SOUND: Final = {"store", *map(str, FailureCode)}


def _mutants(seed: Seed, count: int, folder: Path) -> Iterator[Mutant]:
    """The same ones every time."""
    secret = folder / "secret.eeg"
    secret.write_bytes(SECRET * 1000)
    for number in range(count):
        name = f"{seed.name}-{number}"
        files = mutant(seed.files, random.Random(name + SALT), ("../secret.eeg", str(secret)))
        place = folder / str(number)
        place.mkdir()
        for path, content in files.items():
            (place / path).parent.mkdir(parents=True, exist_ok=True)
            (place / path).write_bytes(content)
        yield Mutant(name, seed, place)


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


def test_the_runner_sees_what_is_wrong(tmp_path: Path) -> None:
    """A crash, a stray exception and an endless loop are no outcomes of a recording."""
    assert unsound({"a": "store", "b": "crash: status -11", "c": "file_read_error"}) == {
        "b": "crash: status -11"
    }


def test_seeds_convert_as_they_are(tmp_path: Path) -> None:
    """Else their mutants would prove little; and a run over few mutants of each."""
    real = SHARED_REAL / "dataset"
    for number, seed in enumerate(seeds(real if real.is_dir() else None, tmp_path)):
        found = outcomes(seed, 3, tmp_path / str(number))
        assert not unsound(found)


@pytest.mark.slow
def test_every_mutant_has_a_typed_outcome(tmp_path: Path) -> None:
    real = SHARED_REAL / "dataset"
    chosen = list(seeds(real if real.is_dir() else None, tmp_path))
    times = math.ceil(FEWEST / sum(seed.mutants for seed in chosen))
    found: dict[str, str] = {}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    for number, seed in enumerate(chosen):
        found |= outcomes(seed, times * seed.mutants, tmp_path / str(number))
    assert unsound(found) == {}
    assert len(found) >= FEWEST
    counts = Counter(found.values())
    # They are neither all harmless nor all hopeless.
    assert counts["store"] > FEWEST // 10
    assert len(found) - counts["store"] > FEWEST // 10
    # Children that ended; ru_maxrss is the largest of any.
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert after.ru_maxrss * 1024 < max(before.ru_maxrss * 1024, 2 * MEMORY)
