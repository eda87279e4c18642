"""Which sidecars apply to a recording, by the inheritance principle of BIDS.

A sidecar applies from the recording's directory or a parent of it, when every entity in its
name has the same value in the recording's name. The deepest directory is the most specific;
within one directory the sidecar with the most entities, then the first by name. A link that
is refused or leads to a directory is no sidecar.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from .entities import BidsName, parse_name
from .recording import Entry, Sidecars
from .snapshot import Snapshot

# Suffix and extension of each kind of sidecar, and the entity its match disregards: positions
# belong to a recording in whatever space they are given, a site's calibration files carry an
# `acq` that says what they are.
_KINDS: dict[tuple[str, str], str | None] = {
    ("channels", ".tsv"): None,
    ("events", ".tsv"): None,
    ("events", ".json"): None,
    ("electrodes", ".tsv"): "space",
    ("coordsystem", ".json"): "space",
    ("eeg", ".json"): None,
    ("meg", ".json"): None,
    ("ieeg", ".json"): None,
    ("emg", ".json"): None,
    ("meg", ".dat"): "acq",
    ("meg", ".fif"): "acq",
}

_EXTENSIONS = tuple({extension for _, extension in _KINDS})

CALIBRATION = "calibration"
CROSSTALK = "crosstalk"

_Kind = tuple[str, str]
_Keys = tuple[str, ...]
# Sidecars of one kind in one directory, by the keys that their names carry and the values.
_Table = dict[_Keys, dict[tuple[str | None, ...], list["Sidecar"]]]


class Sidecar(NamedTuple):
    """A sidecar and the value of the entity that its match disregards (`space` or `acq`)."""

    entry: Entry
    aside: str | None


class SidecarIndex:
    """Sidecars of a snapshot; a look-up costs the recording's depth, not the tree's size."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        root = {kind: [table] for kind, table in self._tables("").items()}
        self._visible: dict[str, dict[_Kind, list[_Table]]] = {"": root}

    def sidecars(self, path: str) -> Sidecars:
        """All that apply to the recording at a BIDS path."""
        directory, _, file = path.rpartition("/")
        visible = self._visible_from(directory)
        name = parse_name(file)
        labels = _labels(name)

        def applying(suffix: str, extension: str) -> list[Sidecar]:
            tables = visible.get((suffix, extension))
            return list(_applying(tables, labels)) if tables else []

        electrodes = _preferred(applying("electrodes", ".tsv"))
        is_meg = name.suffix == "meg"
        return Sidecars(
            channels=_first(applying("channels", ".tsv")),
            events=_first(applying("events", ".tsv")),
            electrodes=electrodes.entry if electrodes else None,
            coordsystem=_of_same_space(applying("coordsystem", ".json"), electrodes),
            calibration=_marked(applying("meg", ".dat"), CALIBRATION) if is_meg else None,
            crosstalk=_marked(applying("meg", ".fif"), CROSSTALK) if is_meg else None,
            json=_merging(applying(name.suffix, ".json")),
            events_json=_merging(applying("events", ".json")),
        )

    def _visible_from(self, directory: str) -> dict[_Kind, list[_Table]]:
        """Sidecars in a directory and its parents by kind, the deepest directory first."""
        unknown = []
        here = directory
        while here not in self._visible:
            unknown.append(here)
            here = here.rpartition("/")[0]
        above = self._visible[here]
        for here in reversed(unknown):
            visible = dict(above)
            for kind, table in self._tables(here).items():
                visible[kind] = [table, *above.get(kind, ())]
            above = self._visible[here] = visible
        return above

    def _tables(self, directory: str) -> dict[_Kind, _Table]:
        tables: dict[_Kind, _Table] = {}
        for file, entry in self._snapshot.children(directory).items():
            if file.lower().endswith(_EXTENSIONS) and self._is_readable(entry.path):
                _enter(tables, parse_name(file), entry)
        return tables

    def _is_readable(self, path: str) -> bool:
        return path not in self._snapshot.refused and path not in self._snapshot.directory_links


def is_calibration_file(name: BidsName) -> bool:
    """Whether a file is an input of Signal-Space Separation, named like a recording."""
    return (name.suffix, name.kind, name.entities.get("acq")) in {
        ("meg", ".dat", CALIBRATION),
        ("meg", ".fif", CROSSTALK),
    }


def _enter(tables: dict[_Kind, _Table], name: BidsName, entry: Entry) -> None:
    kind = (name.suffix, name.kind)
    if kind not in _KINDS or (_KINDS[kind] == "acq" and not is_calibration_file(name)):
        return
    labels = _labels(name)
    aside = labels.pop(_KINDS[kind] or "", None)
    keys = tuple(sorted(labels))
    values = tuple(labels[key] for key in keys)
    rows = tables.setdefault(kind, {}).setdefault(keys, {})
    rows.setdefault(values, []).append(Sidecar(entry, aside))


def _labels(name: BidsName) -> dict[str, str]:
    """Entities, and the parts of a name that are none as keys without a value."""
    return {**dict.fromkeys(name.labels, ""), **name.entities}


def _applying(tables: Iterable[_Table], labels: Mapping[str, str]) -> Iterator[Sidecar]:
    """The most specific first."""
    for table in tables:
        found: list[tuple[int, str, Sidecar]] = []
        for keys, rows in table.items():
            values = tuple([labels.get(key) for key in keys])
            found += [(-len(keys), row.entry.path, row) for row in rows.get(values, ())]
        yield from (row for _, _, row in sorted(found, key=lambda item: item[:2]))


def _first(found: list[Sidecar]) -> Entry | None:
    return found[0].entry if found else None


def _merging(found: list[Sidecar]) -> tuple[Entry, ...]:
    return tuple(sidecar.entry for sidecar in reversed(found))


def _marked(found: list[Sidecar], mark: str) -> Entry | None:
    return next((sidecar.entry for sidecar in found if sidecar.aside == mark), None)


def _preferred(electrodes: list[Sidecar]) -> Sidecar | None:
    """The most specific one.

    Of several in one directory that differ in their space: the one that names none, else the
    first by name.
    """
    if not electrodes:
        return None
    directory = electrodes[0].entry.path.rpartition("/")[0]
    beside = (s for s in electrodes if s.entry.path.rpartition("/")[0] == directory)
    return next((s for s in beside if s.aside is None), electrodes[0])


def _of_same_space(coordsystems: list[Sidecar], electrodes: Sidecar | None) -> Entry | None:
    """The coordinate system that the electrodes' positions are in.

    That of their space, else one that names no space. Where the electrodes name none, or
    there are none, a single coordinate system is theirs whatever its space.
    """
    space = electrodes.aside if electrodes else None
    for wanted in (space, None):
        for candidate in coordsystems:
            if candidate.aside == wanted:
                return candidate.entry
    spaces = {candidate.aside for candidate in coordsystems}
    return coordsystems[0].entry if space is None and len(spaces) == 1 else None
