"""Read a window of a serving copy as any reader would: the index, then zarr-python."""

from __future__ import annotations

import argparse
import inspect
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from numpy.typing import NDArray

EXAMPLES = """\
examples:
  python scripts/look.py serving/nm099999/zarr
        the first second of the first store
  python scripts/look.py serving/nm099999/zarr --store sub-02/eeg/sub-02_task-rest_eeg.zarr --at 60
        one second of another store, a minute in; the index names the stores
"""
SHOWN_CHANNELS, SHOWN_SAMPLES = 8, 5


def read_window(group: Path, start: float, stop: float) -> NDArray[np.float64]:
    """Samples (n_channels, n) from second `start` to `stop`, each channel in its own unit."""
    signal = zarr.open_array(group / "0", mode="r")
    facts: dict[str, Any] = dict(signal.attrs)
    first, last = (round(seconds * facts["rate"]) for seconds in (start, stop))
    digital = np.asarray(signal[:, first:last], np.float64)
    scale, offset = (np.array(facts[name], np.float64)[:, None] for name in ("scale", "offset"))
    return digital * scale + offset


def main() -> None:
    arguments = command_line()
    index_file = arguments.folder / "index.json"
    try:
        index = json.loads(index_file.read_bytes())
    except OSError as error:
        sys.exit(
            f"{index_file}: {error.strerror}; run nemar-convert (or scripts/quickstart.sh) first"
        )
    stores = {entry["zarr"]: entry for entry in index["stores"]}
    print(
        f"{index_file}\n"
        f"  {index['dataset_id']} at {index['source_commit'][:12]}: {index['discovered_count']} "
        f"recordings, {len(stores)} stores, {len(index.get('failures', []))} failures, "
        f"{len(index.get('pending', []))} pending"
    )
    if not stores:
        sys.exit("There is no store to read a window of.")
    name = arguments.store or next(iter(stores))
    if name not in stores:
        sys.exit(f"{name} is no store of this index; it has {', '.join(sorted(stores)[:5])}, ...")
    for group in stores[name]["groups"]:
        print_group(arguments.folder / name / group["name"], name, group, arguments.at)
    print("\nRead with these lines:\n")
    print(inspect.getsource(read_window))


def print_group(path: Path, store: str, group: dict[str, Any], start: float) -> None:
    channels: Any = zarr.open_group(path, mode="r").attrs["channels"]
    print(
        f"\n{store}/{group['name']}\n"
        f"  {group['n_channels']} channels, {group['n_samples']} samples, {group['rate']:g} Hz "
        f"(recorded at {group['source_rate_hz']:g} Hz), {group['duration_s']:.1f} s\n"
        f"  from second {start:g}:"
    )
    values = read_window(path, start, start + 1)
    for channel, row in list(zip(channels, values, strict=True))[:SHOWN_CHANNELS]:
        numbers = " ".join(f"{value:10.5g}" for value in row[:SHOWN_SAMPLES])
        print(
            f"  {channel['label']:>12} {channel['channel_type']:<8} {numbers} ... {channel['unit']}"
        )
    if len(channels) > SHOWN_CHANNELS:
        print(f"  {'':>12} and {len(channels) - SHOWN_CHANNELS} channels more")


def command_line() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "folder",
        nargs="?",
        type=Path,
        default=Path("serving/nm099999/zarr"),
        help="folder with an index.json (default: %(default)s)",
    )
    parser.add_argument("--store", help="which store (default: the first one)")
    parser.add_argument(
        "--at", metavar="SECONDS", type=float, default=0.0, help="where it starts (default: 0)"
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
