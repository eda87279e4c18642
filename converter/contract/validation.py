"""Checks of a document against its published schema and the sums that a schema cannot state."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from jsonschema_rs import Draft202012Validator, ValidationError

INDEX_SCHEMA = "zarr-index-v3.json"
MANIFEST_SCHEMA = "zarr-manifest-v1.json"
REPORT_SCHEMA = "run-report-v1.json"

_LONGEST_PROBLEM = 200


class InvalidDocumentError(ValueError):
    """A document breaks its contract; one sentence names the place and the problem."""


def validate_index(document: Mapping[str, Any]) -> None:
    """Check a decoded index.json.

    Beyond the schema: every count is its array's length, discovered is the sum of the three,
    a path stands in one entry only, a store name in one store only. Raises InvalidDocumentError.
    """
    _check(_validator(INDEX_SCHEMA), document)
    arrays = {
        "store_count": "stores",
        "n_recordings": "stores",
        "failure_count": "failures",
        "pending_count": "pending",
    }
    for count, array in arrays.items():
        if document[count] != len(document[array]):
            raise InvalidDocumentError(
                f"{count} is {document[count]}, but {array} has {len(document[array])} entries."
            )
    accounted = document["store_count"] + document["failure_count"] + document["pending_count"]
    if document["discovered_count"] != accounted:
        raise InvalidDocumentError(
            f"discovered_count is {document['discovered_count']}, but stores, failures and "
            f"pending account for {accounted}."
        )
    _check_unique(
        "path",
        (entry["path"] for key in ("stores", "failures", "pending") for entry in document[key]),
    )
    _check_unique("zarr", (entry["zarr"] for entry in document["stores"]))


def validate_manifest(document: Mapping[str, Any]) -> None:
    """Check a decoded manifest.json, whose paths and store names are unique.

    Raises InvalidDocumentError.
    """
    _check(_validator(MANIFEST_SCHEMA), document)
    for key in ("path", "zarr"):
        _check_unique(key, (entry[key] for entry in document["stores"]))


def validate_report(document: Mapping[str, Any]) -> None:
    """Check a decoded run report, whose counts add up. Raises InvalidDocumentError."""
    _check(_validator(REPORT_SCHEMA), document)
    accounted = [document[key] for key in ("store_count", "failure_count", "pending_count")]
    discovered = document["discovered_count"]
    if discovered is not None and None not in accounted and discovered != sum(accounted):
        raise InvalidDocumentError(
            f"discovered_count is {discovered}, but store_count, failure_count and pending_count "
            f"add up to {sum(accounted)}."
        )


def validate_store(entry: Mapping[str, Any]) -> None:
    """Check one decoded entry of the index's stores. Raises InvalidDocumentError."""
    _check(store_validator(), entry)


def read_schema(name: str) -> dict[str, Any]:
    """A published JSON Schema: of the installed package, or of the checkout it runs from."""
    packaged = files("converter").joinpath("schemas", name)
    if packaged.is_file():
        text = packaged.read_text(encoding="utf-8")
    else:
        text = (Path(__file__).parents[2] / "schemas" / name).read_text(encoding="utf-8")
    schema: dict[str, Any] = json.loads(text)
    return schema


@cache
def _validator(name: str) -> Draft202012Validator:
    return Draft202012Validator(read_schema(name))


@cache
def store_validator() -> Draft202012Validator:
    """What validate_store checks with; it takes a while to make."""
    definitions = read_schema(INDEX_SCHEMA)["$defs"]
    return Draft202012Validator({"$ref": "#/$defs/store", "$defs": definitions})


def _check(validator: Draft202012Validator, document: Mapping[str, Any]) -> None:
    try:
        validator.validate(document)
    except ValidationError as error:
        raise InvalidDocumentError(_sentence(error)) from None
    except UnicodeEncodeError as error:
        raise InvalidDocumentError(f"A text cannot be written as UTF-8: {error.reason}.") from None


def _sentence(error: ValidationError) -> str:
    place = "/".join(map(str, error.instance_path)) or "The document"
    problem = error.message
    if len(problem) > _LONGEST_PROBLEM:
        problem = problem[: _LONGEST_PROBLEM - 1] + "…"
    return f"{place}: {problem}."


def _check_unique(key: str, values: Iterable[str]) -> None:
    repeated = next(_repeated(values), None)
    if repeated is not None:
        raise InvalidDocumentError(f"The {key} {repeated!r} stands in more than one entry.")


def _repeated(values: Iterable[str]) -> Iterator[str]:
    seen: set[str] = set()
    for value in values:
        if value in seen:
            yield value
        seen.add(value)
