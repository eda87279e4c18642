"""manifest.json, which joins each store to the content it was made from, as typed records.

Source of the rules: the index contract, "The manifest file".
"""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import UNSET, Struct, UnsetType

NAME: Final = "manifest.json"
FORMAT: Final = "nemar-zarr-manifest"
FORMAT_VERSION: Final = 1


class ManifestStore(Struct, frozen=True, kw_only=True):
    """A store's source: `source_key` its annex key (null when it lies in git), bytes."""

    path: str
    zarr: str
    source_key: str | None
    size_bytes: int


class ManifestFile(Struct, frozen=True, kw_only=True):
    """A file of the whole dataset that lies beside the index."""

    name: str
    size_bytes: int
    row_count: int


class Manifest(Struct, frozen=True, kw_only=True):
    """The whole document; `files` is absent when the run published none."""

    format: str = FORMAT
    format_version: int = FORMAT_VERSION
    dataset_id: str
    source_commit: str
    updated_utc: str
    stores: tuple[ManifestStore, ...]
    files: tuple[ManifestFile, ...] | UnsetType = UNSET


def encode_manifest(manifest: Manifest) -> bytes:
    """Compact UTF-8 JSON."""
    return msgspec.json.encode(manifest)
