"""A dataset of any number of recordings, four paths each: what a run knows of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from converter.contract.index import GroupEntry, StoreEntry

from .trees import Content, Link

DATASET_ID = "nm000001"
SESSIONS, RUNS = 4, 5
EVENTS = 4
WHEN = "2026-01-02T03:04:05Z"


@dataclass(frozen=True)
class Name:
    """The parts of one recording's name."""

    subject: str
    session: str
    run: str

    @property
    def stem(self) -> str:
        """Its BIDS path, up to the suffix."""
        sub, ses = f"sub-{self.subject}", f"ses-{self.session}"
        return f"{sub}/{ses}/eeg/{sub}_{ses}_task-rest_run-{self.run}"


def names(count: int) -> Iterator[Name]:
    """The first recordings: five runs in each of four sessions of each subject."""
    for number in range(count):
        visit, run = divmod(number, RUNS)
        subject, session = divmod(visit, SESSIONS)
        yield Name(f"{subject:04}", str(session + 1), str(run + 1))


def files(count: int, annexed: str) -> Iterator[tuple[str | bytes, Content]]:
    """Its tree. Recordings are links to the annex object `annexed`, a path in the repository."""
    yield "dataset_description.json", b'{"Name": "Large"}'
    yield "task-rest_eeg.json", b'{"PowerLineFrequency": 50}'
    channels = b"name\ttype\tunits\nE0\tEEG\tuV\nE1\tEEG\tuV\n"
    rows = "".join(f"{event / 10}\t0\tgo\n" for event in range(EVENTS)).encode()
    for number, name in enumerate(names(count)):
        yield f"{name.stem}_eeg.edf", Link(f"../../../{annexed}")
        yield f"{name.stem}_eeg.json", b'{"RecordingDuration": %d}' % number
        yield f"{name.stem}_channels.tsv", channels
        yield f"{name.stem}_events.tsv", b"onset\tduration\ttrial_type\n" + rows


def store_entry(name: Name) -> StoreEntry:
    """What the index says of one of its stores: two channels at 100 Hz for a second."""
    group = GroupEntry(
        name="eeg_100hz",
        modality="EEG",
        rate=100.0,
        n_channels=2,
        n_samples=100,
        duration_s=1.0,
        source_rate_hz=100.0,
        n_view_levels=0,
        view_chunk_columns=1024,
        chunk_samples=400,
        shard_samples=30000,
    )
    return StoreEntry(
        path=f"{name.stem}_eeg.edf",
        zarr=f"{name.stem}_eeg.zarr",
        updated_utc=WHEN,
        modalities=["eeg"],
        groups=[group],
        power_line_frequency=50.0,
        event_description_count=0,
        n_events=EVENTS,
        trial_types={"go": EVENTS},
    )
