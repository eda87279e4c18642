"""A tiny recording, converted in the process that workers are forked from.

What Python specialises and what libraries set up at their first use is there then for each
recording: a process that is forked for one would do it all again.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ..recording.attributes import StoreContext
from ..recording.convert import convert_recording
from ..recording.local import LocalRecording, LocalSidecars
from .spool import check_spool, write_spool

_CHANNELS: Final = 8  # Python specialises a loop that went round eight times
_RATE, _SECONDS = 500, 8

_CONTEXT: Final = StoreContext(
    dataset_id="nm000000",
    source_commit="0" * 40,
    engine_version="0",
    contract_base="http://localhost/",
    created_utc="2000-01-01T00:00:00Z",
)


def rehearse() -> None:
    """Convert a tiny EDF recording with its sidecars, into a folder that is removed.

    Raises OSError for want of a place for its files.
    """
    with tempfile.TemporaryDirectory(prefix="nemar-convert-") as name:
        folder = Path(name)
        recording, store = _recording(folder), folder / "store.zarr"
        converted = convert_recording(recording, store.name, store, folder, _CONTEXT)
        if converted.events is not None:
            spool = folder / "events.arrow"
            write_spool(spool, converted.events)
            check_spool(spool.read_bytes(), store.name)


def _recording(folder: Path) -> LocalRecording:
    labels = [f"EEG{number}" for number in range(_CHANNELS)]
    contents = {
        "eeg.edf": _edf(labels),
        "eeg.json": b'{"SamplingFrequency": 500, "PowerLineFrequency": 50}',
        "channels.tsv": _table("name type units", [f"{label} EEG uV" for label in labels]),
        "events.tsv": _table("onset duration trial_type", [f"{n} 0 go" for n in range(_SECONDS)]),
    }
    files = {name: folder / f"sub-01_task-rest_{name}" for name in contents}
    for name, content in contents.items():
        files[name].write_bytes(content)
    return LocalRecording(
        path="sub-01/eeg/sub-01_task-rest_eeg.edf",
        modality="eeg",
        file=files["eeg.edf"],
        sidecars=LocalSidecars(
            channels=files["channels.tsv"], events=files["events.tsv"], json=(files["eeg.json"],)
        ),
        channels_path="sub-01/eeg/sub-01_task-rest_channels.tsv",
        entities={"sub": "01", "task": "rest"},
    )


def _table(header: str, rows: Iterable[str]) -> bytes:
    """Of cells that blanks part."""
    return "".join(line.replace(" ", "\t") + "\n" for line in (header, *rows)).encode()


def _edf(labels: Sequence[str]) -> bytes:
    """Data records of a second. Source: the EDF specification."""
    n = len(labels)
    fields = [(8, "0"), (80, "X X X X"), (80, "Startdate X X X X")]
    fields += [(8, "01.01.00"), (8, "00.00.00"), (8, f"{256 * (n + 1)}"), (44, "")]
    fields += [(8, f"{_SECONDS}"), (8, "1"), (4, f"{n}"), *((16, label) for label in labels)]
    physical, digital = ((8, "-3276.8"), (8, "3276.7")), ((8, "-32768"), (8, "32767"))
    for field in ((80, ""), (8, "uV"), *physical, *digital, (80, ""), (8, f"{_RATE}"), (32, "")):
        fields += [field] * n
    header = "".join(f"{text:<{width}}" for width, text in fields)
    return header.encode("ascii") + _samples(n * _RATE * _SECONDS).tobytes()


def _samples(count: int) -> NDArray[np.int16]:
    """Whole numbers up to 1000 in disorder: what is constant is told apart and left early."""
    return (np.arange(count) * 7919 % 1000).astype("<i2")
