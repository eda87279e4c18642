"""Files fetched side by side, each from the first place that has it, and checked as they come.

A file is right when its size and its digest are those expected. One that is wrong is fetched
again from nothing, then from the next place. A file of more than SPAN bytes, or in chunks,
comes over several connections at once.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Literal

from .filling import Filling
from .hosts import HostGuard
from .http import BrokenTransfer, HttpClient
from .objects import Place, Wanted
from .transfer import (
    Fetching,
    IgnoresRanges,
    NotThere,
    Patience,
    Refused,
    Run,
    Stopped,
    Transfer,
    WrongBytes,
)

SPAN: Final = 16 << 20
"""Bytes of a large object that one request asks for."""

WRONG_TRIES: Final = 3
"""How often bytes that proved wrong are fetched from one place."""

_CREATE = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

Verdict = Literal["absent", "wrong", "unreachable"]


@dataclass(frozen=True, slots=True)
class Attempt:
    """What came of one place: `said` is short and holds no query; empty where absent."""

    place: str
    verdict: Verdict
    said: str = ""


@dataclass(frozen=True, slots=True)
class Failure:
    """A file that no place gave, with what came of each place in the order asked."""

    wanted: Wanted
    attempts: tuple[Attempt, ...]

    @property
    def verdict(self) -> Verdict:
        """`absent` when every place said so, else `wrong` when any place gave wrong bytes."""
        verdicts = {attempt.verdict for attempt in self.attempts}
        if verdicts <= {"absent"}:
            return "absent"
        return "wrong" if "wrong" in verdicts else "unreachable"


class Downloader:
    """Fetches files; up to `connections` small ones and as many parts of large ones at once.

    To be used in a `with` block.
    """

    def __init__(
        self,
        guard: HostGuard | None = None,
        *,
        connections: int = 8,
        patience: Patience | None = None,
    ) -> None:
        patience = patience or Patience()
        client = HttpClient(guard or HostGuard(), stall=patience.stall)
        self._connections = connections
        self._fetching = Fetching(client, patience)
        self._files = ThreadPoolExecutor(connections, "fetch")
        self._parts = ThreadPoolExecutor(connections, "fetch-part")

    def __enter__(self) -> Downloader:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._fetching.stop.set()
        for pool in (self._files, self._parts):
            pool.shutdown(cancel_futures=True)
        self._fetching.client.close()

    def fetch_all(self, files: Iterable[Wanted]) -> list[Failure]:
        """Fetch files; the failures are empty when all are there.

        The first failure stops the rest, which leave nothing behind. Raises OSError when the
        disk does not take the bytes.
        """
        self._fetching.stop.clear()
        futures = [self._files.submit(self._fetch_or_stop, file) for file in files]
        try:
            return [failure for future in futures if (failure := future.result()) is not None]
        except BaseException:
            self._fetching.stop.set()
            for future in futures:
                future.cancel()
            raise

    def _fetch_or_stop(self, wanted: Wanted) -> Failure | None:
        try:
            failure = self._fetch(wanted)
        except Stopped:
            return None
        except BaseException:
            self._fetching.stop.set()
            raise
        if failure is not None:
            self._fetching.stop.set()
        return failure

    def _fetch(self, wanted: Wanted) -> Failure | None:
        attempts: list[Attempt] = []
        for place in wanted.places:
            attempt = self._try_place(wanted, place)
            if attempt is None:
                return None
            attempts.append(attempt)
        return Failure(wanted, tuple(attempts))

    def _try_place(self, wanted: Wanted, place: Place) -> Attempt | None:
        """None when the place gave the file."""
        said = ""
        for tries in range(1, WRONG_TRIES + 1):
            if self._fetching.stop.is_set():
                raise Stopped
            try:
                self._fetch_from(wanted, place)
            except NotThere:
                return Attempt(place.name, "absent")
            except (Refused, BrokenTransfer) as error:
                return Attempt(place.name, "unreachable", str(error))
            except WrongBytes as error:
                said = str(error)
                if tries < WRONG_TRIES:
                    self._fetching.stop.wait(self._fetching.patience.delay(tries))
            else:
                return None
        return Attempt(place.name, "wrong", said)

    def _fetch_from(self, wanted: Wanted, place: Place) -> None:
        descriptor = os.open(wanted.target, _CREATE, 0o666)
        try:
            filling = Filling(descriptor, wanted.size, wanted.checksum)
            try:
                self._fill(filling, wanted, place, SPAN)
            except IgnoresRanges:
                filling.start_over()
                self._fill(filling, wanted, place, None)
            filling.check()
        except BaseException:
            with suppress(OSError):
                wanted.target.unlink()
            raise
        finally:
            os.close(descriptor)

    def _fill(self, filling: Filling, wanted: Wanted, place: Place, span: int | None) -> None:
        size = wanted.size
        if place.chunk_size is None and (size is None or span is None or size <= span):
            transfer = Transfer(self._fetching, place.address(0), size, wanted.limit)
            transfer.fetch(Run(0, size, filling.append))
        else:
            filling.reserve()
            self._fill_in_parts(filling, self._parts_of(filling, wanted, place, span))

    def _fill_in_parts(self, filling: Filling, parts: Iterator[_Part]) -> None:
        """Fetch some parts ahead of the one that is hashed next."""
        ahead: deque[tuple[_Part, Future[None]]] = deque()
        try:
            for part in parts:
                ahead.append((part, self._parts.submit(part.transfer.fetch, part.run)))
                if part.is_first:
                    # An object that is absent is asked for once only.
                    part.transfer.answered.wait()
                if len(ahead) >= 2 * self._connections:
                    _finish(filling, *ahead.popleft())
            while ahead:
                _finish(filling, *ahead.popleft())
        finally:
            for _, future in ahead:
                future.cancel()
            wait([future for _, future in ahead])

    def _parts_of(
        self, filling: Filling, wanted: Wanted, place: Place, span: int | None
    ) -> Iterator[_Part]:
        chunk_size = place.chunk_size or wanted.limit
        for number in range(place.count):
            offset = number * chunk_size
            length: int | None = chunk_size
            if number == place.count - 1:
                length = None if wanted.size is None else wanted.size - offset
            transfer = Transfer(
                self._fetching, place.address(number), length, min(chunk_size, wanted.limit)
            )
            write = filling.writer(offset)
            for start, stop in _spans(length, span):
                yield _Part(offset, transfer, Run(start, stop, write))


@dataclass(frozen=True, slots=True)
class _Part:
    """A stretch of an object on its way into a file, where the object begins at `offset`."""

    offset: int
    transfer: Transfer
    run: Run

    @property
    def is_first(self) -> bool:
        return self.offset == 0 and self.run.start == 0


def _spans(length: int | None, span: int | None) -> Iterator[tuple[int, int | None]]:
    """An object's bytes cut into what one request asks for; one whole where they aren't known."""
    if length is None or span is None or length <= span:
        yield 0, length
        return
    for start in range(0, length, span):
        yield start, min(start + span, length)


def _finish(filling: Filling, part: _Part, future: Future[None]) -> None:
    future.result()
    filling.advance(part.offset + part.run.position)
