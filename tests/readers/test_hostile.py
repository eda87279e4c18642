"""Files made to lead a reader astray or to eat the machine: a typed failure, soon and cheaply.

Each is converted in a process of its own, as in a worker, within the memory that the smallest
recording is given and a bounded time of one core.
"""

from __future__ import annotations

import gzip
import pickle
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest

from tests.fixture_outcomes import FIXTURE_DATASET
from tests.fuzz.conversions import Mutant, converted
from tests.fuzz.seeds import Corpus, Seed
from tests.readers.test_eeglab import SAMPLES, fields, write_h5, write_v5

CORRUPT, REFUSED = "corrupt_or_truncated", "file_read_error"
EDF = FIXTURE_DATASET / "sub-16/eeg/sub-16_task-rest_eeg.edf"
FIF = FIXTURE_DATASET / "sub-07/meg/sub-07_task-rest_meg.fif"
MEGABYTE = bytes(1 << 20)


@pytest.fixture
def outcome_of(tmp_path: Path) -> Callable[..., str]:
    """What becomes of a recording whose files are given by name."""

    def convert(recording: str, **contents: bytes) -> str:
        folder, scratch = tmp_path / "files", tmp_path / "scratch"
        for path in (folder, scratch):
            path.mkdir(exist_ok=True)
        for name, content in contents.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)
        modality = recording.split(".")[0].rpartition("_")[2]
        seed = Seed(recording, contents, modality)
        return converted([Mutant(recording, seed, folder)], scratch)[recording]

    return convert


def of_file(outcome_of: Callable[..., str], name: str, content: bytes) -> str:
    return outcome_of(name, **{name: content})


# Bombs.


def zeros(count: int) -> bytes:
    """A zlib stream of `count` MB of zeros, without its checksum: a block again and again."""
    packer = zlib.compressobj(9)
    head = packer.compress(b"") + packer.flush(zlib.Z_SYNC_FLUSH)
    block = packer.compress(MEGABYTE) + packer.flush(zlib.Z_FULL_FLUSH)
    block = packer.compress(MEGABYTE) + packer.flush(zlib.Z_FULL_FLUSH)
    return head + block * count


def element(kind: int, content: bytes, size: int | None = None) -> bytes:
    return struct.pack("<II", kind, len(content) if size is None else size) + content


def bomb_v5(tmp_path: Path, field: str) -> bytes:
    """A deflated data set whose last field has 3 GB of zeros."""
    path = tmp_path / "plain.set"
    write_v5(path, {**fields(None), field: np.zeros((1, 8))})
    plain = path.read_bytes()[128:]
    at = plain.rindex(struct.pack("<II", 14, 0)[:4])  # the matrix of the last field
    size = 3 << 30
    flags = element(6, struct.pack("<II", 7, 0))
    shape = element(5, struct.pack("<ii", 3, size // 12))
    matrix = flags + shape + element(1, b"")
    head = plain[:at] + element(14, matrix, len(matrix) + 8 + size) + struct.pack("<II", 7, size)
    head = head[:4] + struct.pack("<I", len(head) - 8 + size) + head[8:]
    packer = zlib.compressobj(9)
    packed = packer.compress(head) + packer.flush(zlib.Z_FULL_FLUSH) + zeros(3 << 10)[7:]
    return path.read_bytes()[:128] + element(15, packed)


@pytest.mark.parametrize("field", ["data", "zjunk"])
def test_deflated_matrices(outcome_of: Callable[..., str], tmp_path: Path, field: str) -> None:
    content = bomb_v5(tmp_path, field)
    assert len(content) < 5 << 20
    assert of_file(outcome_of, "bomb_eeg.set", content) == REFUSED


@pytest.mark.parametrize(
    ("shape", "chunk"),
    [((3 * 10**8, 3), (10**6, 3)), ((1000, 3), (10**7, 3)), ((1000, 3), (1, 10**6))],
    ids=["many", "large", "wide"],
)
def test_deflated_chunks(
    outcome_of: Callable[..., str],
    tmp_path: Path,
    shape: tuple[int, int],
    chunk: tuple[int, int],
) -> None:
    """Many chunks of zeros, one that is far larger than its matrix, and one for every row."""
    path = tmp_path / "bomb.set"
    write_h5(path, fields())
    packed = zlib.compress(bytes(4 * chunk[0] * chunk[1]), 1)
    with h5py.File(path, "r+") as file:
        del file["EEG/data"]
        data = file["EEG"].create_dataset(
            "data", shape, "f4", chunks=chunk, maxshape=(None, None), compression=1
        )
        for row in range(0, shape[0], chunk[0]):
            data.id.write_direct_chunk((row, 0), packed)
    assert of_file(outcome_of, "bomb_eeg.set", path.read_bytes()) == REFUSED


@pytest.mark.parametrize("is_nested", [False, True])
def test_gzip(outcome_of: Callable[..., str], is_nested: bool) -> None:
    tail = gzip.compress(MEGABYTE) * 2000
    content = gzip.compress(FIF.read_bytes()) + tail
    if is_nested:
        content = gzip.compress(content)
    expected = CORRUPT if is_nested else REFUSED  # it is unpacked once
    assert of_file(outcome_of, "bomb_meg.fif.gz", content) in (expected, REFUSED)


@pytest.mark.parametrize(
    "text",
    [
        b'<!DOCTYPE a [<!ENTITY a "aaaaaaaa"><!ENTITY b "&a;&a;&a;&a;">]><a>&b;</a>',
        b'<!DOCTYPE a [<!ENTITY a SYSTEM "file:///etc/passwd">]><a>&a;</a>',
        b"<a>" + b"<b/>" * (2 << 20) + b"</a>",
        b"<a>" * (1 << 18) + b"</a>" * (1 << 18),
    ],
    ids=["entities", "external", "long", "deep"],
)
@pytest.mark.parametrize("place", ["info.xml", "epochs.xml", "sensorLayout.xml", "any.xml"])
def test_xml(
    outcome_of: Callable[..., str], real_dataset: Path, tmp_path: Path, text: bytes, place: str
) -> None:
    [seed] = Corpus(real_dataset, tmp_path).recorded("sub-14/eeg/sub-14_task-rest_eeg.mff")
    contents = {**seed.files, f"{seed.recording}/{place}": b'<?xml version="1.0"?>' + text}
    outcome = outcome_of(seed.recording, **contents)
    # A file that is not looked at does no harm, unless it is larger than any.
    harmless = place == "any.xml" and text.startswith(b"<a><a>")
    assert outcome in ({"store"} if harmless else {REFUSED, CORRUPT})


# Claims.


def edf(**changes: tuple[int, str]) -> bytes:
    """A small EDF file with fields of its header replaced: offset and text."""
    content = EDF.read_bytes()
    for offset, text in changes.values():
        content = content[:offset] + text.encode() + content[offset + len(text) :]
    return content


def brainvision(**changes: str) -> bytes:
    common = {
        "DataFile": "a.eeg",
        "DataFormat": "BINARY",
        "DataOrientation": "MULTIPLEXED",
        "NumberOfChannels": "2",
        "SamplingInterval": "4000",
        **changes,
    }
    lines = ["Brain Vision Data Exchange Header File Version 1.0", "[Common Infos]"]
    lines += [f"{key}={value}" for key, value in common.items()]
    lines += ["[Binary Infos]", "BinaryFormat=INT_16", "[Channel Infos]"]
    count = int(common["NumberOfChannels"]) if common["NumberOfChannels"].isdecimal() else 2
    lines += [f"Ch{number + 1}=a,,1" for number in range(min(count, 10**5))]
    return "\n".join(lines).encode()


@pytest.mark.parametrize(
    ("offset", "text"),
    [
        (236, "99999999"),  # data records
        (236, "-5      "),
        (244, "nan     "),  # seconds of each
        (244, "-1      "),
        (244, "1e-30   "),
        (252, "9999"),  # signals
        (252, "-1  "),
    ],
)
def test_edf(outcome_of: Callable[..., str], offset: int, text: str) -> None:
    assert of_file(outcome_of, "a_eeg.edf", edf(field=(offset, text))) == CORRUPT


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"DataPoints": "1000000000000"}, CORRUPT),
        ({"NumberOfChannels": "100000"}, CORRUPT),
        ({"NumberOfChannels": "-1"}, CORRUPT),
        ({"SamplingInterval": "nan"}, CORRUPT),
        ({"SamplingInterval": "-4000"}, CORRUPT),
        ({"SamplingInterval": "1e-300"}, CORRUPT),
        ({"DataFile": "/etc/passwd"}, REFUSED),
        ({"DataFile": "../../secret.eeg"}, REFUSED),
        ({"MarkerFile": "/etc/passwd"}, REFUSED),
        ({}, "store"),
    ],
)
def test_brainvision(
    outcome_of: Callable[..., str], changes: dict[str, str], expected: str
) -> None:
    contents = {"x_eeg.vhdr": brainvision(**changes), "a.eeg": bytes(4 << 20)}
    assert outcome_of("x_eeg.vhdr", **contents) == expected


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"nbchan": 10**6, "pnts": 1, "data": np.zeros((10**6, 1), "f4")}, CORRUPT),
        ({"nbchan": -3}, CORRUPT),
        ({"srate": float("nan")}, CORRUPT),
        ({"srate": float("inf")}, CORRUPT),
        ({"srate": -128.0}, CORRUPT),
        ({"pnts": 10**12, "data": "a.fdt"}, CORRUPT),
    ],
)
@pytest.mark.parametrize("write", [write_v5, write_h5], ids=["v5", "v7.3"])
def test_eeglab(
    outcome_of: Callable[..., str],
    tmp_path: Path,
    write: Callable[..., None],
    changes: dict[str, object],
    expected: str,
) -> None:
    write(tmp_path / "a.set", fields(**changes))
    contents = {"x_eeg.set": (tmp_path / "a.set").read_bytes(), "a.fdt": bytes(2400)}
    assert outcome_of("x_eeg.set", **contents) == expected


def test_fif_channels(outcome_of: Callable[..., str]) -> None:
    """A channel's description 40,000 times, in a file whose tags follow one another."""
    content = bytearray(FIF.read_bytes())
    header = struct.pack(">iII", 203, 30, 96)
    at = content.index(header)
    content[36 + 16 : 36 + 20] = struct.pack(">i", -1)
    tag = bytes(content[at : at + 112])
    content[at:at] = tag * 40_000
    assert of_file(outcome_of, "a_meg.fif", bytes(content)) == CORRUPT


@pytest.mark.parametrize("size", [None, 70_000])
def test_bti_configuration(
    outcome_of: Callable[..., str], real_dataset: Path, tmp_path: Path, size: int | None
) -> None:
    """Of 32,767 blocks, or cut short: what leads beyond its end is no block."""
    [seed] = Corpus(real_dataset, tmp_path).recorded("sub-26/meg/sub-26_task-rest_meg")
    config = f"{seed.recording}/config"
    content = bytearray(seed.files[config])
    if size is None:
        content[70:72] = b"\x7f\xff"
    else:
        del content[size:]
    outcome = outcome_of(seed.recording, **{**seed.files, config: bytes(content)})
    assert outcome == (REFUSED if size is None else CORRUPT)


# Payloads.


class Payload:
    """Unpickled, it leaves a mark."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self.mark,)


@pytest.mark.parametrize("protocol", [0, 4])
@pytest.mark.parametrize(
    "name",
    ["edf", "bdf", "vhdr", "set", "fif", "fif.gz", "con", "sqd"],
)
def test_pickles_are_never_loaded(
    outcome_of: Callable[..., str], tmp_path: Path, name: str, protocol: int
) -> None:
    mark = tmp_path / "scratch" / "scratch" / "mark"
    content = pickle.dumps(Payload(mark), protocol)
    with_array = b"\x93NUMPY\x01\0" + content
    for payload in (content, with_array, content + bytes(5000)):
        packed = gzip.compress(payload) if name.endswith(".gz") else payload
        assert of_file(outcome_of, f"x_eeg.{name}", packed) in {CORRUPT, REFUSED}
    assert not mark.exists()


@pytest.mark.parametrize("kind", [0, 3, 5, 16, 17, 18, 255])
@pytest.mark.parametrize("name", ["data", "EEG"])
def test_matlab_objects(
    outcome_of: Callable[..., str], tmp_path: Path, kind: int, name: str
) -> None:
    """Objects, sparse matrices, function handles and opaque values in the place of samples."""
    path = tmp_path / "a.set"
    write_v5(path, {**fields(None), "data": SAMPLES})
    content = bytearray(path.read_bytes())
    at = 128 + 16 if name == "EEG" else content.rindex(struct.pack("<III", 6, 8, 7)) + 8
    content[at] = kind
    assert of_file(outcome_of, "x_eeg.set", bytes(content)) == CORRUPT


def test_matlab_objects_in_hdf5(outcome_of: Callable[..., str], tmp_path: Path) -> None:
    path = tmp_path / "a.set"
    write_h5(path, fields())
    with h5py.File(path, "r+") as file:
        del file["EEG/data"]
        node = file["EEG"].create_dataset("data", data=np.arange(6, dtype="u4").reshape(1, 6))
        node.attrs["MATLAB_class"] = np.bytes_("containers.Map")
        node.attrs["MATLAB_object_decode"] = 3
    assert of_file(outcome_of, "x_eeg.set", path.read_bytes()) == CORRUPT
