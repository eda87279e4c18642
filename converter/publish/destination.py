"""Where a dataset's serving copy is written to, and a folder as such a place."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import Protocol
from uuid import uuid4


class DestinationError(OSError):
    """The destination cannot be read or written; one sentence names it and what was found."""


class Destination(Protocol):
    """One dataset's serving copy. Names and store paths are relative to it."""

    @property
    def location(self) -> str:
        """The place, for a person."""

    def read_document(self, name: str) -> bytes | None:
        """A document's bytes, None when there is none."""

    def fetch_file(self, name: str, folder: Path) -> Path | None:
        """A local path of a published file, below `folder` if it must be copied; or None."""

    def write_document(self, name: str, content: bytes) -> None:
        """Replace a document, all of it or not at all."""

    def write_file(self, name: str, source: Path) -> None:
        """Replace a file with a copy of a local one, all of it or not at all."""

    def place_store(self, local_dir: Path, zarr: str) -> None:
        """Publish a finished store, which leaves `local_dir`, in place of an older one."""

    def remove_store(self, zarr: str) -> None:
        """Remove a store; nothing happens when there is none."""


class LocalDestination:
    """A folder of this machine, made when something is first written.

    A document or a store appears under its name when it is complete. Every method raises
    DestinationError, also for a name that leaves the folder, by `..` or a symbolic link.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    @property
    def location(self) -> str:
        """The folder."""
        return str(self.root)

    def read_document(self, name: str) -> bytes | None:
        """A document's bytes, None when there is none."""
        path = self._inside(name)
        with self._explained(f"{name} cannot be read"):
            try:
                return path.read_bytes()
            except FileNotFoundError:
                return None

    def fetch_file(self, name: str, folder: Path) -> Path | None:
        """The published file itself; nothing is copied to `folder`."""
        path = self._inside(name)
        return path if path.is_file() else None

    def write_document(self, name: str, content: bytes) -> None:
        """Replace a document, all of it or not at all."""
        self._replace(name, lambda path: path.write_bytes(content))

    def write_file(self, name: str, source: Path) -> None:
        """Replace a file with a copy of a local one, all of it or not at all."""
        self._replace(name, lambda path: shutil.copyfile(source, path))

    def place_store(self, local_dir: Path, zarr: str) -> None:
        """Move a finished store to its place; across filesystems it is copied beside it first.

        An older store is set aside before and removed after, and put back when the new one
        cannot be placed.
        """
        target = self._inside(zarr)
        if not local_dir.is_dir():
            raise DestinationError(f"{self.location}: no folder of a store was given for {zarr}.")
        incoming, replaced = _beside(target, "incoming"), _beside(target, "replaced")
        with self._explained(f"the store {zarr} cannot be placed"):
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                _move(local_dir, incoming)
                _swap(incoming, target, replaced)
            finally:
                shutil.rmtree(incoming, ignore_errors=True)
            shutil.rmtree(replaced, ignore_errors=True)

    def remove_store(self, zarr: str) -> None:
        """Remove a store, and the folders that it leaves empty."""
        target = self._inside(zarr)
        removed = _beside(target, "removed")
        with self._explained(f"the store {zarr} cannot be removed"):
            try:
                target.rename(removed)
            except FileNotFoundError:
                return
            shutil.rmtree(removed)
        for parent in target.parents:
            if parent == self.root:
                return
            try:
                parent.rmdir()
            except OSError:
                return

    def _inside(self, name: str) -> Path:
        """The path of a relative name whose steps below the root are no symbolic links."""
        relative = PurePosixPath(name)
        steps = name.split("/")
        if relative.is_absolute() or not set(steps).isdisjoint({"", ".", ".."}) or "\0" in name:
            raise DestinationError(
                f"{self.location}: the name {name!r} was given, one relative to the folder and "
                "without '..' was expected."
            )
        path = self.root
        for step in steps:
            path = path / step
            if path.is_symlink():
                raise DestinationError(
                    f"{self.location}: {path.relative_to(self.root)} is a symbolic link, which is "
                    "not followed."
                )
        return path

    def _replace(self, name: str, write: Callable[[Path], object]) -> None:
        path = self._inside(name)
        incoming = _beside(path, "incoming")
        with self._explained(f"{name} cannot be written"):
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                write(incoming)
                _sync(incoming)
                incoming.replace(path)
                _sync(path.parent)
            finally:
                incoming.unlink(missing_ok=True)

    @contextmanager
    def _explained(self, problem: str) -> Iterator[None]:
        try:
            yield
        except DestinationError:
            raise
        except OSError as error:
            found = error.strerror or str(error)
            raise DestinationError(f"{self.location}: {problem}: {found}.") from error


def _beside(path: Path, purpose: str) -> Path:
    """A new hidden name in the same folder, so that a rename into place is one step."""
    return path.with_name(f".{purpose}-{uuid4().hex}")


def _move(source: Path, target: Path) -> None:
    try:
        source.rename(target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        shutil.copytree(source, target, symlinks=True)
        shutil.rmtree(source, ignore_errors=True)


def _swap(incoming: Path, target: Path, replaced: Path) -> None:
    with suppress(FileNotFoundError):
        target.rename(replaced)
    try:
        incoming.rename(target)
    except OSError:
        with suppress(FileNotFoundError):
            replaced.rename(target)
        raise


def _sync(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
