from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tests.readers import test_mef, test_nwb
from tests.readers.test_vendor_stores import WRITERS

from ..seeds import Corpus, Seed

MAIN_FILES = (".gdf", ".cnt", ".lay", ".EEG", ".cdt")


def seeds(corpus: Corpus) -> Iterator[Seed]:
    for name, write in WRITERS.items():
        folder = corpus.scratch / name
        folder.mkdir()
        write(folder)
        own = f"{name.split()[0].lower()}_eeg"
        contents = {path.replace("x_eeg", own): data for path, data in _contents(folder).items()}
        (main,) = (path for path in contents if path.endswith(MAIN_FILES))
        yield Seed(main, contents, mutants=60)
    for name, add in (("x_ieeg.mefd", _mef), ("x_ieeg.nwb", _nwb)):
        folder = corpus.scratch / name.rpartition(".")[2]
        folder.mkdir()
        add(folder / name)
        yield Seed(name, _contents(folder), "ieeg", mutants=60)


def _mef(path: Path) -> None:
    test_mef.Session(path).add("A", test_mef.WALK[:2500]).add("B", test_mef.WALK[2500:5000])


def _nwb(path: Path) -> None:
    session = test_nwb.Session()
    session.add(conversion=2.5e-7)
    session.write(path)


def _contents(folder: Path) -> dict[str, bytes]:
    files = (file for file in sorted(folder.rglob("*")) if file.is_file())
    return {file.relative_to(folder).as_posix(): file.read_bytes() for file in files}
