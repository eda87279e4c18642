"""Channel types that a label tells, where a format has none."""

from __future__ import annotations

import re

from converter.recording.readers import spelling
from converter.recording.signal import Channel

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
    "temp": "TEMP",
    "sound": "AUDIO",
}
_TRIGGERS = frozenset({"trigger", "triggers", "status", "stim", "stimulus", "trig"})
_WORD = re.compile("[A-Za-z]+")


def type_by_label(label: str, modality: str, unit: str) -> str:
    """BIDS channel type by the first word of `label` that tells one, else by the unit.

    A label that is nothing but the word tells a trigger: electrodes that stimulate are many.
    Numbered voltages called Temp are temporal electrodes. EEG is what any electrode is called in
    EDF+, so another word says more; intracranial exports call their contacts so, too.
    """
    if label.casefold() in _TRIGGERS:
        return "TRIG"
    words = [word.casefold() for word in _WORD.findall(label)]
    by_unit = spelling.default_type(modality, unit)
    is_numbered = any(character.isdigit() for character in label)
    for word in words:
        kind = _KINDS.get(word)
        if kind == "TEMP" and is_numbered and by_unit != "MISC":
            continue
        if kind is not None:
            return kind
    return "EEG" if "eeg" in words and modality != "ieeg" else by_unit


def channel_by_label(
    label: str,
    modality: str,
    unit: str,
    scaling: tuple[float, float] | None,
    prefilter: str = "n/a",
    *,
    told: str | None = None,
) -> Channel:
    """A channel of which nothing but the label tells the type.

    `scaling` is gain and offset, None where samples are served as stored; `told` is the label of
    the file, where `label` was numbered or made up. The samples of a trigger are codes, which are
    served as stored.
    """
    kind = type_by_label(label if told is None else told, modality, unit)
    by_unit = spelling.default_type(modality, unit)
    gain, offset = (1.0, 0.0) if scaling is None else scaling
    unit = "n/a" if scaling is None else unit
    if kind != "TRIG":
        return Channel(label, kind, unit, gain, offset, prefilter)
    signal = Channel(label, by_unit, unit, gain, offset, prefilter)
    return Channel(label, kind, "n/a", prefilter=prefilter, discrete=True, waveform=signal)
