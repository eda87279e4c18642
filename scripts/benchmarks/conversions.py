"""The jobs that are compared: this project's conversion, biosigIO's, and the limit of both."""

from __future__ import annotations

import importlib
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .measuring import cpu_seconds
from .recordings import Recording

if TYPE_CHECKING:
    from converter.recording.local import LocalRecording

BLOCK_VALUES = 1 << 19  # samples of all channels in one read of the bare decoding

OURS = (
    "converter.recording.convert",
    "mne.io.fiff",
    "mne.io.ctf",
    "scipy.signal",
    "zarr",
)
PEER = ("biosigio.exporters.zarr_stream", "scipy.signal")


@dataclass(frozen=True, slots=True)
class Conversion:
    """By this project, with so many threads. A tiny recording of the format comes first."""

    recording: Recording
    tiny: Recording
    folder: Path
    threads: int = 1

    def prepare(self) -> None:
        """Import what is imported late, and build what is built once."""
        convert(self.tiny.local(), self.folder / "tiny.zarr", self.folder, self.threads)

    def run(self) -> Mapping[str, float]:
        """Write store.zarr in the folder."""
        convert(self.recording.local(), self.folder / "store.zarr", self.folder, self.threads)
        return {}


@dataclass(frozen=True, slots=True)
class PeerConversion:
    """By biosigIO's streaming exporter, its Zarr writer for large recordings."""

    recording: Recording
    tiny: Recording
    folder: Path

    def prepare(self) -> None:
        """Import what is imported late."""
        self._convert(self.tiny, self.folder / "tiny.zarr")

    def run(self) -> Mapping[str, float]:
        """Write store.zarr in the folder."""
        self._convert(self.recording, self.folder / "store.zarr")
        return {}

    def _convert(self, recording: Recording, store: Path) -> None:
        peer = importlib.import_module("biosigio.exporters.zarr_stream")
        peer.stream_to_zarr(
            str(recording.path),
            str(store),
            force_modality=recording.modality.upper(),
            scratch_dir=str(self.folder),
        )


class Limit:
    """What no conversion can do without: decoding the source, and compressing the store.

    The recording is read from end to end by this project's reader and thrown away; the chunks
    of a finished store, in memory, go through the codec that its metadata names.
    """

    def __init__(self, recording: Recording, store: Path) -> None:
        self._recording, self._store = recording, store
        self._chunks: list[Any] = []

    def prepare(self) -> None:
        """Decompress the chunks, level 0 and views, and warm the reader up."""
        from measure_compression import chunks

        self._encode = store_codec(self._store)
        self._chunks = [chunk for _, chunk in chunks(self._store)]
        self._encode(self._chunks[0])
        self._open().close()

    def run(self) -> Mapping[str, float]:
        """CPU and wall seconds of either half."""
        wall, cpu = time.perf_counter(), cpu_seconds()
        self._decode()
        decoded_wall, decoded_cpu = time.perf_counter(), cpu_seconds()
        for chunk in self._chunks:
            self._encode(chunk)
        return {
            "decode_wall": decoded_wall - wall,
            "decode_cpu": decoded_cpu - cpu,
            "compress_wall": time.perf_counter() - decoded_wall,
            "compress_cpu": cpu_seconds() - decoded_cpu,
        }

    def _open(self) -> Any:
        from converter.recording.readers import open_recording

        return open_recording(self._recording.local())

    def _decode(self) -> None:
        source = self._open()
        for index, group in enumerate(source.groups):
            length = max(1, BLOCK_VALUES // len(group.channels))
            length = -(-length // group.granule) * group.granule
            for start in range(0, group.n_samples, length):
                source.read(index, start, min(start + length, group.n_samples))
        source.close()


def convert(recording: LocalRecording, store: Path, scratch: Path, threads: int) -> None:
    """Convert one recording."""
    from converter.recording.attributes import StoreContext
    from converter.recording.convert import convert_recording

    context = StoreContext(
        dataset_id="nm099999",
        source_commit="0" * 40,
        engine_version="benchmark",
        contract_base="https://zarr.nemar.org/nm099999/zarr/",
        created_utc="2020-01-01T00:00:00Z",
    )
    zarr = "sub-01/benchmark.zarr"
    convert_recording(recording, zarr, store, scratch, context, threads=threads)


def store_codec(store: Path) -> Callable[[Any], Any]:
    """The compressor of a store's signals, from the metadata of its first level 0."""
    from numcodecs import blosc

    blosc.use_threads = False
    metadata = json.loads(next(store.glob("*_*hz*/0/zarr.json")).read_bytes())
    (sharding,) = metadata["codecs"]
    codec = sharding["configuration"]["codecs"][-1]
    facts = codec["configuration"]
    assert (codec["name"], facts["shuffle"]) == ("blosc", "shuffle")
    name = facts["cname"].encode()
    return lambda chunk: blosc.compress(chunk, name, facts["clevel"], blosc.SHUFFLE)
