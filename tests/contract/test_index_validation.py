from __future__ import annotations

import copy
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from converter.contract import codes, index, manifest
from converter.contract.validation import (
    INDEX_SCHEMA,
    MANIFEST_SCHEMA,
    InvalidDocumentError,
    read_schema,
    validate_index,
    validate_manifest,
    validate_store,
)

NOW = "2026-01-02T03:04:05Z"
COMMIT = "0123456789abcdef0123456789abcdef01234567"


def group() -> index.GroupEntry:
    return index.GroupEntry(
        name="meg_250hz",
        modality="MEG",
        rate=250.0,
        n_channels=2,
        n_samples=4096,
        duration_s=16.384,
        source_rate_hz=1017.2526,
        n_view_levels=1,
        view_chunk_columns=1024,
        chunk_samples=1000,
        shard_samples=75000,
    )


def store(number: int = 1, **more: Any) -> index.StoreEntry:
    name = f"sub-{number:02}/meg/sub-{number:02}_task-ödd ball's_meg"
    return index.StoreEntry(
        path=f"{name}.fif",
        zarr=f"{name}.zarr",
        updated_utc=NOW,
        modalities=["meg"],
        groups=[group()],
        **more,
    )


FULL = store(
    derived=True,
    sss=index.Sss(
        applied=True,
        method="maxwell_filter",
        calibration="a.dat",
        cross_talk="b.fif",
        mne_version="1",
    ),
    split_members=["sub-01/meg/a_split-01_meg.fif", "sub-01/meg/a_split-02_meg.fif"],
    power_line_frequency=50.0,
    event_description_count=2,
    n_events=3,
    trial_types={"go": 1, "n/a or so": 2},
    units_report=index.UnitsReport(
        converted=1,
        relabelled=0,
        kept_importer_unit=1,
        units_column_present=True,
        sidecar=None,
        channels_tsv_read_error=True,
    ),
)


def document(*stores: index.StoreEntry, **more: Any) -> dict[str, Any]:
    failure = index.FailureEntry(
        path="sub-01/meg/x.ds",
        zarr=stores[0].zarr,
        code=codes.FailureCode.FILE_READ_ERROR,
        reason="Why.",
        detail=None,
        attempts=0,
    )
    pending = index.PendingEntry(
        path="sub-01/meg/y.ds",
        zarr="sub-01/meg/y.zarr",
        reason=codes.PendingReason.MEMORY_BUDGET,
        attempts=4,
        last_error="MemoryError",
        last_attempt_utc=NOW,
    )
    whole = index.Index(
        dataset_id="nm000103",
        contract_base="https://zarr.nemar.org/nm000103/zarr/",
        data_base="https://nemar.s3.us-east-2.amazonaws.com/nm000103/zarr/",
        s3_uri="s3://nemar/nm000103/zarr/",
        s3_region="us-east-2",
        source_commit=COMMIT,
        updated_utc=NOW,
        discovered_count=len(stores) + 2,
        store_count=len(stores),
        n_recordings=len(stores),
        errors=2,
        failure_count=1,
        pending_count=1,
        stores=stores,
        failures=(failure,),
        pending=(pending,),
        doi=None,
        license="CC0",
        citation=None,
        hed_version=None,
        **more,
    )
    decoded: dict[str, Any] = json.loads(index.encode_index(whole))
    return decoded


def test_index_as_encoded_is_valid_and_absent_is_not_null() -> None:
    doc = document(FULL, store(2))
    validate_index(doc)
    assert "sss" not in doc["stores"][1]
    assert "events_parquet" not in doc
    assert doc["biosigio_version"] is None
    assert doc["stores"][0]["units_report"]["sidecar"] is None
    validate_index(
        document(
            store(), events_parquet="https://h.org/nm000103/zarr/events.parquet", events_row_count=7
        )
    )


@pytest.mark.parametrize(
    ("where", "value", "named"),
    [
        (("stores", 0, "source_key"), "MD5E-s1--0", "stores/0.*source_key"),
        (("stores", 0, "groups", 0, "rate"), 0, "stores/0/groups/0/rate"),
        (("stores", 0, "groups", 0, "n_samples"), True, "n_samples"),
        (("stores", 0, "trial_types", "go"), 1.5, "trial_types/go"),
        (("stores", 0, "units_report", "sidecar"), "/srv/channels.tsv", "sidecar"),
        (("stores", 0, "sss", "calibration"), "/srv/sss_cal.dat", "calibration"),
        (("stores", 0, "derived"), False, "derived"),
        (("stores", 1, "derived"), True, "sss"),
        (("stores", 1, "zarr"), "../x.zarr", "zarr"),
        (("stores", 1, "source_tree"), "derivatives", "source_tree"),
        (("failures", 0, "code"), "recording_memory_exceeded", "code"),
        (("failures", 0, "detail"), "x" * 301, "detail"),
        (("pending", 0, "reason"), "queued", "reason"),
        (("pending", 0, "attempts"), 5, "attempts"),
        (("pending", 0, "last_attempt_utc"), "2026-01-02 03:04:05", "last_attempt_utc"),
        (("source_commit",), "0123456", "source_commit"),
        (("updated_utc",), "2026-01-02T03:04:05+00:00", "updated_utc"),
        (("dataset_id",), "ds000103", None),
        (("dataset_id",), "nm00010", "dataset_id"),
        (("data_base",), "https://h.org/x", "data_base"),
        (("events_row_count",), 3, "events_parquet"),
        (("events_parquet",), "https://h.org/x/events.parquet", "events_row_count"),
        (("layout", "level0"), "<zarr>/0", "layout/level0"),
        (("layout", "level1"), "x", "level1"),
        (("discovered_count",), 5, "discovered_count is 5.*account for 4"),
        (("n_recordings",), 1, "n_recordings is 1.*2 entries"),
        (("failures", 0, "path"), FULL.path, "path.*more than one"),
        (("stores", 1, "zarr"), FULL.zarr, "zarr.*more than one"),
    ],
)
def test_broken_index_is_named(where: tuple[Any, ...], value: Any, named: str | None) -> None:
    doc = document(FULL, store(2))
    parent: Any = doc
    for step in where[:-1]:
        parent = parent[step]
    parent[where[-1]] = value
    if named is None:
        validate_index(doc)
        return
    with pytest.raises(InvalidDocumentError, match=named) as raised:
        validate_index(doc)
    assert len(str(raised.value)) < 400


def test_every_required_field_is_required() -> None:
    doc = document(FULL, store(2))
    for target in (doc, doc["stores"][0], doc["stores"][0]["groups"][0], doc["failures"][0]):
        optional = {"layout": {"events"}}
        for name in list(target):
            if name in optional or name in {
                *("sss", "split_members", "power_line_frequency", "event_description_count"),
                *("n_events", "trial_types", "units_report"),
            }:
                continue
            value = target.pop(name)
            with pytest.raises(InvalidDocumentError, match=name):
                validate_index(doc)
            target[name] = value
    validate_index(doc)


def objects(schema: Any) -> list[dict[str, Any]]:
    found = []
    if isinstance(schema, dict):
        if schema.get("type") == "object":
            found.append(schema)
        for value in schema.values():
            found += objects(value)
    elif isinstance(schema, list):
        for value in schema:
            found += objects(value)
    return found


@pytest.mark.parametrize("name", [INDEX_SCHEMA, MANIFEST_SCHEMA])
def test_schemas_are_closed(name: str) -> None:
    schema = read_schema(name)
    Draft202012Validator.check_schema(schema)
    for found in objects(schema):
        assert "additionalProperties" in found
        assert found["additionalProperties"] is False or "type" in found["additionalProperties"]


@pytest.mark.parametrize(
    ("name", "place", "struct"),
    [
        (INDEX_SCHEMA, (), index.Index),
        (INDEX_SCHEMA, ("$defs", "store"), index.StoreEntry),
        (INDEX_SCHEMA, ("$defs", "store", "properties", "groups", "items"), index.GroupEntry),
        (INDEX_SCHEMA, ("$defs", "store", "properties", "sss"), index.Sss),
        (INDEX_SCHEMA, ("$defs", "store", "properties", "units_report"), index.UnitsReport),
        (INDEX_SCHEMA, ("$defs", "failure"), index.FailureEntry),
        (INDEX_SCHEMA, ("$defs", "pending"), index.PendingEntry),
        (INDEX_SCHEMA, ("properties", "layout"), index.Layout),
        (MANIFEST_SCHEMA, (), manifest.Manifest),
        (MANIFEST_SCHEMA, ("$defs", "store"), manifest.ManifestStore),
        (MANIFEST_SCHEMA, ("$defs", "file"), manifest.ManifestFile),
    ],
)
def test_records_and_schemas_have_the_same_fields(
    name: str, place: tuple[str, ...], struct: type[msgspec.Struct]
) -> None:
    schema: Any = read_schema(name)
    for step in place:
        schema = schema[step]
    fields = {
        field.name: field.default is msgspec.UNSET for field in msgspec.structs.fields(struct)
    }
    assert list(fields) == list(schema["properties"])
    absent = {field for field, may_be_absent in fields.items() if may_be_absent}
    assert absent - {"events"} == fields.keys() - set(schema["required"]) - {"events"}


def test_codes_of_schema_and_enumerations_agree() -> None:
    schema = read_schema(INDEX_SCHEMA)["$defs"]
    assert schema["failure"]["properties"]["code"]["enum"] == list(codes.FailureCode)
    assert schema["pending"]["properties"]["reason"]["enum"] == list(codes.PendingReason)


def test_manifest() -> None:
    whole = manifest.Manifest(
        dataset_id="nm000103",
        source_commit=COMMIT,
        updated_utc=NOW,
        stores=(
            manifest.ManifestStore(path="a.fif", zarr="a.zarr", source_key=None, size_bytes=12),
            manifest.ManifestStore(
                path="b.fif", zarr="b.zarr", source_key="MD5E-s9--0.fif", size_bytes=9
            ),
        ),
    )
    doc = json.loads(manifest.encode_manifest(whole))
    assert "files" not in doc
    validate_manifest(doc)
    doc["files"] = [{"name": "events.parquet", "size_bytes": 10, "row_count": 2}]
    validate_manifest(doc)
    doc["stores"][1]["zarr"] = "a.zarr"
    with pytest.raises(InvalidDocumentError, match=r"a\.zarr"):
        validate_manifest(doc)


ODD: list[Any] = [
    *(None, True, False, 0, 1, 5, 301, -1, 1.0, 1.5, 1e300, 2**70),
    *("", "x", "raw", "eeg", "a.zarr", "/a.zarr", "a/../b.zarr", "a//b.zarr", "x" * 301, "é\n1"),
    *([], ["eeg"], ["eeg", "eeg"], [{}], {}, {"a": 1}, {"a": None}, {"path": "x"}),
]


def places(value: Any, *way: Any) -> list[tuple[Any, ...]]:
    """Every place in a document, the whole aside."""
    if not isinstance(value, dict | list):
        return []
    items = value.items() if isinstance(value, dict) else enumerate(value)
    return [place for step, held in items for place in [(*way, step), *places(held, *way, step)]]


def problem(doc: dict[str, Any]) -> str | None:
    try:
        validate_index(doc)
    except InvalidDocumentError as error:
        return str(error)
    return None


@settings(max_examples=300)
@given(st.data())
def test_another_validator_finds_the_same_documents_valid(data: st.DataObject) -> None:
    doc = document(FULL, store(2))
    *way, last = data.draw(st.sampled_from(places(doc)))
    parent: Any = doc
    for step in way:
        parent = parent[step]
    what = data.draw(st.sampled_from(["replace", "remove", "add"]))
    if what == "replace" or isinstance(parent, list):
        parent[last] = copy.deepcopy(data.draw(st.sampled_from(ODD)))
    elif what == "remove":
        del parent[last]
    else:
        parent[data.draw(st.sampled_from(["new", "sss", "detail", "n_events"]))] = 1
    if Draft202012Validator(read_schema(INDEX_SCHEMA)).is_valid(doc):
        # What no schema states: counts that are sums, and names that stand once.
        assert re.search("discovered_count is|, but |more than one", problem(doc) or ", but ")
    else:
        assert problem(doc) is not None


def test_a_text_that_is_no_utf8_is_refused() -> None:
    entry = msgspec.to_builtins(store(trial_types={"\ud800": 1}))
    with pytest.raises(InvalidDocumentError, match="UTF-8"):
        validate_store(entry)


def test_schemas_of_an_installed_package_are_found(tmp_path: Path) -> None:
    project = Path(__file__).resolve().parents[2]
    shutil.copytree(project / "converter" / "contract", tmp_path / "converter" / "contract")
    shutil.copytree(project / "schemas", tmp_path / "converter" / "schemas")
    (tmp_path / "converter" / "__init__.py").touch()
    code = (
        "from converter.contract import validation as v; print(v.__file__);"
        "print(v.read_schema(v.INDEX_SCHEMA)['$id'], v.read_schema(v.MANIFEST_SCHEMA)['$id'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert str(tmp_path) in done.stdout
    assert done.stdout.split()[1:] == [
        "https://api.nemar.org/schemas/zarr-index-v3.json",
        "https://api.nemar.org/schemas/zarr-manifest-v1.json",
    ]


def test_one_entry_is_checked_alone() -> None:
    entry = msgspec.to_builtins(store())
    validate_store(entry)
    entry["groups"][0]["rate"] = None
    with pytest.raises(InvalidDocumentError, match="groups/0/rate"):
        validate_store(entry)
