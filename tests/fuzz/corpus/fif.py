from __future__ import annotations

import gzip
from collections.abc import Iterator

from ..seeds import Corpus, Seed


def seeds(corpus: Corpus) -> Iterator[Seed]:
    yield from corpus.fixture("sub-17/meg/sub-17_task-rest_meg.fif", mutants=60)
    for whole in corpus.fixture("sub-07/meg/sub-07_task-rest_meg.fif", mutants=160):
        yield whole
        content = whole.files[whole.recording]
        name = f"{whole.recording}.gz"
        yield Seed(name, {name: gzip.compress(content, mtime=0)}, "meg", 120)
    yield from corpus.recorded("sub-27/meg/sub-27_task-rest_meg.fif", mutants=80)
