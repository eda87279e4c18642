"""Where a dataset's annexed content may be: found out once a run, and asked for each key."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from ..storage.objects import Place
from ..storage.transfer import Patience
from .annex import AnnexKey, LocalAnnex
from .annex_branch import AnnexBranch
from .annex_program import ProgramRemote, program_remotes
from .annex_remotes import ObjectRemote, object_remotes, web_places
from .content_errors import DamagedContent, MissingContent
from .recording import Entry
from .repository import BlobReader, Repository, RepositoryError


@dataclass(frozen=True, slots=True)
class ContentSource:
    """Where a dataset's annexed content may come from. Can be pickled.

    `repository` has what lies in git. `annexes` are the git directories of this machine that may
    hold content, the repository's own first; `remotes` are asked by HTTP, `program_remotes` by
    the `git-annex` program. `trusted_hosts` has the operator's own, as "host" or "host:port":
    content may come from them though their address is private, and requests to them may be
    signed.
    """

    repository: Repository
    annexes: tuple[Path, ...] = ()
    branch: AnnexBranch = field(default_factory=lambda: AnnexBranch(()))
    remotes: tuple[ObjectRemote, ...] = ()
    program_remotes: tuple[ProgramRemote, ...] = ()
    trusted_hosts: frozenset[str] = frozenset()
    patience: Patience = field(default_factory=Patience)

    @classmethod
    def of(
        cls,
        repository: Repository,
        trusted_hosts: frozenset[str] = frozenset(),
        patience: Patience | None = None,
    ) -> ContentSource:
        """What a repository and its `git-annex` branches tell now. Raises RepositoryError."""
        branch = AnnexBranch.of(repository)
        with repository.blobs() as blobs:
            remotes = object_remotes(branch, blobs)
        return cls(
            repository=repository,
            annexes=(repository.common_dir, *_clones_here(repository)),
            branch=branch,
            remotes=remotes,
            program_remotes=program_remotes(repository),
            trusted_hosts=frozenset(host.lower() for host in trusted_hosts),
            patience=patience or Patience(),
        )

    @property
    def is_remote(self) -> bool:
        """Whether content may have to be fetched."""
        return bool(self.branch.commits)


@dataclass(frozen=True, slots=True)
class Plan:
    """One key to fetch, and the entries that are its content.

    `places` come in the order in which they are to be asked, `program_remotes` after them;
    `encrypted` names remotes that have it, but sealed; `damage` tells of wrong content here.
    """

    key: AnnexKey
    entries: list[Entry]
    places: tuple[Place, ...]
    program_remotes: tuple[ProgramRemote, ...]
    encrypted: tuple[str, ...]
    damage: DamagedContent | None


def _clones_here(repository: Repository) -> Iterator[Path]:
    """Git directories of the remotes that are folders of this machine.

    Whatever a configuration names, nothing is read there but a file that is named by its key.
    """
    for settings in repository.remotes().values():
        folder = settings.get("url", "").removeprefix("file://")
        if folder.startswith("/"):
            with suppress(RepositoryError, OSError, ValueError):
                yield Repository(folder).common_dir


def locate(
    entries: Iterable[Entry], content: ContentSource, blobs: BlobReader
) -> tuple[dict[str, Path], list[Plan]]:
    """Content that is on this machine, by path, and plans for the rest, in path order.

    A plan may have no place to ask. Raises MissingContent for an entry whose key is none.
    """
    local: dict[str, Path] = {}
    plans: dict[str, Plan] = {}
    for entry in sorted(entries, key=lambda entry: entry.path):
        if entry.key is None:
            continue
        key = AnnexKey.parse(entry.key)
        if key is None:
            message = f"{entry.path} stands for {entry.key!r}, where an annex key is expected."
            raise MissingContent(message, (entry.key,))
        if key.key in plans:
            plans[key.key].entries.append(entry)
            continue
        found, damage = _local(key, content.annexes)
        if found is not None:
            local[entry.path] = found
        else:
            plans[key.key] = _plan(entry, key, content, blobs, damage)
    return local, list(plans.values())


def _local(key: AnnexKey, annexes: tuple[Path, ...]) -> tuple[Path | None, DamagedContent | None]:
    damage = None
    for annex in annexes:
        try:
            found = LocalAnnex(annex).find(key)
        except DamagedContent as error:
            damage = damage or error
        else:
            if found is not None:
                return found, None
    return None, damage


def _plan(
    entry: Entry,
    key: AnnexKey,
    content: ContentSource,
    blobs: BlobReader,
    damage: DamagedContent | None,
) -> Plan:
    logs = content.branch.key_logs(blobs, key)
    remotes = sorted(content.remotes, key=lambda remote: not logs.is_in(remote.uuid))
    places = [place for remote in remotes for place in remote.places(entry, key, logs, blobs)]
    return Plan(
        key=key,
        entries=[entry],
        places=(*places, *web_places(logs)),
        program_remotes=tuple(r for r in content.program_remotes if logs.is_in(r.uuid)),
        encrypted=tuple(r.title for r in remotes if r.is_encrypted and logs.is_in(r.uuid)),
        damage=damage,
    )
