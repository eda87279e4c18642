"""Gaps of every format that has them, against arrays with zeros in them and scipy on the whole."""

from __future__ import annotations

import time
from fractions import Fraction
from pathlib import Path
from typing import Any

import mne
import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.signal import resample_poly

from converter.contract.codes import FailureCode, RecordingError
from converter.recording.attributes import StoreContext
from converter.recording.convert import convert_recording
from converter.recording.local import LocalRecording
from converter.recording.readers import open_recording
from converter.recording.readers.gaps import Timeline, check_gaps
from tests.readers.test_brainvision import SAMPLES, STEM, header
from tests.readers.test_edf import Signal, edf_bytes, fails, opened, record, tal
from tests.readers.test_mne_readers import EGI, copied, failure, open_local

CONTEXT = StoreContext("nm099999", "a" * 40, "0", "https://x/zarr/", "2026-01-01T00:00:00Z")


def converted(file: Path, modality: str = "eeg") -> zarr.Group:
    recording = LocalRecording(f"sub-01/{modality}/{file.name}", modality, file)
    store = file.with_suffix(".zarr")
    convert_recording(recording, store.name, store, file.parent, CONTEXT)
    return zarr.open_group(store, mode="r")


def physical(group: zarr.Group) -> np.ndarray[Any, Any]:
    scale, offset = (np.array(group["0"].attrs[key])[:, None] for key in ("scale", "offset"))
    return np.asarray(group["0"][:] * scale + offset)


def resampled(whole: np.ndarray[Any, Any], up: int, down: int) -> np.ndarray[Any, Any]:
    return np.asarray(resample_poly(whole, up, down, axis=1, padtype="edge"))


def check(group: zarr.Group, expected: np.ndarray[Any, Any]) -> None:
    """The store's samples to half a step, and a range no wider than that of the signal."""
    steps = np.array(group["0"].attrs["scale"])
    assert group["0"].shape == expected.shape
    error = np.abs(physical(group) - expected).max(axis=1)
    assert (error <= 0.51 * steps + 1e-6 * np.abs(expected).max(axis=1)).all()
    np.testing.assert_allclose(steps, np.ptp(expected, axis=1) / 65535, rtol=1e-4)


# Records of 1 s: 1000 samples of two channels, 125 of a third.
ONSETS = ["+0.25", "+1.25", "+5.7504", "+6.7504", "+20"]
GAPS = [[2.0, 3.5], [7.5, 12.25]]  # the first one ends at the sample nearest to 5.5004 s
SPRS = (1000, 1000, 125)


def discontinuous(onsets: list[str], sprs: tuple[int, ...], sample_bytes: int = 2) -> Any:
    """A file of random samples, and what each record holds of each signal."""
    rng = np.random.default_rng(3)
    most = (1 << (8 * sample_bytes - 1)) - 1
    ranges: dict[str, Any] = {
        "physical": ("-262144", "262143"),
        "digital": (str(-most - 1), str(most)),
    }
    signals = [Signal(f"c{i}", spr, **ranges) for i, spr in enumerate(sprs)]
    kind = "EDF" if sample_bytes == 2 else "BDF"
    text = -(-60 // sample_bytes)
    signals.append(Signal(f"{kind} Annotations", text))
    parts = [[rng.integers(9000, 10000, spr) for spr in sprs] for _ in onsets]
    records = []
    for onset, samples in zip(onsets, parts, strict=True):
        if sample_bytes == 2:
            packed = record(*samples)
        else:
            words = np.concatenate(samples).astype("<i4").view(np.uint8).reshape(-1, 4)
            packed = words[:, :3].tobytes()
        records.append(packed + f"{onset}\x14\x14".encode().ljust(text * sample_bytes, b"\0"))
    version = b"0" if sample_bytes == 2 else b"\xffBIOSEMI"
    return edf_bytes(signals, records, reserved=f"{kind}+D", version=version), parts


def laid_out(parts: Any, places: list[float], signals: list[int], rate: int) -> Any:
    """Raw samples of some signals on their timeline, and where something was recorded."""
    n = round(places[-1] * rate) + rate
    raw, recorded = np.zeros((len(signals), n)), np.zeros(n, bool)
    for samples, place in zip(parts, places, strict=True):
        start = round(place * rate)
        recorded[start : start + rate] = True
        raw[:, start : start + rate] = [samples[signal] for signal in signals]
    return raw, recorded


@pytest.mark.parametrize("sample_bytes", [2, 3])
def test_edf_records_lie_where_their_onsets_say(tmp_path: Path, sample_bytes: int) -> None:
    content, parts = discontinuous(ONSETS, SPRS, sample_bytes)
    path = tmp_path / ("sub-01_eeg.edf" if sample_bytes == 2 else "sub-01_eeg.bdf")
    path.write_bytes(content)
    root = converted(path)
    places = [0, 1, 5.5004, 6.5004, 19.75]
    least = -(1 << (8 * sample_bytes - 1))
    for name, signals, rate, up, down in [
        ("eeg_250hz", [0, 1], 1000, 1, 4),
        ("eeg_125hz", [2], 125, 1, 1),
    ]:
        raw, recorded = laid_out(parts, places, signals, rate)
        gain = 524287 / (2.0 ** (8 * sample_bytes) - 1)
        whole = np.where(recorded, (raw - least) * gain - 262144, 0)
        check(root[name], resampled(whole, up, down))
    metadata = root.attrs["recording_metadata"]
    assert metadata["gaps"] == GAPS
    assert metadata["gap_count"] == 2
    assert metadata["record_onset_error_s"] == pytest.approx(0.0004, abs=1e-6)
    entry = root["eeg_250hz"].attrs
    assert entry["n_samples"] == 5188  # 20.75 s
    assert (entry["gaps"], entry["gap_count"]) == (GAPS, 2)
    # At 125 Hz the nearest samples to 5.5004 and 19.75 s are at 5.504 and 19.752.
    assert root["eeg_125hz"].attrs["gaps"] == [[2.0, 3.504], [7.504, 12.248]]
    assert all(channel["usable_for_inference"] for channel in entry["channels"])


@settings(max_examples=40)
@given(st.data(), st.lists(st.tuples(st.integers(0, 9), st.integers(1, 9)), min_size=1, max_size=6))
def test_any_stretch_of_a_timeline(data: st.DataObject, pieces: list[tuple[int, int]]) -> None:
    gaps, expected, n_recorded = [], [], 0
    for gap, length in pieces:
        if gap:
            gaps.append((len(expected), len(expected) + gap))
        expected += [-1] * gap + list(range(n_recorded, n_recorded + length))
        n_recorded += length
    timeline = Timeline(n_recorded, gaps)
    assert timeline.n_samples == len(expected)
    start = data.draw(st.integers(0, len(expected)))
    stop = data.draw(st.integers(start, len(expected)))
    got = [-1] * (stop - start)
    for at, first, last in timeline.recorded(start, stop):
        got[at : at + last - first] = range(first, last)
    assert got == expected[start:stop]


def test_a_gap_beside_an_electrode_offset(tmp_path: Path) -> None:
    """260 mV and 512 Hz, of which the filter's ripple would be 34 uV: zeros stay zeros."""
    gain, offset = 262144 / (1 << 23), round(260_000 * (1 << 23) / 262144)
    ranges: dict[str, Any] = {"physical": ("-262144", "262143.96875")}
    ranges |= {"digital": ("-8388608", "8388607")}
    signals = [Signal("A1", 512, **ranges), Signal("BDF Annotations", 20)]
    rng = np.random.default_rng(1)
    records, whole = [], np.zeros((1, 30 * 512))
    for second in [*range(8), *range(20, 30)]:
        digits = offset + rng.normal(0, 300, 512).round().astype("<i4")
        whole[0, second * 512 :][:512] = digits * gain
        packed = digits.view(np.uint8).reshape(-1, 4)[:, :3].tobytes()
        records.append(packed + f"+{second}\x14\x14".encode().ljust(60, b"\0"))
    path = tmp_path / "sub-01_eeg.bdf"
    content = edf_bytes(signals, records, reserved="BDF+D", version=b"\xffBIOSEMI")
    path.write_bytes(content)
    root = converted(path)
    assert root.attrs["recording_metadata"]["gaps"] == [[8.0, 12.0]]
    check(root["eeg_250hz"], resampled(whole, 125, 256))
    inside = physical(root["eeg_250hz"])[0, 9 * 250 : 19 * 250]
    assert np.ptp(inside) == 0
    assert abs(inside[0]) <= root["eeg_250hz"]["0"].attrs["scale"][0] / 2


@settings(max_examples=40)
@given(
    st.lists(st.sampled_from([0, 0, 0, 1, 2, 37, 400]), min_size=1, max_size=12),
    st.integers(-(10**6), 10**6),
    st.integers(1, 6),
)
def test_gaps_of_whole_samples_are_found_exactly(
    tmp_path_factory: pytest.TempPathFactory, pauses: list[int], start: int, digits: int
) -> None:
    """Records of 10 samples in 1 s, pauses before them counted in samples of 0.1 s."""
    at, onsets, expected = start, [], []
    for number, pause in enumerate(pauses):
        if pause and number:
            expected.append((at - start, at + pause - start))
        at += pause if number else 0
        onsets.append(f"{at / 10:+.{digits}f}")
        at += 10
    path = tmp_path_factory.mktemp("clock") / "a_eeg.edf"
    source = opened(path, _empty(onsets, 10))
    assert source.groups[0].gaps == tuple(expected)
    assert source.groups[0].n_samples == at - start
    source.close()


def test_any_stretch_of_a_file(tmp_path: Path) -> None:
    content, parts = discontinuous(["+0", "+1", "+2.5", "+3.5", "+9"], (8, 8, 3))
    source = opened(tmp_path / "a_eeg.edf", content)
    raw, recorded = laid_out(parts, [0, 1, 2.5, 3.5, 9], [0, 1], 8)
    rng = np.random.default_rng(0)
    for start, stop in np.sort(rng.integers(0, 81, (60, 2)), axis=1):
        block = source.read(0, int(start), int(stop))
        np.testing.assert_array_equal(np.where(recorded[start:stop], block, 0), raw[:, start:stop])
    source.close()


def _empty(onsets: list[str], spr: int = 1000) -> bytes:
    signals = [Signal("Fp1", spr), Signal("EDF Annotations", 30)]
    records = [record(np.zeros(spr)) + tal(onset, 30) for onset in onsets]
    return edf_bytes(signals, records, reserved="EDF+D")


def test_discontinuous_by_name_only(tmp_path: Path) -> None:
    source = opened(tmp_path / "a_eeg.edf", _empty(["+0.25", "+1.25", "+2.2504"]))
    [group] = source.groups
    assert (group.n_samples, group.gaps) == (3000, ())
    assert source.facts.format == "EDF+"


def test_a_clock_that_drifts_opens_no_gap(tmp_path: Path) -> None:
    """Onsets of another clock than the samples', 0.05 percent fast, then a true gap."""
    onsets = [f"+{i * 1.0005:.4f}" for i in range(40)] + ["+60", "+61.0005"]
    source = opened(tmp_path / "a_eeg.edf", _empty(onsets, 500))
    assert source.groups[0].gaps == ((20_000, 30_000),)
    assert source.facts.technical["record_onset_error_s"] == pytest.approx(0.0195, abs=1e-6)


@pytest.mark.parametrize(
    ("onsets", "sentence"),
    [
        (["+0", "+0.5"], r"record 1 begins at 0.5 s, 0.5 s before the end"),
        (["+0", "+1", "+0", "+1"], r"record 2 begins at 0 s, 2 s before"),
        (["+0", "+5", "+5.9"], r"record 2 begins at 5.9 s, 0.1 s before"),
        (["+5", "-5"], r"record 1 begins at -5 s, 11 s before"),
    ],
)
def test_records_that_overlap_or_go_back(tmp_path: Path, onsets: list[str], sentence: str) -> None:
    with pytest.raises(RecordingError, match=sentence) as caught:
        opened(tmp_path / "a_eeg.edf", _empty(onsets))
    assert caught.value.code is FailureCode.NOT_CONTINUOUS


def test_hostile_clocks(tmp_path: Path) -> None:
    path, began = tmp_path / "a_eeg.edf", time.process_time()
    error = fails(path, _empty(["+0", "+999999999999999"]))
    assert error.code is FailureCode.FILE_READ_ERROR
    assert "2000 recorded samples" in error.message
    short = edf_bytes(
        [Signal("Fp1", 1000), Signal("EDF Annotations", 30)],
        [record(np.zeros(1000)) + tal(onset, 30) for onset in ("+0", "+999999999999999")],
        duration=".0001",
        reserved="EDF+D",
    )
    error = fails(path, short)  # its gap ends beyond 64 bits
    assert error.code is FailureCode.FILE_READ_ERROR
    assert "2000 recorded samples" in error.message
    assert fails(path, _empty(["+0", "one"])).code is FailureCode.CORRUPT_OR_TRUNCATED
    without = edf_bytes([Signal()], [record(np.zeros(4))], reserved="EDF+D")
    assert fails(path, without).code is FailureCode.NOT_CONTINUOUS
    assert time.process_time() - began < 5


def test_timeline_of_gaps() -> None:
    check_gaps("a.fif", 100_000, 1_000)
    with pytest.raises(RecordingError, match=r"a\.fif"):
        check_gaps("a.fif", 100_001, 1_000)


# FIF and MFF, which MNE reads with zeros in their gaps.


def skipping(first_sample: int = 0) -> Any:
    """20 s at 1000 Hz, of which 3 to 5 s, 9 to 10 s and 15 to 16 s are not written."""
    info = mne.create_info([f"EEG {i:03d}" for i in range(40)], 1000.0, "eeg")
    samples = np.random.default_rng(5).normal(1e-3, 1e-5, (40, 20_000))
    raw = mne.io.RawArray(samples, info, first_samp=first_sample, verbose="ERROR")
    raw.set_annotations(mne.Annotations([3, 9, 15], [2, 1, 1], ["BAD_ACQ_SKIP"] * 3))
    return raw


@pytest.mark.parametrize("first_sample", [0, 4321])
def test_fif_skips(tmp_path: Path, first_sample: int) -> None:
    file = tmp_path / "sub-01_meg.fif"
    skipping(first_sample).save(file, buffer_size_sec=1.0, verbose="ERROR")
    root = converted(file, "meg")
    assert root.attrs["recording_metadata"]["gaps"] == [[3, 2], [9, 1], [15, 1]]
    whole = mne.io.read_raw_fif(file, verbose="ERROR").get_data()
    assert not whole[:, 3000:5000].any()
    assert whole[:, 5000].all()
    check(root["meg_250hz"], resampled(whole * 1e6, 1, 4))


def test_fif_skips_of_a_chain(tmp_path: Path) -> None:
    # MNE writes no skips into the second file of a split, so these are two recordings.
    names = [f"sub-01_split-{number:02d}_meg.fif" for number in (1, 2)]
    for name in names:
        skipping().save(tmp_path / name, buffer_size_sec=1.0, verbose="ERROR")
    source = open_local(tmp_path / names[0], split_members=tuple(f"sub-x/meg/{n}" for n in names))
    [group] = source.groups
    zero = ~source.read(0, 0, 40_000).any(axis=0)
    assert group.gaps[:3] == ((3000, 5000), (9000, 10_000), (15_000, 16_000))
    assert group.gaps[3:] == ((23_000, 25_000), (29_000, 30_000), (35_000, 36_000))
    assert zero.sum() == 8000
    assert all(zero[start:stop].all() for start, stop in group.gaps)
    source.close()


def paused(real_dataset: Path, folder: Path) -> tuple[Path, np.ndarray[Any, Any]]:
    """The real MFF as two epochs with a pause of 3.2 s after 8 s, and its samples in volts."""
    whole = mne.io.read_raw_egi(real_dataset / EGI, preload=True, verbose="ERROR")
    file = copied(real_dataset / EGI, folder / "sub-01_eeg.mff")
    (file / "epochs.xml").write_text(
        '<?xml version="1.0" encoding="UTF-8"?><epochs xmlns="http://www.egi.com/epochs_mff">'
        "<epoch><beginTime>0</beginTime><endTime>8000000000</endTime><firstBlock>1</firstBlock>"
        "<lastBlock>1</lastBlock></epoch><epoch><beginTime>11200000000</beginTime>"
        "<endTime>17152000000</endTime><firstBlock>2</firstBlock><lastBlock>2</lastBlock></epoch>"
        "</epochs>"
    )
    for member in ("signal1.bin", "signal2.bin"):
        _as_two_blocks(file / member, 2000)
    return file, whole.get_data()


def _as_two_blocks(path: Path, first: int) -> None:
    content = path.read_bytes()
    head = np.frombuffer(content[:16], "<i4").copy()
    _, header_bytes, block_bytes, n_channels = head.tolist()
    samples = np.frombuffer(content[header_bytes:], "<f4").reshape(n_channels, -1)
    assert samples.nbytes == block_bytes
    offsets = np.arange(n_channels, dtype="<i4")
    parts = []
    for part in (samples[:, :first], samples[:, first:]):
        head[2] = part.nbytes
        rest = content[16 + 4 * n_channels : header_bytes]
        parts += [head.tobytes(), (offsets * part.shape[1] * 4).astype("<i4").tobytes(), rest]
        parts.append(part.tobytes())
    path.write_bytes(b"".join(parts))


def test_a_paused_mff(real_dataset: Path, tmp_path: Path) -> None:
    file, samples = paused(real_dataset, tmp_path)
    root = converted(file)
    assert root.attrs["recording_metadata"]["gaps"] == [[8.0, 3.2]]
    assert root.attrs["recording_metadata"]["gap_count"] == 1
    [group] = [root[name] for name in root.attrs["channel_groups"]]
    pause = np.zeros((len(samples), 800))
    whole = np.concatenate([samples[:, :2000], pause, samples[:, 2000:]], axis=1)
    labels = mne.io.read_raw_egi(real_dataset / EGI, verbose="ERROR").ch_names
    for row, channel in enumerate(group.attrs["channels"]):
        factor = {"uV": 1e6}.get(channel["unit"], 1.0)
        expected = whole[labels.index(channel["label"])] * factor
        step = channel["scale"] if np.ptp(expected) else 0.0
        assert np.abs(physical(group)[row] - expected).max() <= 0.51 * step + 1e-12


def test_an_mff_that_is_almost_all_pause(real_dataset: Path, tmp_path: Path) -> None:
    file, _ = paused(real_dataset, tmp_path)
    epochs = file / "epochs.xml"
    text = epochs.read_text().replace(">11200", ">9011200").replace(">17152", ">9017152")
    epochs.write_text(text)
    assert failure(file).code is FailureCode.FILE_READ_ERROR


def test_no_gap_says_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a_eeg.edf"
    path.write_bytes(edf_bytes([Signal()], [record(np.arange(4))] * 3))
    assert not {"gaps", "gap_count"} & set(converted(path).attrs["recording_metadata"])
    source = open_recording(LocalRecording("sub-01/eeg/a_eeg.edf", "eeg", path))
    assert source.groups[0].rate == Fraction(4)
    source.close()


def test_many_gaps_are_counted_and_the_first_listed(tmp_path: Path) -> None:
    content, _ = discontinuous([f"+{i * 1.5}" for i in range(1203)], (4,))
    path = tmp_path / "a_eeg.edf"
    path.write_bytes(content)
    root = converted(path)
    for listed in (root.attrs["recording_metadata"], root["eeg_4hz"].attrs):
        assert (len(listed["gaps"]), listed["gap_count"]) == (1000, 1202)
        assert listed["gaps"][:2] == [[1.0, 0.5], [2.5, 0.5]]


# BrainVision, whose files join their segments.


def joined(folder: Path, markers: list[str], **common: str) -> Any:
    """The metadata of a recording of 20 samples at 1000 Hz with these lines in its markers."""
    lines = ["Brain Vision Data Exchange Marker File, Version 1.0", "[Marker Infos]", *markers]
    (folder / f"{STEM}.vmrk").write_bytes("\r\n".join(lines).encode("latin-1"))
    (folder / f"{STEM}.vhdr").write_text(header(common=common))
    (folder / f"{STEM}.eeg").write_bytes(np.ascontiguousarray(SAMPLES.T).tobytes())
    root = converted(folder / f"{STEM}.vhdr")
    assert root["eeg_250hz"].attrs["n_samples"] == 5
    return root.attrs["recording_metadata"]


def test_brainvision_segments(tmp_path: Path) -> None:
    segments = [
        "Mk1=New Segment,,1,1,0,20131113161403794232",
        "Mk2=Stimulus,New Segment,3,1,0",
        "; Mk3=New Segment,,4,1,0",
        "Mk3=New Segment,,18,1,0",
        "Mk4=New Segment,after a pause \xe4,6,1,0,20131113161503794232",
        "Mk5=New Segment,,99,1,0",
        "Mk6=New Segment,,-3,1,0",
    ]
    metadata = joined(tmp_path, segments)
    assert metadata["segments"] == [0.005, 0.017]
    assert metadata["segment_count"] == 3
    assert "2013" not in str(metadata)
    assert "gaps" not in metadata


def test_brainvision_of_one_segment(tmp_path: Path, real_dataset: Path) -> None:
    assert "segments" not in joined(tmp_path, ["Mk1=New Segment,,1,1,0,20131113161403794232"])
    (tmp_path / f"{STEM}.vmrk").unlink()
    path = tmp_path / f"{STEM}.vhdr"
    for name in (f"{STEM}.vmrk", "absent.vmrk", "x" * 300, ""):
        path.write_text(header(common={"MarkerFile": name}))
        assert open_local(path).facts.joints == ()
    # Its second segment begins at the second of 251 samples.
    real = open_local(real_dataset / "sub-13" / "eeg" / "sub-13_task-rest_eeg.vhdr")
    assert real.facts.joints == (0.004,)
