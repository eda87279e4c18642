"""What a recording's store depends on, as one digest, without reading any content."""

from __future__ import annotations

import hashlib
from dataclasses import fields

from .recording import Entry, Recording, Sidecars


def fingerprint(recording: Recording) -> bytes:
    """Equal for two commits exactly when the recording's store would be.

    Covers the members and every sidecar that applies, each with its path (which the store
    names) and its content by annex key or git blob, and the identity that discovery gave it.
    """
    digest = hashlib.sha256()

    def add(*parts: str) -> None:
        for part in parts:
            encoded = part.encode("utf-8", "surrogatepass")
            digest.update(len(encoded).to_bytes(4, "big") + encoded)

    add(recording.path, recording.zarr, recording.modality)
    add(recording.conflict or "", recording.refused or "", *recording.split_members)
    for member in recording.members:
        add("member", member.path, _content(member))
    for kind in fields(Sidecars):
        found = getattr(recording.sidecars, kind.name)
        for sidecar in found if isinstance(found, tuple) else (found,):
            if sidecar is not None:
                add(kind.name, sidecar.path, _content(sidecar))
    return digest.digest()


def _content(entry: Entry) -> str:
    return entry.key or entry.blob
