"""A folder of this machine, or of a filesystem that many share, as a destination."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from .destination import (
    ANY,
    Anything,
    DestinationError,
    Document,
    Superseded,
    created_utc,
    steps_of,
)

UNFINISHED = ".unfinished-"
"""Begins the hidden folder in which one write is prepared, before a rename shows it."""

LOCK = ".lock"

SWAP_ATTEMPTS = 10


@dataclass(frozen=True)
class LocalDestination:
    """A folder, made when something is first written.

    A document or a store appears under its name when it is complete. Every method raises
    DestinationError, also for a name that leaves the folder, by `..` or a symbolic link.
    The version of a document is the SHA-256 of its bytes.
    """

    root: Path

    @property
    def location(self) -> str:
        """The folder."""
        return str(self.root)

    def read_document(self, name: str) -> Document | None:
        """A document as it is now, None when there is none."""
        path = self._inside(name)
        with self._explained(f"{name} cannot be read"):
            content = _content(path)
        return None if content is None else Document(content, _version(content))

    def write_document(
        self, name: str, content: bytes, expected: str | Anything | None = ANY
    ) -> str:
        """Replace a document, all of it or not at all; return its new version."""
        path = self._inside(name)

        def check() -> None:
            if expected is ANY:
                return
            found = _content(path)
            version = None if found is None else _version(found)
            if version != expected:
                raise Superseded(
                    f"{self.location}: {name} was found at version {version}, "
                    f"{expected} was expected."
                )

        self._replace(path, name, lambda new: new.write_bytes(content), check)
        return _version(content)

    def remove_document(self, name: str) -> None:
        """Remove a document; nothing happens when there is none."""
        path = self._inside(name)
        with self._explained(f"{name} cannot be removed"):
            path.unlink(missing_ok=True)

    def fetch_file(self, name: str, folder: Path) -> Path | None:
        """The published file itself; nothing is copied to `folder`."""
        path = self._inside(name)
        return path if path.is_file() else None

    def write_file(self, name: str, source: Path) -> None:
        """Replace a file with a copy of a local one, all of it or not at all."""
        path = self._inside(name)
        self._replace(path, name, lambda new: shutil.copyfile(source, new), lambda: None)

    def place_store(self, local_dir: Path, zarr: str) -> tuple[str, ...]:
        """Move a finished store to its place; across filesystems it is copied beside it first.

        An older store is set aside before and removed after, and put back when the new one
        cannot be placed. Nothing of it remains, so no names are returned.
        """
        target = self._inside(zarr)
        if not local_dir.is_dir():
            raise DestinationError(f"{self.location}: no folder of a store was given for {zarr}.")
        with self._explained(f"the store {zarr} cannot be placed"), self._workspace() as folder:
            incoming = folder / "incoming"
            _move(local_dir, incoming)
            target.parent.mkdir(parents=True, exist_ok=True)
            _swap(incoming, target, folder)
        return ()

    def store_stamps(self, zarrs: Iterable[str]) -> dict[str, str]:
        """`created_utc` of those of the stores that are there."""
        stamps = {}
        for zarr in zarrs:
            path = self._inside(f"{zarr}/zarr.json")
            with self._explained(f"the store {zarr} cannot be read"):
                content = _content(path)
            stamp = None if content is None else created_utc(content)
            if stamp is not None:
                stamps[zarr] = stamp
        return stamps

    def remove_store(self, zarr: str) -> None:
        """Remove a store, and the folders that it leaves empty."""
        target = self._inside(zarr)
        if not target.exists():
            return
        with self._explained(f"the store {zarr} cannot be removed"), self._workspace() as folder:
            try:
                target.rename(folder / "removed")
            except FileNotFoundError:
                return
        for parent in target.parents:
            if parent == self.root:
                return
            try:
                parent.rmdir()
            except OSError:
                return

    def remove_objects(self, zarr: str, names: Sequence[str], stamp: str) -> None:
        """Do nothing: a store is replaced as a whole."""

    def sweep(self) -> None:
        """Remove what runs that were killed left unfinished.

        What is being written, by any process of any machine that shares the folder, is locked.
        """
        if not self.root.is_dir():
            return
        with self._explained("unfinished writes cannot be removed"), self._locked():
            for folder in self.root.glob(f"{UNFINISHED}*"):
                with (
                    suppress(BlockingIOError, FileNotFoundError),  # it lives, or has just ended
                    _holding(folder / LOCK, fcntl.LOCK_NB),
                ):
                    shutil.rmtree(folder, ignore_errors=True)

    def _inside(self, name: str) -> Path:
        """The path of a relative name whose steps below the root are no symbolic links."""
        path = self.root
        for step in steps_of(name, self.location):
            path = path / step
            if path.is_symlink():
                raise DestinationError(
                    f"{self.location}: {path.relative_to(self.root)} is a symbolic link, which is "
                    "not followed."
                )
        return path

    def _replace(
        self, path: Path, name: str, write: Callable[[Path], object], check: Callable[[], None]
    ) -> None:
        with self._explained(f"{name} cannot be written"), self._workspace() as folder:
            incoming = folder / "incoming"
            write(incoming)
            _sync(incoming)
            path.parent.mkdir(parents=True, exist_ok=True)
            with self._locked():
                check()
                incoming.replace(path)
            _sync(path.parent)

    @contextmanager
    def _workspace(self) -> Iterator[Path]:
        """A hidden folder for one write, locked as long as its process lives."""
        folder = self.root / f"{UNFINISHED}{uuid4().hex}"
        self.root.mkdir(parents=True, exist_ok=True)
        with self._locked():  # no sweep sees the folder before it is locked
            folder.mkdir()
            holder = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o666)
            fcntl.flock(holder, fcntl.LOCK_EX)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            _unlock(holder)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the folder's lock, for a moment; its file is gone afterwards."""
        path = self.root / LOCK
        with _holding(path):
            try:
                yield
            finally:
                path.unlink(missing_ok=True)

    @contextmanager
    def _explained(self, problem: str) -> Iterator[None]:
        try:
            yield
        except DestinationError:
            raise
        except OSError as error:
            found = error.strerror or str(error)
            explained = DestinationError(f"{self.location}: {problem}: {found}.")
            explained.errno = error.errno
            raise explained from error


@contextmanager
def _holding(path: Path, flags: int = 0) -> Iterator[None]:
    """Hold the exclusive lock of the file that is at `path`, made if need be."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | flags)
            if _is_at(descriptor, path):  # else its last holder has unlinked it
                yield
                return
        finally:
            _unlock(descriptor)


def _unlock(descriptor: int) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_UN)  # else a process forked in between would keep it
    finally:
        os.close(descriptor)


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def _content(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None


def _version(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _move(source: Path, target: Path) -> None:
    try:
        source.rename(target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        target.mkdir()
        for path in source.rglob("*"):  # a folder before what is in it
            there = target / path.relative_to(source)
            if path.is_dir():
                there.mkdir()
            else:
                shutil.copyfile(path, there)
        shutil.rmtree(source, ignore_errors=True)


def _swap(incoming: Path, target: Path, folder: Path) -> None:
    """Put a store in place of an older one, which goes to `folder`.

    Another process may put one there in between; the last one stays.
    """
    for attempt in range(SWAP_ATTEMPTS):
        replaced = folder / f"replaced-{attempt}"
        with suppress(FileNotFoundError):
            target.rename(replaced)
        try:
            incoming.rename(target)
        except OSError as error:
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST) and attempt + 1 < SWAP_ATTEMPTS:
                continue
            with suppress(FileNotFoundError):
                replaced.rename(target)
            raise
        return


def _sync(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
