"""Web servers that misbehave in ways that an S3 server does not."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

Answer = Callable[[BaseHTTPRequestHandler], None]


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, answer: Answer) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answer = answer
        self.requests: list[tuple[str, dict[str, str]]] = []


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        assert isinstance(self.server, _Server)
        self.server.requests.append((self.path, dict(self.headers)))
        self.server.answer(self)

    def log_message(self, *_: object) -> None:
        pass


class WebServer:
    """Answers GET as it is told, on a free port of the loopback; keeps what was asked."""

    def __init__(self, answer: Answer, context: ssl.SSLContext | None) -> None:
        self._server = _Server(answer)
        if context is not None:
            listening = self._server.socket
            self._server.socket = context.wrap_socket(
                listening, server_side=True, do_handshake_on_connect=False
            )
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))

    @property
    def requests(self) -> list[tuple[str, dict[str, str]]]:
        """Paths and headers, in the order of their arrival."""
        return self._server.requests

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self._server.server_address[1]}"

    @property
    def url(self) -> str:
        return f"http://{self.host}"

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@contextmanager
def web_server(answer: Answer, context: ssl.SSLContext | None = None) -> Iterator[WebServer]:
    """A server, of https where a context with its certificate is given."""
    server = WebServer(answer, context)
    server.start()
    try:
        yield server
    finally:
        server.stop()


def whole(body: bytes) -> Answer:
    """Sends the body to everybody, also to those who ask for a part of it."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    return answer


def redirect(location: str) -> Answer:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(302)
        handler.send_header("Location", location)
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    return answer


def endless(handler: BaseHTTPRequestHandler) -> None:
    """Sends bytes without end and without a length."""
    handler.send_response(200)
    handler.send_header("Transfer-Encoding", "chunked")
    handler.end_headers()
    try:
        while True:
            handler.wfile.write(b"%x\r\n%s\r\n" % (65536, bytes(65536)))
    except OSError:
        handler.close_connection = True
