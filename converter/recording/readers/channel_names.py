"""Channel types that a label tells, where a format has none."""

from __future__ import annotations

import re

from converter.recording.readers import spelling

_KINDS = {
    "eog": "EOG",
    "heog": "HEOG",
    "veog": "VEOG",
    "heo": "HEOG",
    "veo": "VEOG",
    "ecg": "ECG",
    "ekg": "ECG",
    "emg": "EMG",
    "resp": "RESP",
}
_TRIGGERS = frozenset({"trigger", "triggers", "status", "stim", "stimulus", "trig"})
_WORD = re.compile("[A-Za-z]+")


def type_by_label(label: str, modality: str, unit: str) -> str:
    """BIDS channel type by the first word of `label` that tells one, else by the unit.

    A label that is nothing but the word tells a trigger: electrodes that stimulate are many.
    """
    if label.casefold() in _TRIGGERS:
        return "TRIG"
    for word in _WORD.findall(label):
        if kind := _KINDS.get(word.lower()):
            return kind
    return spelling.default_type(modality, unit)
