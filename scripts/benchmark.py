"""Measure one conversion: CPU, wall time, peak memory and store size, beside biosigIO's.

A recording is made (EEG-like noise with alpha waves, int16) and converted by this project and by
biosigIO's streaming exporter, its Zarr writer for large recordings. Each conversion runs in a
fresh process, the two in turn; a warm-up on a tiny recording comes first, so that imports
count on neither side. BLAS is held to one thread on both. A recording several times as
long then shows whether memory grows with length.

Reported are medians over the repeats:
  CPU       user and system seconds of all threads and children
  wall      seconds on the clock
  peak      highest resident memory above what the process held before, MB; pages of
            memory-mapped files are in it, though the system can take them back
  private   the same without mapped files, sampled 50 times a second, so a lower bound
  store     MB on disk, and the number of files
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import importlib
import importlib.util
import json
import multiprocessing
import os
import platform
import resource
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from numpy.typing import NDArray
from scipy.signal import lfilter

EXAMPLES = """\
examples:
  python scripts/benchmark.py
        64 channels at 1 kHz for 20 minutes, three times each, then 80 minutes once;
        about five minutes and 1.5 GB of temporary disk
  python scripts/benchmark.py --minutes 2 --repeats 1 --longer 0
        a first impression in half a minute
  python scripts/benchmark.py --format brainvision --json benchmark.json
        another source format; keep the numbers

Figures vary with the machine: compare the two columns of one run, not two runs.
"""

ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
RESOLUTION_UV = 0.1  # microvolts a step of int16
BLOCK_SECONDS = 10
SAMPLING_SECONDS = 0.02
MB = 1e6


@dataclass(frozen=True, slots=True)
class Shape:
    """What recording is made: `rate` in whole Hz, `seconds` in whole blocks."""

    channels: int
    rate: int
    seconds: int


@dataclass(frozen=True, slots=True)
class Measurement:
    """One conversion in figures: seconds, bytes, and files of the store."""

    cpu: float
    wall: float
    peak: float
    private: float
    store: float
    files: float


def eeg_like(shape: Shape) -> Iterator[NDArray[np.int16]]:
    """Blocks (channels, n) of 1/f noise, 10 Hz waves that come and go, and amplifier noise.

    The 1/f spectrum is a sum of first-order low-passes, their corners a decade apart.
    """
    random = np.random.default_rng(20)
    corners = [0.1, 1.0, 10.0, 100.0]
    poles = [float(np.exp(-2 * np.pi * corner / shape.rate)) for corner in corners]
    states = [np.zeros((shape.channels, 1), np.float32) for _ in poles]
    phase = random.uniform(0, 2 * np.pi, (shape.channels, 1))
    length = BLOCK_SECONDS * shape.rate
    for start in range(0, shape.seconds * shape.rate, length):
        seconds = (start + np.arange(length)) / shape.rate
        waxing = 1 + np.sin(2 * np.pi * 0.1 * seconds + phase)
        signal = 10 * waxing * np.sin(2 * np.pi * 10.0 * seconds + phase)
        signal += random.standard_normal(signal.shape, np.float32)
        for index, pole in enumerate(poles):
            drive = random.standard_normal(signal.shape, np.float32)
            drive *= np.float32(10 * np.sqrt(1 - pole * pole))  # 10 uV a component
            coefficients = np.array([1.0], np.float32), np.array([1.0, -pole], np.float32)
            part, states[index] = lfilter(*coefficients, drive, zi=states[index])
            signal += part
        yield np.clip(np.rint(signal / RESOLUTION_UV), -32768, 32767).astype(np.int16)


def write_edf(path: Path, shape: Shape) -> None:
    """An EDF file with data records of one second."""

    def fields(width: int, *values: object) -> bytes:
        return "".join(f"{value!s:<{width}}" for value in values).encode("ascii")

    n = shape.channels
    low, high = -32768, 32767
    header = (
        fields(8, 0)
        + fields(80, "X X X X", "Startdate 01-JAN-2020 X X X")
        + fields(8, "01.01.20", "00.00.00", 256 * (n + 1))
        + fields(44, "")
        + fields(8, shape.seconds, 1)
        + fields(4, n)
        + fields(16, *(f"EEG{index + 1}" for index in range(n)))
        + fields(80, *[""] * n)
        + fields(8, *["uV"] * n, *[f"{low * RESOLUTION_UV:.1f}"] * n)
        + fields(8, *[f"{high * RESOLUTION_UV:.1f}"] * n, *[low] * n, *[high] * n)
        + fields(80, *[""] * n)
        + fields(8, *[shape.rate] * n)
        + fields(32, *[""] * n)
    )
    with path.open("wb") as file:
        file.write(header)
        for block in eeg_like(shape):
            records = block.reshape(n, -1, shape.rate).swapaxes(0, 1)
            file.write(records.astype("<i2").tobytes())


def write_brainvision(path: Path, shape: Shape) -> None:
    """A multiplexed INT_16 BrainVision recording; `path` is its header."""
    data, markers = path.with_suffix(".eeg"), path.with_suffix(".vmrk")
    common = f"[Common Infos]\nCodepage=UTF-8\nDataFile={data.name}\n"
    channels = "\n".join(
        f"Ch{index + 1}=EEG{index + 1},,{RESOLUTION_UV},µV" for index in range(shape.channels)
    )
    path.write_text(
        "Brain Vision Data Exchange Header File Version 1.0\n"
        f"{common}MarkerFile={markers.name}\n"
        "DataFormat=BINARY\nDataOrientation=MULTIPLEXED\n"
        f"NumberOfChannels={shape.channels}\nSamplingInterval={1e6 / shape.rate:g}\n"
        f"[Binary Infos]\nBinaryFormat=INT_16\n[Channel Infos]\n{channels}\n",
        encoding="utf-8",
    )
    markers.write_text(
        f"Brain Vision Data Exchange Marker File, Version 1.0\n{common}[Marker Infos]\n"
        "Mk1=New Segment,,1,1,0,20200101000000000000\n",
        encoding="utf-8",
    )
    with data.open("wb") as file:
        for block in eeg_like(shape):
            file.write(block.T.astype("<i2").tobytes())


FORMATS: dict[str, tuple[str, Callable[[Path, Shape], None]]] = {
    "edf": (".edf", write_edf),
    "brainvision": (".vhdr", write_brainvision),
}


def convert_with_ours(recording: Path, store: Path, scratch: Path) -> None:
    from converter.recording.attributes import StoreContext
    from converter.recording.convert import convert_recording
    from converter.recording.local import LocalRecording

    context = StoreContext(
        dataset_id="nm099999",
        source_commit="0" * 40,
        engine_version="benchmark",
        contract_base="https://zarr.nemar.org/nm099999/zarr/",
        created_utc="2020-01-01T00:00:00Z",
    )
    local = LocalRecording(f"sub-01/eeg/{recording.name}", "eeg", recording)
    convert_recording(local, "sub-01/eeg/sub-01_task-rest_eeg.zarr", store, scratch, context)


def convert_with_peer(recording: Path, store: Path, scratch: Path) -> None:
    peer = importlib.import_module("biosigio.exporters.zarr_stream")
    peer.stream_to_zarr(str(recording), str(store), force_modality="EEG", scratch_dir=str(scratch))


CONVERTERS = {"ours": convert_with_ours, "biosigIO": convert_with_peer}


def memory(field: str) -> int:
    """A field of this process's memory in bytes, such as VmRSS."""
    return memory_of("self", field)


def memory_of(process: str, field: str) -> int:
    status = Path("/proc", process, "status").read_text(encoding="ascii", errors="replace")
    lines = [line for line in status.splitlines() if line.startswith(f"{field}:")]
    return int(lines[0].split()[1]) * 1024 if lines else 0


def return_free_memory() -> None:
    """Give back what was freed, so that a conversion can't grow into it unseen (glibc only)."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def reset_peak() -> bool:
    """Let the kernel forget this process's highest memory so far; False where it won't."""
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    except OSError:
        return False
    return True


def cpu_seconds() -> float:
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def run_measured(
    side: str, warm_up: Path, recording: Path, folder: Path, results: Connection
) -> None:
    """In a process of its own: send `started`, then the figures that only it can know."""
    convert = CONVERTERS[side]
    convert(warm_up, folder / "warm-up.zarr", folder)
    return_free_memory()
    before = memory("VmRSS")
    was_reset = reset_peak()
    results.send(memory("RssAnon"))
    wall, cpu = time.perf_counter(), cpu_seconds()
    convert(recording, folder / "store.zarr", folder)
    wall, cpu = time.perf_counter() - wall, cpu_seconds() - cpu
    highest = memory("VmHWM") if was_reset else 0
    highest = highest or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    results.send((cpu, wall, max(0, highest - before)))


def measure(side: str, warm_up: Path, recording: Path, parent: Path) -> Measurement:
    """Convert once in a fresh process. Exits with its error where that fails."""
    folder = Path(tempfile.mkdtemp(dir=parent))
    spawn = multiprocessing.get_context("spawn")
    here, there = spawn.Pipe(duplex=False)
    child = spawn.Process(target=run_measured, args=(side, warm_up, recording, folder, there))
    child.start()
    there.close()
    try:
        private_before = here.recv()
        private = private_before
        while not here.poll(SAMPLING_SECONDS):
            private = max(private, memory_of(str(child.pid), "RssAnon"))
        cpu, wall, peak = here.recv()
    except EOFError:
        sys.exit(f"The conversion by {side} failed; its own error is above.")
    finally:
        child.join()
    kept = parent / f"{side}.zarr"
    shutil.rmtree(kept, ignore_errors=True)
    (folder / "store.zarr").rename(kept)
    shutil.rmtree(folder)
    files = [path for path in kept.rglob("*") if path.is_file()]
    size = sum(path.stat().st_size for path in files)
    return Measurement(cpu, wall, peak, private - private_before, size, len(files))


def middle_in_microvolts(store: Path) -> NDArray[np.float64]:
    """Level 0 of the middle ten seconds: at the ends, converters pad their filters differently."""
    (path,) = store.glob("eeg_*")
    channels: Any = zarr.open_group(path, mode="r").attrs["channels"]
    signal = zarr.open_array(path / "0", mode="r")
    facts: dict[str, Any] = dict(signal.attrs)
    half, middle = round(5 * facts["rate"]), signal.shape[1] // 2
    digital = np.asarray(signal[:, max(0, middle - half) : middle + half], np.float64)
    scale, offset = (np.array(facts[name])[:, None] for name in ("scale", "offset"))
    to_microvolts = [[1e6 if channel["unit"] == "V" else 1.0] for channel in channels]
    physical: NDArray[np.float64] = (digital * scale + offset) * np.array(to_microvolts)
    return physical


def median(measurements: list[Measurement]) -> Measurement:
    rows = [tuple(asdict(measurement).values()) for measurement in measurements]
    return Measurement(*(statistics.median(column) for column in zip(*rows, strict=True)))


def print_table(title: str, results: dict[str, Measurement]) -> None:
    """One row a figure, one column a side, and how many times ours the peer needs."""
    print(f"\n{title}")
    sides = list(results)
    both = len(sides) == 2
    print(f"{'':<12}" + "".join(f"{side:>12}" for side in sides) + ("       ratio" if both else ""))
    for label, field, unit in (
        ("CPU, s", "cpu", 1.0),
        ("wall, s", "wall", 1.0),
        ("peak, MB", "peak", MB),
        ("private, MB", "private", MB),
        ("store, MB", "store", MB),
        ("files", "files", 1.0),
    ):
        values = [getattr(results[side], field) for side in sides]
        digits = 0 if field == "files" else 2
        row = "".join(f"{value / unit:12.{digits}f}" for value in values)
        ratio = f"{values[1] / values[0]:11.2f}x" if both and values[0] else ""
        print(f"{label:<12}{row}{ratio}")


def run(arguments: argparse.Namespace, sides: list[str], folder: Path) -> dict[str, object]:
    extension, write = FORMATS[arguments.format]
    # Whole blocks, so that the recording is as long as it is said to be.
    blocks = max(1, round(arguments.minutes * 60 / BLOCK_SECONDS))
    shape = Shape(arguments.channels, arguments.rate, blocks * BLOCK_SECONDS)

    def make(name: str, made: Shape) -> Path:
        path = folder / name / f"sub-01_task-rest_eeg{extension}"
        path.parent.mkdir()
        write(path, made)
        return path

    print(describe(arguments.format, shape), flush=True)
    warm_up = make("tiny", Shape(2, arguments.rate, BLOCK_SECONDS))
    recording = make("recording", shape)
    runs: dict[str, list[Measurement]] = {side: [] for side in sides}
    for _ in range(arguments.repeats):
        for side in sides:
            runs[side].append(measure(side, warm_up, recording, folder))
    medians = {side: median(measured) for side, measured in runs.items()}
    print_table(f"Median of {arguments.repeats}", medians)
    if len(sides) == 2:
        first, second = (middle_in_microvolts(folder / f"{side}.zarr") for side in sides)
        print(f"Largest difference of the two signals: {np.abs(first - second).max():.4f} uV")
    report: dict[str, object] = {
        "machine": machine(),
        "format": arguments.format,
        "recording": asdict(shape),
        "repeats": arguments.repeats,
        "median": {side: asdict(measured) for side, measured in medians.items()},
    }
    if arguments.longer:
        shutil.rmtree(recording.parent)
        longer = Shape(shape.channels, shape.rate, shape.seconds * arguments.longer)
        measured = measure("ours", warm_up, make("longer", longer), folder)
        print_table(f"{arguments.longer} times as long, once", {"ours": measured})
        report["longer"] = {"recording": asdict(longer), "ours": asdict(measured)}
    return report


def describe(name: str, shape: Shape) -> str:
    size = 2 * shape.channels * shape.rate * shape.seconds
    return (
        f"{name}: {shape.channels} channels at {shape.rate} Hz for {shape.seconds / 60:g} min, "
        f"{size / MB:.0f} MB; one BLAS thread; {machine()}"
    )


def machine() -> str:
    return f"{platform.machine()}, {os.cpu_count()} CPUs, Python {platform.python_version()}"


def command_line() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--format", choices=sorted(FORMATS), default="edf", help="source format")
    parser.add_argument("--channels", type=positive, metavar="N", default=64, help="default: 64")
    parser.add_argument(
        "--rate", type=positive, metavar="N", default=1000, help="whole Hz (default: 1000)"
    )
    parser.add_argument("--minutes", type=float, metavar="N", default=20.0, help="default: 20")
    parser.add_argument(
        "--repeats", type=positive, metavar="N", default=3, help="runs a side (default: 3)"
    )
    parser.add_argument(
        "--longer",
        type=int,
        metavar="N",
        default=4,
        help="also convert, once, a recording N times as long; 0 leaves it out (default: 4)",
    )
    parser.add_argument("--skip-peer", action="store_true", help="measure this project only")
    parser.add_argument(
        "--folder", type=Path, help="where temporary files go (default: the system's place)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures there")
    return parser.parse_args()


def positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} found, a whole number from 1 up expected")
    return int(text)


def main() -> None:
    arguments = command_line()
    sides = ["ours"] if arguments.skip_peer else ["ours", "biosigIO"]
    if "biosigIO" in sides and importlib.util.find_spec("biosigio") is None:
        sys.exit("biosigIO is not installed: scripts/environment.sh test, or --skip-peer")
    os.environ.update(ONE_THREAD)
    with tempfile.TemporaryDirectory(prefix="benchmark-", dir=arguments.folder) as folder:
        report = run(arguments, sides, Path(folder))
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
