from __future__ import annotations

import json
import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from jsonschema import Draft202012Validator

from converter import report
from converter.contract.validation import REPORT_SCHEMA, InvalidDocumentError, read_schema
from converter.report import RunReport, Status, deliver, encode_report
from tests.servers.backend import Backend, listening

SCHEMA = read_schema(REPORT_SCHEMA)

PUBLISHED = RunReport(
    dataset_id="nm000103",
    status=Status.PUBLISHED,
    commit="0123456789abcdef0123456789abcdef01234567",
    store_count=5,
    converted=2,
    removed=1,
    errors=1,
    failure_count=2,
    pending_count=3,
    discovered_count=10,
    index_etag='"9b2cf535f27731c974343645a3985328"',
    events_row_count=120,
    events_upload_failed=False,
    events_stores_without_rows=1,
    manifest_upload_failed=False,
    provenance_fetch_failed=True,
    started_utc="2026-01-02T03:04:05Z",
    finished_utc="2026-01-02T03:14:05Z",
)
FAILED = RunReport(
    status=Status.FAILED,
    error="there is no repository",
    started_utc="2026-01-02T03:04:05Z",
    finished_utc="2026-01-02T03:04:06Z",
)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "RETRIES", report.RETRIES.new(backoff_factor=0.0))


@pytest.fixture
def backend() -> Iterator[Backend]:
    with listening() as server:
        yield server


@pytest.mark.parametrize("sent", [PUBLISHED, FAILED])
def test_a_report_is_written_and_posted(backend: Backend, tmp_path: Path, sent: RunReport) -> None:
    file = tmp_path / "report.json"
    assert deliver(sent, file, backend.url, "tok-1") == []
    ((path, headers, body),) = backend.received
    assert path == "/ready?key=hush"
    assert headers["Authorization"] == "Bearer tok-1"
    assert headers["Content-Type"] == "application/json"
    assert headers["User-Agent"].startswith("nemar-convert")
    assert file.read_bytes() == body
    document = json.loads(body)
    Draft202012Validator(SCHEMA).validate(document)
    assert list(document) == SCHEMA["required"] == list(SCHEMA["properties"])
    assert document["status"] == sent.status
    assert msgspec.json.decode(body, type=RunReport) == sent


def test_a_server_that_is_overloaded_is_asked_again(backend: Backend) -> None:
    backend.statuses = [503, 500, 429]
    assert deliver(PUBLISHED, None, backend.url, None) == []
    assert len({body for _, _, body in backend.received}) == 1
    assert len(backend.received) == 4
    assert all("Authorization" not in headers for _, headers, _ in backend.received)
    backend.statuses = [503] * 9
    (problem,) = deliver(PUBLISHED, None, backend.url, "tok-hush")
    assert problem.endswith("the server answered 503, not 2xx.")


def test_a_verdict_of_the_server_is_final(backend: Backend) -> None:
    with Backend() as other:
        backend.location = other.url
        for number, status in enumerate((401, 400, 302, 307), start=1):
            backend.statuses = [status]
            (problem,) = deliver(PUBLISHED, None, backend.url, "tok-hush")
            assert problem == (
                f"The run's report cannot be posted to http://127.0.0.1:{backend.server_port}: "
                f"the server answered {status}, not 2xx."
            )
            assert len(backend.received) == number


def test_a_server_that_cannot_be_reached_is_told(tmp_path: Path) -> None:
    with socket.socket() as unheard:
        unheard.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unheard.getsockname()[1]}/hush?key=hush"
        file = tmp_path / "report.json"
        (problem,) = deliver(PUBLISHED, file, url, "tok-hush")
    assert problem.endswith("the connection was refused.")
    assert "hush" not in problem
    assert file.exists()


def test_a_server_that_goes_silent_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "TIMEOUT", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        (problem,) = deliver(PUBLISHED, None, url, "tok-hush")
    assert problem.endswith("the server went silent.")


@pytest.mark.parametrize(
    ("url", "token"),
    [
        ("ftp://host/hush", "t"),
        ("file:///hush", "t"),
        ("hush", "t"),
        ("https:///hush", "t"),
        ("http://host:hush/", "t"),
        ("http://me:hush@host/", "t"),
        ("http://[hush/", "t"),
        ("http://host/", "hush\n"),
        ("http://host/", "hüsh hush"),
    ],
)
def test_what_cannot_be_posted_is_told(url: str, token: str) -> None:
    (problem,) = deliver(PUBLISHED, None, url, token)
    assert "is not posted" in problem
    assert "expected" in problem
    assert "hush" not in problem


def test_a_file_is_replaced_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "report.json"
    link = tmp_path / "link.json"
    link.symlink_to(file)
    assert deliver(FAILED, link, None, None) == []
    assert stat.S_IMODE(file.stat().st_mode) & 0o400
    before = file.read_bytes()

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    (problem,) = deliver(PUBLISHED, link, None, None)
    assert problem == f"The run's report cannot be written to {link}: No space left on device."
    assert file.read_bytes() == before
    assert link.is_symlink()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link.json", "report.json"]


def test_a_file_that_cannot_be_written_does_not_stop_the_post(
    backend: Backend, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    for target in (tmp_path / "file" / "report.json", tmp_path / "nowhere" / "r.json", tmp_path):
        (problem,) = deliver(PUBLISHED, target, backend.url, None)
        assert problem.startswith(f"The run's report cannot be written to {target}: ")
    assert len(backend.received) == 3


def test_a_pipe_is_written_to() -> None:
    reader, writer = os.pipe()
    try:
        assert deliver(FAILED, Path(f"/dev/fd/{writer}"), None, None) == []
        assert json.loads(os.read(reader, 1 << 16))["status"] == "failed"
    finally:
        os.close(reader)
        os.close(writer)


def test_an_error_is_published_without_paths_and_secrets() -> None:
    told = msgspec.structs.replace(
        FAILED, error="no index at /srv/hush/x.json: https://u:hush@host/?k=hush\nmore" + "x" * 999
    )
    body = encode_report(told)
    assert b"hush" not in body
    assert json.loads(body)["error"] == "no index at <path>: https://host/"


@pytest.mark.parametrize(
    ("sound", "fault"),
    [
        (PUBLISHED, {"commit": "0123"}),
        (PUBLISHED, {"index_etag": None}),
        (PUBLISHED, {"store_count": None}),
        (PUBLISHED, {"events_upload_failed": None}),
        (PUBLISHED, {"error": "it failed"}),
        (PUBLISHED, {"discovered_count": 11}),
        (PUBLISHED, {"removed": -1}),
        (FAILED, {"error": None}),
        (FAILED, {"dataset_id": "x"}),
        (FAILED, {"finished_utc": "now"}),
    ],
)
def test_what_breaks_the_schema_is_not_delivered(
    tmp_path: Path, sound: RunReport, fault: dict[str, Any]
) -> None:
    broken = msgspec.structs.replace(sound, **fault)
    with pytest.raises(InvalidDocumentError):
        encode_report(broken)
    (problem,) = deliver(broken, tmp_path / "report.json", None, None)
    assert problem.startswith("The run's report breaks its schema and is not delivered: ")
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("status", [Status.UNCHANGED, Status.INTERRUPTED])
def test_the_other_endings(status: Status) -> None:
    if status is Status.UNCHANGED:
        encode_report(msgspec.structs.replace(PUBLISHED, status=status, events_row_count=None))
    else:
        encode_report(msgspec.structs.replace(FAILED, status=status, dataset_id="nm000103"))
