"""Write the fixture dataset: a small BIDS dataset of EEG, MEG, iEEG and EMG, good and bad.

The bytes are the same on every run. Subjects 01 to 07 hold recordings that become stores, 11 to
18 one kind each of what a file can have wrong with it.
"""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import fixture_formats as formats
import numpy as np
from fixture_signals import Channel, Steps, pulses, recording

DEFAULT = Path(__file__).resolve().parent.parent / "fixtures" / "nm099999"
SUBJECTS = (*range(1, 8), *range(11, 19))

Row = Sequence[str | int | float]

README = """\
# Fixture dataset

Made by `scripts/make_fixtures.py`: no person or animal took part. Every signal is a sum of sines
of known frequencies with a little noise, in every format and modality that matters, and every
thing that can be wrong with a file is wrong with one recording.
"""
TRIAL_TYPE = {
    "LongName": "Trial type",
    "Description": "What was shown or heard",
    "Levels": {"tone": "A short pure tone", "flash": "A white flash", "rest": "Eyes open at rest"},
    "HED": {
        "tone": "Sensory-event, Auditory-presentation, Tone",
        "flash": "Sensory-event, Visual-presentation, Flash",
        "rest": "Experiment-control",
    },
}


class Tree:
    """The dataset's folder, and how its text files are written."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def write(self, path: str, content: bytes | str) -> None:
        """A file with this content, at a path below the root."""
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content.encode() if isinstance(content, str) else content)

    def json(self, path: str, content: Mapping[str, Any]) -> None:
        """A JSON sidecar."""
        self.write(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")

    def table(self, path: str, columns: str, rows: Iterable[Row]) -> None:
        """A TSV file; `columns` are its names, separated by spaces."""
        lines = [columns.split(), *([str(cell) for cell in row] for row in rows)]
        self.write(path, "".join("\t".join(line) + "\n" for line in lines))

    def channels(self, path: str, channels: Iterable[Channel], rate: int | str = "n/a") -> None:
        """A channels.tsv; channels of one label get the numbered names that BIDS asks for."""
        listed = list(channels)
        labels = [channel.label for channel in listed]
        rows: list[Row] = []
        for index, channel in enumerate(listed):
            name = channel.label
            if labels.count(name) > 1:
                name += f"-{labels[:index].count(name)}"
            rows.append((name, channel.kind, channel.declared, rate))
        self.table(path, "name type units sampling_frequency", rows)


def eeg(label: str, hz: int, amplitude: float, **other: Any) -> Channel:
    return Channel(label, "EEG", "uV", ((hz, amplitude),), **other)


def write_root(tree: Tree) -> None:
    tree.write("README", README)
    tree.json(
        "dataset_description.json",
        {
            "Name": "Fixtures of nemar-convert",
            "BIDSVersion": "1.11.0",
            "HEDVersion": "8.3.0",
            "DatasetType": "raw",
            "License": "CC0",
            "Authors": ["The nemar-convert developers"],
        },
    )
    subjects = [(f"sub-{number:02}", "synthetic") for number in SUBJECTS]
    tree.table("participants.tsv", "participant_id species", subjects)
    tree.write(".bidsignore", "secret.eeg\n*_eeg.xyz\n")
    tree.json(
        "task-rest_eeg.json",
        {"TaskName": "rest", "EEGReference": "average", "PowerLineFrequency": 50},
    )
    response_time = {"Description": "From the onset to the key press", "Units": "s"}
    levels = {"trial_type": TRIAL_TYPE, "response_time": response_time}
    tree.json("task-rest_events.json", levels)


def write_edf(tree: Tree) -> None:
    """Mixed rates, a repeated label, annotations; positions in a named space."""
    stem = "sub-01/eeg/sub-01_task-rest"
    fast = [
        eeg("Fp1", 6, 30.0),
        eeg("Fp2", 7, 35.0, declared_unit="µV"),
        # 200 Hz would fold to 50 Hz if 250 Hz were served without a filter.
        Channel("Cz", "EEG", "uV", ((10, 40.0), (200, 25.0))),
        eeg("Oz", 11, 50.0),
        eeg("T8-P8", 12, 20.0),
        eeg("T8-P8", 14, 25.0),
    ]
    slow = [
        Channel("Resp", "RESP", "mV", ((1, 2.0),), step=0.001, noise=3, declared_unit="V"),
        Channel("Temp", "TEMP", "degC", (), step=0.001, mean=32.5, noise=20),
    ]
    signals = [
        *zip(fast, recording(fast, 512, 20, "sub-01"), [512] * len(fast), strict=True),
        *zip(slow, recording(slow, 64, 20, "sub-01 slow"), [64] * len(slow), strict=True),
    ]
    notes = [(2.5, None, "eyes open"), (12.0, 3.0, "movement")]
    tree.write(f"{stem}_eeg.edf", formats.edf(signals, notes))
    tree.channels(f"{stem}_channels.tsv", [*fast, *slow])
    tree.table(
        f"{stem}_events.tsv",
        "onset duration trial_type value response_time",
        [
            (1.0, 0.2, "tone", 1, 0.412),
            (4.25, 0.2, "flash", 2, "n/a"),
            (8.0, 0.2, "tone", 1, 0.388),
            (11.5, "n/a", "flash", 2, 0.501),
            (15.0, 4.0, "rest", "n/a", "n/a"),
        ],
    )
    places: list[Row] = [
        ("Fp1", -0.0267, 0.0921, 0.0352),
        ("Fp2", 0.0271, 0.0918, 0.0349),
        ("Cz", 0.0004, -0.0091, 0.1201),
        ("Oz", 0.0002, -0.0889, 0.0411),
        ("T8-P8-0", "n/a", "n/a", "n/a"),
    ]
    positions = "sub-01/eeg/sub-01_space-CapTrak"
    tree.table(f"{positions}_electrodes.tsv", "name x y z", places)
    tree.json(
        f"{positions}_coordsystem.json",
        {"EEGCoordinateSystem": "CapTrak", "EEGCoordinateUnits": "m"},
    )


def write_brainvision(tree: Tree) -> None:
    """A header that names the files as they were called before a renaming."""
    stem = "sub-02/eeg/sub-02_task-rest"
    rate, seconds = 1000, 15
    channels = [
        eeg("Fz", 5, 25.0),
        Channel("Cz", "EEG", "µV", ((10, 45.0), (240, 30.0)), declared_unit="uV"),
        eeg("Pz", 9, 55.0),
        eeg("Oz", 13, 15.0, step=0.05),
        Channel("HEOG", "HEOG", "uV", ((2, 300.0),), step=0.5, declared_unit="mV"),
    ]
    trigger = Channel("TRIG", "TRIG", "n/a", (), step=1.0)
    codes = {2000: 1, 5000: 2, 9000: 1, 12000: 128}
    samples = recording(channels, rate, seconds, "sub-02")
    samples.append(pulses(rate * seconds, codes, width=40))
    channels.append(trigger)
    old_data, old_markers = "pilot_003.eeg", "pilot_003.vmrk"
    header = formats.brainvision_header(channels, rate, old_data, old_markers)
    tree.write(f"{stem}_eeg.vhdr", header)
    tree.write(f"{stem}_eeg.vmrk", formats.brainvision_markers(old_data, codes))
    tree.write(f"{stem}_eeg.eeg", formats.multiplexed(samples, "<i2"))
    tree.channels(f"{stem}_channels.tsv", channels, rate)
    tree.table(
        f"{stem}_events.tsv",
        "onset duration trial_type value",
        [
            (2.0, 0.04, "tone", 1),
            (2.0, 0.04, "flash", 2),
            ("n/a", 0.04, "tone", 1),
            (9.0, 0, "tone", 1),
            (9.0, 0, "tone", 1),
            (12.0, 0.04, "n/a", 128),
        ],
    )


def write_eeglab(tree: Tree) -> None:
    """A session; float samples with a constant, an all-zero and a broken channel."""
    stem = "sub-03/ses-01/eeg/sub-03_ses-01_task-rest"
    rate, seconds = 500, 16
    channels = [
        eeg("F3", 6, 32.0, step=0.01),
        eeg("F4", 8, 28.0, step=0.01),
        eeg("C3", 10, 44.0, step=0.01, mean=150.0),
        Channel("C4", "EEG", "uV", ((10, 36.0), (180, 20.0)), step=0.01),
        Channel("CONST", "MISC", "uV", (), step=0.5, mean=12.5, noise=0),
        Channel("ZERO", "MISC", "uV", (), noise=0),
        eeg("GAPS", 12, 18.0, step=0.01),
    ]
    whole = recording(channels, rate, seconds, "sub-03")
    samples = [row * channel.step for row, channel in zip(whole, channels, strict=True)]
    samples[6][4000:4030] = np.nan
    samples[6][[100, 200]] = np.inf, -np.inf
    header = formats.eeglab(channels, rate, "pilot_007.fdt", rate * seconds)
    tree.write(f"{stem}_eeg.set", header)
    tree.write(f"{stem}_eeg.fdt", formats.multiplexed(samples, "<f4"))
    tree.channels(f"{stem}_channels.tsv", channels, rate)
    # Inherited: it lies a level above the session.
    tree.table(
        "sub-03/sub-03_task-rest_events.tsv",
        "onset duration trial_type",
        [(0.5, 1.0, "rest"), (6.0, 0.1, "flash"), (10.75, 0.1, "flash")],
    )


def write_bdf(tree: Tree) -> None:
    """24 bits, electrode offsets of a quarter of a volt, a BioSemi status channel."""
    stem = "sub-04/eeg/sub-04_task-rest"
    rate, seconds = 512, 12
    step = formats.BDF_STEP
    channels = [
        eeg("A1", 10, 20.0, step=step, mean=260_000.0),
        eeg("A2", 10, 20.0, step=step, mean=-260_000.0),
        eeg("A3", 7, 33.0, step=step),
        eeg("A4", 15, 12.0, step=step, mean=-8_000.0),
    ]
    samples = recording(channels, rate, seconds, "sub-04")
    channels.append(Channel("Status", "TRIG", "Boolean", (), step=1.0, declared_unit="n/a"))
    # Bit 20 of BioSemi's status word: the common electrode is in range.
    codes = {1024: 1, 2560: 2, 5120: 255}
    samples.append(pulses(rate * seconds, codes, width=64, base=1 << 20))
    signals = list(zip(channels, samples, strict=True))
    tree.write(f"{stem}_eeg.bdf", formats.bdf(signals, rate))
    tree.channels(f"{stem}_channels.tsv", channels, rate)
    tree.json(f"{stem}_eeg.json", {"SamplingFrequency": rate, "PowerLineFrequency": 60})


def write_ieeg(tree: Tree) -> None:
    stem = "sub-05/ieeg/sub-05_task-rest"
    rate, seconds = 2000, 12
    channels = [
        Channel("LA1", "SEEG", "uV", ((8, 120.0),)),
        Channel("LA2", "SEEG", "uV", ((80, 60.0), (700, 40.0))),
        Channel("LA3", "SEEG", "uV", ((150, 45.0),)),
        Channel("LA4", "SEEG", "uV", ((12, 90.0),), mean=500.0),
    ]
    samples = recording(channels, rate, seconds, "sub-05")
    signals = list(zip(channels, samples, [rate] * len(channels), strict=True))
    tree.write(f"{stem}_ieeg.edf", formats.edf(signals))
    tree.channels(f"{stem}_channels.tsv", channels, rate)
    tree.json(
        f"{stem}_ieeg.json",
        {"TaskName": "rest", "SamplingFrequency": rate, "PowerLineFrequency": 60},
    )
    tree.table(f"{stem}_events.tsv", "onset duration trial_type", [(3.0, 0.5, "tone")])
    space = "MNI152NLin2009aSym"
    positions = f"sub-05/ieeg/sub-05_space-{space}"
    contacts = [(f"LA{i}", round(-22.0 - 3.5 * i, 1), -4.5, -18.0, 5) for i in range(1, 5)]
    tree.table(f"{positions}_electrodes.tsv", "name x y z size", contacts)
    tree.json(
        f"{positions}_coordsystem.json",
        {"iEEGCoordinateSystem": space, "iEEGCoordinateUnits": "mm"},
    )


def write_emg(tree: Tree) -> None:
    stem = "sub-06/emg/sub-06_task-rest"
    rate, seconds = 2000, 10
    step = formats.BDF_STEP
    channels = [
        Channel("FDS", "EMG", "uV", ((60, 400.0),), step=step, declared_unit="mV"),
        Channel("EDC", "EMG", "uV", ((90, 250.0), (800, 100.0)), step=step, declared_unit="mV"),
        Channel("BIC", "EMG", "uV", ((120, 150.0),), step=step, declared_unit="mV"),
    ]
    samples = recording(channels, rate, seconds, "sub-06")
    tree.write(f"{stem}_emg.bdf", formats.bdf(list(zip(channels, samples, strict=True)), rate))
    tree.channels(f"{stem}_channels.tsv", channels, rate)
    tree.json(f"{stem}_emg.json", {"TaskName": "rest", "SamplingFrequency": rate})
    tree.table(
        f"{stem}_events.tsv", "onset duration value", [(1.5, 2.0, "grip"), (6.0, 2.0, "release")]
    )


def meg_signals(rate: int, seconds: int, seed: str) -> list[tuple[Channel, Steps]]:
    channels = [
        Channel("MEG0111", "MEGMAG", "T", ((10, 4e-13),), step=1e-15),
        Channel("MEG0121", "MEGMAG", "T", ((20, 2e-13),), step=1e-15),
        Channel("MEG0131", "MEGMAG", "T", ((5, 6e-13), (230, 3e-13)), step=1e-15),
        Channel("MEG0112", "MEGGRADPLANAR", "T/m", ((10, 9e-12),), step=1e-14),
        Channel("MEG0113", "MEGGRADPLANAR", "T/m", ((15, 7e-12),), step=1e-14),
        Channel("EEG001", "EEG", "V", ((10, 4e-5),), step=1e-8, declared_unit="uV"),
        Channel("EEG002", "EEG", "V", ((12, 3e-5),), step=1e-8, declared_unit="uV"),
    ]
    samples = recording(channels, rate, seconds, seed)
    channels.append(Channel("STI101", "TRIG", "V", (), step=1.0))
    samples.append(pulses(rate * seconds, {500: 1, 1500: 4}, width=100))
    return list(zip(channels, samples, strict=True))


def write_meg(tree: Tree) -> None:
    stem = "sub-07/meg/sub-07_task-rest"
    signals = meg_signals(1000, 8, "sub-07")
    tree.write(f"{stem}_meg.fif", formats.fif(signals, 1000))
    tree.channels(f"{stem}_channels.tsv", (channel for channel, _ in signals), 1000)
    tree.json(
        f"{stem}_meg.json",
        {"TaskName": "rest", "SamplingFrequency": 1000, "PowerLineFrequency": 50},
    )
    tree.table(
        f"{stem}_events.tsv",
        "onset duration trial_type value",
        [(0.5, 0.1, "tone", 1), (1.5, 0.1, "flash", 4)],
    )


SMALL = [eeg("Fz", 4, 30.0), eeg("Pz", 9, 20.0)]
SMALL_RATE, SMALL_SECONDS = 128, 5


def small_edf(seed: str) -> bytes:
    samples = recording(SMALL, SMALL_RATE, SMALL_SECONDS, seed)
    return formats.edf(list(zip(SMALL, samples, [SMALL_RATE] * len(SMALL), strict=True)))


def small_set(seed: str, n_trials: int = 1) -> bytes:
    samples = recording(SMALL, SMALL_RATE, SMALL_SECONDS * n_trials, seed)
    data = np.array([row * 0.1 for row in samples], dtype="<f4")
    n_points = SMALL_RATE * SMALL_SECONDS
    if n_trials > 1:
        data = data.reshape(len(SMALL), n_points, n_trials, order="F")
    return formats.eeglab(SMALL, SMALL_RATE, data, n_points, n_trials)


def write_failures(tree: Tree) -> None:
    """One recording for each thing that a file can have wrong with it."""
    tree.write("sub-11/eeg/sub-11_task-rest_eeg.set", small_set("sub-11", n_trials=3))
    whole = small_edf("sub-12")
    tree.write("sub-12/eeg/sub-12_task-rest_eeg.edf", whole[: len(whole) * 3 // 5 + 1])
    tree.write("sub-13/eeg/sub-13_task-rest_eeg.xyz", "Nothing knows this format.\n" * 8)
    notes = [(0.0, 30.0, "Sleep stage W"), (30.0, 30.0, "Sleep stage 1")]
    tree.write("sub-14/eeg/sub-14_task-rest_eeg.edf", formats.edf([], notes))

    # What the header asks for exists, so that whoever follows it is found out.
    outside = "../../secret"
    header = formats.brainvision_header(SMALL, SMALL_RATE, f"{outside}.eeg", f"{outside}.vmrk")
    tree.write("sub-15/eeg/sub-15_task-rest_eeg.vhdr", header)
    secret = recording(SMALL, SMALL_RATE, SMALL_SECONDS, "secret")
    tree.write("secret.eeg", formats.multiplexed(secret, "<i2"))

    tree.write("sub-16/eeg/sub-16_task-rest_eeg.edf", small_edf("sub-16"))
    declared = [*SMALL, eeg("Oz", 1, 0.0), eeg("Iz", 1, 0.0)]
    tree.channels("sub-16/eeg/sub-16_task-rest_channels.tsv", declared, SMALL_RATE)

    shielded = formats.fif(meg_signals(1000, 2, "sub-17"), 1000, shielded=True)
    tree.write("sub-17/meg/sub-17_task-rest_meg.fif", shielded)

    tree.write("sub-18/eeg/sub-18_task-rest_eeg.edf", small_edf("sub-18"))
    tree.write("sub-18/eeg/sub-18_task-rest_eeg.set", small_set("sub-18"))


def write_not_raw(tree: Tree) -> None:
    """Whole recordings where no raw recording is looked for."""
    path = "sub-01/eeg/sub-01_task-rest"
    tree.write(f"sourcedata/{path}_eeg.edf", small_edf("sourcedata"))
    tree.write(f"derivatives/clean/{path}_desc-clean_eeg.edf", small_edf("derivatives"))
    tree.json(
        "derivatives/clean/dataset_description.json",
        {"Name": "clean", "BIDSVersion": "1.11.0", "DatasetType": "derivative"},
    )


def make(destination: Path) -> None:
    """Write the dataset to `destination`, in place of what is there."""
    if destination.exists():
        if not (destination / "dataset_description.json").is_file():
            raise SystemExit(f"{destination} is no dataset, so it is not replaced.")
        shutil.rmtree(destination)
    tree = Tree(destination)
    for write in (
        *(write_root, write_edf, write_brainvision, write_eeglab, write_bdf),
        *(write_ieeg, write_emg, write_meg, write_failures, write_not_raw),
    ):
        write(tree)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("destination", nargs="?", type=Path, default=DEFAULT, metavar="DEST")
    make(parser.parse_args().destination)


if __name__ == "__main__":
    main()
