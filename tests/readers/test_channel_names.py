from __future__ import annotations

import pytest

from converter.recording.readers.channel_names import type_by_label


@pytest.mark.parametrize(
    ("label", "unit", "expected"),
    [
        ("Fp1", "uV", "SEEG"),
        ("EOG:ch01", "uV", "EOG"),
        ("HEO", "uV", "HEOG"),
        ("ECG1", "uV", "ECG"),
        ("left EMG", "mV", "EMG"),
        ("Trigger", "uV", "TRIG"),
        ("STIM A1", "uV", "SEEG"),
        ("Temp3", "uV", "SEEG"),
        ("Temp3", "°C", "MISC"),
    ],
)
def test_types(label: str, unit: str, expected: str) -> None:
    assert type_by_label(label, "ieeg", unit) == expected
