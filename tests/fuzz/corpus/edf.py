from __future__ import annotations

from collections.abc import Iterator

from ..seeds import Corpus, Seed


def seeds(corpus: Corpus) -> Iterator[Seed]:
    yield from corpus.fixture("sub-16/eeg/sub-16_task-rest_eeg.edf")
    yield from corpus.fixture("sub-12/eeg/sub-12_task-rest_eeg.edf", mutants=40)
    yield from corpus.recorded("sub-08/eeg/sub-08_task-rest_eeg.edf")
    yield from corpus.recorded("sub-07/eeg/sub-07_task-rest_eeg.edf")
    yield from corpus.recorded("sub-10/eeg/sub-10_task-rest_eeg.edf")
    yield from corpus.recorded("sub-11/eeg/sub-11_task-rest_eeg.bdf", mutants=200)
