"""An HTTP proxy that passes everything on, but for the faults that a test asks for.

It keeps the Host header, which S3 signatures cover, so that clients sign for the proxy's address
and the server behind it accepts that. Bodies are streamed.
"""

from __future__ import annotations

import fcntl
import re
import socket
import struct
import sys
import termios
import threading
import time
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPException, HTTPResponse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

from tests.servers.exchanges import Exchange, Rule
from tests.servers.faults import BrokenConnection, Fault, Status

PIECE = 64 * 1024
UPSTREAM_SECONDS = 120.0
ARRIVAL_SECONDS = 30.0
AT_ONCE = struct.pack("ii", 1, 0)  # SO_LINGER's value that makes a close a reset
GONE = "the client closed the connection amid its request"
HOP_HEADERS = ("connection", "keep-alive", "transfer-encoding")


class FaultProxy:
    """A proxy on a free port of 127.0.0.1 before `upstream`, a URL such as http://127.0.0.1:80."""

    def __init__(self, upstream: str) -> None:
        address = urlsplit(upstream)
        assert address.hostname is not None
        assert address.port is not None
        self.upstream = (address.hostname, address.port)
        self.closing = threading.Event()
        self._rules: list[Rule] = []
        self._exchanges: list[Exchange] = []
        self._lock = threading.Lock()
        self._server = _Server(self)
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        )
        self._thread.start()

    @property
    def endpoint(self) -> str:
        return f"http://{self.host}:{self.port}"

    @property
    def host(self) -> str:
        return "127.0.0.1"

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def inject(
        self,
        fault: Fault,
        *,
        method: str | None = None,
        path: str = "",
        skip: int = 0,
        times: int | None = 1,
        share: float = 1.0,
    ) -> None:
        """Meet requests with a fault; of several that fit, the one asked for first acts.

        Requests match by method (any by default) and by a regular expression that is searched in
        the decoded path and query. Of these the first `skip` pass, then `times` (None: all)
        are met, or only a random `share` of them, from 0 to 1.
        """
        with self._lock:
            self._rules.append(Rule(fault, method, re.compile(path), skip, times, share))

    def heal(self) -> None:
        """Forget all faults; those at work go on."""
        with self._lock:
            self._rules.clear()

    def exchanges(self, method: str | None = None, path: str = "") -> list[Exchange]:
        """The requests so far, in the order of their arrival, chosen as for `inject`."""
        with self._lock:
            return [
                each
                for each in self._exchanges
                if method in (None, each.method) and re.search(path, unquote(each.path))
            ]

    def forget(self) -> None:
        """Forget the requests so far."""
        with self._lock:
            self._exchanges.clear()

    def close(self) -> None:
        """Break all connections and end; clients are refused from now on."""
        self.closing.set()
        self._server.shutdown()
        self._thread.join()
        self._server.break_connections()
        self._server.server_close()
        if self._server.unexpected:
            raise self._server.unexpected[0]

    def begin(self, method: str, path: str) -> Exchange:
        """Record a request and choose the fault that it meets (for the handler)."""
        with self._lock:
            rule = next((each for each in self._rules if each.takes(method, path)), None)
            exchange = Exchange(method, path, fault=rule.fault if rule else None)
            self._exchanges.append(exchange)
            return exchange


class _Server(ThreadingHTTPServer):
    request_queue_size = 128
    daemon_threads = False  # server_close waits for them

    def __init__(self, proxy: FaultProxy) -> None:
        self.proxy = proxy
        self.unexpected: list[BaseException] = []
        self._sockets: set[socket.socket] = set()
        self._lock = threading.Lock()
        super().__init__(("127.0.0.1", 0), _Handler)

    def keep(self, connection: socket.socket) -> None:
        """Have a socket shut down when the proxy is closed."""
        with self._lock:
            self._sockets.add(connection)
        if self.proxy.closing.is_set():
            self.break_connections()

    def release(self, connection: socket.socket) -> None:
        with self._lock:
            self._sockets.discard(connection)

    def break_connections(self) -> None:
        with self._lock:
            for connection in self._sockets:
                try:
                    connection.shutdown(socket.SHUT_RDWR)
                except OSError:
                    continue

    def process_request_thread(self, request: object, client_address: object) -> None:
        assert isinstance(request, socket.socket)
        self.keep(request)
        super().process_request_thread(request, client_address)

    def shutdown_request(self, request: object) -> None:
        assert isinstance(request, socket.socket)
        self.release(request)
        if request.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, len(AT_ONCE)) == AT_ONCE:
            self.close_request(request)  # resets it, for lack of an orderly shutdown before
        else:
            super().shutdown_request(request)

    def handle_error(self, request: object, client_address: object) -> None:
        error = sys.exception()
        if error is not None and not isinstance(error, OSError):
            self.unexpected.append(error)


def _await_arrival(connection: socket.socket) -> None:
    """Wait until the client's machine has all that was sent: a reset drops the rest."""
    end = time.monotonic() + ARRIVAL_SECONDS
    while time.monotonic() < end:
        (unsent,) = struct.unpack("i", fcntl.ioctl(connection, termios.TIOCOUTQ, bytes(4)))
        if not unsent:
            return
        time.sleep(0.01)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def exchange(self) -> None:
        proxy = self.server.proxy
        exchange = proxy.begin(self.command, self.path)
        fault = exchange.fault or Fault()
        try:
            if (instead := fault.before_forwarding(proxy.closing)) is not None:
                self._answer_instead(instead, exchange)
            else:
                self._forward(fault, exchange)
        except BrokenConnection as broken:
            if broken.reset:
                _await_arrival(self.connection)
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, AT_ONCE)
            self.close_connection = True
        except (OSError, HTTPException):  # a side has gone, or the proxy is closed
            self.close_connection = True

    def _forward(self, fault: Fault, exchange: Exchange) -> None:
        upstream = HTTPConnection(*self.server.proxy.upstream, timeout=UPSTREAM_SECONDS)
        upstream.connect()
        connection = upstream.sock
        self.server.keep(connection)
        try:
            self._send_request(upstream, exchange)
            with upstream.getresponse() as response:
                exchange.upstream_status = response.status
                fault.before_answering()
                self._answer(response, fault, exchange)
        finally:
            self.server.release(connection)
            upstream.close()

    def _send_request(self, upstream: HTTPConnection, exchange: Exchange) -> None:
        upstream.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
        for name, value in self.headers.items():
            upstream.putheader(name, value)
        upstream.endheaders()
        refused = False
        for piece in self._request_body(exchange):
            try:
                if not refused:
                    upstream.send(piece)
            except OSError:  # it wants no more, and may have said why
                refused = True

    def _request_body(self, exchange: Exchange) -> Iterator[bytes]:
        """The request's body in pieces, a chunked one with the frames around its chunks."""
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            size = -1
            while size != 0:
                if not (line := self.rfile.readline()):
                    raise ConnectionError(GONE)
                size = int(line.split(b";")[0], 16)
                chunk = self.rfile.read(size + 2)
                exchange.received += size
                yield line + chunk
            return
        remaining = int(self.headers.get("Content-Length", 0))
        while remaining > 0:
            piece = self.rfile.read1(min(PIECE, remaining))
            if not piece:
                raise ConnectionError(GONE)
            remaining -= len(piece)
            exchange.received += len(piece)
            yield piece

    def _answer_instead(self, answer: Status, exchange: Exchange) -> None:
        for _ in self._request_body(exchange):
            pass
        body = b"" if self.command == "HEAD" else answer.document()
        exchange.status = answer.status
        exchange.sent = len(body)
        self.send_response_only(answer.status)
        self.send_header("Content-Type", "application/xml")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _answer(self, response: HTTPResponse, fault: Fault, exchange: Exchange) -> None:
        exchange.status = response.status
        self.send_response_only(response.status, response.reason)
        for name, value in response.headers.items():
            if name.lower() not in HOP_HEADERS:
                self.send_header(name, value)
        chunked = response.chunked and self.command != "HEAD"
        if chunked:
            self.send_header("Transfer-Encoding", "chunked")
        elif response.length is None:
            self.send_header("Connection", "close")
            self.close_connection = True
        self.end_headers()
        expected = response.length or 0
        pieces = iter(lambda: response.read1(PIECE), b"")
        for piece in fault.body(pieces, self.server.proxy.closing):
            exchange.sent += len(piece)
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece) if chunked else piece)
        if chunked:
            self.wfile.write(b"0\r\n\r\n")
        elif exchange.sent < expected:
            self.close_connection = True  # the server broke off, and so does its answer

    def log_message(self, *_: object) -> None:
        """Tests read what was asked from `FaultProxy.exchanges`."""


for _method in ("GET", "HEAD", "PUT", "POST", "DELETE", "OPTIONS"):
    setattr(_Handler, f"do_{_method}", _Handler.exchange)  # where http.server looks for them
