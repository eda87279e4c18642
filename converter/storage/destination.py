"""Where a dataset's serving copy is written to: what every such place can do."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final, Protocol

import msgspec


class DestinationError(OSError):
    """The destination cannot be read or written; one sentence names it and what was found.

    `errno` is the system's, where there is one: a full disk is no fault of what was written.
    """


class Superseded(DestinationError):
    """A document was not written: another version than the expected one is there."""


class Anything(Enum):
    """The type of ANY."""

    ANY = "any"


ANY: Final = Anything.ANY
"""As the expected version of a document: whatever is there, or nothing."""


@dataclass(frozen=True, slots=True)
class Document:
    """A published document and the version it was found at."""

    content: bytes
    version: str


class Destination(Protocol):
    """One dataset's serving copy. Names and store paths are relative to it.

    It can be pickled, and used by many threads and processes at once. Every method raises
    DestinationError, also for a name that would lead out of the copy.
    """

    @property
    def location(self) -> str:
        """The place, for a person."""

    def read_document(self, name: str) -> Document | None:
        """A document as it is now, None when there is none."""

    def write_document(
        self, name: str, content: bytes, expected: str | Anything | None = ANY
    ) -> str:
        """Replace a document, all of it or not at all; return its new version.

        `expected` is the version that must be there, None when there must be none; Superseded
        is raised when that is not so, with nothing written.
        """

    def remove_document(self, name: str) -> None:
        """Remove a document; nothing happens when there is none."""

    def fetch_file(self, name: str, folder: Path) -> Path | None:
        """A local path of a published file, below `folder` if it must be copied; or None."""

    def write_file(self, name: str, source: Path) -> None:
        """Replace a file with a copy of a local one, all of it or not at all."""

    def place_store(self, local_dir: Path, zarr: str) -> tuple[str, ...]:
        """Publish a finished store, which leaves `local_dir`, in place of an older one.

        Returns the objects of the older one, named relative to the store, that the new one does
        not have and that are still there: `remove_objects` removes them once the index is live.
        """

    def store_stamps(self, zarrs: Iterable[str]) -> dict[str, str]:
        """`created_utc` of those of the stores that are there."""

    def remove_store(self, zarr: str) -> None:
        """Remove a store; nothing happens when there is none."""

    def remove_objects(self, zarr: str, names: Sequence[str], stamp: str) -> None:
        """Remove what `place_store` named, if the store still has this `created_utc`."""

    def sweep(self) -> None:
        """Remove what runs that were killed left unfinished; what is being written stays."""


def steps_of(name: str, location: str) -> list[str]:
    """The steps of a name that lies below the copy. Raises DestinationError for any other."""
    steps = name.split("/")
    if not set(steps).isdisjoint({"", ".", ".."}) or "\0" in name:
        raise DestinationError(
            f"{location}: the name {name!r} was given, one relative to the copy and "
            "without '..' was expected."
        )
    return steps


class _Attributes(msgspec.Struct):
    created_utc: str | None = None


class _StoreRoot(msgspec.Struct):
    attributes: _Attributes


def created_utc(root_metadata: bytes) -> str | None:
    """`created_utc` of a store, from the bytes of its root zarr.json; None if it has none."""
    try:
        return msgspec.json.decode(root_metadata, type=_StoreRoot).attributes.created_utc
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
