"""File names of the Brain Imaging Data Structure: entities, suffix and extension."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple


class Entity(NamedTuple):
    """One `key-value` pair that a BIDS file name may carry."""

    key: str
    name: str
    description: str


# In the order in which a file name carries them.
ENTITIES: tuple[Entity, ...] = (
    Entity("sub", "subject", "a person or animal who took part"),
    Entity("ses", "session", "a visit, or another grouping of one subject's data"),
    Entity("sample", "sample", "a piece of tissue or another specimen of a subject"),
    Entity("task", "task", "what the subject did"),
    Entity("tracksys", "tracking system", "the motion capture system"),
    Entity("acq", "acquisition", "a set of acquisition parameters"),
    Entity("ce", "contrast agent", "the contrast enhancing agent"),
    Entity("trc", "tracer", "the radioactive tracer"),
    Entity("stain", "stain", "the stain or antibody"),
    Entity("rec", "reconstruction", "the algorithm that reconstructed an image"),
    Entity("dir", "phase encoding direction", "the direction of phase encoding"),
    Entity("run", "run", "one of several repetitions with the same parameters"),
    Entity("mod", "modality", "the modality that a file belongs to"),
    Entity("echo", "echo", "the index of an echo time"),
    Entity("flip", "flip angle", "the index of a flip angle"),
    Entity("inv", "inversion time", "the index of an inversion time"),
    Entity("mt", "magnetisation transfer", "whether magnetisation transfer was on"),
    Entity("part", "part", "the component of a complex image"),
    Entity("proc", "processing", "processing that the acquisition device applied"),
    Entity("hemi", "hemisphere", "the half of the brain"),
    Entity("space", "space", "the coordinate system that positions refer to"),
    Entity("split", "split", "a part of one recording that was cut for its file size"),
    Entity("recording", "recording", "one of several simultaneous recordings"),
    Entity("chunk", "chunk", "one of several fields of view"),
    Entity("seg", "segmentation", "the segmentation"),
    Entity("res", "resolution", "the resolution of resampled data"),
    Entity("den", "density", "the density of a surface"),
    Entity("label", "label", "the tissue class of a mask"),
    Entity("desc", "description", "one of several versions of derived data"),
)


class BidsName(NamedTuple):
    """A file or directory name taken apart; `stem + extension` is the name again.

    `extension` is as written, with its dot, `.fif.gz` whole; empty when there is none. `kind`
    is the same in lower case: formats are told apart without regard to case.
    `entities` are the `key-value` parts, known keys or not; `labels` the parts before the
    suffix that are no pair (`epo` in `sub-04_task-rest_epo_eeg.set`).
    """

    stem: str
    extension: str
    kind: str
    suffix: str
    entities: Mapping[str, str]
    labels: tuple[str, ...]


def split_extension(name: str) -> tuple[str, str]:
    """Stem and extension: from the last dot on, from the one before it for `.<format>.gz`.

    So it is for what Curry writes beside a `.cdt`, such as `.cdt.dpa`.

    A label that holds a dot (`task-1.5Hz`) is thus no extension; nor is the dot of a hidden
    file.
    """
    stem, extension = _cut(name)
    if extension.lower() == ".gz" or stem.lower().endswith(".cdt"):
        inner_stem, inner = _cut(stem)
        if "_" not in inner:
            return inner_stem, inner + extension
    return stem, extension


def _cut(name: str) -> tuple[str, str]:
    dot = name.rfind(".")
    if dot <= 0 or "_" in name[dot:]:
        return name, ""
    return name[:dot], name[dot:]


def parse_name(name: str) -> BidsName:
    """Take a file name apart; any name has a result, a strange one no entities."""
    before, underscore, ending = name.rpartition("_")
    if not underscore:
        stem, extension = split_extension(name)
        return BidsName(stem, extension, extension.lower(), stem, {}, ())
    suffix, extension, kind = _parse_ending(ending)
    stem = name.removesuffix(extension)
    return BidsName(stem, extension, kind, suffix, *parse_parts(before))


# A tree has few endings, and files that begin alike stand together.
@lru_cache(maxsize=256)
def _parse_ending(ending: str) -> tuple[str, str, str]:
    """Suffix, extension and kind, from what stands after the last `_`."""
    stem, extension = split_extension(f"_{ending}")
    return stem[1:], extension, extension.lower()


@lru_cache(maxsize=256)
def parse_parts(before: str) -> tuple[Mapping[str, str], tuple[str, ...]]:
    """Entities and labels, from what stands before the last `_`; not to be changed."""
    entities: dict[str, str] = {}
    labels = []
    for part in before.split("_"):
        key, hyphen, value = part.partition("-")
        if hyphen and key:
            entities.setdefault(key, value)
        else:
            labels.append(part)
    return entities, tuple(labels)


def parse_entities(name: str) -> dict[str, str]:
    """Key to value of every entity in a file name, in file order; the first of a repeated key."""
    return dict(parse_name(name).entities)
