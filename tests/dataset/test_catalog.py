from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from converter.dataset import catalog
from converter.dataset.catalog import Provenance, read_provenance

ROW = {
    "dataset_id": "nm000103",
    "doi": "10.82901/nemar.nm000103",
    "license": "CC-BY 4.0",
    "citation": None,
    "hed_version": "8.3.0",
    "other": 1,
}
FACTS = Provenance(doi="10.82901/nemar.nm000103", license="CC-BY 4.0", hed_version="8.3.0")
FAILED = Provenance(fetch_failed=True)


class Server:
    """A catalog that answers each path from a table, and remembers what it was asked."""

    def __init__(self) -> None:
        self.answers: dict[str, tuple[int, dict[str, str], bytes]] = {}
        self.agents: list[str | None] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.agents.append(self.headers["User-Agent"])
                status, headers, body = outer.answers.get(self.path, (404, {}, b"{}"))
                self.send_response(status)
                for name, value in ({"Content-Length": str(len(body))} | headers).items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.base = f"http://127.0.0.1:{self.http.server_address[1]}/api"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("no_proxy", "*")
    server = Server()
    threading.Thread(target=server.http.serve_forever, args=(0.01,), daemon=True).start()
    yield server
    server.http.shutdown()
    server.http.server_close()


@pytest.mark.parametrize("document", [ROW, {"data": ROW}, {"dataset": ROW}])
def test_row_of_a_catalog(server: Server, document: object) -> None:
    server.answers["/api/datasets/nm000103"] = (200, {}, json.dumps(document).encode())
    assert read_provenance(server.base, "nm000103", b'{"License": "other"}') == FACTS
    assert read_provenance(server.base + "/", "nm000103", None) == FACTS
    assert all(agent and agent.startswith("nemar-convert/") for agent in server.agents)


@pytest.mark.parametrize(
    ("status", "headers", "body"),
    [
        (404, {}, json.dumps(ROW).encode()),
        (500, {}, b""),
        (200, {}, b"<html>"),
        (200, {}, b"[]"),
        (200, {}, b'{"message": "no such dataset"}'),
        (200, {}, json.dumps(ROW | {"dataset_id": "nm000999"}).encode()),
        (200, {}, b"[" * 100_000),
        (200, {}, b" " * (5 << 20)),
        (200, {"Content-Length": "4000"}, b"{}"),
        (302, {"Location": "file:///etc/passwd"}, b""),
        (302, {"Location": "/api/datasets/nm000103"}, b""),
    ],
)
def test_an_answer_that_is_no_row(
    server: Server, status: int, headers: dict[str, str], body: bytes
) -> None:
    server.answers["/api/datasets/nm000103"] = (status, headers, body)
    assert read_provenance(server.base, "nm000103", b'{"License": "CC0"}') == FAILED


def test_a_catalog_that_is_not_there(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = tmp_path / "row.json"
    row.write_text(json.dumps(ROW))
    unreachable = [
        "http://127.0.0.1:1",
        "http://[",
        f"file://{row}",
        "ftp://127.0.0.1/x",
        "http://",
    ]
    for where in [*unreachable, str(tmp_path / "absent.json"), str(tmp_path), "a\0b"]:
        assert read_provenance(where, "nm000103", None) == FAILED
    silent = ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)  # it never answers
    monkeypatch.setattr(catalog, "TIMEOUT_S", 0.2)
    with silent:
        where = f"http://127.0.0.1:{silent.server_address[1]}"
        assert read_provenance(where, "nm000103", None) == FAILED


def test_an_id_cannot_lead_elsewhere(server: Server) -> None:
    server.answers["/api/datasets/..%2Fsecret%3F"] = (200, {}, b'{"doi": "10.1/x"}')
    assert read_provenance(server.base, "../secret?", None) == Provenance(doi="10.1/x")


def test_row_of_a_file(tmp_path: Path) -> None:
    row = tmp_path / "row.json"
    row.write_bytes(b"\xef\xbb\xbf" + json.dumps({"data": ROW}).encode())
    assert read_provenance(str(row), "nm000103", None) == FACTS


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
@pytest.mark.parametrize("none", [None, "none"])
def test_the_dataset_describes_itself(encoding: str, none: str | None) -> None:
    text = """{
        "Name": "Rest, }, and ,] task.",
        "Authors": ["J. Müller", " A. B. ", ""],
        "DatasetDOI": "doi:10.18112/openneuro.ds000117.v1.0.0",
        "License": "CC0",
        "HEDVersion": ["8.2.0", "sc:1.0.0",],
    }"""
    assert read_provenance(none, "nm000103", text.encode(encoding)) == Provenance(
        doi="10.18112/openneuro.ds000117.v1.0.0",
        license="CC0",
        citation="J. Müller, A. B. Rest, }, and ,] task. "
        "https://doi.org/10.18112/openneuro.ds000117.v1.0.0",
        hed_version="8.2.0, sc:1.0.0",
    )


@pytest.mark.parametrize(
    "description",
    [
        *(None, b"", b"{", b"[1]", b"null", b"[" * 100_000),
        b'{"Authors": [{"a": 1}], "License": 3}',
        b'{"DatasetDOI": "https://doi.org/", "HEDVersion": [], "Name": "  "}',
    ],
    ids=range(8),
)
def test_a_description_that_says_nothing(description: bytes | None) -> None:
    assert read_provenance(None, "nm000103", description) == Provenance()


def test_half_a_surrogate_pair_is_not_passed_on() -> None:
    facts = read_provenance(None, "nm000103", rb'{"License": "a\ud800b"}')
    assert facts.license == "a?b"
