"""The annexed content of one recording, fetched as planned, or a sentence that says why not."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from ..storage.download import Attempt, Downloader, Failure
from ..storage.filling import Filling
from ..storage.hosts import HostGuard, RefusedAddress
from ..storage.objects import Wanted
from ..storage.transfer import WrongBytes
from .annex_program import AnnexProgram, ProgramRemote, program_at_work
from .content_errors import ContentError, DamagedContent, MissingContent, UnreachableContent
from .content_source import ContentSource, Plan
from .key_digest import checksum_of

CONNECTIONS: Final = 8
"""Files of one recording that are fetched at once, and parts of large ones."""

# More than a few named files make no sentence.
_NAMED = 3


class _Failed(NamedTuple):
    plan: Plan
    failure: Failure


def fetch(
    plans: Sequence[Plan], content: ContentSource, files: Mapping[str, Path], limit: int
) -> None:
    """Fetch each plan's key to the file of its first entry, all or none.

    `files` are by path and in folders that are there; `limit` is the most bytes of a key that
    tells no size. Raises ContentError, and OSError when the disk does not take the bytes.
    """
    left = {files[plan.entries[0].path]: plan for plan in plans}
    try:
        while left:
            failed = [
                _Failed(left[failure.wanted.target], failure)
                for failure in _download(left, content, limit)
            ]
            _ask_program(failed, content)
            left = {file: plan for file, plan in left.items() if not file.exists()}
    except BaseException:
        for plan in plans:
            with suppress(OSError):
                files[plan.entries[0].path].unlink()
        raise


def check_places(plans: Sequence[Plan]) -> None:
    """Raise ContentError where there is nobody to ask for some content."""
    placeless = [plan for plan in plans if not (plan.places or plan.program_remotes)]
    if placeless:
        raise _error([_Failed(plan, Failure(_wanted(Path(), plan, 0), ())) for plan in placeless])


def _download(left: Mapping[Path, Plan], content: ContentSource, limit: int) -> list[Failure]:
    guard = HostGuard(content.trusted_hosts)
    with Downloader(guard, connections=CONNECTIONS, patience=content.patience) as downloader:
        return downloader.fetch_all(_wanted(file, plan, limit) for file, plan in left.items())


def _wanted(file: Path, plan: Plan, limit: int) -> Wanted:
    size = plan.key.size
    most = limit if size is None else size
    return Wanted(file, plan.places, most, size, checksum_of(plan.key))


def _ask_program(failed: Sequence[_Failed], content: ContentSource) -> None:
    """Have the program get what no place gave; raise ContentError where it can't."""
    hopeless = [each for each in failed if not each.plan.program_remotes]
    if hopeless:
        raise _error(hopeless)
    guard = HostGuard(content.trusted_hosts)
    for plan, failure in failed:
        target = failure.wanted.target
        dataset = content.repository
        with program_at_work(target.parent, dataset, content.branch.commits) as program:
            attempts = list(failure.attempts)
            for remote in plan.program_remotes:
                attempt = _get(program, plan, remote, guard, failure.wanted)
                if attempt is None:
                    break
                attempts.append(attempt)
            else:
                raise _error([_Failed(plan, Failure(failure.wanted, tuple(attempts)))])


def _get(
    program: AnnexProgram, plan: Plan, remote: ProgramRemote, guard: HostGuard, wanted: Wanted
) -> Attempt | None:
    """None when the program got the content."""
    try:
        file = program.get(plan.key, remote, guard, wanted.limit)
        if file is None:
            return Attempt(remote.title, "unreachable", "git-annex got nothing")
        _check(file, wanted)
    except RefusedAddress as error:
        return Attempt(remote.title, "unreachable", str(error))
    except WrongBytes as error:
        return Attempt(remote.title, "wrong", str(error))
    file.parent.chmod(0o755)
    file.chmod(0o644)
    file.rename(wanted.target)
    return None


def _check(file: Path, wanted: Wanted) -> None:
    with file.open("rb") as opened:
        filling = Filling(opened.fileno(), wanted.size, wanted.checksum)
        filling.advance(os.fstat(opened.fileno()).st_size)
        filling.check()


def _error(failed: Sequence[_Failed]) -> ContentError:
    """What to say of failed fetches: first what no other try can change."""
    absent = [each for each in failed if each.failure.verdict == "absent"]
    if absent:
        damage = next((each.plan.damage for each in absent if each.plan.damage), None)
        return damage or _missing(absent)
    wrong = [each for each in failed if each.failure.verdict == "wrong"]
    plan, failure = (wrong or failed)[0]
    told: dict[str, list[str]] = {}
    for attempt in failure.attempts:
        places = told.setdefault(attempt.said or "not there", [])
        if attempt.place not in places:
            places.append(attempt.place)
    said = "; ".join(f"{said} ({', '.join(places)})" for said, places in told.items())
    key = plan.key.key
    if wrong:
        return DamagedContent(f"The annex key {key} came wrong: {said}.", (key,))
    path = plan.entries[0].path
    return UnreachableContent(f"The content of {path} ({key}) can't be fetched: {said}.", (key,))


def _missing(absent: Sequence[_Failed]) -> MissingContent:
    entries = [entry for each in absent for entry in each.plan.entries]
    entries.sort(key=lambda entry: entry.path)
    named = ", ".join(f"{entry.path} ({entry.key})" for entry in entries[:_NAMED])
    rest = len(entries) - _NAMED
    more = f" and {rest} more" if rest > 0 else ""
    asked = dict.fromkeys(a.place for each in absent for a in each.failure.attempts)
    places = "".join(f", nor in {place}" for place in asked)
    encrypted = dict.fromkeys(name for each in absent for name in each.plan.encrypted)
    sealed = "".join(f"; {name} is encrypted, which is unsupported" for name in encrypted)
    message = f"The annexed content of {named}{more} is not on this machine{places}{sealed}."
    return MissingContent(message, tuple(entry.key or "" for entry in entries))
