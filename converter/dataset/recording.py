"""What discovery finds: a recording's identity, its files and the sidecars that apply."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple


class Entry(NamedTuple):
    """One path of the tree at a commit.

    `blob` is the git object, `key` the annex key of an annexed file; a symlink inside the tree
    carries those of the file it leads to. `size` is bytes, of the content where the key tells
    it, else of the blob.
    """

    path: str
    mode: str
    blob: str
    size: int
    key: str | None = None


class Sidecars(NamedTuple):
    """Tree entries of the sidecars that apply to one recording, by BIDS inheritance.

    One file a kind, the most specific; `json` and `events_json` all of them, the least
    specific first, because JSON is merged.
    """

    channels: Entry | None = None
    events: Entry | None = None
    electrodes: Entry | None = None
    coordsystem: Entry | None = None
    calibration: Entry | None = None
    crosstalk: Entry | None = None
    json: tuple[Entry, ...] = ()
    events_json: tuple[Entry, ...] = ()

    def entries(self) -> list[Entry]:
        """Every sidecar, each once."""
        single = (
            self.channels,
            self.events,
            self.electrodes,
            self.coordsystem,
            self.calibration,
            self.crosstalk,
        )
        found = [entry for entry in single if entry is not None]
        return [*found, *self.json, *self.events_json]


@dataclass(frozen=True, slots=True)
class Recording:
    """One raw recording of a dataset at a commit. Plain data, picklable.

    `path` is the BIDS path of its file or directory (of the lowest split of a chain), `zarr`
    the store's path, `modality` its suffix; `members` are the files that hold it, those of a
    directory or a split chain all; `split_members` their paths when it is a split chain.
    `conflict` names the recording that owns the same store name, when another one does;
    `refused` is a sentence that says why no byte of it may be read, where that is so.
    """

    path: str
    zarr: str
    modality: str
    extension: str
    entities: Mapping[str, str]
    members: tuple[Entry, ...]
    sidecars: Sidecars = field(default_factory=Sidecars)
    split_members: tuple[str, ...] = ()
    conflict: str | None = None
    refused: str | None = None

    @property
    def size(self) -> int:
        """Bytes of all members."""
        return sum(member.size for member in self.members)

    @property
    def source_key(self) -> str | None:
        """The annex key that joins the recording to its content.

        Its own file's, or where that lies in git or is a directory its largest member's.
        """
        annexed = [member for member in self.members if member.key is not None]
        own = [member for member in annexed if member.path == self.path]
        return max(own or annexed, key=lambda member: member.size).key if annexed else None
