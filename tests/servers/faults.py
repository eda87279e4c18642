"""What can go wrong between a client and an HTTP server, as values that a test hands to a proxy."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from threading import Event

WAIT_SECONDS = 60.0


class BrokenConnection(Exception):
    """The proxy ends the connection here: by a reset, or as if all had been said."""

    def __init__(self, *, reset: bool) -> None:
        super().__init__("reset" if reset else "closed")
        self.reset = reset


class Fault:
    """Does nothing: each kind overrides the moment at which it acts.

    `closing` is set when the proxy is closed; nothing may wait beyond that.
    """

    def before_forwarding(self, closing: Event) -> Status | None:
        """Act before the server sees the request; an answer given here is sent in its stead."""
        return None

    def before_answering(self) -> None:
        """Act when the server has answered and the client knows nothing of that yet."""

    def body(self, pieces: Iterator[bytes], closing: Event) -> Iterator[bytes]:
        """The answer's body as the client gets it."""
        return pieces


@dataclass(frozen=True)
class Status(Fault):
    """An S3 error answer that the server never gave; the request does not reach it."""

    status: int
    code: str
    message: str = "injected by the test"

    def before_forwarding(self, closing: Event) -> Status | None:
        return self

    def document(self) -> bytes:
        """The answer's body, as S3 words it."""
        return (
            '<?xml version="1.0" encoding="UTF-8"?>'
            f"<Error><Code>{self.code}</Code><Message>{self.message}</Message></Error>"
        ).encode()


INTERNAL_ERROR = Status(500, "InternalError")
SLOW_DOWN = Status(503, "SlowDown")
ACCESS_DENIED = Status(403, "AccessDenied")
EXPIRED_TOKEN = Status(403, "ExpiredToken")
PRECONDITION_FAILED = Status(412, "PreconditionFailed")
NOT_FOUND = Status(404, "NoSuchKey")


@dataclass(frozen=True)
class Reset(Fault):
    """The connection is reset: at once, or `after` so many bytes of the answer's body."""

    after: int | None = None

    def before_forwarding(self, closing: Event) -> None:
        if self.after is None:
            raise BrokenConnection(reset=True)

    def body(self, pieces: Iterator[bytes], closing: Event) -> Iterator[bytes]:
        yield from first_bytes(pieces, self.after or 0)
        raise BrokenConnection(reset=True)


@dataclass(frozen=True)
class Truncate(Fault):
    """The connection is closed in order `after` so many bytes of a body announced as longer."""

    after: int

    def body(self, pieces: Iterator[bytes], closing: Event) -> Iterator[bytes]:
        yield from first_bytes(pieces, self.after)
        raise BrokenConnection(reset=False)


@dataclass(frozen=True)
class Stall(Fault):
    """Silence for `seconds`, then the connection is closed.

    At once, and the request never reaches the server; or `after` so many bytes of the body.
    """

    seconds: float
    after: int | None = None

    def before_forwarding(self, closing: Event) -> None:
        if self.after is None:
            self._be_silent(closing)

    def body(self, pieces: Iterator[bytes], closing: Event) -> Iterator[bytes]:
        yield from first_bytes(pieces, self.after or 0)
        self._be_silent(closing)

    def _be_silent(self, closing: Event) -> None:
        closing.wait(self.seconds)
        raise BrokenConnection(reset=False)


@dataclass(frozen=True)
class LoseAnswer(Fault):
    """The server did what was asked, and the client sees a reset."""

    def before_answering(self) -> None:
        raise BrokenConnection(reset=True)


@dataclass(frozen=True)
class Flip(Fault):
    """One byte of the answer's body is another one; the length stays."""

    at: int = 0

    def body(self, pieces: Iterator[bytes], closing: Event) -> Iterator[bytes]:
        start = 0
        for piece in pieces:
            changed = bytearray(piece)
            if start <= self.at < start + len(piece):
                changed[self.at - start] ^= 0xFF
            yield bytes(changed)
            start += len(piece)


@dataclass(frozen=True)
class Drip(Fault):
    """The answer's body comes `size` bytes at a time, with a `pause` in seconds after each."""

    size: int
    pause: float

    def body(self, pieces: Iterator[bytes], closing: Event) -> Iterator[bytes]:
        for piece in pieces:
            for start in range(0, len(piece), self.size):
                yield piece[start : start + self.size]
                closing.wait(self.pause)


@dataclass(frozen=True)
class Gate(Fault):
    """Holds a request before the server sees it, until the test lets it go on.

    A test waits until the request is there, does what must happen at that moment, and opens.
    """

    _reached: Event = field(default_factory=Event)
    _opened: Event = field(default_factory=Event)

    def before_forwarding(self, closing: Event) -> None:
        self._reached.set()
        while not self._opened.wait(0.05):
            if closing.is_set():
                raise BrokenConnection(reset=True)

    def wait_until_reached(self, seconds: float = WAIT_SECONDS) -> None:
        """Wait for the first request that the gate holds; TimeoutError when none comes."""
        if not self._reached.wait(seconds):
            raise TimeoutError(f"no request reached the gate within {seconds} seconds")

    def open(self) -> None:
        """Let the held requests go on, and all later ones pass."""
        self._opened.set()


def first_bytes(pieces: Iterator[bytes], count: int) -> Iterator[bytes]:
    """The first `count` bytes of a body."""
    for piece in pieces:
        if count <= 0:
            return
        yield piece[:count]
        count -= len(piece)
