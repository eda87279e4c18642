from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import mne
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.io import loadmat, savemat

from converter.contract.codes import FailureCode, RecordingError
from converter.recording.local import LocalRecording
from converter.recording.readers.eeglab import EeglabSource, open_eeglab
from converter.recording.readers.matlab import exact

CORRUPT = FailureCode.CORRUPT_OR_TRUNCATED
REFUSED = FailureCode.FILE_READ_ERROR
STEM = "sub-01_task-rest_eeg"
SAMPLES = np.random.default_rng(0).normal(0, 50, (3, 200)).astype(np.float32)
LABELS = ["Fp1", "Cz", "Sync"]
TYPES = ["", "EOG", "stim"]


def fields(data: Any = SAMPLES, **changes: Any) -> dict[str, Any]:
    """The fields of an EEGLAB struct; None leaves one out."""
    found: dict[str, Any] = {
        "setname": "Continuous EEG Data",
        "nbchan": 3,
        "pnts": 200,
        "trials": 1,
        "srate": 128.0,
        "data": data,
        "datfile": data if isinstance(data, str) else "",
        "chanlocs": chanlocs(LABELS, TYPES),
    }
    return {key: value for key, value in (found | changes).items() if value is not None}


def chanlocs(labels: list[Any], types: list[str]) -> np.ndarray[Any, Any]:
    locations = np.zeros((1, len(labels)), [("labels", object), ("type", object), ("X", object)])
    for index, pair in enumerate(zip(labels, types, strict=True)):
        locations[0, index] = (*pair, 0.5)
    return locations


def cells(values: list[str]) -> np.ndarray[Any, Any]:
    return np.array(values, object).reshape(1, -1)


def write_v5(path: Path, content: dict[str, Any], *, struct: bool = True) -> None:
    savemat(path, {"EEG": content} if struct else content, appendmat=False)


def write_v7(path: Path, content: dict[str, Any], *, struct: bool = True) -> None:
    savemat(path, {"EEG": content} if struct else content, appendmat=False, do_compression=True)


def write_h5(path: Path, content: dict[str, Any], *, struct: bool = True, **storage: Any) -> None:
    """A v7.3 file as MATLAB lays it out: columns as rows, text as UTF-16, cells as references."""
    with h5py.File(path, "w", userblock_size=512) as file:
        top = file.create_group("EEG") if struct else file
        cells_group = file.create_group("#refs#")

        def put(group: Any, name: str, value: Any, **how: Any) -> None:
            if isinstance(value, str):
                units = np.frombuffer(value.encode("utf-16-le"), "<u2").reshape(-1, 1)
                node = group.create_dataset(name, data=units if value else np.zeros(2, "u8"))
                node.attrs["MATLAB_class"] = np.bytes_("char")
                if not value:
                    node.attrs["MATLAB_empty"] = 1
            else:
                node = group.create_dataset(name, data=np.atleast_2d(value).T, **how)
                node.attrs["MATLAB_class"] = np.bytes_(
                    {"f4": "single", "f8": "double"}.get(node.dtype.str[1:], "int16")
                )

        def references(values: list[Any]) -> Any:
            for value in values:
                put(cells_group, str(len(cells_group)), value)
            names = range(len(cells_group) - len(values), len(cells_group))
            nodes = [cells_group[str(name)].ref for name in names]
            return np.array(nodes, h5py.ref_dtype).reshape(-1, 1)

        for name, value in content.items():
            if isinstance(value, np.ndarray) and value.dtype.names:
                group = top.create_group(name)
                for field in ("labels", "type"):
                    items = list(value[field].reshape(-1))
                    if len(items) == 1:
                        put(group, field, items[0])
                    else:
                        group.create_dataset(field, data=references(items))
            else:
                put(top, name, value, **(storage if name == "data" else {}))
    with path.open("r+b") as header:
        header.write(b"MATLAB 7.3 MAT-file".ljust(124) + b"\0\x02IM")


Writer = Callable[..., None]
WRITERS = pytest.mark.parametrize("write", [write_v5, write_v7, write_h5], ids=["v5", "v7", "v7.3"])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / f"{STEM}.set"


def opened(path: Path, modality: str = "eeg") -> EeglabSource:
    return open_eeglab(LocalRecording(f"sub-01/eeg/{path.name}", modality, path))


def whole(source: EeglabSource) -> np.ndarray[Any, Any]:
    return np.array(source.read(0, 0, source.groups[0].n_samples))


def fails(path: Path, code: FailureCode) -> str:
    with pytest.raises(RecordingError) as caught:
        opened(path)
    assert caught.value.code is code
    assert path.name in caught.value.message
    assert str(path.parent) not in caught.value.message
    return caught.value.message


# Samples.


@WRITERS
@pytest.mark.parametrize("struct", [True, False])
@pytest.mark.parametrize("dtype", ["f4", "f8", "i2"])
def test_samples_inside(path: Path, write: Writer, struct: bool, dtype: str) -> None:
    expected = SAMPLES.astype(dtype)
    write(path, fields(expected), struct=struct)
    source = opened(path)
    assert whole(source).dtype == np.dtype(dtype)
    np.testing.assert_array_equal(whole(source), expected)
    np.testing.assert_array_equal(source.read(0, 31, 77), expected[:, 31:77])
    (group,) = source.groups
    assert group.rate == 128
    assert group.n_samples == 200
    assert [(c.label, c.type, c.unit, c.gain, c.discrete) for c in group.channels] == [
        ("Fp1", "EEG", "V", 1e-6, False),
        ("Cz", "EOG", "V", 1e-6, False),
        ("Sync", "TRIG", "n/a", 1.0, True),
    ]
    source.close()
    source.close()


@WRITERS
@pytest.mark.parametrize("struct", [True, False])
def test_samples_in_an_fdt_file(path: Path, write: Writer, struct: bool) -> None:
    write(path, fields("old name.fdt"), struct=struct)
    SAMPLES.T.tofile(path.with_suffix(".fdt"))
    np.testing.assert_array_equal(whole(opened(path)), SAMPLES)
    path.with_suffix(".fdt").rename(path.with_name("old name.fdt"))
    np.testing.assert_array_equal(whole(opened(path)), SAMPLES)


def test_old_dat_files_are_channel_by_channel(path: Path) -> None:
    write_v5(path, fields("old.dat"))
    SAMPLES.tofile(path.with_suffix(".dat"))
    np.testing.assert_array_equal(whole(opened(path)), SAMPLES)


@pytest.mark.parametrize(
    "kind", ["v5", "v7", "v7 too large to keep", "v7.3", "deflated", "shuffled", "fdt"]
)
def test_any_bounds(path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if kind == "fdt":
        SAMPLES.T.tofile(path.with_suffix(".fdt"))
    if kind == "v7 too large to keep":
        monkeypatch.setattr("converter.recording.readers.matlab_v5.KEPT_BYTES", 100)
    chunked: dict[str, Any] = {"chunks": (30, 2), "compression": "gzip"}
    storage = {"deflated": chunked, "shuffled": chunked | {"shuffle": True}}.get(kind, {})
    if kind in ("v5", "fdt"):
        write_v5(path, fields("a.fdt" if kind == "fdt" else SAMPLES))
    elif kind.startswith("v7 ") or kind == "v7":
        write_v7(path, fields())
    else:
        write_h5(path, fields(), **storage)
    source = opened(path)
    assert source.groups[0].granule == (30 if storage else 1)

    @settings(max_examples=40)
    @given(st.tuples(st.integers(0, 200), st.integers(0, 200)).map(sorted))
    def check(bounds: list[int]) -> None:
        start, stop = bounds
        np.testing.assert_array_equal(source.read(0, start, stop), SAMPLES[:, start:stop])

    check()
    with pytest.raises(ValueError, match="asked for"):
        source.read(0, 0, 201)


@WRITERS
def test_one_channel(path: Path, write: Writer) -> None:
    content = fields(SAMPLES[:1], nbchan=1, chanlocs=chanlocs(["Cz"], ["EEG"]))
    write(path, content)
    source = opened(path)
    np.testing.assert_array_equal(whole(source), SAMPLES[:1])
    assert [c.label for c in source.groups[0].channels] == ["Cz"]


# The corpus.


@pytest.mark.parametrize(("subject", "n_channels"), [("01", 32), ("02", 32), ("05", 1)])
def test_real_recordings_equal_mne(
    real_dataset: Path, tmp_path: Path, subject: str, n_channels: int
) -> None:
    original = real_dataset / f"sub-{subject}" / "eeg" / f"sub-{subject}_task-rest_eeg.set"
    source = opened(original)
    (group,) = source.groups
    # MNE follows the stale name of the .fdt file, so it gets copies under it.
    copy = tmp_path / "test_raw.set"
    copy.write_bytes(original.read_bytes())
    if original.with_suffix(".fdt").exists():
        copy.with_suffix(".fdt").write_bytes(original.with_suffix(".fdt").read_bytes())
    raw = mne.io.read_raw_eeglab(copy, verbose="error")
    assert len(group.channels) == n_channels
    assert [channel.label for channel in group.channels] == raw.ch_names
    assert float(group.rate) == raw.info["sfreq"]
    assert {channel.unit for channel in group.channels} == {"V"}
    np.testing.assert_allclose(whole(source) * 1e-6, raw.get_data(), rtol=1e-6)


def test_real_hdf5_samples(real_dataset: Path) -> None:
    original = real_dataset / "sub-03/eeg/sub-03_task-rest_eeg.set"
    source = opened(original)
    (group,) = source.groups
    assert group.rate == 1024
    assert len(group.channels) == 271
    samples = whole(source)
    source.close()  # HDF5 opens a file with one locking mode at a time
    with h5py.File(original) as file:
        references = file["EEG/chanlocs/labels"][:, 0]
        labels = [bytes(file[ref][:, 0].astype("u1")).decode() for ref in references]
        np.testing.assert_array_equal(samples, file["EEG/data"][()].T)
    assert [channel.label for channel in group.channels] == labels


def test_numbers_of_a_header_without_labels(real_dataset: Path) -> None:
    names = (real_dataset / "sub-01/eeg/sub-01_task-rest_channels.tsv").read_text().splitlines()
    (group,) = opened(real_dataset / "sub-01/eeg/sub-01_task-rest_eeg.set").groups
    assert [c.label for c in group.channels] == [line.split("\t")[0] for line in names[1:]]


def test_epochs_are_not_continuous(real_dataset: Path) -> None:
    assert "4 trials" in fails(
        real_dataset / "sub-04/eeg/sub-04_task-rest_eeg.set", FailureCode.NOT_CONTINUOUS
    )


# Channels.


@WRITERS
def test_chanlocs_of_another_length(path: Path, write: Writer) -> None:
    write(path, fields(chanlocs=chanlocs(["Fp1", "Cz"], ["EEG", "EEG"])))
    labels = [channel.label for channel in opened(path).groups[0].channels]
    assert labels == ["Fp1", "Cz", "EEG 002"]
    write(path, fields(chanlocs=chanlocs(["A", "A", "A", "Nz"], ["EEG", "", "", "FID"])))
    labels = [channel.label for channel in opened(path).groups[0].channels]
    assert labels == ["A-0", "A-1", "A-2"]


def test_labels_that_are_numbers(path: Path) -> None:
    write_v5(path, fields(chanlocs=chanlocs([1, 2.0, "Höhe"], ["", "", "ECG"])))
    channels = opened(path, "ieeg").groups[0].channels
    assert [(c.label, c.type) for c in channels] == [("1", "SEEG"), ("2", "SEEG"), ("Höhe", "ECG")]


@pytest.mark.parametrize("labels", [cells(LABELS), np.array(LABELS)], ids=["cells", "char matrix"])
def test_column_wise_chanlocs(path: Path, labels: Any) -> None:
    write_v5(path, fields(chanlocs={"labels": labels, "type": cells(TYPES), "X": np.zeros(3)}))
    channels = opened(path).groups[0].channels
    assert [(c.label, c.type) for c in channels] == [
        ("Fp1", "EEG"),
        ("Cz", "EOG"),
        ("Sync", "TRIG"),
    ]


@pytest.mark.parametrize("missing", [None, np.zeros((0, 0)), "", 7.0])
def test_chanlocs_that_say_nothing(path: Path, missing: Any) -> None:
    write_v5(path, fields(chanlocs=missing))
    labels = [channel.label for channel in opened(path).groups[0].channels]
    assert labels == ["EEG 000", "EEG 001", "EEG 002"]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.float64(128), Fraction(128)),
        (np.uint8(250), Fraction(250)),
        (np.float64(511.7), Fraction(5117, 10)),
        (np.float32(511.7), Fraction(5117, 10)),
        (np.float64(1000 / 3), Fraction(1000, 3)),
        (np.float64(1017.2526245117188), Fraction("1017.2526245117188")),
        (np.float64(np.nan), None),
    ],
)
def test_exact_numbers(value: Any, expected: Fraction | None) -> None:
    assert exact(value) == expected


# References.


@WRITERS
@pytest.mark.parametrize("name", ["/etc/hostname", "../x.fdt", r"C:\lab\x.fdt", "lab/x.fdt"])
def test_paths_are_refused(path: Path, write: Writer, name: str) -> None:
    write(path, fields(name))
    assert "refused" in fails(path, REFUSED)
    # The directories of the machine that wrote it do no harm where a sibling is there.
    SAMPLES.T.tofile(path.with_suffix(".fdt"))
    np.testing.assert_array_equal(whole(opened(path)), SAMPLES)


@pytest.mark.parametrize("field", ["EEG", "data", "chanlocs", "labels"])
@pytest.mark.parametrize("external", [True, False])
def test_links_are_refused(path: Path, field: str, external: bool) -> None:
    write_h5(path, fields())
    elsewhere = path.with_name("other.h5")
    write_h5(elsewhere, fields())
    place = {"EEG": "EEG", "labels": "EEG/chanlocs/labels"}.get(field, f"EEG/{field}")
    with h5py.File(path, "r+") as file:
        file.move(place, "kept")
        file[place] = (
            h5py.ExternalLink(elsewhere.name, place) if external else h5py.SoftLink("/kept")
        )
    assert "refused" in fails(path, REFUSED)


def test_storage_in_other_files_is_refused(path: Path) -> None:
    write_h5(path, fields())
    path.with_name("raw").write_bytes(SAMPLES.T.tobytes())
    for virtual in (True, False):
        with h5py.File(path, "r+") as file:
            del file["EEG/data"]
            if virtual:
                layout = h5py.VirtualLayout((200, 3), "f4")
                layout[:] = h5py.VirtualSource("other.h5", "EEG/data", (200, 3))
                file["EEG"].create_virtual_dataset("data", layout)
            else:
                where = [(str(path.with_name("raw")), 0, h5py.h5f.UNLIMITED)]
                file["EEG"].create_dataset("data", (200, 3), "f4", external=where)
        assert "refused" in fails(path, REFUSED)


# What cannot be read.


@WRITERS
@pytest.mark.parametrize("size", [200 * 12 - 4, 200 * 12 + 12, 0])
def test_an_fdt_file_of_another_size(path: Path, write: Writer, size: int) -> None:
    write(path, fields("a.fdt"))
    path.with_suffix(".fdt").write_bytes(bytes(size))
    assert "2400 bytes" in fails(path, CORRUPT)


@WRITERS
@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"data": "absent.fdt"}, CORRUPT),
        ({"data": ""}, CORRUPT),
        ({"data": SAMPLES[:2]}, CORRUPT),
        ({"nbchan": 1e12, "data": "a.fdt"}, CORRUPT),
        ({"nbchan": None}, CORRUPT),
        ({"nbchan": -3}, CORRUPT),
        ({"nbchan": 2.5}, CORRUPT),
        ({"nbchan": "three"}, CORRUPT),
        ({"srate": 0}, CORRUPT),
        ({"srate": np.nan}, CORRUPT),
        ({"srate": None}, CORRUPT),
        ({"trials": 5}, FailureCode.NOT_CONTINUOUS),
        ({"data": "a.fdt", "pnts": 0}, FailureCode.EMPTY_RECORDING),
        ({"nbchan": 0}, FailureCode.EMPTY_RECORDING),
    ],
)
def test_headers_that_make_no_sense(
    path: Path, write: Writer, changes: dict[str, Any], code: FailureCode
) -> None:
    write(path, fields(**changes))
    path.with_name("a.fdt").write_bytes(bytes(24))
    fails(path, code)


def test_three_dimensions_are_not_continuous(path: Path) -> None:
    write_v5(path, fields(SAMPLES.reshape(3, 20, 10), trials=None))
    fails(path, FailureCode.NOT_CONTINUOUS)


@WRITERS
def test_damaged_files(path: Path, write: Writer) -> None:
    write(path, fields())
    content = path.read_bytes()
    for part in (content[: len(content) // 2], content[:200], b"", b"x" * 500, bytes(500)):
        path.write_bytes(part)
        fails(path, CORRUPT)


@pytest.mark.parametrize("kept", [0, 1 << 20])
def test_damaged_samples(path: Path, kept: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("converter.recording.readers.matlab_v5.KEPT_BYTES", kept)
    noise = np.random.default_rng(1).normal(size=(3, 200)).astype("f4")  # most of the file
    deflated = partial(write_h5, chunks=(30, 3), compression="gzip")
    for write in (write_v7, deflated):
        write(path, fields(noise))
        content = path.read_bytes()
        middle = (content.index(b"\x78\x5e") if write is deflated else len(content) // 2) + 300
        path.write_bytes(content[:middle] + bytes(64) + content[middle + 64 :])
        with pytest.raises(RecordingError) as caught:
            whole(opened(path))
        assert caught.value.code is CORRUPT


def test_any_damaged_byte_is_a_typed_failure(path: Path) -> None:
    write_v5(path, fields("a.fdt"))
    content = path.read_bytes()
    path.with_name("a.fdt").write_bytes(SAMPLES.T.tobytes())
    for position in range(128, len(content)):
        path.write_bytes(content[:position] + b"\x95" + content[position + 1 :])
        with suppress(RecordingError):  # anything else, a crash above all, fails the test
            opened(path).close()


def test_a_claim_without_storage(path: Path) -> None:
    write_h5(path, fields())
    with h5py.File(path, "r+") as file:
        del file["EEG/data"]
        shape = (10**12, 3)
        file["EEG"].create_dataset("data", shape, "f4", chunks=(1000, 3), compression="gzip")
    fails(path, CORRUPT)


def test_complex_samples_and_several_sets(path: Path) -> None:
    write_v5(path, fields(SAMPLES + 1j))
    fails(path, CORRUPT)
    savemat(path, {"EEG": chanlocs(["a", "b"], ["", ""])}, appendmat=False)
    assert "2 data sets" in fails(path, REFUSED)


def test_a_file_that_is_absent(path: Path) -> None:
    fails(path, CORRUPT)


def test_the_writers_agree_with_scipy(path: Path) -> None:
    write_v5(path, fields())
    record = loadmat(path)["EEG"][0, 0]
    np.testing.assert_array_equal(record["data"], SAMPLES)
