"""Which files and directories of a snapshot are raw recordings.

A recording has the BIDS suffix eeg, meg, ieeg or emg and is neither a sidecar nor a companion
of another file. A format that nothing reads is a recording too: it is accounted for.
A link to a directory is followed when the link itself is named like a directory recording,
not to look for recordings there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from operator import attrgetter
from typing import NamedTuple

from .entities import BidsName, parse_name
from .inheritance import SidecarIndex, is_calibration_file
from .recording import Entry, Recording, Sidecars
from .snapshot import Snapshot, is_raw_directory

MODALITIES = frozenset({"eeg", "meg", "ieeg", "emg"})

# Directories of these formats are opaque, whatever their name.
DIRECTORY_FORMATS = frozenset({".ds", ".mefd", ".mff"})

# Files that describe or accompany a recording, told by the extension alone.
COMPANION_EXTENSIONS = frozenset(
    (
        *(".json", ".tsv", ".tsv.gz", ".vmrk", ".amrk", ".fdt", ".mrk", ".elp", ".hsp", ".pos"),
        *(".bak", ".21e", ".pnt", ".log", ".evt", ".trg"),
        *(".dap", ".rs3", ".cef", ".ceo"),
        *(".cdt.dpa", ".cdt.dpo", ".cdt.cef", ".cdt.ceo", ".cdt.hpi"),
    )
)

_NEVER_READ = (".json", ".tsv", ".tsv.gz")

# A file of the same stem that a format's main file needs; beside it, no recording of its own.
MEMBER_EXTENSIONS: dict[str, frozenset[str]] = {
    ".vhdr": frozenset({".eeg", ".dat", ".vmrk"}),
    ".ahdr": frozenset({".eeg", ".dat", ".adat", ".amrk"}),
    ".set": frozenset({".fdt", ".dat"}),
    ".lay": frozenset({".dat"}),
    ".eeg": frozenset({".21e"}),
    ".cdt": frozenset({".cdt.dpa", ".cdt.dpo"}),
    ".dat": frozenset({".dap", ".rs3"}),
}

SPLIT_FORMATS = frozenset({".fif", ".fif.gz"})

# Who owns a store name that several sources share. Open, self-contained files first, then
# files of vendors' formats, then directories; a format that is not listed comes last.
PREFERENCE: tuple[str, ...] = (
    *(".edf", ".bdf", ".vhdr", ".set", ".nwb", ".fif", ".fif.gz", ".ahdr"),
    *(".con", ".sqd", ".kdf", ".gdf", ".cnt", ".lay", ".eeg", ".cdt", ".dat"),
    *(".ds", ".mefd", ".mff", ""),
)
# A path component that a file system holds; and a path to which the addresses of a store's
# chunks can be added within the 1024 bytes of an object store's key. In bytes.
LONGEST_NAME, LONGEST_PATH = 255, 900

# Published beside the stores, under the dataset's root.
DOCUMENTS = frozenset({"index.json", "manifest.json", "events.parquet"})

_RANK = {extension: rank for rank, extension in enumerate(PREFERENCE)}


class _Named(NamedTuple):
    """A file or directory that is named like a recording."""

    path: str
    name: BidsName
    entries: tuple[Entry, ...]
    refused: str | None


class _Group(NamedTuple):
    """What becomes one recording: its own file or directory, then others that belong to it.

    The parts of a split chain are all its own, the lowest split first.
    """

    parts: tuple[_Named, ...]
    is_chain: bool = False

    @property
    def main(self) -> _Named:
        """The part that names the recording."""
        return self.parts[0]

    @property
    def refused(self) -> str | None:
        """Why no byte of one of its parts may be read."""
        return next((part.refused for part in self.parts if part.refused), None)


def discover(snapshot: Snapshot) -> list[Recording]:
    """Every raw recording, sorted by path; no two without a `conflict` share a store name."""
    index = SidecarIndex(snapshot)
    found: list[Recording] = []
    for directory in _raw_directories(snapshot):
        files, directories = _candidates(snapshot, directory)
        claims: dict[str, list[_Group]] = defaultdict(list)
        for group in (*_of_files(files), *(_Group((each,)) for each in directories)):
            claims[_store_name(group.main)].append(group)
        for zarr, groups in claims.items():
            owner = min(groups, key=_claim).main.path
            for group in groups:
                sidecars = index.sidecars(directory, group.main.name)
                found.append(_recording(group, zarr, owner, sidecars))
    return sorted(found, key=attrgetter("path"))


def _raw_directories(snapshot: Snapshot) -> Iterator[str]:
    """Directories whose files can be raw recordings: none inside a directory recording."""
    waiting = [""]
    while waiting:
        here = waiting.pop()
        yield here
        for name in snapshot.subdirectories(here):
            path = _join(here, name)
            if is_raw_directory(name) and not _is_opaque(snapshot, path):
                waiting.append(path)


def _is_opaque(snapshot: Snapshot, directory: str) -> bool:
    name = parse_name(directory.rpartition("/")[2])
    return name.kind in DIRECTORY_FORMATS or _is_directory_recording(snapshot, directory, name)


def _is_directory_recording(snapshot: Snapshot, path: str, name: BidsName) -> bool:
    """Whether a directory holds one recording.

    One with a BIDS suffix and any extension does; without an extension it is 4D/BTi data,
    or just a directory of that name.
    """
    if not _is_named_like_one(name):
        return False
    if name.extension:
        return name.kind not in COMPANION_EXTENSIONS
    held = snapshot.children(snapshot.directory_links.get(path, path))
    is_bti = "config" in held and any(file.startswith("c,rf") for file in held)
    return name.suffix == "meg" and is_bti


def _is_named_like_one(name: BidsName) -> bool:
    return (
        name.suffix in MODALITIES
        and bool(name.entities or name.labels)
        and not name.stem.startswith(".")
    )


def _candidates(snapshot: Snapshot, directory: str) -> tuple[list[_Named], list[_Named]]:
    """Files and directories directly in a directory that are named like recordings."""
    files, directories = [], []
    names = list(snapshot.subdirectories(directory))
    for file, entry in snapshot.children(directory).items():
        if file.lower().endswith(_NEVER_READ):
            continue
        if entry.path in snapshot.directory_links:
            names.append(file)
            continue
        name = parse_name(file)
        if _is_named_like_one(name):
            refused = snapshot.refused.get(entry.path)
            files.append(_Named(entry.path, name, (entry,), refused))
    for file in names:
        path, name = _join(directory, file), parse_name(file)
        if is_raw_directory(file) and _is_directory_recording(snapshot, path, name):
            directories.append(_directory(snapshot, path, name))
    return files, directories


def _directory(snapshot: Snapshot, path: str, name: BidsName) -> _Named:
    """A directory recording with all files beneath it, under its own path."""
    root = snapshot.directory_links.get(path, path)
    entries = []
    refused = None
    for entry in snapshot.beneath(root):
        if entry.path in snapshot.directory_links:
            refused = refused or f"{entry.path} is a link to a directory inside a recording."
        refused = refused or snapshot.refused.get(entry.path)
        entries.append(entry if root == path else _moved(entry, root, path))
    return _Named(path, name, tuple(entries), refused)


def _moved(entry: Entry, root: str, path: str) -> Entry:
    return entry._replace(path=_join(path, entry.path[len(root) :].lstrip("/")))


def _of_files(files: list[_Named]) -> Iterator[_Group]:
    """One directory's files: chains put together, members with their main file."""
    by_stem: dict[str, list[_Named]] = defaultdict(list)
    for file in files:
        by_stem[file.name.stem].append(file)
    chains: dict[tuple[object, ...], list[_Named]] = defaultdict(list)
    for same_stem in by_stem.values():
        for file in _main_files(same_stem):
            if "split" in file.name.entities and file.name.kind in SPLIT_FORMATS:
                chains[_chain_of(file.name)].append(file)
            else:
                yield _with_members(file, same_stem)
    for chain in chains.values():
        yield _Group(tuple(sorted(chain, key=_split_order)), is_chain=len(chain) > 1)


def _main_files(same_stem: list[_Named]) -> list[_Named]:
    others = COMPANION_EXTENSIONS
    if len(same_stem) > 1:
        others = others.union(*(MEMBER_EXTENSIONS.get(f.name.kind, ()) for f in same_stem))
    return [
        file
        for file in same_stem
        if file.name.kind not in others and not is_calibration_file(file.name)
    ]


def _with_members(main: _Named, same_stem: list[_Named]) -> _Group:
    kinds = MEMBER_EXTENSIONS.get(main.name.kind)
    if kinds is None:
        return _Group((main,))
    return _Group((main, *sorted(file for file in same_stem if file.name.kind in kinds)))


def _chain_of(name: BidsName) -> tuple[object, ...]:
    rest = frozenset(pair for pair in name.entities.items() if pair[0] != "split")
    return rest, name.labels, name.suffix, name.kind


def _split_order(file: _Named) -> tuple[float, str]:
    label = file.name.entities["split"]
    return (int(label) if label.isascii() and label.isdigit() else float("inf")), file.path


def _store_name(main: _Named) -> str:
    return main.path.removesuffix(main.name.extension) + ".zarr"


def _claim(group: _Group) -> tuple[bool, int, str]:
    """The lowest of all that share a store name owns it."""
    rank = _RANK.get(group.main.name.kind, len(_RANK))
    return group.refused is not None, rank, group.main.path


def _recording(group: _Group, zarr: str, owner: str, sidecars: Sidecars) -> Recording:
    main = group.main
    members = tuple([entry for part in group.parts for entry in part.entries])
    return Recording(
        path=main.path,
        zarr=zarr,
        modality=main.name.suffix,
        extension=main.name.kind,
        entities=dict(main.name.entities),
        members=members,
        sidecars=sidecars,
        split_members=tuple(part.path for part in group.parts) if group.is_chain else (),
        conflict=None if owner == main.path else owner,
        refused=group.refused or _unpublishable(main.path, zarr, members, sidecars),
    )


def _unpublishable(
    path: str, zarr: str, members: Iterable[Entry], sidecars: Sidecars
) -> str | None:
    """Why a path of the recording cannot be laid out or published."""
    if zarr.split("/", 1)[0] in DOCUMENTS:
        return f"{path} begins with the name of a published document."
    if _is_one_too_long([zarr, *(entry.path for entry in (*members, *sidecars.entries()))]):
        return (
            f"A path of the recording has more than {LONGEST_PATH} bytes, or a name of "
            f"more than {LONGEST_NAME} in it."
        )
    return None


def _is_one_too_long(paths: list[str]) -> bool:
    if max(map(len, paths)) <= LONGEST_NAME and all(map(str.isascii, paths)):
        return False
    encoded = list(map(str.encode, paths))
    return (
        max(map(len, encoded)) > LONGEST_PATH
        or max(len(name) for path in encoded for name in path.split(b"/")) > LONGEST_NAME
    )


def _join(directory: str, name: str) -> str:
    return f"{directory}/{name}" if directory else name
