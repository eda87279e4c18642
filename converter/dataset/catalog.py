"""Facts about a whole dataset: DOI, license, citation and HED version.

They come from the dataset's row in a catalog, or without a catalog from the dataset's own
dataset_description.json.
"""

from __future__ import annotations

import codecs
import json
import re
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPException
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

# Names that a row may give each fact, the catalog's own first.
_COLUMNS: dict[str, tuple[str, ...]] = {
    "doi": ("doi", "dataset_doi", "DatasetDOI"),
    "license": ("license", "License"),
    "citation": ("citation", "Citation"),
    "hed_version": ("hed_version", "HEDVersion"),
}

TIMEOUT_S = 10.0
_MAX_ROW_BYTES = 4 << 20

_DOI_PREFIX = re.compile(r"^(?:doi:\s*|https?://(?:dx\.)?doi\.org/)+", re.IGNORECASE)
# A whole string, kept as it is, or a comma before a closing bracket, dropped.
_STRING_OR_TRAILING_COMMA = re.compile(r'("(?:[^"\\]|\\.)*+")|,(?=\s*[}\]])', re.DOTALL)
_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


@dataclass(frozen=True, slots=True)
class Provenance:
    """Dataset-level facts, None where the source has no value.

    `doi` is bare (`10.82901/nemar.nm000103`); `fetch_failed` is true only when a catalog was
    named and could not be read.
    """

    doi: str | None = None
    license: str | None = None
    citation: str | None = None
    hed_version: str | None = None
    fetch_failed: bool = False


def read_provenance(catalog: str | None, dataset_id: str, description: bytes | None) -> Provenance:
    """Read a dataset's facts; never raises.

    `catalog` is the base URL of an API that has `<base>/datasets/<id>`, or a JSON file with
    such a row; `none` or None stands for no catalog, and `description`, the bytes of
    dataset_description.json, is read instead.
    """
    if catalog is None or catalog == "none":
        return _from_description(description)
    try:
        row = _row(_parse_json(_fetch(catalog, dataset_id)), dataset_id)
    except (OSError, HTTPException, ValueError, RecursionError):
        return Provenance(fetch_failed=True)
    return Provenance(
        doi=_doi(_first(row, _COLUMNS["doi"])),
        license=_text(_first(row, _COLUMNS["license"])),
        citation=_text(_first(row, _COLUMNS["citation"])),
        hed_version=_text(_first(row, _COLUMNS["hed_version"])),
    )


def _from_description(description: bytes | None) -> Provenance:
    try:
        facts = _parse_json(description or b"{}")
    except (ValueError, RecursionError):
        return Provenance()
    if not isinstance(facts, dict):
        return Provenance()
    doi = _doi(facts.get("DatasetDOI"))
    return Provenance(
        doi=doi,
        license=_text(facts.get("License")),
        citation=_citation(_text(facts.get("Authors")), _text(facts.get("Name")), doi),
        hed_version=_text(facts.get("HEDVersion")),
    )


def _citation(authors: str | None, name: str | None, doi: str | None) -> str | None:
    """`Authors. Name. https://doi.org/DOI`, of what is there; a DOI alone cites nothing."""
    sentences = [f"{part.rstrip('.')}." for part in (authors, name) if part]
    if not sentences:
        return None
    return " ".join([*sentences, *([f"https://doi.org/{doi}"] if doi else [])])


def _fetch(catalog: str, dataset_id: str) -> bytes:
    scheme, separator, _ = catalog.partition("://")
    if not separator:
        with Path(catalog).open("rb") as file:
            return _bounded(file.read(_MAX_ROW_BYTES + 1))
    if scheme.lower() not in ("http", "https"):
        raise ValueError(f"A catalog is read over http or https, not {scheme}.")
    return _get(f"{catalog.rstrip('/')}/datasets/{urllib.parse.quote(dataset_id, safe='')}")


def _get(url: str) -> bytes:
    # Some networks of servers turn the default User-Agent of Python away.
    opener = _http_only()
    opener.addheaders = [("User-Agent", _user_agent()), ("Accept", "application/json")]
    deadline = time.monotonic() + TIMEOUT_S
    received = b""
    with opener.open(url, timeout=TIMEOUT_S) as response:
        while piece := response.read1(1 << 16):
            received = _bounded(received + piece)
            if time.monotonic() > deadline:
                raise TimeoutError(f"The catalog took more than {TIMEOUT_S} s to answer.")
    return received


def _http_only() -> urllib.request.OpenerDirector:
    """An opener that follows redirects, but not to files or other schemes."""
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler,
        urllib.request.HTTPHandler,
        urllib.request.HTTPSHandler,
        urllib.request.HTTPRedirectHandler,
        urllib.request.HTTPDefaultErrorHandler,
        urllib.request.HTTPErrorProcessor,
        urllib.request.UnknownHandler,
    ):
        opener.add_handler(handler())
    return opener


def _user_agent() -> str:
    try:
        return f"nemar-convert/{version('nemar-convert')}"
    except PackageNotFoundError:
        return "nemar-convert/0"


def _bounded(content: bytes) -> bytes:
    if len(content) > _MAX_ROW_BYTES:
        raise ValueError(f"A catalog row has at most {_MAX_ROW_BYTES} bytes.")
    return content


def _row(document: object, dataset_id: str) -> Mapping[str, Any]:
    """The dataset's row, itself or wrapped in `data` or `dataset`."""
    row = document
    for wrapper in ("data", "dataset"):
        if isinstance(row, dict) and isinstance(row.get(wrapper), dict):
            row = row[wrapper]
    known = {"dataset_id", *(name for names in _COLUMNS.values() for name in names)}
    if not isinstance(row, dict) or known.isdisjoint(row):
        raise ValueError("The catalog's answer is no row of a dataset.")
    if row.get("dataset_id", dataset_id) != dataset_id:
        raise ValueError(f"The catalog's row is that of {row['dataset_id']!r}.")
    return row


def _parse_json(content: bytes) -> Any:
    """JSON in any encoding that sidecars come in, trailing commas forgiven; else ValueError."""
    text = _decode(content)
    try:
        return json.loads(text)
    except ValueError:
        return json.loads(_STRING_OR_TRAILING_COMMA.sub(lambda found: found[1] or "", text))


def _decode(content: bytes) -> str:
    for mark, encoding in _BYTE_ORDER_MARKS:
        if content.startswith(mark):
            return content.decode(encoding)
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        return content.decode("cp1252", "replace")


def _first(row: Mapping[str, Any], names: tuple[str, ...]) -> Any:
    return next((row[name] for name in names if row.get(name) is not None), None)


def _text(value: object) -> str | None:
    """A string without surrounding space, a list of strings joined; None for anything else."""
    parts = value if isinstance(value, list) else [value]
    cleaned = [part.strip() for part in parts if isinstance(part, str)]
    text = ", ".join(part for part in cleaned if part)
    # JSON can spell half a surrogate pair, which no published document can hold.
    return text.encode("utf-8", "replace").decode("utf-8") or None


def _doi(value: object) -> str | None:
    text = _text(value)
    return (_DOI_PREFIX.sub("", text) or None) if text else None
