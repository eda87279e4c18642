"""What two stores of one recording are like, side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import zarr
from numpy.typing import NDArray

# Factors to microvolts and femtotesla: converters publish in different units.
UNITS = {"V": 1e6, "mV": 1e3, "uV": 1.0, "\u00b5V": 1.0, "\u03bcV": 1.0, "T": 1e15, "fT": 1.0}


def store_files(store: Path) -> tuple[int, int]:
    """Bytes and number of a store's files."""
    sizes = [path.stat().st_size for path in store.rglob("*") if path.is_file()]
    return sum(sizes), len(sizes)


def difference(ours: Path, peers: Path) -> float | None:
    """Of the two level 0 in the middle: at the ends, filters are padded differently.

    The largest difference within ten seconds, in steps of ours; None where groups differ.
    """
    name = max(ours.glob("*_*hz*"), key=lambda path: path.name).name
    if not (peers / name).is_dir():
        return None
    one, other = (_middle(store / name) for store in (ours, peers))
    shared = [label for label in one if label in other]
    if not shared:
        return None
    apart = [np.abs(one[label][0] - other[label][0]).max() / one[label][1] for label in shared]
    return float(max(apart))


def _middle(group: Path) -> dict[str, tuple[NDArray[np.float64], float]]:
    """By label, the samples and the step of channels that vary, in a common unit."""
    channels: Any = zarr.open_group(group, mode="r").attrs["channels"]
    signal = zarr.open_array(group / "0", mode="r")
    facts: dict[str, Any] = dict(signal.attrs)
    length = signal.shape[1]
    half = min(round(5 * facts["rate"]), length // 4)
    digital = np.asarray(signal[:, length // 2 - half : length // 2 + half], np.float64)
    found = {}
    for row, channel in enumerate(channels):
        factor = UNITS.get(channel["unit"])
        if factor is not None and np.ptp(digital[row]):
            step = facts["scale"][row] * factor
            found[channel["label"]] = digital[row] * step + facts["offset"][row] * factor, step
    return found
