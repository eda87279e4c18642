"""What must become of every recording of the fixture dataset.

Written down from the signals that were asked for, in the units that channels.tsv declares; not
computed by the code under test.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from converter.contract.codes import FailureCode

FIXTURE_DATASET = Path(__file__).resolve().parent.parent / "fixtures" / "nm099999"


@dataclass(frozen=True)
class Tone:
    """A sine of whole `hz` that is in the channel at its native rate.

    `amplitude` is in the unit of its channel; a tone above half the served rate has to be gone
    from the store.
    """

    hz: int
    amplitude: float


@dataclass(frozen=True)
class Measured:
    """A channel as it is to be served: its BIDS type, unit, mean (in that unit) and tones."""

    label: str
    type: str
    unit: str
    tones: tuple[Tone, ...] = ()
    mean: float = 0.0


@dataclass(frozen=True)
class Group:
    """A channel group: its name, the native rate and length, its channels in row order."""

    name: str
    rate: float
    native_rate_hz: float
    native_samples: int
    channels: tuple[Measured, ...]


@dataclass(frozen=True)
class Stored:
    """A store: its groups, and the facts that the sidecars give.

    `events` counts the rows of the events.tsv that applies, `trial_types` those of each type.
    None stands for what no sidecar declares.
    """

    groups: tuple[Group, ...]
    power_line_frequency: float | None
    events: int | None
    trial_types: dict[str, int] | None = None


@dataclass(frozen=True)
class Withheld:
    """A failure, by its published code."""

    code: FailureCode


def _measured(
    label: str, kind: str, unit: str, *tones: tuple[int, float], mean: float = 0.0
) -> Measured:
    return Measured(label, kind, unit, tuple(Tone(*tone) for tone in tones), mean)


def _eeg(label: str, *tones: tuple[int, float], mean: float = 0.0) -> Measured:
    return _measured(label, "EEG", "uV", *tones, mean=mean)


_SMALL = Group("eeg_128hz", 128.0, 128.0, 640, (_eeg("Fz", (4, 30.0)), _eeg("Pz", (9, 20.0))))

_EDF_FAST = (
    _eeg("Fp1", (6, 30.0)),
    _measured("Fp2", "EEG", "µV", (7, 35.0)),
    _eeg("Cz", (10, 40.0), (200, 25.0)),
    _eeg("Oz", (11, 50.0)),
    _eeg("T8-P8-0", (12, 20.0)),
    _eeg("T8-P8-1", (14, 25.0)),
)
_EDF_SLOW = (
    _measured("Resp", "RESP", "V", (1, 0.002)),
    _measured("Temp", "TEMP", "degC", mean=32.5),
)
_BRAINVISION = (
    _eeg("Fz", (5, 25.0)),
    _eeg("Cz", (10, 45.0), (240, 30.0)),
    _eeg("Pz", (9, 55.0)),
    _eeg("Oz", (13, 15.0)),
    _measured("HEOG", "HEOG", "mV", (2, 0.3)),
    _measured("TRIG", "TRIG", "n/a"),
)
# GAPS has 30 NaN and two infinite samples of 8000, which a store holds as zeros.
_EEGLAB = (
    _eeg("F3", (6, 32.0)),
    _eeg("F4", (8, 28.0)),
    _eeg("C3", (10, 44.0), mean=150.0),
    _eeg("C4", (10, 36.0), (180, 20.0)),
    _measured("CONST", "MISC", "uV", mean=12.5),
    _measured("ZERO", "MISC", "uV"),
    _eeg("GAPS", (12, 18.0)),
)
# From 512 to 250 Hz scipy's resample_poly ripples by 1.3e-4 of a constant: 34 uV of 260 mV.
_BDF = (
    _eeg("A1", (10, 20.0), mean=260_000.0),
    _eeg("A2", (10, 20.0), mean=-260_000.0),
    _eeg("A3", (7, 33.0)),
    _eeg("A4", (15, 12.0), mean=-8_000.0),
    _measured("Status", "TRIG", "n/a"),
)
_IEEG = (
    _measured("LA1", "SEEG", "uV", (8, 120.0)),
    _measured("LA2", "SEEG", "uV", (80, 60.0), (700, 40.0)),
    _measured("LA3", "SEEG", "uV", (150, 45.0)),
    _measured("LA4", "SEEG", "uV", (12, 90.0), mean=500.0),
)
_EMG = (
    _measured("FDS", "EMG", "mV", (60, 0.4)),
    _measured("EDC", "EMG", "mV", (90, 0.25), (800, 0.1)),
    _measured("BIC", "EMG", "mV", (120, 0.15)),
)
_MEG = (
    _measured("MEG0111", "MEGMAG", "T", (10, 4e-13)),
    _measured("MEG0121", "MEGMAG", "T", (20, 2e-13)),
    _measured("MEG0131", "MEGMAG", "T", (5, 6e-13), (230, 3e-13)),
    _measured("MEG0112", "MEGGRADPLANAR", "T/m", (10, 9e-12)),
    _measured("MEG0113", "MEGGRADPLANAR", "T/m", (15, 7e-12)),
    _eeg("EEG001", (10, 40.0)),
    _eeg("EEG002", (12, 30.0)),
    _measured("STI101", "TRIG", "V"),
)

NONFINITE_SAMPLES = {"GAPS": 32}

# Codes of the discrete channels from a native sample on, and for how many samples; else zero.
PULSES: dict[str, tuple[str, int, dict[int, int]]] = {
    "sub-02/eeg/sub-02_task-rest_eeg.vhdr": (
        "TRIG",
        40,
        {2000: 1, 5000: 2, 9000: 1, 12000: 128},
    ),
    "sub-04/eeg/sub-04_task-rest_eeg.bdf": ("Status", 64, {1024: 1, 2560: 2, 5120: 255}),
    "sub-07/meg/sub-07_task-rest_meg.fif": ("STI101", 100, {500: 1, 1500: 4}),
}

OUTCOMES: dict[str, Stored | Withheld] = {
    "sub-01/eeg/sub-01_task-rest_eeg.edf": Stored(
        (
            Group("eeg_250hz", 250.0, 512.0, 10240, _EDF_FAST),
            Group("eeg_64hz", 64.0, 64.0, 1280, _EDF_SLOW),
        ),
        power_line_frequency=50.0,
        events=5,
        trial_types={"flash": 2, "rest": 1, "tone": 2},
    ),
    "sub-02/eeg/sub-02_task-rest_eeg.vhdr": Stored(
        (Group("eeg_250hz", 250.0, 1000.0, 15000, _BRAINVISION),),
        power_line_frequency=50.0,
        events=6,
        trial_types={"flash": 1, "tone": 4},
    ),
    "sub-03/ses-01/eeg/sub-03_ses-01_task-rest_eeg.set": Stored(
        (Group("eeg_250hz", 250.0, 500.0, 8000, _EEGLAB),),
        power_line_frequency=50.0,
        events=3,
        trial_types={"flash": 2, "rest": 1},
    ),
    "sub-04/eeg/sub-04_task-rest_eeg.bdf": Stored(
        (Group("eeg_250hz", 250.0, 512.0, 6144, _BDF),), power_line_frequency=60.0, events=None
    ),
    "sub-05/ieeg/sub-05_task-rest_ieeg.edf": Stored(
        (Group("ieeg_1000hz", 1000.0, 2000.0, 24000, _IEEG),),
        power_line_frequency=60.0,
        events=1,
        trial_types={"tone": 1},
    ),
    "sub-06/emg/sub-06_task-rest_emg.bdf": Stored(
        (Group("emg_1000hz", 1000.0, 2000.0, 20000, _EMG),), power_line_frequency=None, events=2
    ),
    "sub-07/meg/sub-07_task-rest_meg.fif": Stored(
        (Group("meg_250hz", 250.0, 1000.0, 8000, _MEG),),
        power_line_frequency=50.0,
        events=2,
        trial_types={"flash": 1, "tone": 1},
    ),
    "sub-11/eeg/sub-11_task-rest_eeg.set": Withheld(FailureCode.NOT_CONTINUOUS),
    "sub-12/eeg/sub-12_task-rest_eeg.edf": Withheld(FailureCode.CORRUPT_OR_TRUNCATED),
    "sub-13/eeg/sub-13_task-rest_eeg.xyz": Withheld(FailureCode.UNSUPPORTED_FORMAT),
    "sub-14/eeg/sub-14_task-rest_eeg.edf": Withheld(FailureCode.EMPTY_RECORDING),
    "sub-15/eeg/sub-15_task-rest_eeg.vhdr": Withheld(FailureCode.FILE_READ_ERROR),
    "sub-16/eeg/sub-16_task-rest_eeg.edf": Withheld(FailureCode.CHANNEL_COUNT_MISMATCH),
    "sub-17/meg/sub-17_task-rest_meg.fif": Withheld(FailureCode.MAXSHIELD_UNCALIBRATED),
    "sub-18/eeg/sub-18_task-rest_eeg.edf": Stored(
        (_SMALL,), power_line_frequency=50.0, events=None
    ),
    # It has the store name of the .edf beside it.
    "sub-18/eeg/sub-18_task-rest_eeg.set": Withheld(FailureCode.FILE_READ_ERROR),
}

STORED = {path: outcome for path, outcome in OUTCOMES.items() if isinstance(outcome, Stored)}
WITHHELD = {path: outcome for path, outcome in OUTCOMES.items() if isinstance(outcome, Withheld)}
