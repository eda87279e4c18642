from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from converter.contract.codes import FailureCode, RecordingError
from converter.recording.local import LocalRecording
from converter.recording.readers.eeglab import EeglabSource, open_eeglab
from converter.recording.readers.hdf5_heaps import CheckedHdf5

SAMPLES = np.arange(100.0).reshape(50, 2)
HEAP, FIRST = b"GCOL\1", 16  # a heap begins with HEAP, its first entry is at FIRST


def write(path: Path, texts: int = 1) -> None:
    """A v7.3 .set file by h5py, whose texts of any length lie in heaps."""
    with h5py.File(path, "w") as file:
        eeg = file.create_group("EEG")
        for name, value in {"nbchan": 2.0, "pnts": 50.0, "trials": 1.0, "srate": 100.0}.items():
            eeg[name] = np.array([[value]])
        eeg["data"] = SAMPLES
        eeg["data"].attrs["MATLAB_class"] = "double"
        eeg["notes"] = [f"note {number} " * number for number in range(texts)]


def opened(path: Path) -> EeglabSource:
    return open_eeglab(LocalRecording(f"sub-01/eeg/{path.name}", "eeg", path))


def heaps(content: bytes | bytearray) -> list[int]:
    """Where a file's heaps begin."""
    return [match.start() for match in re.finditer(re.escape(HEAP), content)]


def with_first_entries(path: Path, entry: bytes) -> None:
    """The file with another beginning of each heap's first entry."""
    content = bytearray(path.read_bytes())
    for heap in heaps(content):
        content[heap + FIRST : heap + FIRST + len(entry)] = entry
    path.write_bytes(content)


def entry(number: int, size: int) -> bytes:
    return number.to_bytes(2, "little") + bytes(6) + size.to_bytes(8, "little")


def refuses(read: Callable[[], Any], words: str = "heap") -> None:
    with pytest.raises(RecordingError, match=words) as caught:
        read()
    assert caught.value.code is FailureCode.CORRUPT_OR_TRUNCATED
    assert "/" not in caught.value.message


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "sub-01_eeg.set"


def test_heaps_as_the_library_writes_them(path: Path) -> None:
    write(path, 300)
    source = opened(path)
    np.testing.assert_array_equal(source.read(0, 0, 50), SAMPLES.T)
    source.close()
    file = CheckedHdf5(path)
    notes = [text.decode() for text in file.root["EEG/notes"][()]]
    assert notes == [f"note {number} " * number for number in range(300)]
    file.close()


# 2**64 - 48 is -48 to a library that counts in 64 bits; an entry of its size takes 32 less.
@pytest.mark.parametrize(
    "first", [entry(0, 0), entry(0, 2**64 - 48), entry(1, 2**64 - 48), entry(1, 10**6)]
)
def test_an_entry_that_leads_back_or_out(path: Path, first: bytes) -> None:
    write(path)
    with_first_entries(path, first)
    refuses(lambda: opened(path))


@pytest.mark.parametrize("size", [0, 15, 1 << 32, 2**64 - 1])
def test_a_heap_of_another_size(path: Path, size: int) -> None:
    write(path)
    content = bytearray(path.read_bytes())
    for heap in heaps(content):
        content[heap + 8 : heap + 16] = size.to_bytes(8, "little")
    path.write_bytes(content)
    refuses(lambda: opened(path), "could not be read")


def fill_value(file: h5py.File) -> None:
    file.create_dataset("node", (10,), h5py.string_dtype(), chunks=(5,), fillvalue=b"filled")


def region(file: h5py.File) -> None:
    file["samples"] = SAMPLES
    file.attrs["node"] = file["samples"].regionref[3:5]


def compound(file: h5py.File) -> None:
    file.create_dataset("node", (3,), np.dtype([("n", "i4"), ("t", h5py.string_dtype())]))
    file["node"][0] = (3, "text")


def vector(file: h5py.File) -> None:
    file.create_dataset("node", (3,), h5py.vlen_dtype(np.int32))
    file["node"][1] = [1, 2, 3]


@pytest.mark.parametrize("what", [fill_value, region, compound, vector])
def test_all_that_lies_in_heaps(path: Path, what: Callable[[h5py.File], None]) -> None:
    with h5py.File(path, "w") as file:
        what(file)

    def read() -> None:
        file = CheckedHdf5(path)
        try:
            root = file.root
            _ = root["node"][()] if "node" in root else root[root.attrs["node"]]
        finally:
            file.close()

    read()
    with_first_entries(path, entry(0, 0))
    refuses(read)


def test_samples_that_look_like_a_heap(path: Path) -> None:
    write(path)
    with h5py.File(path, "r+") as file:
        data = file["EEG/data"]
        chance = np.frombuffer(HEAP + bytes(3) + (2**60).to_bytes(8, "little"), "f8")
        data[20, :] = chance
    source = opened(path)
    np.testing.assert_array_equal(source.read(0, 20, 21)[:, 0], chance)
    source.close()


def read_so_far() -> int:
    """Bytes that this process has read, by the kernel's count."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(lines[0].removeprefix("rchar: "))


def test_nothing_is_read_but_what_is_wanted(path: Path) -> None:
    """Of 4 GB of samples with what looks like heaps in it; of texts that nobody asks for."""
    write(path)
    with h5py.File(path, "r+") as file:
        del file["EEG/data"], file["EEG/pnts"]
        file["EEG/pnts"] = np.array([[2.0**28]])
        data = file["EEG"].create_dataset("data", (1 << 28, 2), "f8")
        data[0, 0] = 1.0
        data.attrs["MATLAB_class"] = "double"
        place = data.id.get_offset()
        file["EEG/long"] = "x" * 5_000_000
    with path.open("r+b") as raw:
        for number in range(1, 100):
            raw.seek(place + number * (1 << 20))
            raw.write(HEAP + bytes(3) + (1 << 32).to_bytes(8, "little") + bytes(16))
    assert path.stat().st_size > 1 << 32
    before = read_so_far()
    source = opened(path)
    assert source.groups[0].n_samples == 1 << 28
    assert read_so_far() - before < 1 << 20
    source.close()


@pytest.mark.parametrize(
    ("bound", "most"), [("_MOST_BYTES", 4096), ("_MOST_ENTRIES", 100)], ids=["bytes", "entries"]
)
def test_heaps_beyond_all_bounds(
    path: Path, monkeypatch: pytest.MonkeyPatch, bound: str, most: int
) -> None:
    write(path, 300)
    monkeypatch.setattr(f"converter.recording.readers.hdf5_heaps.{bound}", most)
    file = CheckedHdf5(path)
    refuses(lambda: file.root["EEG/notes"][()], f"more than {most}")
    file.close()


def test_heads_of_entries_across_two_pieces(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("converter.recording.readers.hdf5_heaps._PIECE", 100)
    write(path, 300)
    file = CheckedHdf5(path)
    assert len(file.root["EEG/notes"][()]) == 300
    file.close()
    content = bytearray(path.read_bytes())
    last = content.index(b"note 299 ") - 16
    content[last : last + 16] = entry(0, 0)
    path.write_bytes(content)
    file = CheckedHdf5(path)
    refuses(lambda: file.root["EEG/notes"][()], f"at byte {last};")
    file.close()


def test_the_file_is_let_go(path: Path) -> None:
    write(path)
    opened(path).close()
    path.write_bytes(path.read_bytes()[:300])
    with pytest.raises(RecordingError):
        opened(path)
    names = []
    for link in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            names.append(link.readlink())
    assert path not in names
