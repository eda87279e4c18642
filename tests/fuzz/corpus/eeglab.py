from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from tests.readers.test_eeglab import fields, write_h5, write_v5, write_v7

from ..seeds import Corpus, Seed


def seeds(corpus: Corpus) -> Iterator[Seed]:
    samples = np.random.default_rng(5).normal(0, 20, (3, 400)).astype("f4")
    chunked = partial(write_h5, chunks=(50, 3), compression="gzip")
    for name, write in (("v5", write_v5), ("v7", write_v7), ("h5", write_h5), ("gz", chunked)):
        path = corpus.scratch / f"inside-{name}_eeg.set"
        write(path, fields(samples))
        yield Seed(path.name, {path.name: path.read_bytes()})
    for name, write in (("v7", write_v7), ("h5", write_h5)):
        path = corpus.scratch / f"outside-{name}_eeg.set"
        write(path, fields("a.fdt", pnts=samples.shape[1]))
        contents = {path.name: path.read_bytes(), "a.fdt": samples.T.tobytes()}
        yield Seed(path.name, contents)
    yield from corpus.recorded("sub-05/eeg/sub-05_task-rest_eeg.set")
