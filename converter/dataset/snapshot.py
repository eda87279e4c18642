"""The tree of one commit, read once and indexed by directory."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from types import MappingProxyType

from .annex import POINTER_LIMIT, AnnexKey, parse_pointer
from .links import RefusedLinkError, resolve_link
from .recording import Entry
from .repository import Repository, TreeEntry

LINK_MODE = "120000"

# Trees that hold no raw recording, as whole path segments at any depth.
NON_RAW_DIRECTORIES = frozenset({"derivatives", "sourcedata", "code"})

_ASTRAY = frozenset({"", ".", ".."})

# The listing's files and links, by directory.
_Tree = dict[str, list[TreeEntry]]

_NOTHING: Mapping[str, Entry] = MappingProxyType({})


def is_raw_directory(name: str) -> bool:
    """Whether a directory of this name can lead to raw data: no hidden one does."""
    return name not in NON_RAW_DIRECTORIES and not name.startswith(".")


class Snapshot:
    """Every path of a commit, by directory; a directory is named by its path, the root by "".

    A git link that leads to a file of the tree is an entry with the mode, blob, key and size
    found there. `directory_links` maps a link to the directory it leads to; `refused` maps
    an entry's path to a sentence that says why no byte may be read by way of it.
    """

    def __init__(
        self,
        commit: str,
        entries: Iterable[Entry],
        directory_links: Mapping[str, str] = MappingProxyType({}),
        refused: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.commit = commit
        self.directory_links = dict(directory_links)
        self.refused = dict(refused)
        self._files: dict[str, dict[str, Entry]] = {"": {}}
        self._subdirectories: dict[str, set[str]] = {"": set()}
        for entry in entries:
            directory, _, name = entry.path.rpartition("/")
            if directory not in self._files:
                self._add_directory(directory)
            # Of two paths that print alike the first is kept: the one git holds in UTF-8.
            self._files[directory].setdefault(name, entry)

    @classmethod
    def read(cls, repository: Repository, commit: str) -> Snapshot:
        """Read a commit: one listing of its tree, then its links and possible pointers.

        Raises RepositoryError.
        """
        tree = _by_directory(repository.tree(commit))
        keys, targets = _read_links(repository, tree)
        keys |= _read_pointers(repository, tree, everywhere=bool(targets))
        entries = [_entry(found, keys) for files in tree.values() for found in files]
        resolution = _Resolution(entries, targets)
        return cls(commit, resolution.entries, resolution.directory_links, resolution.refused)

    def _add_directory(self, directory: str) -> None:
        while directory not in self._files:
            self._files[directory] = {}
            self._subdirectories.setdefault(directory, set())
            parent, _, name = directory.rpartition("/")
            self._subdirectories.setdefault(parent, set()).add(name)
            directory = parent

    def __iter__(self) -> Iterator[Entry]:
        for files in self._files.values():
            yield from files.values()

    def __len__(self) -> int:
        return sum(map(len, self._files.values()))

    @property
    def directories(self) -> Collection[str]:
        """The path of every directory."""
        return self._files.keys()

    def get(self, path: str) -> Entry | None:
        """The entry at a path, None when no file or link is there."""
        directory, _, name = path.rpartition("/")
        return self.children(directory).get(name)

    def children(self, directory: str) -> Mapping[str, Entry]:
        """Files and links directly in a directory, by name."""
        return self._files.get(directory, _NOTHING)

    def subdirectories(self, directory: str) -> list[str]:
        """Names of the directories directly in a directory, sorted."""
        return sorted(self._subdirectories.get(directory, ()))

    def beneath(self, directory: str) -> list[Entry]:
        """Files and links at any depth below a directory, sorted by path."""
        found: list[Entry] = []
        waiting = [directory]
        while waiting:
            here = waiting.pop()
            found += self.children(here).values()
            waiting += (f"{here}/{name}" if here else name for name in self.subdirectories(here))
        return sorted(found, key=lambda entry: entry.path)


class _Resolution:
    """Entries of a tree with its links resolved; `targets` has those that are not annexed."""

    def __init__(self, entries: list[Entry], targets: Mapping[str, str | None]) -> None:
        self._targets = {link: target for link, target in targets.items() if target is not None}
        self.directory_links: dict[str, str] = {}
        self.refused: dict[str, str] = {}
        self.entries = entries
        if not targets:
            return
        self._by_path = {entry.path: entry for entry in entries}
        self._directories = _directories(self._by_path)
        self.entries = [self._resolved(e) if e.path in targets else e for e in entries]

    def _resolved(self, link: Entry) -> Entry:
        try:
            return self._followed(link)
        except RefusedLinkError as error:
            self.refused[link.path] = f"{link.path} is a symbolic link that {error}."
            return link

    def _followed(self, link: Entry) -> Entry:
        if link.path not in self._targets:
            raise RefusedLinkError("has a target too long to be one")
        path = resolve_link(link.path, self._targets)
        found = self._by_path.get(path)
        if found is not None and (found.mode != LINK_MODE or found.key is not None):
            return found._replace(path=link.path)
        if path not in self._directories:
            raise RefusedLinkError("leads to nothing in the dataset's tree")
        if f"{link.path}/".startswith(f"{path}/" if path else ""):
            raise RefusedLinkError("leads to a directory that holds the link itself")
        self.directory_links[link.path] = path
        return link


def _by_directory(listing: Iterable[TreeEntry]) -> _Tree:
    """Without paths that have a segment in `_ASTRAY`, which only a forger's tree has."""
    tree: _Tree = defaultdict(list)
    for found in listing:
        directory, slash, name = found.path.rpartition("/")
        if name not in _ASTRAY and (directory or not slash):
            tree[directory].append(found)
    return {path: tree[path] for path in tree if not path or _ASTRAY.isdisjoint(path.split("/"))}


def _entry(found: TreeEntry, keys: Mapping[str, AnnexKey]) -> Entry:
    key = keys.get(found.sha)
    if key is None:
        return Entry(found.path, found.mode, found.sha, found.size)
    size = found.size if key.size is None else key.size
    return Entry(found.path, found.mode, found.sha, size, key.key)


def _read_links(
    repository: Repository, tree: _Tree
) -> tuple[dict[str, AnnexKey], dict[str, str | None]]:
    """Keys by blob of the links into an annex; targets by path of others, None where absurd."""
    links = [found for files in tree.values() for found in files if found.mode == LINK_MODE]
    contents = _contents(repository, [link.sha for link in links if link.size <= POINTER_LIMIT])
    keys: dict[str, AnnexKey] = {}
    plain: dict[str, str] = {}
    for blob, content in contents:
        key = parse_pointer(content)
        if key is None:
            plain[blob] = content.decode("utf-8", "backslashreplace")
        else:
            keys[blob] = key
    return keys, {link.path: plain.get(link.sha) for link in links if link.sha not in keys}


def _read_pointers(repository: Repository, tree: _Tree, *, everywhere: bool) -> dict[str, AnnexKey]:
    """Keys by blob of the pointer files; outside the raw tree only when links may lead there."""
    small = [
        found.sha
        for directory, files in tree.items()
        if everywhere or _is_in_raw_tree(directory)
        for found in files
        if 0 < found.size <= POINTER_LIMIT and found.mode != LINK_MODE
    ]
    keys: dict[str, AnnexKey] = {}
    for blob, content in _contents(repository, small):
        if b"annex" in content and (key := parse_pointer(content)) is not None:
            keys[blob] = key
    return keys


def _contents(repository: Repository, blobs: list[str]) -> Iterator[tuple[str, bytes]]:
    """Each blob once with its bytes, in the tree's order, which a pack's is close to."""
    distinct = list(dict.fromkeys(blobs))
    return zip(distinct, repository.read_blobs(distinct), strict=True) if distinct else iter(())


def _is_in_raw_tree(directory: str) -> bool:
    return all(map(is_raw_directory, directory.split("/")))


def _directories(paths: Iterable[str]) -> set[str]:
    found = {""}
    for path in paths:
        while (path := path.rpartition("/")[0]) not in found:
            found.add(path)
    return found
