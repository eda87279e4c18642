"""Estimates: what follows from formats, sizes, sidecars and rates, and what no estimate exceeds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from converter.dataset.recording import Entry, Recording, Sidecars
from converter.recording.readers import format_of
from converter.work.need import Need, declared_rate, need_of

MB, GB = 10**6, 10**9


def entry(path: str, size: int, *, annexed: bool = True) -> Entry:
    return Entry(path, "120000", "0" * 40, size, f"MD5E-s{size}--0" if annexed else None)


def recording(name: str, *sizes: int, modality: str = "eeg", beside: str = "") -> Recording:
    """A recording of members with these sizes; those after the first have `beside` as extension."""
    stem, dot, extension = name.partition(".")
    path = f"sub-01/{modality}/{name}"
    others = [f"sub-01/{modality}/{stem}{beside}{number or ''}" for number in range(len(sizes) - 1)]
    members = tuple(entry(*pair) for pair in zip([path, *others], sizes, strict=True))
    return Recording(path, "x.zarr", modality, dot + extension, {"sub": "01"}, members)


def need(
    found: Recording, *, is_dir: bool = False, is_fetched: bool = True, rate: float | None = None
) -> Need:
    known = format_of(found.path, is_dir)
    assert known is not None
    return need_of(found, known, is_fetched=is_fetched, rate=rate)


STREAMED = [
    ("sub-01_eeg.edf", False),
    ("sub-01_eeg.bdf", False),
    ("sub-01_eeg.vhdr", False),
    ("sub-01_eeg.gdf", False),
    ("sub-01_eeg.cnt", False),
    ("sub-01_ieeg.lay", False),
    ("sub-01_ieeg.EEG", False),
    ("sub-01_eeg.cdt", False),
    ("sub-01_meg.fif", False),
    ("sub-01_meg.sqd", False),
    ("sub-01_meg.ds", True),
    ("sub-01_meg", True),
]


@pytest.mark.parametrize(("name", "is_dir"), STREAMED)
def test_memory_of_a_streamed_format_does_not_grow(name: str, is_dir: bool) -> None:
    of_one, of_hundred = (need(recording(name, size), is_dir=is_dir) for size in (GB, 100 * GB))
    assert of_one.memory == of_hundred.memory < 500 * MB
    assert of_one.least == of_hundred.least < of_one.memory
    assert of_hundred.scratch > 50 * of_one.scratch


def test_formats_that_hold_their_samples_need_a_multiple_of_their_size() -> None:
    beside = recording("sub-01_eeg.set", MB, 200 * MB, beside=".fdt")
    assert need(beside).memory < 500 * MB
    packed = need(recording("sub-01_meg.fif.gz", GB, modality="meg"))
    assert packed.memory > 7 * GB
    assert packed.least > GB
    assert need(recording("sub-01_eeg.mff", GB), is_dir=True).memory > 8 * GB


@pytest.mark.parametrize(("name", "is_dir"), [("a_ieeg.nwb", False), ("a_ieeg.mefd", True)])
def test_formats_with_a_bounded_buffer(name: str, is_dir: bool) -> None:
    sizes = (MB, GB, 100 * GB)
    small, large, huge = (
        need(recording(name, size, modality="ieeg"), is_dir=is_dir) for size in sizes
    )
    assert small.memory < 400 * MB < large.memory == huge.memory < 800 * MB
    assert huge.least == small.least < 100 * MB
    assert huge.scratch > 200 * GB


def test_a_matrix_inside_a_set_file_is_held_up_to_what_a_reader_keeps() -> None:
    of_inside = [need(recording("sub-01_eeg.set", size)).memory for size in (80 * MB, 177 * GB)]
    beside = need(recording("sub-01_eeg.set", MB, 177 * GB, beside=".fdt")).memory
    # 64 MB are kept; the 160 MB that 80 MB would be as float64 are never there.
    assert of_inside[0] == of_inside[1]
    assert 64 * MB < of_inside[0] - beside < 100 * MB


def test_a_fif_file_that_may_be_corrected_is_held_whole() -> None:
    plain = recording("sub-01_meg.fif", GB, modality="meg")
    calibration, crosstalk = entry("c.dat", 40_000), entry("x.fif", 50_000)
    half = replace(plain, sidecars=Sidecars(calibration=calibration))
    both = replace(plain, sidecars=Sidecars(calibration=calibration, crosstalk=crosstalk))
    assert need(half).memory < GB
    assert need(both).memory > 4 * GB
    # Most such files are not shielded after all, and need no more than others.
    assert need(both).least == need(plain).least


def test_channels_count_as_channels_tsv_has_them_but_not_for_a_small_file() -> None:
    def table(size: int) -> Sidecars:
        return Sidecars(channels=entry("channels.tsv", size, annexed=False))

    large = recording("sub-01_ieeg.edf", GB, modality="ieeg")
    few, many = (need(replace(large, sidecars=table(size))).memory for size in (1000, 60_000))
    assert many - few > 100_000 * 2000  # 2000 rows of 30 bytes
    absurd = need(replace(large, sidecars=table(10 * MB)))
    assert absurd.memory < 4 * GB
    small = recording("sub-01_ieeg.edf", MB, modality="ieeg")
    assert need(replace(small, sidecars=table(60_000))).memory < few + 30 * MB


def test_a_large_events_table_needs_memory() -> None:
    found = recording("sub-01_eeg.edf", MB)
    events = replace(found, sidecars=Sidecars(events=entry("events.tsv", 10 * MB)))
    assert need(events).memory > need(found).memory + 500 * MB
    assert need(events).scratch > need(found).scratch + 50 * MB


def test_scratch_holds_the_served_signal_the_store_and_what_is_fetched() -> None:
    found = recording("sub-01_eeg.edf", GB)
    n_samples = GB // 2
    # float32; int16 and two thirds of it for the views, where nothing can be compressed
    served = n_samples * (4 + 2 + 2 * 2 / 3)
    unknown, fetched = need(found, is_fetched=False), need(found)
    assert served < unknown.scratch < 1.2 * served
    assert fetched.scratch == unknown.scratch + GB
    at_1000, at_100 = (need(found, is_fetched=False, rate=rate) for rate in (1000, 100))
    assert served / 4 < at_1000.scratch < served / 2
    assert at_100.scratch == unknown.scratch
    emg = replace(found, modality="emg")
    assert need(emg, is_fetched=False, rate=1000).scratch == unknown.scratch


def test_files_of_git_are_copied_in_any_case() -> None:
    found = recording("sub-01_eeg.edf", GB)
    in_git = replace(found, members=(entry(found.path, GB, annexed=False),))
    assert need(in_git, is_fetched=False) == need(found, is_fetched=True)


@pytest.mark.parametrize(
    ("documents", "expected"),
    [
        ([], None),
        ([b'{"SamplingFrequency": 500}'], 500.0),
        ([b'{"SamplingFrequency": 500}', b'{"SamplingFrequency": 2048.5}'], 2048.5),
        ([b'{"SamplingFrequency": 500}', b"no JSON"], 500.0),
        ([b'{"SamplingFrequency": "n/a"}'], None),
        ([b'{"SamplingFrequency": true}'], None),
        ([b'{"SamplingFrequency": 0}'], None),
        ([b'{"SamplingFrequency": 1' + b"0" * 400 + b"}"], None),
    ],
)
def test_the_declared_rate(documents: list[bytes], expected: float | None) -> None:
    assert declared_rate(documents) == expected
