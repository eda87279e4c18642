"""Which files and directories of a snapshot are raw recordings.

A recording has the BIDS suffix eeg, meg, ieeg or emg and is neither a sidecar nor a companion
of another file. A format that nothing reads is a recording too: it is accounted for.
A link to a directory is followed when the link itself is named like a directory recording,
not to look for recordings there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple

from .entities import BidsName, parse_name
from .inheritance import SidecarIndex, is_calibration_file
from .recording import Entry, Recording
from .snapshot import Snapshot, is_raw_directory

MODALITIES = frozenset({"eeg", "meg", "ieeg", "emg"})

# Directories of these formats are opaque, whatever their name.
DIRECTORY_FORMATS = frozenset({".ds", ".mefd", ".mff"})

# Files that describe or accompany a recording, told by the extension alone.
COMPANION_EXTENSIONS = frozenset(
    (".json", ".tsv", ".tsv.gz", ".vmrk", ".amrk", ".fdt", ".mrk", ".elp", ".hsp", ".pos", ".bak")
)

_NEVER_READ = (".json", ".tsv", ".tsv.gz")

# A file of the same stem that a format's main file needs; beside it, no recording of its own.
MEMBER_EXTENSIONS: dict[str, frozenset[str]] = {
    ".vhdr": frozenset({".eeg", ".dat", ".vmrk"}),
    ".ahdr": frozenset({".eeg", ".dat", ".adat", ".amrk"}),
    ".set": frozenset({".fdt"}),
}

SPLIT_FORMATS = frozenset({".fif", ".fif.gz"})

# Who owns a store name that several sources share. Open, self-contained files first, then
# files of vendors' formats, then directories; a format that is not listed comes last.
PREFERENCE: tuple[str, ...] = (
    *(".edf", ".bdf", ".vhdr", ".set", ".fif", ".fif.gz", ".ahdr"),
    *(".con", ".sqd", ".kdf", ".gdf", ".cnt", ".eeg"),
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


def discover(snapshot: Snapshot) -> list[Recording]:
    """Every raw recording, sorted by path; no two without a `conflict` share a store name."""
    index = SidecarIndex(snapshot)
    found: list[Recording] = []
    for directory in _raw_directories(snapshot):
        files, directories = _candidates(snapshot, directory)
        recordings = [*_of_files(files), *_of_directories(directories)]
        settled = _settled(recordings) if len(recordings) > 1 else recordings
        found += (_checked(replace(r, sidecars=index.sidecars(r.path))) for r in settled)
    return sorted(found, key=lambda recording: recording.path)


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
        if entry.path in snapshot.directory_links:
            names.append(file)
            continue
        if file.lower().endswith(_NEVER_READ):
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
    return replace(entry, path=_join(path, entry.path[len(root) :].lstrip("/")))


def _of_directories(directories: Iterable[_Named]) -> Iterator[Recording]:
    for found in directories:
        yield _recording(found, found.entries, found.refused)


def _of_files(files: list[_Named]) -> Iterator[Recording]:
    """Recordings of one directory's files: chains put together, members with their main file."""
    by_stem: dict[str, list[_Named]] = defaultdict(list)
    for file in files:
        by_stem[file.name.stem].append(file)
    chains: dict[tuple[object, ...], list[_Named]] = defaultdict(list)
    for same_stem in by_stem.values():
        for file in _main_files(same_stem):
            if file.name.kind in SPLIT_FORMATS and "split" in file.name.entities:
                chains[_chain_of(file.name)].append(file)
            else:
                yield _with_members(file, same_stem)
    for chain in chains.values():
        yield _chained(sorted(chain, key=_split_order))


def _main_files(same_stem: list[_Named]) -> Iterator[_Named]:
    kinds = {file.name.kind for file in same_stem}
    owned = {kind for main in kinds for kind in MEMBER_EXTENSIONS.get(main, ())}
    for file in same_stem:
        kind = file.name.kind
        if kind not in COMPANION_EXTENSIONS | owned and not is_calibration_file(file.name):
            yield file


def _with_members(main: _Named, same_stem: list[_Named]) -> Recording:
    kinds = MEMBER_EXTENSIONS.get(main.name.kind, frozenset())
    files = [main, *sorted(file for file in same_stem if file.name.kind in kinds)]
    return _of_parts(main, files)


def _chained(chain: list[_Named]) -> Recording:
    recording = _of_parts(chain[0], chain)
    if len(chain) == 1:
        return recording
    return replace(recording, split_members=tuple(file.path for file in chain))


def _chain_of(name: BidsName) -> tuple[object, ...]:
    rest = frozenset(pair for pair in name.entities.items() if pair[0] != "split")
    return rest, name.labels, name.suffix, name.kind


def _split_order(file: _Named) -> tuple[float, str]:
    label = file.name.entities["split"]
    return (int(label) if label.isascii() and label.isdigit() else float("inf")), file.path


def _of_parts(main: _Named, parts: list[_Named]) -> Recording:
    refused = next((part.refused for part in parts if part.refused), None)
    return _recording(main, tuple(entry for part in parts for entry in part.entries), refused)


def _recording(main: _Named, members: tuple[Entry, ...], refused: str | None) -> Recording:
    return Recording(
        path=main.path,
        zarr=main.path.removesuffix(main.name.extension) + ".zarr",
        modality=main.name.suffix,
        extension=main.name.kind,
        entities=dict(main.name.entities),
        members=members,
        refused=refused,
    )


def _checked(recording: Recording) -> Recording:
    """The recording, refused when a path of it cannot be laid out or published."""
    if recording.refused is not None:
        return recording
    if recording.zarr.split("/", 1)[0] in DOCUMENTS:
        return replace(
            recording, refused=f"{recording.path} begins with the name of a published document."
        )
    files = (entry.path for entry in (*recording.members, *recording.sidecars.entries()))
    if any(map(_is_too_long, (recording.zarr, *files))):
        return replace(
            recording,
            refused=f"A path of the recording has more than {LONGEST_PATH} bytes, or a name of "
            f"more than {LONGEST_NAME} in it.",
        )
    return recording


def _is_too_long(path: str) -> bool:
    if len(path) * 4 <= LONGEST_NAME:
        return False
    raw = path.encode()
    return len(raw) > LONGEST_PATH or max(map(len, raw.split(b"/"))) > LONGEST_NAME


def _settled(recordings: list[Recording]) -> list[Recording]:
    """Give each store name one owner; every other recording of that name names the owner."""
    owners: dict[str, Recording] = {}
    for recording in sorted(recordings, key=_claim):
        owners.setdefault(recording.zarr, recording)
    return [
        recording
        if (owner := owners[recording.zarr]) is recording
        else replace(recording, conflict=owner.path)
        for recording in recordings
    ]


def _claim(recording: Recording) -> tuple[bool, int, str]:
    rank = _RANK.get(recording.extension, len(_RANK))
    return recording.refused is not None, rank, recording.path


def _join(directory: str, name: str) -> str:
    return f"{directory}/{name}" if directory else name
