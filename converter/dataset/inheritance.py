"""Which sidecars apply to a recording, by the inheritance principle of BIDS.

A sidecar applies from the recording's directory or a parent of it, when every entity in its
name has the same value in the recording's name. The deepest directory is the most specific;
within one directory the sidecar with the most entities, then the first by name. A link that
is refused or leads to a directory is no sidecar.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from .entities import BidsName, parse_parts
from .recording import Entry, Sidecars
from .snapshot import Snapshot

# Suffix and extension (without its dot) of each kind of sidecar, and the entity its match
# disregards: positions belong to a recording in whatever space they are given, a site's
# calibration files carry an `acq` that says what they are.
_KINDS: dict[tuple[str, str], str | None] = {
    ("channels", "tsv"): None,
    ("events", "tsv"): None,
    ("events", "json"): None,
    ("electrodes", "tsv"): "space",
    ("coordsystem", "json"): "space",
    ("eeg", "json"): None,
    ("meg", "json"): None,
    ("ieeg", "json"): None,
    ("emg", "json"): None,
    ("meg", "dat"): "acq",
    ("meg", "fif"): "acq",
}

CALIBRATION = "calibration"
CROSSTALK = "crosstalk"

_Kind = tuple[str, str]
_Keys = tuple[str, ...]
# Sidecars of one directory, by the keys that their names carry and the values.
_Table = dict[_Keys, dict[tuple[str | None, ...], list["Sidecar"]]]


class Sidecar(NamedTuple):
    """A sidecar; of several that apply, one that sorts lower is more specific.

    `aside` is the value of the entity that its match disregards (`space` or `acq`).
    """

    rank: tuple[int, int]
    path: str
    kind: _Kind
    aside: str | None
    entry: Entry


class SidecarIndex:
    """Sidecars of a snapshot; a look-up costs the recording's depth, not the tree's size."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        root = self._table("")
        self._visible: dict[str, tuple[_Table, ...]] = {"": (root,) if root else ()}

    def sidecars(self, directory: str, name: BidsName) -> Sidecars:
        """All that apply to the recording of this name in a directory."""
        labels = _labels(name.entities, name.labels)
        applying = _applying(self._visible_from(directory), labels)
        electrodes = _preferred(applying["electrodes", "tsv"])
        is_meg = name.suffix == "meg"
        return Sidecars(
            channels=_first(applying["channels", "tsv"]),
            events=_first(applying["events", "tsv"]),
            electrodes=electrodes.entry if electrodes else None,
            coordsystem=_of_same_space(applying["coordsystem", "json"], electrodes),
            calibration=_marked(applying["meg", "dat"], CALIBRATION) if is_meg else None,
            crosstalk=_marked(applying["meg", "fif"], CROSSTALK) if is_meg else None,
            json=_merging(applying[name.suffix, "json"]),
            events_json=_merging(applying["events", "json"]),
        )

    def _visible_from(self, directory: str) -> tuple[_Table, ...]:
        """Sidecars in a directory and its parents, the deepest directory first."""
        unknown = []
        here = directory
        while here not in self._visible:
            unknown.append(here)
            here = here.rpartition("/")[0]
        above = self._visible[here]
        for here in reversed(unknown):
            table = self._table(here)
            above = self._visible[here] = (table, *above) if table else above
        return above

    def _table(self, directory: str) -> _Table:
        # By what stands before the suffix, which a recording's sidecars have in common.
        found: dict[tuple[str, str | None], list[tuple[_Kind, Entry]]] = defaultdict(list)
        for file, entry in self._snapshot.children(directory).items():
            before, _, ending = file.rpartition("_")
            kind = _kind(ending)
            if kind is not None and self._is_readable(entry.path):
                found[before, _KINDS[kind]].append((kind, entry))
        table: _Table = {}
        for (before, disregarded), sidecars in found.items():
            labels = _labels(*parse_parts(before))
            _enter(table, directory, labels, disregarded, sidecars)
        return table

    def _is_readable(self, path: str) -> bool:
        return path not in self._snapshot.refused and path not in self._snapshot.directory_links


@lru_cache(maxsize=256)  # a tree has few of them
def _kind(ending: str) -> _Kind | None:
    suffix, _, extension = ending.partition(".")
    kind = suffix, extension.lower()
    return kind if kind in _KINDS else None


def is_calibration_file(name: BidsName) -> bool:
    """Whether a file is an input of Signal-Space Separation, named like a recording."""
    return _is_calibration((name.suffix, name.kind[1:]), name.entities.get("acq"))


def _is_calibration(kind: _Kind, acq: str | None) -> bool:
    return (kind, acq) in {(("meg", "dat"), CALIBRATION), (("meg", "fif"), CROSSTALK)}


def _enter(
    table: _Table,
    directory: str,
    labels: Mapping[str, str],
    disregarded: str | None,
    sidecars: list[tuple[_Kind, Entry]],
) -> None:
    aside = None if disregarded is None else labels.get(disregarded)
    if disregarded == "acq":
        sidecars = [found for found in sidecars if _is_calibration(found[0], aside)]
    if not sidecars:
        return
    keys = tuple(sorted(labels.keys() - {disregarded, ""}))  # `__` leaves an empty part
    values = tuple([labels[key] for key in keys])
    rank = -len(directory), -len(keys)  # of two directories above a recording the longer is deeper
    rows = table.setdefault(keys, {}).setdefault(values, [])
    rows += [Sidecar(rank, entry.path, kind, aside, entry) for kind, entry in sidecars]


def _labels(entities: Mapping[str, str], labels: Sequence[str]) -> Mapping[str, str]:
    """A name's entities, and its parts that are none as keys without a value."""
    return {**dict.fromkeys(labels, ""), **entities} if labels else entities


def _applying(
    tables: Iterable[_Table], labels: Mapping[str, str]
) -> defaultdict[_Kind, list[Sidecar]]:
    """By kind, the most specific first."""
    applying: defaultdict[_Kind, list[Sidecar]] = defaultdict(list)
    for table in tables:
        for keys, rows in table.items():
            for sidecar in rows.get(tuple([labels.get(key) for key in keys]), ()):
                applying[sidecar.kind].append(sidecar)
    for several in applying.values():
        several.sort()
    return applying


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
