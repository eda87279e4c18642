from __future__ import annotations

from collections.abc import Iterator

from ..seeds import Corpus, Seed


def seeds(corpus: Corpus) -> Iterator[Seed]:
    yield from corpus.fixture("sub-02/eeg/sub-02_task-rest_eeg.vhdr", sidecars=True, mutants=140)
    yield from corpus.recorded("sub-13/eeg/sub-13_task-rest_eeg.vhdr", mutants=140)
