from __future__ import annotations

import csv
import errno
import gzip
import os
import shutil
import struct
import tracemalloc
import warnings
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import mne
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from converter.contract.codes import FailureCode, RecordingError
from converter.recording.local import LocalRecording, LocalSidecars
from converter.recording.readers import maxshield, open_recording
from converter.recording.readers.mne_source import channel_type, reading
from converter.recording.signal import SignalSource

FIF21 = "sub-21/meg/sub-21_task-rest_meg.fif"
FIF27 = "sub-27/meg/sub-27_task-rest_meg.fif"
FIF28 = "sub-28/meg/sub-28_task-rest_meg.fif"
CTF = "sub-23/meg/sub-23_task-rest_meg.ds"
KIT = "sub-25/meg/sub-25_task-rest_meg.sqd"
BTI = "sub-26/meg/sub-26_task-rest_meg"
EGI = "sub-14/eeg/sub-14_task-rest_eeg.mff"
ALL = [EGI, CTF, KIT, BTI, FIF27, FIF28]


def open_local(file: Path, **facts: Any) -> SignalSource:
    return open_recording(LocalRecording(f"sub-x/meg/{file.name}", "meg", file, **facts))


def failure(file: Path, **facts: Any) -> RecordingError:
    with pytest.raises(RecordingError) as caught:
        open_local(file, **facts).close()
    assert str(file.parent) not in caught.value.message
    return caught.value


def through_mne(file: Path) -> Any:
    options: dict[str, Any] = {"preload": True, "verbose": "ERROR"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        match file.suffix:
            case ".fif":
                return mne.io.read_raw_fif(file, allow_maxshield="yes", **options)
            case ".ds":
                return mne.io.read_raw_ctf(file, system_clock="ignore", **options)
            case ".sqd":
                return mne.io.read_raw_kit(file, **options)
            case ".mff":
                return mne.io.read_raw_egi(file, **options)
        return mne.io.read_raw_bti(
            file / "c,rfDC",
            config_fname=file / "config",
            head_shape_fname=None,
            convert=False,
            rename_channels=False,
            **options,
        )


def copied(source: Path, target: Path) -> Path:
    """A writable copy, whatever the modes of the source."""
    if source.is_dir():
        target.mkdir()
        for member in source.iterdir():
            copied(member, target / member.name)
    else:
        target.write_bytes(source.read_bytes())
    return target


def patched(file: Path, offset: int, layout: str, *values: int) -> None:
    data = bytearray(file.read_bytes())
    struct.pack_into(layout, data, offset, *values)
    file.write_bytes(data)


def cut(file: Path, size: int) -> None:
    os.truncate(file, size)


@pytest.fixture(scope="session")
def expected(real_dir: Path) -> dict[str, dict[str, str]]:
    with (real_dir / "expected.tsv").open(newline="") as table:
        return {row["path"]: row for row in csv.DictReader(table, delimiter="\t")}


@pytest.mark.parametrize("path", ALL)
def test_real_recordings_equal_mne(
    path: str, real_dataset: Path, expected: dict[str, dict[str, str]]
) -> None:
    source = open_recording(LocalRecording(path, "meg", real_dataset / path))
    (group,) = source.groups
    row = expected[path]
    assert len(group.channels) == int(row["channels"]) == source.facts.header_signals
    assert group.n_samples == int(row["native_samples"])
    assert group.rate == Fraction(float(row["native_rate_hz"]))

    raw = through_mne(real_dataset / path)
    whole = raw.get_data([channel.label for channel in group.channels])
    n = group.n_samples
    gains = np.array([[channel.gain] for channel in group.channels])
    for start, stop in [(0, n), (n // 2 - 1, n // 2 + 2), (n - 1, n), (5, 5)]:
        physical = source.read(0, start, stop) * gains
        np.testing.assert_allclose(physical, whole[:, start:stop], rtol=1e-14, atol=0)

    types = dict(zip(raw.ch_names, raw.get_channel_types(), strict=True))
    units = {"MEGMAG": "T", "MEGGRADAXIAL": "T", "EEG": "V", "ECG": "V", "EMG": "V", "TRIG": "V"}
    for channel in group.channels:
        assert channel.discrete == (types[channel.label] == "stim")
        assert channel.unit == units.get(channel.type, channel.unit)
        assert channel.offset == 0.0
    source.close()


def test_ctf_samples_equal_the_bytes_of_the_file(real_dataset: Path) -> None:
    file = real_dataset / CTF
    source = open_local(file)
    trials = np.fromfile(file / f"{file.stem}.meg4", ">i4", offset=8).reshape(2, 356, 1201)
    header = (file / f"{file.stem}.res4").read_bytes()
    description = struct.unpack_from(">i", header, 1836)[0]
    (filters,) = struct.unpack_from(">h", header, 1844 + description)
    assert filters == 0
    names = 1846 + description
    row = next(
        i
        for i in range(356)
        if header[names + 32 * i :].startswith(source.groups[0].channels[100].label.encode())
    )
    gains = names + 356 * 32 + row * 1328 + 8
    proper, q_gain, io_gain = struct.unpack_from(">3d", header, gains)
    digits = np.concatenate([trials[0, row, 1100:], trials[1, row, :100]])
    np.testing.assert_allclose(
        source.read(0, 1100, 1301)[100], digits * io_gain / (proper * q_gain), rtol=1e-12
    )


def test_names_and_types_are_those_of_the_file(real_dataset: Path) -> None:
    ctf = {c.label: c for c in open_local(real_dataset / CTF).groups[0].channels}
    assert (ctf["SCLK01-177"].type, ctf["SCLK01-177"].unit) == ("SYSCLOCK", "s")
    assert (ctf["HLC0011-4302"].type, ctf["HLC0011-4302"].unit) == ("HLU", "n/a")
    assert ctf["MLC11-4304"].type == "MEGGRADAXIAL"
    assert ctf["UPPT001"].type == "TRIG"
    assert ctf["UPPT001"].discrete
    bti = [c.label for c in open_local(real_dataset / BTI).groups[0].channels]
    assert bti[:3] == ["TRIGGER", "RESPONSE", "MLzA"]


def test_derived_channels_are_not_stored(real_dataset: Path) -> None:
    for path, derived in ((KIT, "STI 014"), (EGI, "sync")):
        assert derived in through_mne(real_dataset / path).ch_names
        source = open_local(real_dataset / path)
        assert derived not in [channel.label for channel in source.groups[0].channels]
        source.close()


@pytest.mark.parametrize(
    ("mne_type", "coil", "expected"),
    [
        ("grad", 3012, "MEGGRADPLANAR"),
        ("mag", 3024, "MEGMAG"),
        ("mag", 3 << 16 | 5001, "MEGGRADAXIAL"),
        ("mag", 4002, "MEGGRADAXIAL"),
        ("mag", 8001, "MEGMAG"),
        ("ref_meg", 4003, "MEGREFMAG"),
        ("ref_meg", 5003, "MEGREFGRADAXIAL"),
        ("ref_meg", 5004, "MEGREFGRADPLANAR"),
        ("eog", 5, "VEOG"),
        ("bio", 0, "MISC"),
    ],
)
def test_channel_types(mne_type: str, coil: int, expected: str) -> None:
    assert channel_type("VEOG", mne_type, coil) == expected


# Signal-Space Separation


def site_files(real_dataset: Path) -> LocalSidecars:
    folder = real_dataset / "sub-21" / "meg"
    return LocalSidecars(
        calibration=folder / "sub-21_acq-calibration_meg.dat",
        crosstalk=folder / "sub-21_acq-crosstalk_meg.fif",
    )


def test_maxshield_is_corrected_and_told(real_dataset: Path) -> None:
    sidecars = site_files(real_dataset)
    source = open_local(real_dataset / FIF21, sidecars=sidecars)
    raw = through_mne(real_dataset / FIF21)
    corrected = mne.preprocessing.maxwell_filter(
        raw,
        coord_frame="meg",
        calibration=sidecars.calibration,
        cross_talk=sidecars.crosstalk,
        verbose="ERROR",
    ).get_data()
    served = source.read(0, 0, 1201)
    np.testing.assert_allclose(served, corrected, rtol=1e-9, atol=1e-20)
    assert np.abs(served[:306] - raw.get_data()[:306]).max() > 1e-12
    separation = source.facts.separation
    assert separation is not None
    assert separation.calibration == "sub-21_acq-calibration_meg.dat"
    assert separation.cross_talk == "sub-21_acq-crosstalk_meg.fif"
    assert separation.mne_version == mne.__version__


@pytest.mark.parametrize("absent", ["calibration", "crosstalk"])
def test_maxshield_needs_both_site_files(absent: str, real_dataset: Path) -> None:
    both = site_files(real_dataset)
    kept = {"calibration": both.calibration, "crosstalk": both.crosstalk, absent: None}
    error = failure(real_dataset / FIF21, sidecars=LocalSidecars(**kept))
    assert error.code is FailureCode.MAXSHIELD_UNCALIBRATED
    assert f"no {absent.replace('crosstalk', 'cross-talk')} file" in error.message


def test_separation_is_centred_on_the_digitised_head() -> None:
    info = mne.create_info(["EEG 001"], 100.0, "eeg")
    assert maxshield._centre(info) == ("meg", (0.0, 0.0, 0.0))
    centre = np.array([0.002, 0.011, 0.043])
    directions = np.random.default_rng(0).normal(size=(60, 3))
    directions[:, 2] = np.abs(directions[:, 2])
    shape = centre + 0.09 * directions / np.linalg.norm(directions, axis=1, keepdims=True)
    sides = {"nasion": [0, 0.1, 0], "lpa": [-0.07, 0, 0], "rpa": [0.07, 0, 0]}
    info.set_montage(
        mne.channels.make_dig_montage(**sides, hsp=shape, coord_frame="head"), on_missing="ignore"
    )
    with info._unlock():
        info["dev_head_t"] = mne.transforms.Transform("meg", "head")
    frame, origin = maxshield._centre(info)
    assert frame == "head"
    np.testing.assert_allclose(origin, centre, atol=1e-5)
    info.set_montage(
        mne.channels.make_dig_montage(**sides, coord_frame="head"), on_missing="ignore"
    )
    assert maxshield._centre(info) == ("head", (0.0, 0.0, 0.04))


# FIF: split chains, other content, damage


def noise(seconds: float, seed: int = 1) -> Any:
    info = mne.create_info([f"EEG {i:03d}" for i in range(60)], 1000.0, "eeg")
    samples = np.random.default_rng(seed).normal(scale=1e-5, size=(60, int(1000 * seconds)))
    return mne.io.RawArray(samples, info, verbose="ERROR")


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    """A recording in three files under the names it was written with."""
    folder = tmp_path_factory.mktemp("written")
    raw = noise(18.0)
    raw.save(folder / "old_meg.fif", split_size="2.5MB", buffer_size_sec=1.0, verbose="ERROR")
    assert len(list(folder.iterdir())) == 3
    return raw, folder


def renamed(
    folder: Path, target: Path, place: Callable[[Path, Path], object] = shutil.copy
) -> tuple[str, ...]:
    members = []
    written = sorted(folder.iterdir(), key=lambda path: (len(path.name), path.name))
    for number, path in enumerate(written, start=1):
        name = f"sub-01_split-{number:02d}_meg.fif"
        place(path, target / name)
        members.append(f"sub-01/meg/{name}")
    return tuple(members)


def link_into_annex(path: Path, link: Path) -> None:
    key = link.parent / ".objects" / f"MD5-s{path.stat().st_size}--{link.name[7:15]}"
    key.parent.mkdir(exist_ok=True)
    shutil.copy(path, key)
    link.symlink_to(key.relative_to(link.parent))


@pytest.mark.parametrize("place", [shutil.copy, link_into_annex])
def test_split_chain_under_new_names(
    place: Callable[[Path, Path], object], chain: tuple[Any, Path], tmp_path: Path
) -> None:
    raw, folder = chain
    members = renamed(folder, tmp_path, place)
    # A file of the old name must not be followed into.
    noise(3.0, seed=2).save(tmp_path / "old_meg-1.fif", verbose="ERROR")
    source = open_local(tmp_path / Path(members[0]).name, split_members=members)
    assert source.groups[0].n_samples == 18_000
    whole = raw.get_data()
    for start, stop in [(0, 18_000), (5_000, 13_000), (17_999, 18_000)]:
        np.testing.assert_allclose(
            source.read(0, start, stop), whole[:, start:stop], rtol=2e-7, atol=0
        )
    source.close()


def test_split_chain_without_its_end(chain: tuple[Any, Path], tmp_path: Path) -> None:
    members = renamed(chain[1], tmp_path)
    first = tmp_path / Path(members[0]).name
    for found in (members[:2], members[:1], ()):
        assert failure(first, split_members=found).code is FailureCode.CORRUPT_OR_TRUNCATED
    (tmp_path / Path(members[1]).name).unlink()
    error = failure(first, split_members=members)
    assert error.code is FailureCode.CORRUPT_OR_TRUNCATED
    assert "split-02" in error.message


def test_members_with_other_channels_are_refused(chain: tuple[Any, Path], tmp_path: Path) -> None:
    members = renamed(chain[1], tmp_path)
    other = noise(2.0)
    other.pick(range(59)).save(tmp_path / Path(members[2]).name, overwrite=True, verbose="ERROR")
    error = failure(tmp_path / Path(members[0]).name, split_members=members)
    assert error.code is FailureCode.FILE_READ_ERROR
    assert "split-03" in error.message


@pytest.mark.parametrize("outside", [b"../d_meg-1.fif", b"/ld_meg-1.fif/"])
def test_reference_outside_the_directory(
    outside: bytes, chain: tuple[Any, Path], tmp_path: Path
) -> None:
    members = renamed(chain[1], tmp_path)
    first = tmp_path / Path(members[0]).name
    data = first.read_bytes()
    assert data.count(b"old_meg-1.fif") == 1
    first.write_bytes(data.replace(b"old_meg-1.fif", outside[:13]))
    error = failure(first, split_members=members)
    assert error.code is FailureCode.FILE_READ_ERROR
    assert "outside" in error.message


def test_fif_of_other_content(tmp_path: Path) -> None:
    raw = noise(2.0)
    events = np.array([[500, 0, 1], [1500, 0, 1]])
    epochs = mne.Epochs(raw, events, tmin=0, tmax=0.1, baseline=None, preload=True, verbose="ERROR")
    epochs.save(tmp_path / "a-epo.fif", verbose="ERROR")
    epochs.average(picks="eeg").save(tmp_path / "a-ave.fif", verbose="ERROR")
    mne.compute_raw_covariance(raw, verbose="ERROR").save(tmp_path / "a-cov.fif", verbose="ERROR")
    for path in sorted(tmp_path.iterdir()):  # as a dataset may name them
        shutil.copy(path, tmp_path / f"sub-01_desc-{path.stem[2:]}_meg.fif")
    mne.write_proj(tmp_path / "a-proj.fif", mne.compute_proj_raw(raw, n_grad=0, n_mag=0, n_eeg=1))
    (tmp_path / "a.fif").write_bytes(b"no such format" * 10)
    for path in [tmp_path / "a-epo.fif", tmp_path / "a-cov.fif"]:
        (tmp_path / f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
    codes = {path.name: failure(path).code for path in sorted(tmp_path.iterdir())}
    assert codes == {
        "a-ave.fif": FailureCode.NOT_CONTINUOUS,
        "a-cov.fif": FailureCode.FILE_READ_ERROR,
        "a-cov.fif.gz": FailureCode.FILE_READ_ERROR,
        "a-epo.fif": FailureCode.NOT_CONTINUOUS,
        "a-epo.fif.gz": FailureCode.NOT_CONTINUOUS,
        "a-proj.fif": FailureCode.FILE_READ_ERROR,
        "a.fif": FailureCode.FILE_READ_ERROR,
        "sub-01_desc-ave_meg.fif": FailureCode.NOT_CONTINUOUS,
        "sub-01_desc-cov_meg.fif": FailureCode.FILE_READ_ERROR,
        "sub-01_desc-epo_meg.fif": FailureCode.NOT_CONTINUOUS,
    }


@pytest.mark.parametrize("path", [FIF27, FIF28])
def test_fif_cut_anywhere_is_never_served_short(
    path: str, real_dataset: Path, tmp_path: Path
) -> None:
    data = (real_dataset / path).read_bytes()
    file = tmp_path / "sub-01_meg.fif"

    @settings(max_examples=40)
    @given(st.integers(0, len(data) - 17))
    def cut_at(size: int) -> None:
        file.write_bytes(data[:size])
        assert failure(file).code is FailureCode.CORRUPT_OR_TRUNCATED

    cut_at()


def test_compressed_fif(real_dataset: Path, tmp_path: Path) -> None:
    packed = gzip.compress((real_dataset / FIF27).read_bytes(), 1)
    file = tmp_path / "sub-01_meg.fif.gz"
    file.write_bytes(packed)
    source = open_local(file)
    np.testing.assert_array_equal(
        source.read(0, 0, 241), through_mne(real_dataset / FIF27).get_data()
    )
    file.write_bytes(packed[: len(packed) // 2])
    assert failure(file).code is FailureCode.CORRUPT_OR_TRUNCATED


def test_what_unpacks_to_a_thousandfold_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "sub-01_meg.fif.gz"
    with gzip.open(file, "wb", compresslevel=9) as stream:
        for _ in range(100):
            stream.write(bytes(1 << 20))
    tracemalloc.start()
    found = failure(file)
    assert found.code is FailureCode.FILE_READ_ERROR
    assert "times as many" in found.message
    assert tracemalloc.get_traced_memory()[1] < 160 << 20
    tracemalloc.stop()


# The other formats: damage and content that is no recording


def test_damaged_files(real_dataset: Path, tmp_path: Path) -> None:
    kit = copied(real_dataset / KIT, tmp_path / "a.sqd")
    ctf = copied(real_dataset / CTF, tmp_path / Path(CTF).name)
    bti = copied(real_dataset / BTI, tmp_path / "a_meg")
    egi = copied(real_dataset / EGI, tmp_path / "a.mff")
    meg4 = ctf / f"{ctf.stem}.meg4"
    sizes = {meg4: [3_000_000, 8 + 4 * 356 * 1201, 8]}
    sizes |= {bti / "c,rfDC": [280_000, 1_000], egi / "signal1.bin": [3_000_000]}
    sizes |= {egi / "signal2.bin": [50_000], kit: [800_000, 100]}
    for file, lengths in sizes.items():
        original = file.read_bytes()
        recording = file if file is kit else file.parent
        for length in lengths:
            cut(file, length)
            assert failure(recording).code is FailureCode.CORRUPT_OR_TRUNCATED, (file, length)
        file.write_bytes(original)
    for recording in (kit, ctf, bti, egi):
        open_local(recording).close()


def test_bti_data_that_does_not_fill_its_header(real_dataset: Path, tmp_path: Path) -> None:
    file = copied(real_dataset / BTI, tmp_path / "a_meg") / "c,rfDC"
    patched(file, 255_568 + 96, ">i", 459)
    error = failure(file.parent)
    assert error.code is FailureCode.CORRUPT_OR_TRUNCATED
    assert "459" in error.message
    patched(file, 255_568 + 96, ">i", 0)
    assert failure(file.parent).code is FailureCode.EMPTY_RECORDING


def test_ctf_content(real_dataset: Path, tmp_path: Path) -> None:
    directory = copied(real_dataset / CTF, tmp_path / "sub-99_task-new_meg.ds")
    source = open_local(directory)
    np.testing.assert_array_equal(
        source.read(0, 0, 2402), open_local(real_dataset / CTF).read(0, 0, 2402)
    )
    source.close()
    header = next(directory.glob("*.res4"))
    patched(header, 776, ">h", 40)
    error = failure(directory)
    assert error.code is FailureCode.NOT_CONTINUOUS
    assert "40 trials" in error.message
    header.unlink()
    assert failure(directory).code is FailureCode.FILE_READ_ERROR


def test_kit_content(real_dataset: Path, tmp_path: Path) -> None:
    for extension in (".con", ".kdf"):
        file = copied(real_dataset / KIT, tmp_path / f"a{extension}")
        open_local(file).close()
    for offset, layout, value, code in [
        (22_240, "<i", 3, FailureCode.NOT_CONTINUOUS),
        (22_240, "<i", 2, FailureCode.NOT_CONTINUOUS),
        (22_240 + 16, "<i", 0, FailureCode.EMPTY_RECORDING),
        (22_240 + 16, "<i", 10**9, FailureCode.CORRUPT_OR_TRUNCATED),
        (512, "<i", 1, FailureCode.UNSUPPORTED_FORMAT),
    ]:
        original = file.read_bytes()
        patched(file, offset, layout, value)
        assert failure(file).code is code
        file.write_bytes(original)


def test_egi_content(real_dataset: Path, tmp_path: Path) -> None:
    directory = copied(real_dataset / EGI, tmp_path / "a.mff")
    layout = directory / "sensorLayout.xml"
    original = layout.read_bytes()
    layout.write_bytes(b'<!DOCTYPE x [<!ENTITY y SYSTEM "file:///etc/hostname">]><x>&y;</x>')
    assert failure(directory).code is FailureCode.FILE_READ_ERROR
    layout.write_bytes(original)
    (directory / "categories.xml").write_text(
        '<?xml version="1.0"?><categories xmlns="http://www.egi.com/categories_mff"><cat>'
        "<name>A</name><segments><seg><beginTime>0</beginTime><endTime>1000</endTime>"
        "<evtBegin>0</evtBegin><evtEnd>0</evtEnd><channelStatus/></seg></segments></cat>"
        "</categories>"
    )
    assert failure(directory).code is FailureCode.NOT_CONTINUOUS


def test_missing_members(real_dataset: Path, tmp_path: Path) -> None:
    bti = copied(real_dataset / BTI, tmp_path / "a_meg")
    (bti / "config").unlink()
    error = failure(bti)
    assert error.code is FailureCode.FILE_READ_ERROR
    assert "config" in error.message
    egi = copied(real_dataset / EGI, tmp_path / "a.mff")
    (egi / "epochs.xml").unlink()
    assert failure(egi).code is FailureCode.FILE_READ_ERROR


# What an error means


@pytest.mark.parametrize(
    "condition",
    [
        MemoryError(),
        OSError(errno.ENOSPC, "No space left on device"),
        OSError(errno.EIO, "Input/output error"),
        OSError(errno.EMFILE, "Too many open files"),
        TimeoutError("time limit"),
        ModuleNotFoundError("mffpy"),
        RecordingError(FailureCode.NOT_CONTINUOUS, "as it was"),
    ],
)
def test_conditions_of_the_machine_pass(condition: Exception) -> None:
    with pytest.raises(type(condition)) as caught, reading("a.fif"):
        raise condition
    assert caught.value is condition


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ValueError("no raw data in /home/me/my data/a.fif"), FailureCode.FILE_READ_ERROR),
        (RuntimeError("FIF file appears to be broken"), FailureCode.CORRUPT_OR_TRUNCATED),
        (OSError("the file is truncated"), FailureCode.CORRUPT_OR_TRUNCATED),
        (EOFError(), FailureCode.CORRUPT_OR_TRUNCATED),
        (struct.error("unpack requires 4 bytes"), FailureCode.CORRUPT_OR_TRUNCATED),
        (FileNotFoundError(errno.ENOENT, "No such file", "/x/y"), FailureCode.FILE_READ_ERROR),
        (AssertionError(), FailureCode.FILE_READ_ERROR),
    ],
)
def test_errors_of_a_file(error: Exception, code: FailureCode) -> None:
    with pytest.raises(RecordingError) as caught, reading("a.fif"):
        raise error
    assert caught.value.code is code
    assert caught.value.__cause__ is error
    assert caught.value.message.startswith("a.fif could not be read")
    assert "/home" not in caught.value.message
    assert "/x/" not in caught.value.message


def test_nothing_is_printed(
    capfd: pytest.CaptureFixture[str], recwarn: pytest.WarningsRecorder
) -> None:
    with reading("a.fif"):
        print("noise")
        warnings.warn("odd file name", RuntimeWarning, stacklevel=1)
        mne.utils.logger.info("opening")
    assert capfd.readouterr() == ("", "")
    assert not recwarn.list


def test_a_warning_of_lost_samples_is_an_error() -> None:
    with pytest.raises(RecordingError) as caught, reading("a.fif"):
        warnings.warn("FIF raw buffer could not be read", RuntimeWarning, stacklevel=1)
    assert caught.value.code is FailureCode.CORRUPT_OR_TRUNCATED


@pytest.mark.parametrize("place", [0, 2000, -1])
def test_a_sparse_matrix_that_leads_out_of_itself(
    place: int, real_dataset: Path, tmp_path: Path
) -> None:
    """SciPy follows such an index into other memory, and the process dies."""
    both = site_files(real_dataset)
    assert both.crosstalk is not None
    cross_talk = copied(both.crosstalk, tmp_path / both.crosstalk.name)
    matrix = 222 + 16  # its content: 5360 float32, as many indices, 307 starts, 4 counts
    index = matrix + 4 * 5360 + 4 * (place % 5360)
    assert struct.unpack_from(">i", cross_talk.read_bytes(), index)[0] < 306
    patched(cross_talk, index, ">i", 2**31 - 1)
    sidecars = LocalSidecars(calibration=both.calibration, crosstalk=cross_talk)
    error = failure(real_dataset / FIF21, sidecars=sidecars)
    assert error.code is FailureCode.CORRUPT_OR_TRUNCATED
    assert error.message.startswith(cross_talk.name)


@pytest.mark.parametrize("rate", [float("nan"), float("inf"), 1e38])
def test_fif_rates_that_are_none(rate: float, real_dataset: Path, tmp_path: Path) -> None:
    file = copied(real_dataset / FIF27, tmp_path / "a_meg.fif")
    tag = file.read_bytes().index(struct.pack(">iIi", 201, 4, 4))
    patched(file, tag + 16, ">f", rate)  # type: ignore[arg-type]
    assert failure(file).code is FailureCode.CORRUPT_OR_TRUNCATED


@pytest.mark.parametrize("encoding", ["utf-7", "cp037", "utf-16", "utf-16-be", "utf-32"])
def test_no_encoding_hides_xml_entities(encoding: str, real_dataset: Path, tmp_path: Path) -> None:
    directory = copied(real_dataset / EGI, tmp_path / "a.mff")
    layout = directory / "sensorLayout.xml"
    declaration = f'<?xml version="1.0" encoding="{encoding}"?>'
    body = '<!DOCTYPE x [<!ENTITY y SYSTEM "file:///etc/hostname">]><x>&y;</x>'
    if encoding == "utf-7":  # the one in which markup itself can be spelt in two ways
        layout.write_text(declaration + body.replace("<", "+ADw-"), encoding="ascii")
    else:
        layout.write_text(declaration + body, encoding=encoding)
    error = failure(directory)
    assert error.code is FailureCode.FILE_READ_ERROR
    assert layout.name in error.message
