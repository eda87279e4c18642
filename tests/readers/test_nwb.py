from __future__ import annotations

import datetime
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import h5py
import numpy as np
import pytest
from hdmf.backends.hdf5.h5_utils import H5DataIO
from pynwb import NWBHDF5IO, NWBFile, TimeSeries
from pynwb.ecephys import LFP, ElectricalSeries
from pynwb.file import Subject

from converter.contract.codes import FailureCode, RecordingError
from converter.recording.local import LocalRecording
from converter.recording.readers import open_recording
from converter.recording.readers.nwb import NwbSource
from converter.recording.readers.timeline import simplest_rate

CORRUPT = FailureCode.CORRUPT_OR_TRUNCATED
REFUSED = FailureCode.FILE_READ_ERROR
LABELS = ["LA1", "LA2", "LB1", "LB2"]
DATA = np.random.default_rng(0).integers(-3000, 3000, (1000, 3)).astype(np.int16)
SECRET = "Jane Q Patient"


class Session:
    """A file as pynwb writes it: four electrodes and the series that a test adds."""

    def __init__(self, *, labels: list[str] | None = LABELS) -> None:
        self.file = NWBFile(
            session_description=SECRET,
            identifier=SECRET,
            session_start_time=datetime.datetime(2001, 2, 3, tzinfo=datetime.UTC),
            experimenter=[SECRET],
            institution=SECRET,
            subject=Subject(subject_id=SECRET, description=SECRET, species="Homo sapiens"),
        )
        device = self.file.create_device(name="amplifier", description=SECRET)
        group = self.file.create_electrode_group(
            name="grid", description="d", location=SECRET, device=device
        )
        if labels:
            self.file.add_electrode_column(name="label", description="name of the contact")
        for index in range(4):
            named = {"label": labels[index]} if labels else {}
            self.file.add_electrode(id=10 + index, group=group, location="x", **named)

    def series(self, data: Any = DATA, rows: tuple[int, ...] = (0, 1, 3), **more: Any) -> Any:
        region = self.file.create_electrode_table_region(region=list(rows), description="d")
        more = {"name": "ElectricalSeries"} | more
        if not {"rate", "timestamps"} & more.keys():
            more |= {"rate": 512.0}
        return ElectricalSeries(data=data, electrodes=region, **more)

    def add(self, *args: Any, **more: Any) -> Any:
        series = self.series(*args, **more)
        self.file.add_acquisition(series)
        return series

    def write(self, path: Path) -> None:
        with NWBHDF5IO(path, "w") as io:
            io.write(self.file)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "sub-01_task-rest_ieeg.nwb"


def opened(path: Path) -> NwbSource:
    source = open_recording(LocalRecording(f"sub-01/ieeg/{path.name}", "ieeg", path))
    assert isinstance(source, NwbSource)
    return source


def whole(source: NwbSource, group: int = 0) -> np.ndarray[Any, Any]:
    return np.array(source.read(group, 0, source.groups[group].n_samples))


def physical(source: NwbSource, group: int = 0) -> np.ndarray[Any, Any]:
    channels = source.groups[group].channels
    gain, offset = (np.array([[getattr(c, key)] for c in channels]) for key in ("gain", "offset"))
    return whole(source, group) * gain + offset


def fails(path: Path, code: FailureCode) -> str:
    with pytest.raises(RecordingError) as caught:
        whole(opened(path))
    assert caught.value.code is code, caught.value.message
    assert path.name in caught.value.message
    assert str(path.parent) not in caught.value.message
    assert SECRET not in caught.value.message
    return caught.value.message


# What pynwb wrote, against the arrays given to it.


@pytest.mark.parametrize("dtype", ["i2", "u2", "i4", "f4", "f8", ">i2"])
@pytest.mark.parametrize(
    "storage",
    [
        {},
        {"chunks": (130, 2), "compression": "gzip"},
        {"chunks": (130, 3), "compression": "gzip", "shuffle": True},
        {"chunks": (1000, 1), "compression": "lzf"},
    ],
    ids=["contiguous", "deflated", "shuffled", "by channel"],
)
def test_samples(path: Path, dtype: str, storage: dict[str, Any]) -> None:
    data = (DATA.astype(np.int32) + 3000).astype(dtype)
    session = Session()
    session.add(H5DataIO(data, **storage), conversion=2.5e-7, offset=1e-3)
    session.write(path)
    source = opened(path)
    (group,) = source.groups
    assert (group.rate, group.n_samples) == (512, 1000)
    assert [(c.label, c.unit, c.type) for c in group.channels] == [
        (label, "V", "SEEG") for label in ("LA1", "LA2", "LB2")
    ]
    samples = whole(source)
    assert samples.dtype == np.dtype(dtype).newbyteorder("=")
    np.testing.assert_array_equal(samples, data.T)
    np.testing.assert_array_equal(source.read(0, 127, 400), data[127:400].T)
    np.testing.assert_allclose(physical(source), data.T.astype(float) * 2.5e-7 + 1e-3, rtol=1e-12)
    assert source.facts.header_signals == 3
    source.close()


def test_each_channels_conversion(path: Path) -> None:
    session = Session()
    session.add(conversion=1e-6, channel_conversion=[1.0, -2.0, 0.5])
    session.write(path)
    assert [c.gain for c in opened(path).groups[0].channels] == [1e-6, -2e-6, 5e-7]


def test_one_channel_in_one_dimension(path: Path) -> None:
    session = Session()
    session.add(H5DataIO(DATA[:, 0], chunks=(64,), compression="gzip"), (2,))
    session.write(path)
    source = opened(path)
    assert [c.label for c in source.groups[0].channels] == ["LB1"]
    np.testing.assert_array_equal(source.read(0, 10, 700), DATA[10:700, 0][np.newaxis])


def test_without_labels_channels_carry_the_electrodes_numbers(path: Path) -> None:
    session = Session(labels=None)
    session.add()
    session.write(path)
    assert [c.label for c in opened(path).groups[0].channels] == ["10", "11", "13"]


def test_series_of_several_rates_become_several_groups(path: Path) -> None:
    session = Session()
    session.add(name="fast", rate=2048.0)
    session.add(DATA[:250, :2], (2, 0), name="slow", rate=1017.2526)
    session.file.add_acquisition(TimeSeries(name="audio", data=DATA[:, 0], unit="V", rate=2048.0))
    session.write(path)
    source = opened(path)
    assert [group.rate for group in source.groups] == [2048, Fraction(10172526, 10**4)]
    assert [group.n_samples for group in source.groups] == [1000, 250]
    labels = [[c.label for c in group.channels] for group in source.groups]
    assert labels == [["LA1-0", "LA2", "LB2"], ["LB1", "LA1-1"]]
    np.testing.assert_array_equal(whole(source, 1), DATA[:250, :2].T)


def test_series_of_one_rate_share_a_group_and_the_files_timeline(path: Path) -> None:
    session = Session()
    session.add(rows=(0, 1, 2), name="a", rate=500.0, starting_time=7.0, conversion=1e-6)
    session.add(
        DATA[:400, 0],
        (3,),
        name="b",
        rate=500.0,
        starting_time=7.5008,
        offset=2e-6,
        conversion=4e-6,
    )
    session.add(DATA[:8, 0], (3,), name="c", rate=100.0, starting_time=7.099)
    session.write(path)
    source = opened(path)
    expected = np.zeros((4, 1000))
    expected[:3] = DATA.T * 1e-6
    expected[3, 250:650] = DATA[:400, 0] * 4e-6 + 2e-6
    np.testing.assert_allclose(physical(source), expected, rtol=1e-12, atol=1e-18)
    np.testing.assert_allclose(whole(source, 1), [[0] * 10 + DATA[:8, 0].tolist()])
    first, second = source.groups
    assert first.gaps == ()
    assert [channel.unrecorded for channel in first.channels] == [0, 0, 0, 600]
    assert second.gaps == ((0, 10),)
    assert [channel.unrecorded for channel in second.channels] == [0]


def test_series_inside_lfp(path: Path) -> None:
    session = Session()
    session.file.add_acquisition(LFP(electrical_series=session.series()))
    session.write(path)
    np.testing.assert_array_equal(whole(opened(path)), DATA.T)


# Times.


def with_times(path: Path, times: np.ndarray[Any, Any]) -> None:
    session = Session()
    first = session.add(timestamps=times, name="a")
    session.file.add_acquisition(
        session.series(timestamps=first, name="b", rows=(1, 2, 3))
    )  # b's times are a soft link to a's
    session.write(path)


@pytest.mark.parametrize("rate", [512.0, 1017.2526, 1000 / 3])
def test_regular_times_give_the_rate(path: Path, rate: float) -> None:
    jitter = np.random.default_rng(1).uniform(-1e-5, 1e-5, 1000) * (np.arange(1000) % 999 > 0)
    with_times(path, 1e6 + np.arange(1000) / rate + jitter)
    source = opened(path)
    (group,) = source.groups
    assert abs(float(group.rate) / rate - 1) * 1000 < 0.02  # samples, over the whole recording
    assert group.n_samples == 1000
    assert len(group.channels) == 6
    np.testing.assert_array_equal(whole(source), np.concatenate([DATA.T, DATA.T]))


def test_gaps_in_the_times_are_zeros(path: Path) -> None:
    times = np.arange(1000) / 250.0
    times[300:] += 1.0
    times[999:] += 0.5
    with_times(path, times)
    source = opened(path)
    assert source.groups[0].rate == 250
    assert source.groups[0].gaps == ((300, 550), (1249, 1374))
    assert not any(channel.unrecorded for channel in source.groups[0].channels)
    expected = np.zeros((6, 1375), np.int16)
    for first, last, place in ((0, 300, 0), (300, 999, 550), (999, 1000, 1374)):
        expected[:, place : place + last - first] = np.tile(DATA[first:last].T, (2, 1))
    samples = whole(source)
    assert samples.dtype == np.int16
    np.testing.assert_array_equal(samples, expected)
    np.testing.assert_array_equal(source.read(0, 299, 551), expected[:, 299:551])
    np.testing.assert_array_equal(source.read(0, 400, 500), expected[:, 400:500])


@pytest.mark.parametrize(
    "times",
    [
        np.repeat(np.arange(250) / 10.0, 4),
        np.arange(1000)[::-1] / 10.0,
        np.full(1000, np.nan),
        np.r_[np.arange(999) / 10.0, 5.0],
        np.cumsum(np.where(np.arange(1000) < 500, 1.0, 1.3)),
    ],
    ids=["packets", "backwards", "nan", "goes back", "two rates"],
)
def test_irregular_times_are_no_continuous_recording(path: Path, times: Any) -> None:
    with_times(path, times)
    fails(path, FailureCode.NOT_CONTINUOUS)


def test_what_one_series_alone_did_not_record(path: Path) -> None:
    """Of 1500 samples: a pauses in 400:900, b in 600:1100; neither records 600:900."""
    session = Session()
    for name, before in (("a", 400), ("b", 600)):
        times = (np.arange(1000) + 500 * (np.arange(1000) >= before)) / 250.0
        session.add(timestamps=times, name=name)
    session.add(DATA[:900, :1], (2,), timestamps=np.arange(900) / 250.0, name="c")
    session.write(path)
    (group,) = opened(path).groups
    assert (group.n_samples, group.gaps) == (1500, ())
    assert [channel.unrecorded for channel in group.channels] == [500] * 6 + [600]
    with h5py.File(path, "r+") as file:
        del file["acquisition/c"]
    (group,) = opened(path).groups
    assert (group.n_samples, group.gaps) == (1500, ((600, 900),))
    assert [channel.unrecorded for channel in group.channels] == [200] * 6


def test_a_timeline_that_is_almost_all_gap(path: Path) -> None:
    with_times(path, np.r_[np.arange(999) / 250.0, 1e9])
    fails(path, REFUSED)


def test_the_simplest_rate_drifts_far_less_than_a_sample() -> None:
    assert simplest_rate(512 * (1 + 1e-9), 10**6) == 512
    assert simplest_rate(511.7, 10**9) == Fraction(5117, 10)
    assert abs(simplest_rate(511.99961, 10**8) / Fraction(511.99961) - 1) * 10**8 < 0.011


# What is nobody's business.


def test_only_technical_facts_are_kept(path: Path) -> None:
    session = Session()
    session.add(description=SECRET, comments=SECRET)
    session.write(path)
    source = opened(path)
    assert source.facts.technical.keys() == {"electrical_series", "nwb_version"}
    assert SECRET not in repr((source.facts, source.groups))


# Hostile and damaged files.


Change = Callable[[h5py.File], None]
ES = "acquisition/ElectricalSeries"


@cache
def sound() -> bytes:
    """A file of which tests damage a copy."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "sound.nwb"
        session = Session()
        session.add(H5DataIO(DATA, chunks=(100, 3), compression="gzip"))
        session.write(file)
        return file.read_bytes()


def changed(path: Path, change: Change) -> None:
    path.write_bytes(sound())
    with h5py.File(path, "r+") as file:
        change(file)


def replaced(name: str, value: Any, **how: Any) -> Change:
    def change(file: h5py.File) -> None:
        attributes = dict(file[name].attrs)
        del file[name]
        if isinstance(value, h5py.SoftLink | h5py.ExternalLink):
            file[name] = value
        else:
            node = file.create_dataset(name, data=value, **how)
            node.attrs.update(attributes)

    return change


def other_file(path: Path) -> Path:
    other = path.with_name("secret.h5")
    with h5py.File(other, "w") as file:
        file["data"] = DATA
        file.create_group("g")["data"] = DATA
    path.with_name("secret.raw").write_bytes(DATA.tobytes())
    return other


@pytest.mark.parametrize("absolute", [True, False])
@pytest.mark.parametrize("name", ["acquisition", ES, f"{ES}/data", f"{ES}/starting_time"])
def test_links_to_other_files(path: Path, name: str, absolute: bool) -> None:
    other = other_file(path)
    target = str(other) if absolute else other.name
    changed(path, replaced(name, h5py.ExternalLink(target, "/data")))
    assert "refused" in fails(path, REFUSED)


def test_a_soft_link_through_another_file(path: Path) -> None:
    other = other_file(path)

    def change(file: h5py.File) -> None:
        file["away"] = h5py.ExternalLink(other.name, "/")
        replaced(f"{ES}/data", h5py.SoftLink("/away/g/data"))(file)

    changed(path, change)
    assert "refused" in fails(path, REFUSED)


def test_soft_links_in_a_circle(path: Path) -> None:
    changed(path, replaced(f"{ES}/data", h5py.SoftLink(f"/{ES}/data")))
    assert "refused" in fails(path, REFUSED)


def test_a_virtual_dataset(path: Path) -> None:
    other = other_file(path)
    layout = h5py.VirtualLayout((1000, 3), "i2")
    layout[:] = h5py.VirtualSource(str(other), "data", (1000, 3))

    def change(file: h5py.File) -> None:
        del file[f"{ES}/data"]
        file.create_virtual_dataset(f"{ES}/data", layout)

    changed(path, change)
    assert "refused" in fails(path, REFUSED)


def test_raw_data_in_another_file(path: Path) -> None:
    other_file(path)
    external = [(str(path.with_name("secret.raw")), 0, DATA.nbytes)]
    changed(path, replaced(f"{ES}/data", None, shape=(1000, 3), dtype="i2", external=external))
    assert "refused" in fails(path, REFUSED)


@pytest.mark.parametrize("chunks", [None, (1000, 3)])
@pytest.mark.parametrize("shape", [(10**12, 3), (10, 10**11)])
def test_claims_of_a_thousand_gigabytes(
    path: Path, chunks: tuple[int, int] | None, shape: tuple[int, int]
) -> None:
    how: dict[str, Any] = {"compression": "gzip", "chunks": chunks} if chunks else {}
    if shape[0] == 10 and chunks:
        how["chunks"] = (10, 1000)
    changed(path, replaced(f"{ES}/data", None, shape=shape, dtype="i2", **how))
    fails(path, CORRUPT)


def test_a_chunk_that_no_machine_should_unpack(path: Path) -> None:
    def change(file: h5py.File) -> None:
        del file[f"{ES}/data"]
        node = file.create_dataset(
            f"{ES}/data",
            (1000, 3),
            "i2",
            maxshape=(None, 3),
            chunks=(1 << 26, 3),
            compression="gzip",
        )
        node.id.write_direct_chunk((0, 0), b"x" * 5_000_000)

    changed(path, change)
    fails(path, FailureCode.RECORDING_TOO_LARGE)


def attribute(node: str, name: str, value: Any) -> Change:
    def change(file: h5py.File) -> None:
        file[node].attrs[name] = value

    return change


@pytest.mark.parametrize(
    "change",
    [
        attribute(f"{ES}/starting_time", "rate", np.nan),
        attribute(f"{ES}/starting_time", "rate", -5.0),
        attribute(f"{ES}/starting_time", "rate", 1e300),
        attribute(f"{ES}/starting_time", "rate", "fast"),
        attribute(f"{ES}/data", "conversion", 0.0),
        attribute(f"{ES}/data", "conversion", np.inf),
        attribute(f"{ES}/data", "offset", np.nan),
        replaced(f"{ES}/starting_time", np.inf),
        replaced(f"{ES}/data", np.zeros((1000, 3), "S4")),
        replaced(f"{ES}/data", np.zeros((3, 1000), "i2")),
        replaced(f"{ES}/data", np.zeros((4, 2, 3, 4), "i2")),
        replaced(f"{ES}/data", np.zeros(7, [("a", "i2")])),
        replaced(f"{ES}/electrodes", np.array([0, 1, 999])),
        replaced(f"{ES}/electrodes", np.array([0, -1, 2])),
    ],
    ids=lambda change: None,
)
def test_values_that_no_recording_has(path: Path, change: Change) -> None:
    changed(path, change)
    fails(path, CORRUPT)


@pytest.mark.parametrize("size", [0, 2**64 - 16, 2**64 - 20])
def test_a_heap_of_texts_that_never_ends(path: Path, size: int) -> None:
    changed(path, lambda file: None)
    content = bytearray(path.read_bytes())
    heap = content.index(b"GCOL")
    content[heap + 5] = 7  # reserved
    entry = heap + 16 + 16 + -(-int.from_bytes(content[heap + 24 : heap + 32], "little") // 8) * 8
    content[entry : entry + 8] = (0 if size == 0 else 2).to_bytes(8, "little")
    content[entry + 8 : entry + 16] = size.to_bytes(8, "little")
    path.write_bytes(content)
    assert "heap" in fails(path, CORRUPT)


@pytest.mark.parametrize("dtype", ["f4", "f8", "i8", "u2"])
def test_numbers_of_any_type(path: Path, dtype: str) -> None:
    def change(file: h5py.File) -> None:
        file[f"{ES}/starting_time"].attrs["rate"] = np.array(512, dtype)
        file[f"{ES}/data"].attrs["conversion"] = np.array([2], dtype)
        file[f"{ES}/data"].attrs["unit"] = np.bytes_("millivolts")
        file[f"{ES}/data"].attrs["offset"] = np.array(-3 if dtype != "u2" else 3, dtype)

    changed(path, change)
    group = opened(path).groups[0]
    assert group.rate == 512
    offset = 3 if dtype == "u2" else -3
    assert [(c.gain, c.offset, c.unit) for c in group.channels] == [(2, offset, "mV")] * 3


def test_a_conversion_in_single_precision(path: Path) -> None:
    changed(path, attribute(f"{ES}/data", "conversion", np.float32(1e-6)))
    assert {channel.gain for channel in opened(path).groups[0].channels} == {1e-6}


@pytest.mark.parametrize("version", ["1.0.6", "NWB-1.0.6", ""])
def test_another_version(path: Path, version: str) -> None:
    changed(path, attribute("/", "nwb_version", version))
    assert "version" in fails(path, FailureCode.UNSUPPORTED_FORMAT)


def test_snippets(path: Path) -> None:
    changed(path, replaced(f"{ES}/data", np.zeros((4, 3, 30), "i2")))
    fails(path, FailureCode.NOT_CONTINUOUS)


@pytest.mark.parametrize("name", ["acquisition", ES])
def test_without_a_series(path: Path, name: str) -> None:
    def change(file: h5py.File) -> None:
        del file[name]

    changed(path, change)
    fails(path, FailureCode.EMPTY_RECORDING)


@pytest.mark.parametrize("share", [0, 0.1, 0.5, 0.99])
def test_cut_short(path: Path, share: float) -> None:
    changed(path, lambda file: None)
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    fails(path, CORRUPT)
