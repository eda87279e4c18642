"""One object on its way: asked for, resumed where it broke off, refused or found wrong."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from random import SystemRandom
from typing import Final

from .hosts import RefusedAddress
from .http import BrokenTransfer, HttpClient, Response
from .objects import Address, Bucket

READ: Final = 1 << 18
"""Bytes asked of a connection at once."""

REFUSALS: Final = 3
"""Answers of 401 or 403 after which an object counts as refused."""

_DICE = SystemRandom()
_AGAIN = frozenset({408, 425, 429})


class NotThere(Exception):
    """The server says that it has no such object."""


class Refused(Exception):
    """The server, or the rules for hosts, will not give the object; the message says how."""


class WrongBytes(Exception):
    """The object is not the one expected; `found` and `expected` say in what."""

    def __init__(self, found: str, expected: str) -> None:
        super().__init__(f"{found}, where {expected} is expected")
        self.found = found
        self.expected = expected


class IgnoresRanges(Exception):
    """The server sends the whole object though a part of it was asked for."""


class Stopped(Exception):
    """Another file of the same set cannot be had, so this one is not fetched to its end."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a misbehaving server is put up with; times in seconds.

    `stall`: without a byte; `tries`: in a row that bring nothing; `most_tries`: in all, of one
    object or 16 MiB of it; `pause`: before the second try, doubled for each one after, with
    some chance in it, up to `longest_pause`, the most that a server may ask for as well.
    """

    stall: float = 30.0
    tries: int = 6
    most_tries: int = 40
    pause: float = 0.5
    longest_pause: float = 20.0

    def delay(self, failures: int) -> float:
        """Seconds to wait after so many failures in a row."""
        longest = min(self.longest_pause, self.pause * 2.0 ** (failures - 1))
        return longest * _DICE.uniform(0.5, 1.0)


class Fetching:
    """What the transfers of one set of files share."""

    def __init__(self, client: HttpClient, patience: Patience) -> None:
        self.client = client
        self.patience = patience
        self.stop = threading.Event()
        self.private: set[Bucket] = set()
        self._memory = threading.local()

    def view(self) -> memoryview:
        """This thread's memory for what arrives."""
        if not hasattr(self._memory, "view"):
            self._memory.view = memoryview(bytearray(READ))
        view: memoryview = self._memory.view
        return view


@dataclass(slots=True)
class Run:
    """A stretch of an object, from byte `start` up to `stop` (None: to its end).

    `write(data, position)` takes what arrives, in order; when a server starts over, positions
    do too.
    """

    start: int
    stop: int | None
    write: Callable[[memoryview, int], None]
    position: int = field(init=False)

    def __post_init__(self) -> None:
        self.position = self.start


class Transfer:
    """One object, fetched as one run of bytes or as several side by side.

    `size` is its bytes where that is known; `answered` is set once the server has given any of
    it, or has failed to.
    """

    def __init__(self, fetching: Fetching, address: Address, size: int | None, limit: int) -> None:
        self._fetching = fetching
        self._address = address
        self._size = size
        self._limit = limit
        self._etag: str | None = None
        self._signed = address.bucket in fetching.private
        self._moved = False
        self._lock = threading.Lock()
        self.answered = threading.Event()

    def fetch(self, run: Run) -> None:
        """Bring a run to its end.

        Raises NotThere, Refused, WrongBytes, IgnoresRanges, Stopped, and BrokenTransfer when
        patience is at its end.
        """
        failures = refusals = total = 0
        while True:
            before = run.position
            try:
                self._attempt(run)
                return
            except _AskAnew:
                continue
            except _Transient as error:
                failures = 1 if run.position > before else failures + 1
                refusals += error.is_refusal
                total += 1
                self._wait(error, failures, refusals, total)
            finally:
                self.answered.set()

    def _wait(self, error: _Transient, failures: int, refusals: int, total: int) -> None:
        patience = self._fetching.patience
        if refusals >= REFUSALS:
            raise Refused(str(error)) from error
        if failures >= patience.tries or total >= patience.most_tries:
            raise BrokenTransfer(str(error)) from error
        delay = max(patience.delay(failures), min(error.after, patience.longest_pause))
        if self._fetching.stop.wait(delay):
            raise Stopped

    def _attempt(self, run: Run) -> None:
        is_part = run.position > 0 or run.stop != self._size
        headers = {}
        if is_part:
            last = "" if run.stop is None else run.stop - 1
            headers["Range"] = f"bytes={run.position}-{last}"
            if self._etag is not None and not self._etag.startswith("W/"):
                headers["If-Range"] = self._etag
        try:
            with self._fetching.client.get(self._url(), headers) as response:
                self._ask_anew(response)
                self._check(response, run, is_part)
                self.answered.set()
                self._read(response, run)
        except BrokenTransfer as error:
            raise _Transient(str(error)) from error
        except RefusedAddress as error:
            raise Refused(str(error)) from error

    def _url(self) -> str:
        address = self._address
        if self._signed and address.bucket is not None:
            return self._signature() or address.url
        return address.url

    def _signature(self) -> str | None:
        """The signed URL, where its host may see it and there are credentials."""
        bucket = self._address.bucket
        if bucket is None or not self._fetching.client.guard.may_see_signatures(bucket.url("")):
            return None
        return self._address.signed_url()

    def _ask_anew(self, response: Response) -> None:
        """Raise where the answer asks for another request: a signed one, or in another region."""
        region = response.headers.get("x-amz-bucket-region")
        with self._lock:
            if response.status in (301, 400) and region and not self._moved:
                self._moved = True
                moved = self._address.in_region(region)
                if moved is not None:
                    self._address = moved
                    raise _AskAnew
            if response.status in (401, 403) and not self._signed and self._signature():
                self._signed = True
                assert self._address.bucket is not None
                self._fetching.private.add(self._address.bucket)
                raise _AskAnew

    def _check(self, response: Response, run: Run, is_part: bool) -> None:
        """Take the answer's head for what was asked, or raise."""
        self._check_status(response)
        etag = response.headers.get("ETag")
        with self._lock:
            if self._etag is not None and etag is not None and etag != self._etag:
                self._etag = None
                raise WrongBytes("an object that changed on the way", "one that stays")
            self._etag = etag or self._etag
        if response.status == 206:
            return self._check_range(response, run)
        if is_part:
            if run.start or run.stop not in (None, self._size):
                raise IgnoresRanges
            run.position = 0
        length = response.headers.get("Content-Length", "")
        if length.isdecimal():
            self._check_size(int(length))

    def _check_status(self, response: Response) -> None:
        status = response.status
        if status in (200, 206):
            return
        said = f"HTTP {status}"
        if status in (404, 410):
            raise NotThere
        if status == 416:
            total = response.content_range[1]
            if total is not None:
                self._check_size(total)
        if status in (401, 403) or status in _AGAIN or status >= 500 or status < 300:
            raise _Transient(said, status in (401, 403), response.retry_after)
        raise Refused(said)

    def _check_range(self, response: Response, run: Run) -> None:
        start, total = response.content_range
        if start != run.position:
            raise _Transient("another range than the one asked for")
        if total is not None:
            self._check_size(total)

    def _check_size(self, size: int) -> None:
        if self._size is not None and size != self._size:
            raise WrongBytes(f"{size} bytes", f"{self._size}")
        if size > self._limit:
            raise WrongBytes(f"{size} bytes", f"at most {self._limit}")

    def _read(self, response: Response, run: Run) -> None:
        """Take the body as it comes, and also what came before it broke off."""
        view = self._fetching.view()
        filled = 0
        try:
            while not self._fetching.stop.is_set():
                count = response.read_into(view[filled:])
                filled += count
                is_all = count == 0 or response.is_at_end
                if is_all or filled == len(view):
                    self._take(run, view[:filled])
                    filled = 0
                if is_all:
                    break
            else:
                raise Stopped
        except BrokenTransfer:
            self._take(run, view[:filled])
            raise
        if run.stop is not None and run.position < run.stop:
            raise _Transient("the body ended early")

    def _take(self, run: Run, data: memoryview) -> None:
        end = self._limit if run.stop is None else run.stop
        if run.position + len(data) > end:
            raise WrongBytes(f"more than {end} bytes", "no more")
        run.write(data, run.position)
        run.position += len(data)


class _AskAnew(Exception):
    """The object is to be asked for at once, but differently."""


class _Transient(Exception):
    """A failure that the next try may not meet; `after` is the wait that was asked for."""

    def __init__(self, said: str, is_refusal: bool = False, after: float = 0.0) -> None:
        super().__init__(said)
        self.is_refusal = is_refusal
        self.after = after
