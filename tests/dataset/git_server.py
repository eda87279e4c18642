"""Git repositories over HTTP: `git http-backend` behind a server that can also misbehave."""

from __future__ import annotations

import base64
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tests.conftest import GIT_ENVIRONMENT


class GitServer(ThreadingHTTPServer):
    """Serves the repositories below a folder.

    The next `refusals` requests are answered by 503. With a `password`, requests need it. An
    `old` server knows the first protocol of git only. While `stalls` is set, the answer to a
    POST stops in its middle until `release`.
    """

    daemon_threads = True

    def __init__(self, root: Path) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.root = root
        self.refusals = 0
        self.password: str | None = None
        self.old = False
        self.stalls = False
        self.stalled = threading.Event()
        self.release = threading.Event()
        self.requests: list[str] = []

    def template(self, credentials: str = "") -> str:
        return f"http://{credentials}127.0.0.1:{self.server_port}/{{dataset_id}}.git"


class Handler(BaseHTTPRequestHandler):
    server: GitServer

    def do_GET(self) -> None:
        self._answer(b"")

    def do_POST(self) -> None:
        self._answer(self.rfile.read(int(self.headers["Content-Length"])))

    def log_message(self, *_: object) -> None:
        pass

    def _answer(self, body: bytes) -> None:
        server = self.server
        server.requests.append(f"{self.command} {self.path}")
        if server.refusals:
            server.refusals -= 1
            self.send_error(503)
        elif server.password is not None and not self._is_known(server.password):
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="git"')
            self.end_headers()
        else:
            self._run_backend(body)

    def _is_known(self, password: str) -> bool:
        scheme, _, text = self.headers.get("Authorization", "").partition(" ")
        return scheme == "Basic" and base64.b64decode(text).decode().endswith(f":{password}")

    def _run_backend(self, body: bytes) -> None:
        path, _, query = self.path.partition("?")
        protocol = "" if self.server.old else self.headers.get("Git-Protocol", "")
        done = subprocess.run(
            ["git", "http-backend"],
            input=body,
            capture_output=True,
            env=GIT_ENVIRONMENT
            | {
                "GIT_PROJECT_ROOT": str(self.server.root),
                "GIT_HTTP_EXPORT_ALL": "1",
                "GIT_PROTOCOL": protocol,
                "PATH_INFO": path,
                "QUERY_STRING": query,
                "REQUEST_METHOD": self.command,
                "CONTENT_TYPE": self.headers.get("Content-Type", ""),
                "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            },
        )
        head, _, answer = done.stdout.partition(b"\r\n\r\n")
        headers = [line.split(": ", 1) for line in head.decode().splitlines()]
        self.send_response(int(dict(headers).get("Status", "200 OK").split()[0]))
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()
        half = len(answer) // 2
        self.wfile.write(answer[:half])
        if self.server.stalls and self.command == "POST" and b"packfile" in answer:
            self.wfile.flush()
            self.server.stalled.set()
            self.server.release.wait(60)
        self.wfile.write(answer[half:])


@contextmanager
def serving(root: Path) -> Iterator[GitServer]:
    """A running server, on a port of its own."""
    server = GitServer(root)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield server
    finally:
        server.release.set()
        server.shutdown()
        server.server_close()
        thread.join()
