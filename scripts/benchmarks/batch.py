"""A dataset of equal recordings, and the ways to convert it that are compared."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from .conversions import convert
from .large_dataset import names
from .measuring import CONVERTER, Bench, Command, Job, Measurement
from .recordings import Recording, Shape, make_recording, source_formats
from .source_files import labels
from .trees import Content, Link, annex_object, make_repository

DATASET_ID = "nm000002"
SHAPE = Shape(129, 500, 172)


@dataclass(slots=True)
class BareConversions:
    """The same recording again and again, in one process that is warm."""

    recording: Recording
    count: int
    folder: Path

    def prepare(self) -> None:
        """Convert it once."""
        self._convert()

    def run(self) -> Mapping[str, float]:
        """Convert it, `count` times."""
        for _ in range(self.count):
            self._convert()
        return {}

    def _convert(self) -> None:
        store = self.folder / "store.zarr"
        convert(self.recording.local(), store, self.folder, 1)
        store.rename(self.folder / f"{time.monotonic_ns()}.zarr")


@dataclass(frozen=True, slots=True)
class Side:
    """One way to convert the first `count` recordings: by the command, with these options.

    None for options is without the command.
    """

    name: str
    count: int
    options: tuple[str, ...] | None


class Batch:
    """The dataset: links to one annexed EDF, with the usual sidecars."""

    def __init__(self, folder: Path, count: int) -> None:
        self.count = count
        self._folder, self._repository = folder, folder / DATASET_ID
        self._recording = make_recording(
            source_formats()["EDF"], SHAPE, folder / "recording", folder
        )
        content = self._recording.path.read_bytes()
        place = annex_object(content)
        make_repository(self._repository, _tree(count, place))
        (self._repository / place).parent.mkdir(parents=True)
        (self._repository / place).write_bytes(content)

    def measure(self, side: Side, bench: Bench) -> Measurement:
        """One way, once, into a copy of its own. Raises JobFailed."""
        folder = self._folder / "run"
        folder.mkdir()
        try:
            return bench.measure(self._job(side, folder))
        finally:
            shutil.rmtree(folder)

    def _job(self, side: Side, folder: Path) -> Job:
        if side.options is None:
            return BareConversions(self._recording, side.count, folder)
        command = [*CONVERTER, str(self._repository), "--dest", str(folder)]
        command += ["--catalog", "none", "-q", *side.options]
        if side.count < self.count:
            for name in names(side.count):
                command += ["--only", f"{name.stem}*"]
        return Command(command)


def _tree(count: int, place: str) -> Iterator[tuple[str | bytes, Content]]:
    """Recordings with the usual sidecars."""
    channels = "".join(f"{label}\tEEG\tuV\n" for label in labels(SHAPE.channels))
    events = "".join(f"{second}\t0\tgo\t{second}\n" for second in range(SHAPE.seconds))
    yield "dataset_description.json", b'{"Name": "Batch", "BIDSVersion": "1.9.0"}'
    for name in names(count):
        yield f"{name.stem}_eeg.edf", Link(f"../../../{place}")
        yield f"{name.stem}_eeg.json", b'{"PowerLineFrequency": 50, "SamplingFrequency": 500}'
        yield f"{name.stem}_channels.tsv", f"name\ttype\tunits\n{channels}".encode()
        yield f"{name.stem}_events.tsv", f"onset\tduration\ttrial_type\tvalue\n{events}".encode()
