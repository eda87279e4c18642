from __future__ import annotations

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from converter.dataset.entities import parse_entities, parse_name
from converter.dataset.inheritance import SidecarIndex
from converter.dataset.recording import Entry, Sidecars

from .trees import listed

RECORDING = "sub-01/ses-1/eeg/sub-01_ses-1_task-rest_run-1_eeg.set"


def applying(*paths: str, to: str = RECORDING) -> Sidecars:
    directory, _, name = to.rpartition("/")
    return SidecarIndex(listed(*paths)).sidecars(directory, parse_name(name))


def paths(entries: tuple[Entry, ...]) -> list[str]:
    return [entry.path for entry in entries]


def test_json_is_merged_from_the_least_to_the_most_specific() -> None:
    ordered = [
        "eeg.json",
        "task-rest_eeg.json",
        "sub-01/sub-01_eeg.json",
        "sub-01/sub-01_task-rest_eeg.json",
        "sub-01/ses-1/eeg/sub-01_ses-1_eeg.json",
        "sub-01/ses-1/eeg/sub-01_ses-1_task-rest_run-1_eeg.json",
    ]
    others = [
        "task-other_eeg.json",
        "task-rest_meg.json",
        "task-rest_acq-x_eeg.json",
        "sub-01/ses-1/eeg/sub-01_ses-1_task-rest_epo_eeg.json",
        "sub-01/ses-1/eeg/sub-01_ses-1_task-rest_run-01_eeg.json",
        "sub-01/ses-2/sub-01_eeg.json",
        "sub-02/task-rest_eeg.json",
        "sub-01/ses-1/eeg/deeper/sub-01_eeg.json",
    ]
    assert paths(applying(*reversed(ordered), *others).json) == ordered
    events = [path.replace("_eeg.json", "_events.json") for path in ordered[1:]]
    assert paths(applying(*events).events_json) == events


def test_one_table_the_most_specific() -> None:
    near, entities = "sub-01/ses-1/eeg/sub-01_channels.tsv", "sub-01/sub-01_ses-1_channels.tsv"
    found = applying("task-rest_channels.tsv", entities, near, "task-rest_events.tsv")
    assert found.channels is not None
    assert found.channels.path == near
    assert found.events is not None
    assert found.events.path == "task-rest_events.tsv"
    tied = applying("sub-01_channels.tsv", "task-rest_channels.tsv", "task-rest_channels.TSV")
    assert tied.channels is not None
    assert tied.channels.path == "sub-01_channels.tsv"


def test_a_label_that_is_no_entity_must_be_shared() -> None:
    path = "sub-01_task-rest_epo_events.tsv"
    assert applying(path).events is None
    assert applying(path, to="sub-01_task-rest_epo_eeg.set").events is not None
    assert applying("sub-01__events.tsv").events is not None


def test_a_chain_has_the_sidecars_of_the_whole() -> None:
    found = applying("sub-01_channels.tsv", to="sub-01_split-01_meg.fif")
    assert found.channels is not None
    assert applying("sub-01_split-02_channels.tsv", to="sub-01_split-01_meg.fif").channels is None


def test_positions_and_their_coordinate_system_are_of_one_space() -> None:
    folder = "sub-01/ses-1/eeg/sub-01_ses-1"

    def pair(*names: str) -> tuple[str | None, str | None]:
        found = applying(*(f"{folder}_{name}" for name in names))
        return (
            found.electrodes and found.electrodes.path.removeprefix(f"{folder}_"),
            found.coordsystem and found.coordsystem.path.removeprefix(f"{folder}_"),
        )

    a, b, plain = "space-A_electrodes.tsv", "space-B_electrodes.tsv", "electrodes.tsv"
    sys_a, sys_b, sys_plain = (
        x.replace("electrodes.tsv", "coordsystem.json") for x in (a, b, plain)
    )
    assert pair(b, sys_b, sys_a) == (b, sys_b)
    assert pair(b, a, sys_b, sys_a) == (a, sys_a)
    assert pair(b, a, plain, sys_a, sys_plain) == (plain, sys_plain)
    assert pair(b, sys_plain, sys_a) == (b, sys_plain)
    assert pair(b, sys_a) == (b, None)
    assert pair(plain, sys_a) == (plain, sys_a)
    assert pair(plain, sys_a, sys_b) == (plain, None)
    assert pair(sys_a) == (None, sys_a)


def test_calibration_files_are_the_nearest() -> None:
    to = "sub-01/ses-1/meg/sub-01_ses-1_task-rest_acq-fast_run-1_meg.fif"
    near = "sub-01/ses-1/meg/sub-01_ses-1_acq-calibration_meg.dat"
    found = applying(
        "acq-calibration_meg.dat", near, "sub-01/sub-01_acq-crosstalk_meg.fif", to, to=to
    )
    assert found.calibration is not None
    assert found.crosstalk is not None
    assert found.calibration.path == near
    assert found.crosstalk.path == "sub-01/sub-01_acq-crosstalk_meg.fif"
    other = applying("sub-02_acq-calibration_meg.dat", "sub-01_acq-x_meg.dat", to=to)
    assert (other.calibration, other.crosstalk) == (None, None)
    assert applying("acq-calibration_meg.dat").calibration is None


def test_a_very_deep_tree() -> None:
    to = "a/" * 2000 + "sub-01_eeg.edf"
    assert paths(applying("eeg.json", to, to=to).json) == ["eeg.json"]


LABELS = [f"{key}-{value}" for key in ("sub", "ses", "task", "run") for value in "12"]
NAMES = st.lists(st.sampled_from(LABELS), unique_by=lambda label: label[:3], max_size=4)
FOLDERS = ["", "sub-1/", "sub-1/ses-1/", "sub-1/ses-1/eeg/", "sub-2/"]


@settings(max_examples=100)
@given(NAMES, st.lists(st.tuples(st.sampled_from(FOLDERS), NAMES), max_size=12))
def test_the_rule_of_bids_said_plainly(
    recording: list[str], sidecars: list[tuple[str, list[str]]]
) -> None:
    """The index finds what a scan over the whole tree with the rule itself finds."""
    to = "sub-1/ses-1/eeg/" + "_".join([*recording, "eeg.set"])
    tree = {folder + "_".join([*name, "eeg.json"]) for folder, name in sidecars}
    own = parse_entities(to.rpartition("/")[2]).items()

    def applies(path: str) -> bool:
        folder, _, name = path.rpartition("/")
        parents = itertools.accumulate(["", "sub-1", "/ses-1", "/eeg"])
        return folder in parents and parse_entities(name).items() <= own

    def specificity(path: str) -> tuple[int, int]:
        return path.count("/"), len(parse_entities(path.rpartition("/")[2]))

    found = paths(applying(*tree, to=to).json)
    assert set(found) == set(filter(applies, tree))
    assert list(map(specificity, found)) == sorted(map(specificity, found))
