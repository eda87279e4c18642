"""HTTP GET over connections that are kept open, to hosts that the guard lets through.

It stands on the standard library's client, whose cost for a small object is a third of that of
the libraries above it.
"""

from __future__ import annotations

import email.utils
import re
import socket
import ssl
import threading
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Final
from urllib.parse import SplitResult, quote, urljoin, urlsplit

from .hosts import HostGuard

# A content delivery network may refuse a library's own name.
AGENT: Final = "nemar-convert (+https://nemar.org)"
MOST_REDIRECTS: Final = 5

_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_HEADERS = {"User-Agent": AGENT, "Accept": "*/*", "Accept-Encoding": "identity"}
_CONTENT_RANGE = re.compile(r"bytes (?:(\d{1,19})-\d{1,19}|\*)/(\d{1,19}|\*)")
# What stands in a URL as it is: all that RFC 3986 reserves, and escapes that are there.
_PLAIN = "!#$%&'()*+,/:;=?@[]~"


class BrokenTransfer(Exception):
    """A connection could not be made, broke or stalled; the message says which, without a URL."""


class Response(HTTPResponse):
    """An answer whose body is read into memory that is there already."""

    def read_into(self, view: memoryview) -> int:
        """Put what has arrived of the body into `view`; return its bytes, 0 at the end.

        Raises BrokenTransfer where the body breaks off before the length that was announced.
        """
        try:
            if self.fp is None or self.length == 0:
                return 0
            if self.chunked:
                data = self.read1(len(view))
                view[: len(data)] = data
                return len(data)
            count = self.fp.readinto1(view if self.length is None else view[: self.length])
        except (HTTPException, OSError, ValueError) as error:
            raise broken(error) from error
        if count == 0 and self.length:
            raise BrokenTransfer("the body ended early")
        if self.length is not None:
            self.length -= count
        return count

    @property
    def is_at_end(self) -> bool:
        """Whether nothing of the body is left, so that the connection serves again."""
        return self.length == 0 if not self.chunked else self.isclosed()

    @property
    def content_range(self) -> tuple[int | None, int | None]:
        """First byte of what is sent, and size of the whole object, as the answer tells them."""
        found = _CONTENT_RANGE.fullmatch(self.headers.get("Content-Range", "").strip())
        if found is None:
            return None, None
        start, total = found.groups()
        return None if start is None else int(start), None if total == "*" else int(total)

    @property
    def retry_after(self) -> float:
        """The seconds that the answer asks to wait, in seconds or by a date."""
        asked = self.headers.get("Retry-After", "").strip()
        if asked.isdecimal():
            return float(asked)
        try:
            return max(0.0, email.utils.parsedate_to_datetime(asked).timestamp() - time.time())
        except (ValueError, OverflowError):
            return 0.0


class _Guarded(HTTPConnection):
    """A connection to where a host may be: names can change between two look-ups.

    `guard` is None where the peer is the operator's proxy.
    """

    response_class = Response
    guard: HostGuard | None = None
    stall: float | None = None

    def connect(self) -> None:
        """Connect, and look where to before a byte is sent."""
        super().connect()
        if self.guard is not None:
            self.guard.check_peer(self.host, self.port, self.sock.getpeername()[0])
        self.sock.settimeout(self.stall)


class _GuardedTLS(HTTPSConnection, _Guarded):
    """The same by https; the look comes before the handshake."""


class HttpClient:
    """Connections to many hosts, kept open between requests; for many threads at once.

    `stall` is how many seconds may pass without a byte, `connect` how many until a connection
    is there. A proxy that the environment names is used, and it is that which looks hosts up.
    """

    def __init__(self, guard: HostGuard, *, stall: float, connect: float = 10.0) -> None:
        self.guard = guard
        self._stall = stall
        self._connect = min(connect, stall)
        self._proxies = urllib.request.getproxies()
        self._idle: dict[tuple[str, str], list[HTTPConnection]] = {}
        self._lock = threading.Lock()

    def close(self) -> None:
        """Close the idle connections."""
        with self._lock:
            for connections in self._idle.values():
                for connection in connections:
                    connection.close()
            self._idle.clear()

    @contextmanager
    def get(self, url: str, headers: Mapping[str, str]) -> Iterator[Response]:
        """An answer whose body is yet to be read, redirects followed, content not decoded.

        Raises BrokenTransfer, RefusedAddress; what goes wrong within the block comes out as it
        is. A body that was not read to its end costs the connection.
        """
        came_from = None
        for _ in range(MOST_REDIRECTS + 1):
            parts = self.guard.check_url(url, came_from)
            connection, response = self._request(parts, {**_HEADERS, **headers})
            target = response.headers.get("Location")
            if response.status not in _REDIRECTS or target is None:
                break
            connection.close()
            came_from, url = url, normal_url(urljoin(url, target)) or ""
        else:
            raise BrokenTransfer(f"more than {MOST_REDIRECTS} redirects")
        try:
            yield response
        finally:
            self._put_back(parts, connection, response)

    def _request(
        self, parts: SplitResult, headers: Mapping[str, str]
    ) -> tuple[HTTPConnection, Response]:
        """Send a request; over a new connection where an idle one turns out to be closed."""
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        with self._lock:
            idle = self._idle.get((parts.scheme, parts.netloc))
            connection = idle.pop() if idle else None
        if connection is not None:
            try:
                return connection, _answer(connection, target, headers)
            except BrokenTransfer as error:
                # An idle connection that the server has closed meanwhile says nothing.
                if not isinstance(error.__cause__, (ConnectionError, ssl.SSLError)):
                    raise
        connection, prefix = self._new(parts)
        return connection, _answer(connection, prefix + target, headers)

    def _new(self, parts: SplitResult) -> tuple[HTTPConnection, str]:
        """A connection to a host or its proxy, and what precedes paths in requests over it."""
        proxy = urlsplit(self._proxies.get(parts.scheme, ""))
        if not proxy.hostname or urllib.request.proxy_bypass(parts.netloc):
            connection = self._to(parts, parts.hostname or "", parts.port)
            connection.guard = self.guard
            return connection, ""
        connection = self._to(parts, proxy.hostname, proxy.port or 80)
        if parts.scheme == "http":
            return connection, f"http://{parts.netloc}"
        connection.set_tunnel(parts.hostname or "", parts.port)
        return connection, ""

    def _to(self, parts: SplitResult, host: str, port: int | None) -> _Guarded:
        connection: _Guarded
        if parts.scheme == "https":
            connection = _GuardedTLS(host, port, timeout=self._connect, context=_tls())
        else:
            connection = _Guarded(host, port, timeout=self._connect)
        connection.stall = self._stall
        return connection

    def _put_back(self, parts: SplitResult, connection: HTTPConnection, response: Response) -> None:
        if response.will_close or not response.is_at_end:
            response.close()
            connection.close()
            return
        response.close()
        with self._lock:
            self._idle.setdefault((parts.scheme, parts.netloc), []).append(connection)


@lru_cache(maxsize=1)
def _tls() -> ssl.SSLContext:
    return ssl.create_default_context()


def _answer(connection: HTTPConnection, target: str, headers: Mapping[str, str]) -> Response:
    try:
        connection.request("GET", target, headers=dict(headers))
        response = connection.getresponse()
    except (HTTPException, OSError, ValueError) as error:
        connection.close()
        raise broken(error) from error
    except BaseException:
        connection.close()
        raise
    assert isinstance(response, Response)
    return response


def normal_url(url: str) -> str | None:
    """An http(s) URL with its odd characters escaped, without a user; None if it is none."""
    try:
        parts = urlsplit(url)
        host = parts.hostname
        port = f":{parts.port}" if parts.port is not None else ""
        if parts.scheme not in ("http", "https") or not host:
            return None
        name = f"[{host}]" if ":" in host else host.encode("idna").decode("ascii")
    except ValueError:
        return None
    path, query = quote(parts.path, safe=_PLAIN), quote(parts.query, safe=_PLAIN)
    return f"{parts.scheme}://{name}{port}{path}{f'?{query}' if query else ''}"


def broken(error: Exception) -> BrokenTransfer:
    """What went wrong with a connection, in words that hold no address."""
    match error:
        case ssl.SSLCertVerificationError():
            return BrokenTransfer("no TLS connection that can be trusted")
        case TimeoutError():
            return BrokenTransfer("the server went silent")
        case socket.gaierror():
            return BrokenTransfer("the host's name is unknown")
        case ConnectionRefusedError():
            return BrokenTransfer("the connection was refused")
        case HTTPException() if not isinstance(error, ConnectionError):
            return BrokenTransfer("no answer in HTTP")
    return BrokenTransfer("the connection broke")
