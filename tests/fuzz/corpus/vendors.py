from __future__ import annotations

from collections.abc import Iterator

from ..seeds import Corpus, Seed


def seeds(corpus: Corpus) -> Iterator[Seed]:
    yield from corpus.recorded("sub-14/eeg/sub-14_task-rest_eeg.mff", mutants=80)
    yield from corpus.recorded("sub-23/meg/sub-23_task-rest_meg.ds", mutants=45)
    yield from corpus.recorded("sub-25/meg/sub-25_task-rest_meg.sqd", mutants=90)
    yield from corpus.recorded("sub-26/meg/sub-26_task-rest_meg", mutants=45)
