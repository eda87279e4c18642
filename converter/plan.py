"""What a run does with each recording: convert it, keep what is published, or say why not.

Decided from the tree and the published index alone; no content is read.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from .contract.codes import FailureCode, PendingReason
from .contract.index import Entry, FailureEntry, PendingEntry, StoreEntry
from .dataset.fingerprint import fingerprint
from .dataset.recording import Recording
from .publish.published import Published
from .recording.readers import Format, format_of
from .settings import Settings
from .work.outcome import Deferred, Failed, Outcome


@dataclass(frozen=True, slots=True)
class Plan:
    """Every discovered recording in one of three: to convert, to carry, decided already.

    `history` holds the published entries whose inputs are still the same: their attempts
    count on. `dropped` names recordings that this run may not convert, and whose published
    store is of other inputs.
    """

    convert: tuple[Recording, ...]
    carry: Mapping[str, Entry]
    decided: Mapping[str, Outcome]
    history: Mapping[str, Entry]
    dropped: tuple[str, ...]

    def action(self, recording: Recording) -> str:
        """In one word, for a dry run."""
        if recording.path in self.carry:
            return "keep"
        decided = self.decided.get(recording.path)
        if decided is None:
            return "convert"
        return "fail" if isinstance(decided, Failed) else "leave"


def make_plan(
    recordings: Sequence[Recording],
    published: Published | None,
    before: Mapping[str, Recording] | None,
    settings: Settings,
    is_there: Callable[[StoreEntry], bool],
) -> Plan:
    """Plan a run over the discovered recordings.

    `before` are the recordings at the published commit, None where that commit or its engine
    is not this one's to compare with: then everything is converted. `is_there` tells whether
    the destination holds the store that an entry describes.
    """
    entries = published.entries if published is not None else {}
    history = _unchanged(recordings, entries, before)
    convert: list[Recording] = []
    carry: dict[str, Entry] = {}
    decided: dict[str, Outcome] = {}
    dropped: list[str] = []
    for recording in recordings:
        entry = history.get(recording.path)
        selected = _is_selected(recording, entry, settings)
        settled = entry is not None and _is_settled(entry, settings, is_there)
        if entry is not None and settled and not (settings.clean and selected):
            carry[recording.path] = entry
        elif not selected:
            decided[recording.path] = Deferred(PendingReason.NOT_ATTEMPTED, attempted=False)
            if entry is None and isinstance(entries.get(recording.path), StoreEntry):
                dropped.append(recording.path)
        elif (verdict := _verdict(recording)) is not None:
            decided[recording.path] = verdict
        else:
            convert.append(recording)
    # The largest first, so that the last recording to start is not the longest.
    convert.sort(key=lambda recording: (-recording.size, recording.path))
    return Plan(tuple(convert), carry, decided, history, tuple(dropped))


def _unchanged(
    recordings: Sequence[Recording],
    entries: Mapping[str, Entry],
    before: Mapping[str, Recording] | None,
) -> dict[str, Entry]:
    """Published entries of recordings with the inputs they had."""
    kept: dict[str, Entry] = {}
    for recording in recordings:
        entry = entries.get(recording.path)
        was = before.get(recording.path) if before is not None else None
        if entry is None or was is None:
            continue
        if was is recording or fingerprint(was) == fingerprint(recording):
            kept[recording.path] = entry
    return kept


def _is_selected(recording: Recording, entry: Entry | None, settings: Settings) -> bool:
    """Whether this run may convert the recording at all."""
    if settings.retry_pending and not isinstance(entry, PendingEntry):
        return False
    globs = settings.only
    return not globs or any(fnmatch.fnmatchcase(recording.path, glob) for glob in globs)


def _is_settled(entry: Entry, settings: Settings, is_there: Callable[[StoreEntry], bool]) -> bool:
    """Whether a published entry may stay: a store that is there, or a verdict not to retry."""
    if isinstance(entry, StoreEntry):
        return is_there(entry)
    if isinstance(entry, FailureEntry):
        return not {entry.code, "all"} & set(settings.retry_failures)
    return False


def _verdict(recording: Recording) -> Failed | None:
    """A failure that the tree alone decides, before any byte is fetched."""
    if recording.refused is not None:
        return Failed(FailureCode.FILE_READ_ERROR, recording.refused)
    if recording.conflict is not None:
        return Failed(
            FailureCode.FILE_READ_ERROR,
            f"{recording.conflict} has the same store name and is served under it",
        )
    if source_format(recording) is None:
        return Failed(
            FailureCode.UNSUPPORTED_FORMAT,
            f"no reader knows the extension {recording.extension or '(none)'}",
        )
    return None


def source_format(recording: Recording) -> Format | None:
    """The source format by the recording's name; None when no reader knows it."""
    inside = f"{recording.path}/"
    is_directory = bool(recording.members) and recording.members[0].path.startswith(inside)
    return format_of(recording.path, is_directory)
