"""What a repository's `git-annex` branch tells: remotes, and where each key's content lies.

Layout and formats as git-annex documents them under "internals": of a setting that several
lines give, the one with the newest time holds, in whichever of the branches it stands.
"""

from __future__ import annotations

import base64
import binascii
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from .annex import AnnexKey
from .repository import BlobReader, Repository

LOG_LIMIT: Final = 16 << 20
"""Bytes of a log that are read at most."""

# Branches of one's own and of those one cloned from; all are read as one.
_BRANCHES = ("refs/heads/git-annex", "refs/remotes/*/git-annex")

_SHA1 = re.compile(r"[0-9a-f]{40}")
_TIME = re.compile(r"(\d{1,19}(?:\.\d{1,19})?)s?")
_ESCAPED = re.compile(r"&(\d{1,7});")
_DEAD = "X"
_PRESENT = "1"

_Name = TypeVar("_Name")
_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True)
class Chunking:
    """Content that a remote has in `count` chunks of `size` bytes, the last one shorter."""

    size: int
    count: int


@dataclass(frozen=True, slots=True)
class KeyLogs:
    """What the branch tells of one key.

    `remotes`: whether a remote, by UUID, has the content, where that is told. `chunkings`: how
    it lies there, the newest first. `versions`: object names and version ids there, from
    remotes that keep versions, the newest first. `urls`: where it can be had on the web.
    """

    remotes: Mapping[str, bool]
    chunkings: Mapping[str, tuple[Chunking, ...]]
    versions: Mapping[str, tuple[tuple[str, str], ...]]
    urls: tuple[str, ...]

    def is_in(self, uuid: str) -> bool:
        """Whether a remote is told to have the content."""
        return self.remotes.get(uuid, False)


@dataclass(frozen=True, slots=True)
class AnnexBranch:
    """The `git-annex` branches of a repository, by the commits that they have now."""

    commits: tuple[str, ...]

    @classmethod
    def of(cls, repository: Repository) -> AnnexBranch:
        """The branches of a repository, none when it has none."""
        return cls(repository.commits_of(*_BRANCHES))

    def remotes(self, blobs: BlobReader) -> dict[str, dict[str, str]]:
        """Settings of the special remotes by UUID, without those that are dead."""
        newest = _Newest[str, dict[str, str]]()
        for line in self._lines(blobs, "remote.log"):
            uuid, _, rest = line.partition(" ")
            settings = dict(_setting(word) for word in rest.split(" ") if "=" in word)
            if uuid:
                newest.add(uuid, _seconds(settings.pop("timestamp", "")), settings)
        dead = self._dead(blobs)
        return {uuid: settings for uuid, settings in newest.values() if uuid not in dead}

    def exports(self, blobs: BlobReader) -> dict[str, tuple[str, ...]]:
        """The trees that were exported to each remote, by its UUID."""
        newest = _Newest[tuple[str, str], tuple[str, ...]]()
        for time, parties, names in _triples(self._lines(blobs, "export.log")):
            source, _, remote = parties.partition(":")
            trees = tuple(name for name in names.split(" ") if _SHA1.fullmatch(name))
            newest.add((source, remote), time, trees)
        exports: dict[str, tuple[str, ...]] = {}
        for (_, remote), trees in newest.values():
            exports[remote] = tuple(dict.fromkeys((*exports.get(remote, ()), *trees)))
        return exports

    def key_logs(self, blobs: BlobReader, key: AnnexKey) -> KeyLogs:
        """Everything that the branch tells of a key."""
        log = self._log(blobs, key)
        remotes = _Newest[str, str]()
        for time, status, uuid in _triples(self._lines(blobs, log)):
            remotes.add(uuid, time, status)
        urls = _Newest[str, str]()
        for path in (f"{log}.web", f"remote/web/{key.hash_lower}/{key.key}.log"):
            for time, status, url in _triples(self._lines(blobs, path)):
                urls.add(url, time, status)
        return KeyLogs(
            remotes={uuid: status == _PRESENT for uuid, status in remotes.values()},
            chunkings=_chunkings(self._lines(blobs, f"{log}.cnk")),
            versions=_versions(self._lines(blobs, f"{log}.rmet")),
            urls=tuple(url for url, status in urls.values() if status == _PRESENT),
        )

    def _log(self, blobs: BlobReader, key: AnnexKey) -> str:
        """The path of a key's location log, beside which its others are.

        A branch has one layout: two levels of lower-case directories, or one, or mixed case.
        """
        one_level = key.hash_lower.partition("/")[0]
        paths = [f"{place}/{key.key}.log" for place in (key.hash_lower, one_level, key.hash_mixed)]
        return next((path for path in paths if any(self._lines(blobs, path))), paths[0])

    def _dead(self, blobs: BlobReader) -> set[str]:
        trust = _Newest[str, str]()
        for line in self._lines(blobs, "trust.log"):
            match line.split():
                case [uuid, level, time]:
                    trust.add(uuid, _seconds(time.removeprefix("timestamp=")), level)
        return {uuid for uuid, level in trust.values() if level == _DEAD}

    def _lines(self, blobs: BlobReader, path: str) -> Iterator[str]:
        for commit in self.commits:
            content = blobs.read_path(commit, path, LOG_LIMIT)
            if content is not None:
                yield from content.decode("utf-8", "replace").split("\n")


class _Newest(Generic[_Name, _Value]):
    """Settings by name, each as the newest line that gives it has it."""

    def __init__(self) -> None:
        self._known: dict[_Name, tuple[float, _Value]] = {}

    def add(self, name: _Name, time: float, value: _Value) -> None:
        if name not in self._known or time >= self._known[name][0]:
            self._known[name] = (time, value)

    def values(self) -> Iterator[tuple[_Name, _Value]]:
        """Names and values, the newest first."""
        for name, (_, value) in sorted(self._known.items(), key=lambda item: -item[1][0]):
            yield name, value


def _triples(lines: Iterable[str]) -> Iterator[tuple[float, str, str]]:
    """Time, first word and rest of the lines of a log."""
    for line in lines:
        time, _, rest = line.partition(" ")
        word, space, rest = rest.partition(" ")
        if space:
            yield _seconds(time), word, rest


def _chunkings(lines: Iterable[str]) -> dict[str, tuple[Chunking, ...]]:
    newest = _Newest[tuple[str, int], int]()
    for time, name, number in _triples(lines):
        remote, _, bytes_each = name.rpartition(":")
        # Other words stand for ways to cut that are not by size.
        if remote and _is_number(bytes_each) and _is_number(number):
            newest.add((remote, int(bytes_each)), time, int(number))
    found: dict[str, tuple[Chunking, ...]] = {}
    for (remote, size), count in newest.values():
        if size > 0 and count > 0:
            found[remote] = (*found.get(remote, ()), Chunking(size, count))
    return found


def _versions(lines: Iterable[str]) -> dict[str, tuple[tuple[str, str], ...]]:
    newest = _Newest[tuple[str, str], bool]()
    for line in lines:
        time, *words = line.split(" ")
        remote, label = "", ""
        for word in words:
            if word[:1] not in ("+", "-"):
                remote, _, label = word.rpartition(":")
            elif label == "V":
                newest.add((remote, _metadata(word[1:])), _seconds(time), word[0] == "+")
    found: dict[str, tuple[tuple[str, str], ...]] = {}
    for (remote, value), is_set in newest.values():
        version, _, name = value.partition("#")
        if is_set and version and name:
            found[remote] = (*found.get(remote, ()), (name, version))
    return found


def _metadata(word: str) -> str:
    """A metadata value; one with spaces is written in base64."""
    if not word.startswith("!"):
        return word
    try:
        return base64.b64decode(word[1:], validate=True).decode("utf-8", "replace")
    except binascii.Error:
        return ""


def _setting(word: str) -> tuple[str, str]:
    """A remote's setting; white space and `&` are written by their numbers."""
    name, _, value = word.partition("=")
    return name, _ESCAPED.sub(_character, value)


def _character(escape: re.Match[str]) -> str:
    number = int(escape[1])
    return chr(number) if number <= sys.maxunicode else ""


def _is_number(text: str) -> bool:
    return len(text) < 20 and text.isascii() and text.isdecimal()


def _seconds(text: str) -> float:
    """A log line's time; 0 where it can't be read."""
    found = _TIME.fullmatch(text)
    return float(found[1]) if found else 0.0
