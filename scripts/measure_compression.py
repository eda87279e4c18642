"""Measure what each Blosc level costs and saves on real signals.

The chunks of stores, level 0 and views, are decompressed and compressed again with zstd at each
level, byte-shuffled as a store has them. The figures behind the level that stores are
written with.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from numcodecs import blosc
from numpy.typing import NDArray

from converter.contract.codes import RecordingError
from converter.recording.attributes import StoreContext
from converter.recording.convert import convert_recording
from converter.recording.local import LocalRecording
from converter.recording.readers import format_of
from converter.recording.zarr_v3 import COMPRESSION_LEVEL

EXAMPLES = """\
examples:
  python scripts/measure_compression.py
        converts the recordings of ../shared/real/dataset, where that folder is, and measures
  python scripts/measure_compression.py ~/data/nm000103
        those of another BIDS folder
  python scripts/measure_compression.py --serving serving/nm000103/zarr
        the stores of a serving copy, as they are
"""
REAL = Path(__file__).resolve().parents[2] / "shared" / "real" / "dataset"
MODALITIES = ("eeg", "meg", "ieeg", "emg")
LEVELS = range(1, 10)
MB = 1e6


@dataclass(slots=True)
class Total:
    """Over all chunks of one kind: bytes before and after, CPU seconds each way."""

    raw: int = 0
    packed: int = 0
    packing: float = 0.0
    unpacking: float = 0.0

    def add(self, chunk: NDArray[Any], level: int) -> None:
        """Compress one chunk at a level, and back."""
        frame, seconds = timed(lambda: blosc.compress(chunk, b"zstd", level))
        self.packing += seconds
        self.unpacking += timed(lambda: blosc.decompress(frame))[1]
        self.raw += chunk.nbytes
        self.packed += len(frame)


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    """What the work returns, and its CPU seconds: the best of three, free of interruptions."""
    seconds = []
    for _ in range(3):
        started = time.process_time()
        result = work()
        seconds.append(time.process_time() - started)
    return result, min(seconds)


def make_stores(dataset: Path, folder: Path) -> Iterator[Path]:
    """Convert each recording of a BIDS folder, without its sidecars; name those that fail."""
    context = StoreContext("nm099999", "0" * 40, "measurement", "", "2020-01-01T00:00:00Z")
    for path in sorted(dataset.glob("sub-*/**/*")):
        _, underscore, modality = path.name.split(".")[0].rpartition("_")
        if not underscore or modality not in MODALITIES:
            continue
        if format_of(path.name, path.is_dir()) is None:
            continue
        name = path.relative_to(dataset).as_posix()
        store = folder / name.replace("/", "+")
        try:
            convert_recording(LocalRecording(name, modality, path), name, store, folder, context)
        except RecordingError as error:
            print(f"left out, {error.code}: {error.message}", file=sys.stderr)
        else:
            yield store


def chunks(store: Path) -> Iterator[tuple[str, NDArray[Any]]]:
    """Each chunk of a store's signals as its frame holds it, with the kind of its array."""
    for _, group in zarr.open_group(store, mode="r").groups():
        for path, array in group.members(max_depth=None):
            if not isinstance(array, zarr.Array) or array.attrs.get("kind") is None:
                continue
            kind = "level 0" if path == "0" else "views"
            for corner in product(*map(range, (0,) * array.ndim, array.shape, array.chunks)):
                window = tuple(slice(a, a + n) for a, n in zip(corner, array.chunks, strict=True))
                data = np.asarray(array[window])
                padded = np.zeros(array.chunks, data.dtype)
                padded[tuple(map(slice, data.shape))] = data
                yield kind, padded


def print_table(kind: str, totals: dict[int, Total]) -> None:
    raw = next(iter(totals.values())).raw
    print(f"\n{kind}: {raw / MB:.1f} MB of int16")
    print(" level        MB    of raw   pack, s    MB/s  unpack, s    MB/s")
    for level, total in totals.items():
        mark = "  <- stores have this" if level == COMPRESSION_LEVEL else ""
        print(
            f"{level:>6}{total.packed / MB:>10.2f}{total.packed / raw:>10.1%}"
            f"{total.packing:>10.2f}{raw / MB / total.packing:>8.0f}"
            f"{total.unpacking:>11.2f}{raw / MB / total.unpacking:>8.0f}{mark}"
        )


def command_line() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "dataset",
        nargs="?",
        type=Path,
        default=REAL,
        help="BIDS folder whose recordings are converted (default: ../shared/real/dataset)",
    )
    parser.add_argument(
        "--serving", type=Path, metavar="FOLDER", help="measure the stores below it instead"
    )
    return parser.parse_args()


def main() -> None:
    arguments = command_line()
    source = arguments.serving or arguments.dataset
    if not source.is_dir():
        sys.exit(f"{source}: no such folder, one with recordings or stores expected")
    totals: dict[str, dict[int, Total]] = {}
    with tempfile.TemporaryDirectory(prefix="compression-") as folder:
        if arguments.serving:
            stores = iter(sorted(arguments.serving.rglob("*.zarr")))
        else:
            stores = make_stores(arguments.dataset, Path(folder))
        count = 0
        for store in stores:
            count += 1
            for kind, chunk in chunks(store):
                rows = totals.setdefault(kind, {level: Total() for level in LEVELS})
                for level, total in rows.items():
                    total.add(chunk, level)
    if not totals:
        sys.exit(f"{source}: no signal found in it")
    print(f"{count} stores, Blosc zstd with byte shuffle, CPU seconds on one thread")
    for kind, rows in sorted(totals.items()):
        print_table(kind, rows)


if __name__ == "__main__":
    main()
