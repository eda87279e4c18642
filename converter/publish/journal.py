"""What a run may leave at the destination when it is killed, so that a later one removes it.

Written before the first store is placed, and taken away when all is as the index says.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from ..storage.destination import Destination

NAME: Final = ".journal.json"


class StaleObjects(msgspec.Struct, frozen=True):
    """Objects of an older store below the newer one that has this `created_utc`."""

    stamp: str
    names: tuple[str, ...]


class Journal(msgspec.Struct, frozen=True):
    """Stores that may be there without an index that names them, and objects left in stores."""

    stores: frozenset[str] = frozenset()
    stale: Mapping[str, StaleObjects] = {}


def read_journal(destination: Destination) -> Journal:
    """The journal at the destination; an empty one when there is none, or none that is whole."""
    document = destination.read_document(NAME)
    try:
        if document is not None:
            return msgspec.json.decode(document.content, type=Journal)
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass
    return Journal()


def write_journal(destination: Destination, journal: Journal) -> None:
    """Replace the journal."""
    destination.write_document(NAME, msgspec.json.encode(journal))


def remove_journal(destination: Destination) -> None:
    """Take the journal away."""
    destination.remove_document(NAME)
