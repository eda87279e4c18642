from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from converter.dataset.entities import ENTITIES, parse_entities, parse_name


@pytest.mark.parametrize(
    ("name", "extension", "suffix"),
    [
        ("sub-01_task-rest_eeg.set", ".set", "eeg"),
        ("sub-01_meg.fif.gz", ".fif.gz", "meg"),
        ("sub-01_eeg.cdt", ".cdt", "eeg"),
        ("sub-01_eeg.cdt.dpa", ".cdt.dpa", "eeg"),
        ("sub-01_eeg.CDT.DPO", ".CDT.DPO", "eeg"),
        ("sub-01_physio.tsv.gz", ".tsv.gz", "physio"),
        ("sub-01_task-1.5Hz_eeg.EDF", ".EDF", "eeg"),
        ("sub-01_task-1.5Hz_meg", "", "meg"),
        ("sub-01_task-1.5_x.gz", ".gz", "x"),
        (".bidsignore", "", ".bidsignore"),
        ("README", "", "README"),
    ],
)
def test_extension_and_suffix(name: str, extension: str, suffix: str) -> None:
    parsed = parse_name(name)
    assert (parsed.extension, parsed.suffix) == (extension, suffix)


def test_entities_known_unknown_and_repeated() -> None:
    name = "sub-01_task-a-b_epo_zz-1_run-2_run-3_-x_eeg.set"
    assert parse_entities(name) == {"sub": "01", "task": "a-b", "zz": "1", "run": "2"}
    assert parse_name(name).labels == ("epo", "-x")


def test_the_table_has_each_key_once() -> None:
    keys = [entity.key for entity in ENTITIES]
    assert len(keys) == len(set(keys))
    assert all(entity.name and entity.description for entity in ENTITIES)


@given(st.text(alphabet="sub-_.01gzfiéX ", max_size=40))
def test_a_name_is_its_stem_and_extension(name: str) -> None:
    parsed = parse_name(name)
    assert parsed.stem + parsed.extension == name
    assert parsed.extension == "" or parsed.extension.startswith(".")
