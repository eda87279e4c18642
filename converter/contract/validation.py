"""Checks of a document against its published schema and the sums that a schema cannot state."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator, ValidationError, validators

INDEX_SCHEMA = "zarr-index-v3.json"
MANIFEST_SCHEMA = "zarr-manifest-v1.json"

_LONGEST_PROBLEM = 200
_MOST_REMEMBERED = 100_000


class InvalidDocumentError(ValueError):
    """A document breaks its contract; one sentence names the place and the problem."""


def validate_index(document: Mapping[str, Any]) -> None:
    """Check a decoded index.json.

    Beyond the schema: every count is its array's length, discovered is the sum of the three,
    a path stands in one entry only, a store name in one store only. Raises InvalidDocumentError.
    """
    _check_schema(INDEX_SCHEMA, document)
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
    _check_schema(MANIFEST_SCHEMA, document)
    for key in ("path", "zarr"):
        _check_unique(key, (entry[key] for entry in document["stores"]))


def validate_store(entry: Mapping[str, Any]) -> None:
    """Check one decoded entry of the index's stores. Raises InvalidDocumentError."""
    error = next(_store_validator().iter_errors(entry), None)
    if error is not None:
        raise InvalidDocumentError(_sentence(error))


@cache
def _store_validator() -> Draft202012Validator:
    definitions = read_schema(INDEX_SCHEMA)["$defs"]
    return Draft202012Validator({"$ref": "#/$defs/store", "$defs": definitions})


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
def _validator(name: str) -> Any:
    schema = read_schema(name)
    Draft202012Validator.check_schema(schema)
    quick = _QuickKeywords(schema)
    keywords = {
        "$ref": quick.reference,
        "properties": quick.properties,
        "items": quick.items,
        "additionalProperties": quick.additional_properties,
    }
    extend: Callable[..., type[Any]] = validators.extend
    return extend(Draft202012Validator, keywords)(schema)


class _QuickKeywords:
    """Keywords of JSON Schema that check what they hold in place, and a repeated scalar once.

    jsonschema builds a validator for every value it descends to, which takes 15 s for an
    index of 25,000 stores. That is needed only where an error must tell its path.
    """

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._definitions = {
            f"#/$defs/{name}": schema for name, schema in root.get("$defs", {}).items()
        }
        self._valid: set[tuple[int, type, Any]] = set()

    def _errors(
        self, validator: Any, schema: Any, value: Any, step: str | int
    ) -> Iterable[ValidationError]:
        if self._is_valid(validator, schema, value):
            return ()
        errors: Iterable[ValidationError] = validator.descend(value, schema, path=step)
        return errors

    def _is_valid(self, validator: Any, schema: Mapping[str, Any], value: Any) -> bool:
        scalar = not isinstance(value, dict | list)
        seen = (id(schema), type(value), value)
        if scalar and seen in self._valid:
            return True
        for keyword, expected in schema.items():
            check = validator.VALIDATORS.get(keyword)
            if check and any(True for _ in check(validator, expected, value, schema) or ()):
                return False
        if scalar and len(self._valid) < _MOST_REMEMBERED:
            self._valid.add(seen)
        return True

    def reference(
        self, validator: Any, name: str, instance: Any, _schema: Any
    ) -> Iterator[ValidationError]:
        schema = self._definitions[name]
        if not self._is_valid(validator, schema, instance):
            yield from validator.descend(instance, schema)

    def properties(
        self, validator: Any, properties: Mapping[str, Any], instance: Any, _schema: Any
    ) -> Iterator[ValidationError]:
        if isinstance(instance, dict):
            for name, schema in properties.items():
                if name in instance:
                    yield from self._errors(validator, schema, instance[name], name)

    def additional_properties(
        self, validator: Any, additional: Any, instance: Any, schema: Mapping[str, Any]
    ) -> Iterator[ValidationError]:
        if not isinstance(instance, dict):
            return
        extra = instance.keys() - schema.get("properties", {}).keys()
        if additional is False and extra:
            names = ", ".join(sorted(repr(name) for name in extra))
            yield ValidationError(f"there is no field {names} in the contract")
        elif isinstance(additional, dict):
            for name in sorted(extra):
                yield from self._errors(validator, additional, instance[name], name)

    def items(
        self, validator: Any, items: Mapping[str, Any], instance: Any, _schema: Any
    ) -> Iterator[ValidationError]:
        if isinstance(instance, list):
            for index, item in enumerate(instance):
                yield from self._errors(validator, items, item, index)


def _check_schema(name: str, document: Mapping[str, Any]) -> None:
    error = next(_validator(name).iter_errors(document), None)
    if error is not None:
        raise InvalidDocumentError(_sentence(error))


def _sentence(error: ValidationError) -> str:
    place = "/".join(str(step) for step in error.absolute_path) or "The document"
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
