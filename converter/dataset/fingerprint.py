"""What a recording's store depends on, known without reading any content."""

from __future__ import annotations

from collections.abc import Iterable

from .recording import Entry, Recording


def fingerprint(recording: Recording) -> tuple[object, ...]:
    """Equal for two commits exactly when the recording's store would be.

    Covers the members and every sidecar that applies, each with its path (which the store
    names) and its content by annex key or git blob, and the identity that discovery gave it.
    """
    return (
        recording.path,
        recording.zarr,
        recording.modality,
        recording.conflict,
        recording.refused,
        recording.split_members,
        _contents(recording.members),
        tuple(map(_of_kind, recording.sidecars)),
    )


def _of_kind(found: Entry | tuple[Entry, ...] | None) -> tuple[tuple[str, str], ...]:
    if found is None:
        return ()
    return _contents((found,) if isinstance(found, Entry) else found)


def _contents(entries: Iterable[Entry]) -> tuple[tuple[str, str], ...]:
    return tuple([(entry.path, entry.key or entry.blob) for entry in entries])
