"""Small stores for the tests of destinations."""

from __future__ import annotations

import json
from pathlib import Path

ZARR = "sub-01/eeg/sub-01_task-a b+ü_eeg.zarr"
OLD, NEW = "2026-01-01T00:00:00Z", "2026-02-02T00:00:00Z"


def store(folder: Path, stamp: str | None, *chunks: str) -> tuple[Path, dict[str, bytes]]:
    """A store's folder, and its objects as they are named at the destination."""
    attributes = {} if stamp is None else {"created_utc": stamp}
    contents = {"zarr.json": json.dumps({"attributes": attributes})}
    contents |= dict.fromkeys(("eeg/zarr.json", "eeg/0/zarr.json"), f"metadata {stamp}")
    contents |= {f"eeg/0/c/{chunk}": f"chunk {chunk}" for chunk in chunks}
    for name, content in contents.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return folder, {f"{ZARR}/{name}": content.encode() for name, content in contents.items()}
