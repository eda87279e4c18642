"""Recordings that mutants are made of. Every module of `corpus` has some of one format family."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.fixture_outcomes import FIXTURE_DATASET

from . import corpus


@dataclass(frozen=True)
class Seed:
    """A whole recording: `files` by their name below its folder, one of them, or the folder
    they lie in, is `recording`. `mutants` are made of it, the more the cheaper it is to convert;
    none leaves it as it is."""

    recording: str
    files: Mapping[str, bytes]
    modality: str = "eeg"
    mutants: int = 100

    @property
    def name(self) -> str:
        return self.recording


def seeds(real: Path | None, scratch: Path) -> Iterator[Seed]:
    """All of them; those of the real recordings where there are any.

    A module of `corpus` has a function `seeds(corpus)`, which is given a Corpus.
    """
    for module in sorted(each.name for each in pkgutil.iter_modules(corpus.__path__)):
        yield from importlib.import_module(f"{corpus.__name__}.{module}").seeds(
            Corpus(real, scratch)
        )


@dataclass(frozen=True)
class Corpus:
    """Where seeds come from: `real` is None where the real recordings are not; `scratch` is a
    folder for files that are written to be read again."""

    real: Path | None
    scratch: Path

    def fixture(self, path: str, **options: Any) -> Iterator[Seed]:
        """The recording of the fixture dataset at a path, with the files of its own stem; with
        `sidecars` those of its entities, too."""
        yield _seed(FIXTURE_DATASET, path, **options)

    def recorded(self, path: str, **options: Any) -> Iterator[Seed]:
        """The same of the real recordings; none where they are not."""
        if self.real is not None:
            yield _seed(self.real, path, **options)


def _seed(root: Path, path: str, sidecars: bool = False, **options: Any) -> Seed:
    place = root / path
    if place.is_dir():
        files = [file for file in sorted(place.rglob("*")) if file.is_file()]
    else:
        stem = place.name.split(".")[0]
        start = f"{stem.rpartition('_')[0]}_" if sidecars else f"{stem}."
        files = [file for file in sorted(place.parent.iterdir()) if file.name.startswith(start)]
    contents = {file.relative_to(place.parent).as_posix(): file.read_bytes() for file in files}
    return Seed(place.name, contents, place.stem.rpartition("_")[2], **options)
