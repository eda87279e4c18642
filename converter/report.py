"""How a run ended, told to the archive's backend: as a file, by a POST, or both.

Each field is described in schemas/run-report-v1.json.
"""

from __future__ import annotations

import os
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import Final
from urllib.parse import SplitResult, urlsplit
from uuid import uuid4

import msgspec
import urllib3
from urllib3.exceptions import HTTPError, MaxRetryError
from urllib3.util import Retry, Timeout

from .contract.details import public_detail
from .contract.index import ENGINE_VERSION
from .contract.validation import InvalidDocumentError, validate_report
from .storage.http import AGENT, broken

FORMAT: Final = "nemar-run-report"
FORMAT_VERSION: Final = 1

CALLBACK_VARIABLE: Final = "NEMAR_CALLBACK_TOKEN"
"""The environment variable that holds the token of the POST."""

# A batch system waits for a stopped job only so long.
TIMEOUT: Final = Timeout(connect=5.0, read=10.0)
RETRIES: Final = Retry(
    total=3,
    status_forcelist=(429, 500, 502, 503, 504),
    allowed_methods=None,
    backoff_factor=1.0,  # 0, 2 and 4 s
    respect_retry_after_header=False,
    raise_on_status=False,
)


class Status(StrEnum):
    """How a run ended."""

    PUBLISHED = "published"
    UNCHANGED = "unchanged"
    FAILED = "failed"
    INTERRUPTED = "interrupted"


class RunReport(msgspec.Struct, frozen=True, kw_only=True):
    """One run; None is what it does not know, `error` a sentence where nothing was published."""

    format: str = FORMAT
    format_version: int = FORMAT_VERSION
    dataset_id: str | None = None
    status: Status
    commit: str | None = None
    engine_version: str = ENGINE_VERSION
    store_count: int | None = None
    converted: int | None = None
    removed: int | None = None
    errors: int | None = None
    failure_count: int | None = None
    pending_count: int | None = None
    discovered_count: int | None = None
    index_etag: str | None = None
    events_row_count: int | None = None
    events_upload_failed: bool | None = None
    events_stores_without_rows: int | None = None
    manifest_upload_failed: bool | None = None
    provenance_fetch_failed: bool | None = None
    error: str | None = None
    started_utc: str
    finished_utc: str


def encode_report(report: RunReport) -> bytes:
    """UTF-8 JSON, valid by its schema, with what of `error` may be published.

    Raises InvalidDocumentError.
    """
    if report.error is not None:
        report = msgspec.structs.replace(report, error=public_detail(report.error))
    body = msgspec.json.encode(report)
    validate_report(msgspec.json.decode(body))
    return body


def deliver(report: RunReport, file: Path | None, url: str | None, token: str | None) -> list[str]:
    """Write the report to a file and POST it to an http(s) URL, with the token as its bearer.

    Never raises: what could not be delivered is told, a sentence each, without the token and
    of the URL the host only. An answer of 429 or 5xx and a broken connection are tried again;
    no redirect is followed, as the token is for this host.
    """
    try:
        body = encode_report(report)
    except InvalidDocumentError as error:
        return [f"The run's report breaks its schema and is not delivered: {error}"]
    problems = [
        None if file is None else _write(file, body),
        None if url is None else _post(url, body, token),
    ]
    return [problem for problem in problems if problem is not None]


def _write(file: Path, body: bytes) -> str | None:
    """Replace the file as a whole, or write to what is none, such as a pipe."""
    try:
        if file.exists() and not file.is_file():
            file.write_bytes(body)
        else:
            _replace(file.resolve(), body)
    except OSError as error:
        return f"The run's report cannot be written to {file}: {error.strerror or error}."
    return None


def _replace(file: Path, body: bytes) -> None:
    new = file.with_name(f".{file.name}.{uuid4().hex}")
    try:
        with new.open("xb") as stream:
            stream.write(body)
            stream.flush()
            os.fsync(stream.fileno())
        new.replace(file)
    except BaseException:
        with suppress(OSError):
            new.unlink(missing_ok=True)
        raise


def _post(url: str, body: bytes, token: str | None) -> str | None:
    parts = _parts(url)
    if parts is None:
        return (
            "The run's report is not posted: the callback URL was expected to be http or https, "
            "with a host and without a user."
        )
    headers = {"Content-Type": "application/json", "User-Agent": AGENT}
    if token:
        if not (token.isascii() and token.isprintable()):
            return (
                f"The run's report is not posted: {CALLBACK_VARIABLE} was expected to hold "
                "printable ASCII characters only."
            )
        headers["Authorization"] = f"Bearer {token}"
    try:
        status = _answer(url, body, headers)
        problem = None if 200 <= status < 300 else f"the server answered {status}, not 2xx"
    except (HTTPError, OSError, ValueError) as error:
        problem = str(broken(_cause(error)))
    if problem is None:
        return None
    return f"The run's report cannot be posted to {_origin(parts)}: {problem}."


def _cause(error: Exception) -> Exception:
    """Python's own exception below those of urllib3."""
    found: BaseException | None = error
    if isinstance(error, MaxRetryError):
        found = error.reason
    while isinstance(found, HTTPError):
        found = found.__cause__ or found.__context__
    return found if isinstance(found, Exception) else error


def _answer(url: str, body: bytes, headers: dict[str, str]) -> int:
    """The status of the last answer."""
    with urllib3.PoolManager(timeout=TIMEOUT) as pool:
        response = pool.request(
            "POST",
            url,
            body=body,
            headers=headers,
            retries=RETRIES,
            redirect=False,
            preload_content=False,
        )
        response.close()
        return response.status


def _parts(url: str) -> SplitResult | None:
    try:
        parts = urlsplit(url)
        fits = parts.scheme in ("http", "https") and parts.hostname and "@" not in parts.netloc
        return parts if fits and parts.port != 0 else None
    except ValueError:
        return None


def _origin(parts: SplitResult) -> str:
    return f"{parts.scheme}://{parts.netloc}"
