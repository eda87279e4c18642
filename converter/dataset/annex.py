"""git-annex: keys, the pointers that stand for content, and the content that is here.

Layout and names as git-annex documents them under "internals", "key format" and "pointer file".
"""

from __future__ import annotations

import hashlib
import re
import stat
from dataclasses import dataclass
from pathlib import Path

from .content_errors import DamagedContent as DamagedContent

# A longer file is no pointer, by git-annex's own limit.
POINTER_LIMIT = 32 * 1024

_FIELDS = re.compile(
    r"(?P<backend>[A-Z0-9_]+)"
    r"(?:-s(?P<size>[0-9]{1,19}))?"
    r"(?:-m(?P<mtime>-?[0-9]{1,19}))?"
    r"(?:-S(?P<chunk_size>[0-9]{1,19})-C(?P<chunk>[0-9]{1,19}))?"
)
_EXTENSION = re.compile(r"(?:\.[A-Za-z0-9]+)+$")
_UNSAFE = re.compile(r"[/\\\x00-\x1f\x7f]")
_ESCAPES = {"&a": "&", "&s": "%", "&c": ":", "%": "/"}
_MIXED_ALPHABET = "0123456789zqjxkmvwgpfZQJXKMVWGPF"


@dataclass(frozen=True, slots=True)
class AnnexKey:
    """A key, as it names the file that holds the content: never with a path separator.

    `size` is the content's bytes where the key tells it; `chunk_size` (bytes) and `chunk`
    (from 1) are there when the key names one piece of chunked content; `name` is what
    follows `--`, a digest for the hash backends; `extension` is with its dot or empty.
    """

    key: str
    backend: str
    name: str
    size: int | None = None
    chunk_size: int | None = None
    chunk: int | None = None
    extension: str = ""

    @classmethod
    def parse(cls, text: str) -> AnnexKey | None:
        """The key that a file name spells, None when it spells none.

        Fields are read before the first `--` only: what follows is free text.
        """
        head, dashes, name = text.partition("--")
        fields = _FIELDS.fullmatch(head)
        if not (dashes and name and fields) or _UNSAFE.search(text):
            return None
        extension = _EXTENSION.search(name) if fields["backend"].endswith("E") else None
        return cls(
            key=text,
            backend=fields["backend"],
            name=name,
            size=_number(fields["size"]),
            chunk_size=_number(fields["chunk_size"]),
            chunk=_number(fields["chunk"]),
            extension=extension.group() if extension else "",
        )

    @property
    def hash_lower(self) -> str:
        """Directory in bare repositories and special remotes: `7da/b9e`."""
        digest = self._digest().hex()
        return f"{digest[:3]}/{digest[3:6]}"

    @property
    def hash_mixed(self) -> str:
        """Directory in repositories with a work tree: `xG/7z`."""
        word = int.from_bytes(self._digest()[:4], "little")
        a, b, c, d = (_MIXED_ALPHABET[word >> (6 * place) & 31] for place in range(4))
        return f"{b}{a}/{d}{c}"

    @property
    def plain(self) -> str:
        """The key as special remotes spell it: a file name's escapes undone."""
        return re.sub(r"&[asc]|%", lambda escape: _ESCAPES[escape.group()], self.key)

    def chunk_name(self, chunk_size: int, number: int) -> str:
        """How special remotes spell the key of one chunk, counted from 1, of this content."""
        head, dashes, name = self.plain.partition("--")
        return f"{head}-S{chunk_size}-C{number}{dashes}{name}"

    def _digest(self) -> bytes:
        """MD5 of the plain key, without chunk fields."""
        whole = self.plain
        if self.chunk is not None:
            head, dashes, name = whole.partition("--")
            whole = head[: head.rindex("-S")] + dashes + name
        return hashlib.md5(whole.encode(), usedforsecurity=False).digest()


def _number(digits: str | None) -> int | None:
    return None if digits is None else int(digits)


def parse_pointer(content: bytes) -> AnnexKey | None:
    """The key that a symbolic link's target or a pointer file's content stands for.

    A pointer file starts with `/annex/objects/`; a link leads through `annex/objects/` of a
    git directory, wherever that is. Further lines may follow; separators may be backslashes.
    None for any other content.
    """
    line, *more = content.split(b"\n", 1)
    if b"annex" not in line or len(content) > POINTER_LIMIT:
        return None
    before, objects, rest = line.strip(b"\r").replace(b"\\", b"/").rpartition(b"/annex/objects/")
    is_link = b".git" in before and not more
    if not objects or (before and not is_link):
        return None
    try:
        return AnnexKey.parse(rest.rpartition(b"/")[2].decode("utf-8"))
    except UnicodeDecodeError:
        return None


class LocalAnnex:
    """Annexed content that lies below a git directory of this machine."""

    def __init__(self, git_directory: Path) -> None:
        self._objects = git_directory / "annex" / "objects"

    def find(self, key: AnnexKey) -> Path | None:
        """The file that holds a key's content, None when it is not here.

        Raises DamagedContent when its size is not the one that the key tells.
        """
        for directory in (key.hash_mixed, key.hash_lower):
            path = self._objects / directory / key.key / key.key
            try:
                status = path.lstat()
            except (OSError, ValueError):
                continue
            if not stat.S_ISREG(status.st_mode):
                continue
            if key.size is not None and status.st_size != key.size:
                raise DamagedContent(
                    f"The content of the annex key {key.key} has {status.st_size} bytes here, "
                    f"where the key tells {key.size}.",
                    (key.key,),
                )
            return path
        return None
