from __future__ import annotations

import csv
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from converter.dataset.discovery import discover
from converter.dataset.recording import Recording, Sidecars
from converter.dataset.repository import Repository
from converter.dataset.snapshot import Snapshot

from .trees import Content, Link, listed, snapshot_of


def found(*paths: str) -> dict[str, Recording]:
    return {recording.path: recording for recording in discover(listed(*paths))}


def member_paths(recording: Recording) -> list[str]:
    return [entry.path for entry in recording.members]


def test_names_of_any_kind_in_raw_trees_only() -> None:
    raw = [
        "mycode/sub-01_eeg.edf",
        "sub-01/eeg/sub-01_task-rest_epo_eeg.set",
        'sub-01/eeg/sub-01 it\'s "ü"_eeg.EDF',
        "sub-01/ieeg/sub-01_ieeg.nwb",
        "sub-01/ses-1/emg/sub-01_ses-1_emg.bdf",
        "sub-01_derivatives/meg/sub-01_meg.fif",
        "sub-02_eeg.xyz",
        "sub-03_eeg",
    ]
    others = [
        "derivatives/clean/sub-01/eeg/sub-01_eeg.edf",
        "sub-01/derivatives/sub-01_eeg.edf",
        "sourcedata/sub-01_eeg.edf",
        "sub-01/eeg/code/sub-01_eeg.edf",
        ".nemar/sub-01_eeg.edf",
        "sub-01/.git/sub-01_eeg.edf",
        "sub-01/eeg/._sub-01_eeg.edf",
        "sub-01/eeg/eeg.edf",
        "sub-01/eeg/sub-01_EEG.edf",
        "sub-01/beh/sub-01_beh.tsv",
        "sub-01/anat/sub-01_T1w.nii.gz",
    ]
    assert sorted(found(*raw, *others)) == sorted(raw)


def test_identity() -> None:
    path = "sub-01/ses-2/eeg/sub-01_ses-2_task-rest_run-1_eeg.EDF"
    recording = found(path)[path]
    assert recording.zarr == "sub-01/ses-2/eeg/sub-01_ses-2_task-rest_run-1_eeg.zarr"
    assert (recording.modality, recording.extension) == ("eeg", ".edf")
    assert recording.entities == {"sub": "01", "ses": "2", "task": "rest", "run": "1"}
    assert pickle.loads(pickle.dumps(recording)) == recording
    compressed = found("sub-01_meg.fif.gz")["sub-01_meg.fif.gz"]
    assert (compressed.zarr, compressed.extension) == ("sub-01_meg.zarr", ".fif.gz")


def test_companions_are_members_or_nothing() -> None:
    recordings = found(
        *("a_eeg.vhdr", "a_eeg.eeg", "a_eeg.vmrk", "a_eeg.json", "a_channels.tsv"),
        *("b_eeg.VHDR", "b_eeg.dat", "b_eeg.VMRK"),
        *("c_eeg.ahdr", "c_eeg.adat", "c_eeg.amrk"),
        *("d_eeg.set", "d_eeg.fdt"),
        *("e_eeg.eeg", "e_eeg.vmrk"),
        *("f_eeg.fdt", "g_eeg.adat", "h_eeg.bak", "h_eeg.set.bak", "i_eeg.json", "j_eeg.tsv.gz"),
        *("k_meg.sqd", "k_markers.sqd", "k_meg.mrk", "k_meg.elp", "k_meg.hsp", "k_meg.pos"),
        *("k_headshape.pos", "k_acq-crosstalk_meg.fif", "k_acq-calibration_meg.dat"),
        "l_acq-calibration_meg.fif",
        *("m_ieeg.lay", "m_ieeg.dat", "n_ieeg.EEG", "n_ieeg.21E", "n_ieeg.PNT", "n_ieeg.LOG"),
        *("o_eeg.cdt", "o_eeg.cdt.dpa", "o_eeg.cdt.ceo", "p_eeg.cdt", "p_eeg.cdt.dpo"),
        *("q_eeg.dat", "q_eeg.dap", "q_eeg.rs3", "q_eeg.cef", "r_eeg.cnt", "r_eeg.evt"),
        *("s_eeg.set", "s_eeg.dat"),
    )
    assert {path: member_paths(r) for path, r in recordings.items()} == {
        "a_eeg.vhdr": ["a_eeg.vhdr", "a_eeg.eeg", "a_eeg.vmrk"],
        "b_eeg.VHDR": ["b_eeg.VHDR", "b_eeg.VMRK", "b_eeg.dat"],
        "c_eeg.ahdr": ["c_eeg.ahdr", "c_eeg.adat", "c_eeg.amrk"],
        "d_eeg.set": ["d_eeg.set", "d_eeg.fdt"],
        "e_eeg.eeg": ["e_eeg.eeg"],
        "g_eeg.adat": ["g_eeg.adat"],
        "k_meg.sqd": ["k_meg.sqd"],
        "l_acq-calibration_meg.fif": ["l_acq-calibration_meg.fif"],
        "m_ieeg.lay": ["m_ieeg.lay", "m_ieeg.dat"],
        "n_ieeg.EEG": ["n_ieeg.EEG", "n_ieeg.21E"],
        "o_eeg.cdt": ["o_eeg.cdt", "o_eeg.cdt.dpa"],
        "p_eeg.cdt": ["p_eeg.cdt", "p_eeg.cdt.dpo"],
        "q_eeg.dat": ["q_eeg.dat", "q_eeg.dap", "q_eeg.rs3"],
        "r_eeg.cnt": ["r_eeg.cnt"],
        "s_eeg.set": ["s_eeg.set", "s_eeg.dat"],
    }
    assert not any(recording.conflict for recording in recordings.values())


def test_directory_recordings_hold_all_beneath() -> None:
    paths = [
        *("s/a_meg.ds/a_meg.meg4", "s/a_meg.ds/hz.ds/hz_meg.fif", "s/a_meg.ds/a_meg.res4"),
        *("s/b_eeg.mff/signal1.bin", "s/c_ieeg.MEFD/x.timd/x.segd/x.tdat"),
        *("s/d_meg/c,rfDC", "s/d_meg/config", "s/d_meg/hs_file"),
        *("s/e_meg/config", "s/e_meg/sub-01_meg.fif"),
        *("s/f_eeg.nested/data", "s/raw.ds/g_meg.fif", "s/h_eeg/c,rf0", "s/h_eeg/config"),
        *("derivatives/i_meg.ds/i.meg4", "code/j_meg/config", "code/j_meg/c,rf1"),
    ]
    recordings = found(*paths)
    assert {path: (r.zarr, r.extension) for path, r in recordings.items()} == {
        "s/a_meg.ds": ("s/a_meg.zarr", ".ds"),
        "s/b_eeg.mff": ("s/b_eeg.zarr", ".mff"),
        "s/c_ieeg.MEFD": ("s/c_ieeg.zarr", ".mefd"),
        "s/d_meg": ("s/d_meg.zarr", ""),
        "s/e_meg/sub-01_meg.fif": ("s/e_meg/sub-01_meg.zarr", ".fif"),
        "s/f_eeg.nested": ("s/f_eeg.zarr", ".nested"),
    }
    assert member_paths(recordings["s/a_meg.ds"]) == sorted(paths[:3])
    bti = ["s/d_meg/c,rfDC", "s/d_meg/config", "s/d_meg/hs_file"]
    assert member_paths(recordings["s/d_meg"]) == bti


def test_a_split_chain_is_one_recording_at_its_lowest_split() -> None:
    recordings = found(
        *(f"sub-01_run-{run}_split-{split}_meg.fif" for run in "12" for split in (10, "02", "01")),
        "sub-01_run-1_meg.fif",
        "sub-02_split-02_meg.fif",
        *("sub-03_split-01_eeg.edf", "sub-03_split-02_eeg.edf"),
    )
    assert {path: r.split_members for path, r in recordings.items()} == {
        **{
            f"sub-01_run-{run}_split-01_meg.fif": tuple(
                f"sub-01_run-{run}_split-{split}_meg.fif" for split in ("01", "02", "10")
            )
            for run in "12"
        },
        "sub-01_run-1_meg.fif": (),
        "sub-02_split-02_meg.fif": (),
        "sub-03_split-01_eeg.edf": (),
        "sub-03_split-02_eeg.edf": (),
    }
    chain = recordings["sub-01_run-1_split-01_meg.fif"]
    assert chain.zarr == "sub-01_run-1_split-01_meg.zarr"
    assert tuple(member_paths(chain)) == chain.split_members


def test_one_of_several_sources_owns_a_store_name() -> None:
    recordings = found(
        *("a_eeg.edf", "a_eeg.set", "a_eeg.fdt", "a_eeg.xyz"),
        *("b_meg.fif", "b_meg/config", "b_meg/c,rfDC"),
        *("c_eeg.EDF", "c_eeg.edf"),
        *("x/d_eeg.set", "y/d_eeg.set"),
        *("e_ieeg.mefd/A.timd/A-000000.segd/A-000000.tmet", "e_ieeg.nwb"),
    )
    assert {path: r.conflict for path, r in recordings.items()} == {
        **{"a_eeg.edf": None, "a_eeg.set": "a_eeg.edf", "a_eeg.xyz": "a_eeg.edf"},
        **{"b_meg.fif": None, "b_meg": "b_meg.fif"},
        **{"c_eeg.EDF": None, "c_eeg.edf": "c_eeg.EDF"},
        **{"x/d_eeg.set": None, "y/d_eeg.set": None},
        **{"e_ieeg.nwb": None, "e_ieeg.mefd": "e_ieeg.nwb"},
    }


def test_links(tmp_path: Path) -> None:
    tree: dict[str | bytes, Content] = {
        "stimuli/x.edf": b"data",
        "stimuli/x.ds/x.meg4": b"samples",
        "stimuli/bad.ds/x.meg4": Link("/etc/passwd"),
        "stimuli/nested.ds/more": Link("../x.ds"),
        "stimuli/plain/sub-09_eeg.edf": b"seen in its own directory only",
        "sub-01/a_eeg.edf": Link("../stimuli/x.edf"),
        "sub-01/b_meg.ds": Link("../stimuli/x.ds"),
        "sub-01/c_eeg.edf": Link("/etc/passwd"),
        "sub-01/d_eeg.vhdr": b"header",
        "sub-01/d_eeg.eeg": Link("../../../secret"),
        "sub-01/e_meg.ds": Link("../stimuli/bad.ds"),
        "sub-01/f_meg.ds": Link("../stimuli/nested.ds"),
        "sub-01/g_eeg.edf": Link("/dev/zero"),
        "sub-01/g_eeg.set": b"data",
        "sub-01/a_channels.tsv": Link("/etc/passwd"),
        "sub-01/eeg": Link("../stimuli/plain"),
    }
    recordings = {r.path: r for r in discover(snapshot_of(tmp_path / "r", tree))}
    assert {path: r.refused is not None for path, r in recordings.items()} == {
        "stimuli/plain/sub-09_eeg.edf": False,
        "sub-01/a_eeg.edf": False,
        "sub-01/b_meg.ds": False,
        "sub-01/c_eeg.edf": True,
        "sub-01/d_eeg.vhdr": True,
        "sub-01/e_meg.ds": True,
        "sub-01/f_meg.ds": True,
        "sub-01/g_eeg.edf": True,
        "sub-01/g_eeg.set": False,
    }
    assert recordings["sub-01/g_eeg.set"].conflict is None
    assert recordings["sub-01/g_eeg.edf"].conflict == "sub-01/g_eeg.set"
    (member,) = recordings["sub-01/b_meg.ds"].members
    assert (member.path, member.size) == ("sub-01/b_meg.ds/x.meg4", len("samples"))
    assert recordings["sub-01/a_eeg.edf"].sidecars.channels is None
    refused = recordings["sub-01/d_eeg.vhdr"].refused
    assert refused is not None
    assert refused.startswith("sub-01/d_eeg.eeg is a symbolic link that leads out of")


def test_the_real_recordings(
    real_dir: Path, tmp_path: Path, repository_of: Callable[[Path, Path], str]
) -> None:
    commit = repository_of(real_dir / "dataset", tmp_path / "r")
    recordings = discover(Snapshot.read(Repository(tmp_path / "r"), commit))
    with (real_dir / "expected.tsv").open(encoding="utf-8", newline="") as file:
        expected = {row["path"] for row in csv.DictReader(file, delimiter="\t")}
    assert {recording.path for recording in recordings} == expected
    by_path = {recording.path: recording for recording in recordings}
    shielded = by_path["sub-21/meg/sub-21_task-rest_meg.fif"].sidecars
    assert shielded.calibration is not None
    assert shielded.crosstalk is not None
    assert by_path["sub-22/meg/sub-22_task-rest_meg.fif"].sidecars.calibration is None


@pytest.mark.parametrize(
    ("name", "extension", "count"),
    [
        ("on007315", ".set", 14),
        ("on006720", ".fif", 223),
        ("nm000105", ".bdf", 100),
        ("on004588", ".set", 42),
    ],
)
def test_real_trees(real_dir: Path, tmp_path: Path, name: str, extension: str, count: int) -> None:
    make = [sys.executable, str(real_dir / "make_tree.py")]
    listing = real_dir / "trees" / f"{name}.tsv"
    subprocess.run([*make, str(listing), str(tmp_path / "r")], check=True, capture_output=True)
    repository = Repository(tmp_path / "r")
    recordings = discover(Snapshot.read(repository, repository.resolve("HEAD")))
    assert len(recordings) == count
    assert {recording.extension for recording in recordings} == {extension}
    assert all(entry.key for recording in recordings for entry in recording.members)
    assert all(recording.sidecars.channels for recording in recordings)
    if name == "on006720":
        # The sessions of the empty room have no calibration files of their own.
        calibrated = {r.entities["sub"] for r in recordings if r.sidecars.calibration}
        crossed = {r.entities["sub"] for r in recordings if r.sidecars.crosstalk}
        assert calibrated == crossed
        assert calibrated == {r.entities["sub"] for r in recordings} - {"emptyroom"}


def test_a_tree_of_many_recordings(tmp_path: Path) -> None:
    def tree() -> dict[str | bytes, Content]:
        files: dict[str | bytes, Content] = {}
        for number in range(1500):
            stem = f"sub-{number // 10:04}/eeg/sub-{number // 10:04}_task-x_run-{number % 10}"
            key = f"SHA256E-s{number}--{number:064x}.edf"
            files[f"{stem}_eeg.edf"] = Link(f"../../.git/annex/objects/00/00/{key}/{key}")
            files[f"{stem}_eeg.json"] = b'{"number": %d}' % number
            files[f"{stem}_channels.tsv"] = b"name\ttype\tunits\nx%d\tEEG\tuV\n" % number
            files[f"{stem}_events.tsv"] = b"onset\tduration\n%d\t0\n" % number
        return files

    snapshot = snapshot_of(tmp_path / "r", tree())
    recordings = discover(snapshot)
    assert [recording.size for recording in recordings] == list(range(1500))
    for number, recording in enumerate(recordings):
        stem = f"sub-{number // 10:04}/eeg/sub-{number // 10:04}_task-x_run-{number % 10}"
        assert (recording.path, recording.zarr) == (f"{stem}_eeg.edf", f"{stem}_eeg.zarr")
        assert recording.sidecars == Sidecars(
            channels=snapshot.get(f"{stem}_channels.tsv"),
            events=snapshot.get(f"{stem}_events.tsv"),
            json=tuple(filter(None, [snapshot.get(f"{stem}_eeg.json")])),
        )


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("index.json/sub-01_eeg.edf", "published document"),
        ("events.parquet/eeg/sub-01_eeg.edf", "published document"),
        (f"sub-01/sub-01_task-{'x' * 240}_eeg.edf", "255"),
        (f"sub-01/sub-01_task-{'é' * 120}_eeg.edf", "255"),
        (f"sub-01/sub-01_task-{'x' * 236}_meg.ds/a.res4", "255"),  # 255 bytes, its store's 257
        (f"{'d/' * 450}sub-01_eeg.edf", "900"),
    ],
)
def test_paths_that_cannot_be_laid_out_or_published(path: str, said: str) -> None:
    (recording,) = found(path).values()
    assert recording.refused is not None
    assert said in recording.refused
    fits = ("sub-01/index.json/sub-01_eeg.edf", f"sub-01/sub-01_task-{'x' * 220}_eeg.edf")
    assert [recording.refused for recording in found(*fits).values()] == [None, None]
