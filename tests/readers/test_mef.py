from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import mef3io
import numpy as np
import pytest
from pymef.mef_session import MefSession

from converter.contract.codes import FailureCode, RecordingError
from converter.recording.local import LocalRecording
from converter.recording.readers import mef_files, mef_red, open_recording
from converter.recording.readers.mef import MefSource

CORRUPT = FailureCode.CORRUPT_OR_TRUNCATED
REFUSED = FailureCode.FILE_READ_ERROR
START = 1_600_000_000_000_000
SECOND = 1_000_000
SECRET = "Jane Patient"
Samples = np.ndarray[Any, Any]


class Session:
    """A session as pymef writes it, by the format's own C library."""

    def __init__(self, path: Path, passwords: tuple[str | None, str | None] = (None, None)) -> None:
        self.path = path
        self._passwords = passwords
        self._session = MefSession(str(path), passwords[1], read_metadata=False, new_session=True)

    def add(
        self,
        name: str,
        data: Samples,
        rate: float = 1000.0,
        *,
        after: float = 0,
        segment: int = 0,
        block: int = 1000,
        **section_2: Any,
    ) -> Session:
        """A segment that begins `after` seconds from the start of the session."""
        begin = START + round(after * SECOND)
        end = begin + round(len(data) / rate * SECOND)
        described = {
            "sampling_frequency": rate,
            "units_conversion_factor": 0.5,
            "units_description": "uV",
            "channel_description": SECRET,
            "session_description": SECRET,
        }
        subject = {
            "recording_time_offset": START,
            "subject_name_1": SECRET,
            "subject_name_2": SECRET,
            "subject_ID": SECRET,
            "recording_location": SECRET,
            "GMT_offset": -6 * 3600,
        }
        where = (name, segment, *self._passwords)
        self._session.write_mef_ts_segment_metadata(
            *where, begin, end, described | section_2, subject
        )
        self._session.write_mef_ts_segment_data(*where, block, data.astype(np.int32))
        return self

    def append(self, name: str, data: Samples, *, after: float) -> None:
        begin = START + round(after * SECOND)
        end = begin + len(data) * 1000
        self._session.append_mef_ts_segment_data(
            name, 0, *self._passwords, begin, end, 1000, data.astype(np.int32), True
        )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "sub-01_task-rest_ieeg.mefd"


def opened(path: Path) -> MefSource:
    source = open_recording(LocalRecording(f"sub-01/ieeg/{path.name}", "ieeg", path))
    assert isinstance(source, MefSource)
    return source


def whole(source: MefSource, group: int = 0) -> Samples:
    return np.array(source.read(group, 0, source.groups[group].n_samples))


def fails(path: Path, code: FailureCode) -> str:
    with pytest.raises(RecordingError) as caught:
        whole(opened(path))
    assert caught.value.code is code, caught.value.message
    assert str(path.parent) not in caught.value.message
    assert SECRET not in caught.value.message
    return caught.value.message


RANDOM = np.random.default_rng(0)
WALK = np.cumsum(RANDOM.normal(0, 20, 25_300)).astype(np.int32)
SIGNALS = {
    "small steps": WALK,
    "a sample each": RANDOM.integers(-(2**31) + 2, 2**31 - 1, 5300, np.int64).astype(np.int32),
    "flags inside samples": RANDOM.choice([0x00808080, 0x80, 0x8080, -0x7F7F7F80, 0], 5300),
    "steps of -1 and 127": np.cumsum(RANDOM.choice([-1, 127, -127, -128], 5300)),
    "flat": np.full(70_000, -12345),
    "zero": np.zeros(70_000),
    "extremes": np.tile([-(2**31) + 2, 2**31 - 2, 0], 1000),
    "one sample": np.array([-7]),
    "a block and one sample": WALK[:1001],
}
SIGNALS = {name: signal.astype(np.int32) for name, signal in SIGNALS.items()}


# What other libraries wrote, against the arrays given to them.


@pytest.mark.parametrize("fewest_lanes", [1, 10**9], ids=["side by side", "one by one"])
@pytest.mark.parametrize("name", SIGNALS)
def test_samples(path: Path, name: str, fewest_lanes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mef_red, "FEWEST_LANES", fewest_lanes)
    Session(path).add("LA1", SIGNALS[name])
    source = opened(path)
    (group,) = source.groups
    assert (group.rate, group.n_samples) == (1000, len(SIGNALS[name]))
    samples = whole(source)
    assert samples.dtype == np.int32
    np.testing.assert_array_equal(samples[0], SIGNALS[name])


def test_any_stretch_of_it(path: Path) -> None:
    session = Session(path)
    for index in range(3):
        session.add(f"LA{index}", WALK + index, block=(700, 1000, 5000)[index])
    source = opened(path)
    expected = WALK + np.arange(3)[:, np.newaxis]
    for start, stop in [(0, 1), (1, 701), (999, 1001), (701, 20_000), (20_000, 25_300), (5, 6)]:
        np.testing.assert_array_equal(source.read(0, start, stop), expected[:, start:stop])
    assert source.read(0, 9, 9).shape == (3, 0)


def test_blocks_that_need_more_than_one_batch(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("converter.recording.readers.mef._BATCH_BYTES", 40_000)
    Session(path).add("LA1", WALK, block=500)
    np.testing.assert_array_equal(whole(opened(path))[0], WALK)


def test_what_a_channel_is(path: Path) -> None:
    session = Session(path)
    session.add("LB 2", WALK, acquisition_channel_number=1, units_conversion_factor=-0.25)
    session.add("LA1", WALK, acquisition_channel_number=2, units_description="millivolts")
    session.add("DC1", WALK, acquisition_channel_number=3, units_description=SECRET)
    session.add("DC2", WALK, acquisition_channel_number=4, units_conversion_factor=0.0)
    (path / "video.vidd").mkdir()
    source = opened(path)
    channels = source.groups[0].channels
    assert [(c.label, c.unit, c.gain, c.offset, c.type) for c in channels] == [
        ("LB 2", "uV", -0.25, 0.0, "SEEG"),
        ("LA1", "mV", 0.5, 0.0, "SEEG"),
        ("DC1", "n/a", 0.5, 0.0, "SEEG"),
        ("DC2", "n/a", 1.0, 0.0, "SEEG"),
    ]
    assert source.facts.header_signals == 4


def test_rates_become_groups_on_one_timeline(path: Path) -> None:
    session = Session(path)
    session.add("A", WALK[:5000], 5000.0, after=2.0).add("B", WALK[:700], 512.5, after=2.5)
    session.add("C", WALK[5000:9000], 5000.0, after=2.1)
    source = opened(path)
    assert [(group.rate, group.n_samples) for group in source.groups] == [
        (5000, 5000),
        (512.5, 956),
    ]
    np.testing.assert_array_equal(whole(source)[0], WALK[:5000])
    np.testing.assert_array_equal(whole(source)[1], np.r_[[0] * 500, WALK[5000:9000], [0] * 500])
    np.testing.assert_array_equal(whole(source, 1)[0], np.r_[[0] * 256, WALK[:700]])
    assert [group.gaps for group in source.groups] == [(), ((0, 256),)]
    assert [channel.unrecorded for channel in source.groups[0].channels] == [0, 1000]
    assert [channel.unrecorded for channel in source.groups[1].channels] == [0]


def test_gaps_between_blocks_and_segments_are_zeros(path: Path) -> None:
    session = Session(path).add("A", WALK[:2500])
    session.append("A", WALK[2500:5000], after=5.0)
    session.add("A", WALK[5000:6200], after=7.5, segment=1)
    session.add("A", WALK[6200:7000], after=10.0, segment=2)
    source = opened(path)
    assert source.groups[0].gaps == ((2500, 5000), (8700, 10_000))
    expected = np.zeros(10_800, np.int32)
    for first, last, place in [(0, 2500, 0), (2500, 6200, 5000), (6200, 7000, 10_000)]:
        expected[place : place + last - first] = WALK[first:last]
    np.testing.assert_array_equal(whole(source)[0], expected)
    for start, stop in [(2400, 2500), (2500, 5000), (4999, 5001), (7499, 7501), (8000, 10_800)]:
        np.testing.assert_array_equal(source.read(0, start, stop)[0], expected[start:stop])


def test_an_independent_reader_and_writer(path: Path) -> None:
    volts = RANDOM.normal(0, 50, 30 * 256)
    volts[1000:1500] = np.nan
    with mef3io.Writer(str(path), units="uV", block_length=300) as writer:
        writer.write("LA1", volts, START, fs=256.0)
        writer.write("LA2", volts[::-1].copy(), START, fs=256.0)
    with mef3io.Reader(str(path)) as reader:
        raw = [reader.read_raw(name) for name in ("LA1", "LA2")]
    source = opened(path)
    samples, (first, second) = whole(source), source.groups[0].channels
    for row, theirs in zip(samples, raw, strict=True):
        np.testing.assert_array_equal(row, np.where(theirs["valid"], theirs["samples"], 0))
    physical = samples[0] * first.gain
    np.testing.assert_allclose(physical, np.nan_to_num(volts), atol=first.gain * 0.501)
    assert first.gain == second.gain == raw[0]["units_conversion_factor"]


def test_codes_for_missing_samples(path: Path) -> None:
    data = WALK[:3000].copy()
    data[[7, 1700, 1701]] = -(2**31), -(2**31) + 1, 2**31 - 1
    Session(path).add("A", data)
    samples = opened(path).read(0, 0, 3000)[0]
    assert np.isnan(samples[7])
    assert samples[1700:1702].tolist() == [-np.inf, np.inf]
    kept = np.isfinite(samples)
    assert kept.sum() == 2997
    np.testing.assert_array_equal(samples[kept], data[kept])


def test_an_index_in_many_pieces(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mef_files, "ENTRIES_AT_ONCE", 7)
    session = Session(path).add("A", WALK[:20_000], block=100)
    session.append("A", WALK[20_000:], after=21.0)
    source = opened(path)
    expected = np.r_[WALK[:20_000], [0] * 1000, WALK[20_000:]]
    np.testing.assert_array_equal(whole(source)[0], expected)
    np.testing.assert_array_equal(source.read(0, 12_345, 21_500)[0], expected[12_345:21_500])


def test_block_times_of_a_poor_clock_make_no_gaps(path: Path) -> None:
    Session(path).add("A", WALK)
    index = the(path, ".tidx")
    entries = index_of(path)
    jitter = RANDOM.integers(-200_000, 200_000, len(entries))
    jitter[0] = 0
    entries["time"] = np.abs(entries["time"]) + jitter
    index.write_bytes(index.read_bytes()[:1024] + entries.tobytes())
    np.testing.assert_array_equal(whole(opened(path))[0], WALK)


@pytest.mark.parametrize("pieces", [7, 1 << 14])
def test_short_pauses_between_blocks_do_not_add_up(
    path: Path, pieces: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """26 blocks, of 1 s but for the last, with pauses of 0.9 s that no flag tells of."""
    monkeypatch.setattr(mef_files, "ENTRIES_AT_ONCE", pieces)
    data = np.repeat(np.arange(1, 27), 1000)[:25_300]
    Session(path).add("A", data)
    entries = index_of(path)
    for pause, code in ((0.9, None), (-0.9, CORRUPT)):
        entries["time"] = START + np.round(np.arange(26) * (1 + pause) * SECOND)
        entries["flags"][1:] = 0
        the(path, ".tidx").write_bytes(the(path, ".tidx").read_bytes()[:1024] + entries.tobytes())
        if code:
            fails(path, code)
            continue
        found = whole(opened(path))[0]
        places = np.array([np.argmax(found == at + 1) for at in range(26)])
        assert np.abs(places - 1900 * np.arange(26)).max() <= 1000
        np.testing.assert_array_equal(found[found > 0], data)


@pytest.mark.parametrize("off", [50e-6, -50e-6, -500e-6])
def test_blocks_of_a_clock_that_drifts_make_no_gaps(path: Path, off: float) -> None:
    """A day of a rate that is lower by `off` of itself than it should be."""
    Session(path).add("A", np.zeros(86_400 * 4), rate=4.0, block=600)
    entries = index_of(path)
    assert len(entries) == 576
    entries["time"] = START + np.round(np.arange(576) * 150 * (1 + off) * SECOND)
    the(path, ".tidx").write_bytes(the(path, ".tidx").read_bytes()[:1024] + entries.tobytes())
    [group] = opened(path).groups
    assert (group.n_samples, group.gaps) == (86_400 * 4, ())


# What is nobody's business.


def test_section_3_is_not_even_needed(path: Path) -> None:
    Session(path).add("A", WALK)
    metadata = the(path, ".tmet")
    assert SECRET.encode() in metadata.read_bytes()[13312:]
    metadata.write_bytes(metadata.read_bytes()[:13312])
    source = opened(path)
    np.testing.assert_array_equal(whole(source)[0], WALK)
    assert source.facts.technical == {"mef_version": 3}
    assert SECRET not in repr((source.facts, source.groups))


@pytest.mark.parametrize("passwords", [("first", "second"), ("first", None)])
def test_encrypted_sessions(path: Path, passwords: tuple[str, str | None]) -> None:
    Session(path, passwords).add("A", WALK)
    assert "encrypted" in fails(path, REFUSED)


# Hostile and damaged files.


def the(path: Path, extension: str) -> Path:
    (found,) = path.rglob(f"*{extension}")
    return found


def index_of(path: Path) -> Samples:
    return np.frombuffer(the(path, ".tidx").read_bytes()[1024:], mef_files.INDEX).copy()


def patched(path: Path, extension: str, place: int, content: bytes) -> None:
    file = the(path, extension)
    whole_file = bytearray(file.read_bytes())
    whole_file[place : place + len(content)] = content
    file.write_bytes(whole_file)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("offset", -1),
        ("offset", 2**62),
        ("offset", 1000),
        ("n_samples", 0),
        ("n_samples", 2**32 - 1),
        ("n_samples", 10**9),
        ("n_samples", 999),
        ("n_bytes", 0),
        ("n_bytes", 2**32 - 1),
        ("time", -(2**63)),
        ("flags", 2),
    ],
)
def test_an_index_that_lies(path: Path, field: str, value: int) -> None:
    Session(path).add("A", WALK)
    entries = index_of(path)
    entries[field][3] = value
    the(path, ".tidx").write_bytes(the(path, ".tidx").read_bytes()[:1024] + entries.tobytes())
    fails(path, REFUSED if field == "flags" else CORRUPT)


def test_blocks_that_share_their_bytes(path: Path) -> None:
    Session(path).add("A", np.zeros(4_000_000), block=400_000)
    entries = np.tile(index_of(path)[:1], 100_000)
    entries["time"] = START + np.arange(len(entries)) * 400 * SECOND
    the(path, ".tidx").write_bytes(the(path, ".tidx").read_bytes()[:1024] + entries.tobytes())
    patched(path, ".tidx", 32, np.int64(len(entries)).tobytes())
    patched(path, ".tmet", 8920, np.int64(-1).tobytes())
    assert "blocks of" in fails(path, CORRUPT)


def test_bytes_after_the_last_entry_of_an_index(path: Path) -> None:
    Session(path).add("A", WALK)
    with the(path, ".tidx").open("ab") as file:
        file.write(bytes(100))
    np.testing.assert_array_equal(whole(opened(path))[0], WALK)


@pytest.mark.parametrize("count", [-1, 25, 27, 10**12])
def test_an_index_that_counts_its_entries_wrong(path: Path, count: int) -> None:
    Session(path).add("A", WALK)
    patched(path, ".tidx", 32, np.int64(count).tobytes())
    fails(path, CORRUPT)


@pytest.mark.parametrize("seconds", [10**9, 5 * 10**12])
def test_a_timeline_that_is_almost_all_gap(path: Path, seconds: int) -> None:
    Session(path).add("A", WALK)
    entries = index_of(path)
    entries["time"] = np.abs(entries["time"])
    entries["time"][3:] += seconds * SECOND
    the(path, ".tidx").write_bytes(the(path, ".tidx").read_bytes()[:1024] + entries.tobytes())
    fails(path, REFUSED)


def test_segments_that_overlap(path: Path) -> None:
    Session(path).add("A", WALK).add("A", WALK, after=3.0, segment=1)
    assert "before the end" in fails(path, CORRUPT)


def test_segments_of_different_rates(path: Path) -> None:
    Session(path).add("A", WALK).add("A", WALK, 500.0, after=60.0, segment=1)
    fails(path, REFUSED)


@pytest.mark.parametrize(
    ("place", "content", "code"),
    [
        (1024, b"\1", REFUSED),
        (8720, np.float64(np.nan).tobytes(), CORRUPT),
        (8720, np.float64(-5).tobytes(), CORRUPT),
        (8720, np.float64(1e300).tobytes(), CORRUPT),
        (8760, np.float64(np.inf).tobytes(), CORRUPT),
        (8920, np.int64(10**12).tobytes(), CORRUPT),
        (8, b"tdat", CORRUPT),
        (13, b"\2", FailureCode.UNSUPPORTED_FORMAT),
        (15, b"\0", FailureCode.UNSUPPORTED_FORMAT),
    ],
)
def test_metadata_that_lies(path: Path, place: int, content: bytes, code: FailureCode) -> None:
    Session(path).add("A", WALK)
    patched(path, ".tmet", place, content)
    fails(path, code)


@pytest.mark.parametrize(
    ("place", "content", "code"),
    [
        (4, b"\2", REFUSED),  # flags
        (24, np.float32(2).tobytes(), FailureCode.UNSUPPORTED_FORMAT),  # scale
        (28, np.uint32(2**32 - 1).tobytes(), CORRUPT),  # bytes of differences
        (28, np.uint32(0).tobytes(), CORRUPT),
        (28, np.uint32(1100).tobytes(), CORRUPT),
        (32, np.uint32(10**9).tobytes(), CORRUPT),  # samples
        (36, np.uint32(10**9).tobytes(), CORRUPT),  # bytes
        (48, bytes(256), CORRUPT),  # counts of byte values
        (48, bytes(128) + b"\1" + bytes(127), CORRUPT),
        (48, b"\1" * 256, CORRUPT),
    ],
)
@pytest.mark.parametrize("fewest_lanes", [1, 10**9], ids=["side by side", "one by one"])
def test_a_block_that_lies(
    path: Path,
    place: int,
    content: bytes,
    code: FailureCode,
    fewest_lanes: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(mef_red, "FEWEST_LANES", fewest_lanes)
    Session(path).add("A", WALK)
    patched(path, ".tdat", int(index_of(path)["offset"][3]) + place, content)
    fails(path, code)


@pytest.mark.parametrize("fewest_lanes", [1, 10**9], ids=["side by side", "one by one"])
def test_flipped_bits_end_in_samples_or_a_typed_failure(
    path: Path, fewest_lanes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mef_red, "FEWEST_LANES", fewest_lanes)
    Session(path).add("A", SIGNALS["flags inside samples"][:2000], block=100)
    files = [the(path, extension) for extension in (".tmet", ".tidx", ".tdat")]
    random = np.random.default_rng(3)
    seen = set()
    for number in range(150):
        file = files[number % 3]
        before = file.read_bytes()
        content = bytearray(before)
        first = 8 if number % 2 else 1024
        for place in random.integers(first, len(content), 3).tolist():
            content[place] ^= 1 << int(random.integers(8))
        file.write_bytes(content)
        try:
            seen.add(whole(opened(path)).dtype)
        except RecordingError as error:
            seen.add(error.code)
        file.write_bytes(before)
    assert CORRUPT in seen


@pytest.mark.parametrize("extension", [".tmet", ".tidx", ".tdat"])
@pytest.mark.parametrize("share", [0, 0.3, 0.99])
def test_cut_short(path: Path, extension: str, share: float) -> None:
    Session(path).add("A", WALK)
    file = the(path, extension)
    content = file.read_bytes()[: 8900 if extension == ".tmet" and share > 0.5 else None]
    file.write_bytes(content[: int(share * len(content))])
    fails(path, CORRUPT)


@pytest.mark.parametrize("extension", [".tmet", ".tidx", ".tdat"])
def test_a_file_that_is_not_there(path: Path, extension: str) -> None:
    Session(path).add("A", WALK)
    the(path, extension).unlink()
    assert extension in fails(path, CORRUPT)


@pytest.mark.parametrize("kind", [".timd", ".segd"])
def test_links_to_other_directories(path: Path, kind: str) -> None:
    Session(path).add("A", WALK)
    directory = the(path, kind)
    elsewhere = path.with_name("elsewhere")
    directory.rename(elsewhere)
    directory.symlink_to(elsewhere)
    assert "refused" in fails(path, REFUSED)


def test_a_block_of_each_channel_must_fit(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("converter.recording.readers.mef._MOST_HELD_VALUES", 1500)
    Session(path).add("A", WALK).add("B", WALK)
    fails(path, FailureCode.RECORDING_TOO_LARGE)


Change = Callable[[Path], object]


@pytest.mark.parametrize(
    ("make", "code"),
    [
        (lambda path: path.mkdir(), FailureCode.EMPTY_RECORDING),
        (lambda path: (path / "A.timd").mkdir(parents=True), CORRUPT),
        (lambda path: (path / "A.timd" / "A-000000.segd").mkdir(parents=True), CORRUPT),
    ],
)
def test_nothing_inside(path: Path, make: Change, code: FailureCode) -> None:
    make(path)
    fails(path, code)
