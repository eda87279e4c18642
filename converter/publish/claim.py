"""The right to publish: held by one run at a time, so that events, manifest and index agree.

A claim is a small document at the destination, written only where none is. Its holder renews
it; one that is not renewed for a while belongs to a run that died, and is taken over. No clock
is compared with another machine's: who waits counts its own seconds.
"""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final
from uuid import uuid4

import msgspec

from ..storage.destination import Destination, DestinationError, Document, Superseded

NAME: Final = ".claim.json"

RENEWED_EVERY: Final = 5.0  # seconds
EXPIRES_AFTER: Final = 30.0  # seconds without a renewal
_LOOK_AGAIN: Final = 0.5


class _Claim(msgspec.Struct, frozen=True):
    """`machine` and `pid` tell a run on the same machine that the holder is gone."""

    holder: str
    machine: str
    pid: int
    renewals: int = 0


@contextmanager
def claimed(destination: Destination, waiting: Callable[[], None]) -> Iterator[None]:
    """Hold the claim; `waiting` is called once when another run has it.

    Raises DestinationError when the destination can't be written.
    """
    claim = _Claim(uuid4().hex, _machine(), os.getpid())
    version = _take(destination, claim, waiting)
    released = threading.Event()
    keeper = threading.Thread(
        target=_keep, args=(destination, claim, version, released), daemon=True
    )
    keeper.start()
    try:
        yield
    finally:
        released.set()
        keeper.join()
        with suppress(DestinationError):
            if _holder(destination.read_document(NAME)) == claim.holder:
                destination.remove_document(NAME)


def _take(destination: Destination, claim: _Claim, waiting: Callable[[], None]) -> str:
    seen, since = None, time.monotonic()
    is_told = False
    while True:
        found = destination.read_document(NAME)
        if found is None or found.version != seen:
            seen, since = None if found is None else found.version, time.monotonic()
        if found is None or _is_gone(found) or time.monotonic() - since > EXPIRES_AFTER:
            with suppress(Superseded):
                return destination.write_document(NAME, msgspec.json.encode(claim), expected=seen)
            continue
        if not is_told:
            waiting()
            is_told = True
        time.sleep(_LOOK_AGAIN)


def _keep(destination: Destination, claim: _Claim, version: str, released: threading.Event) -> None:
    """Renew until released; a claim that somebody took over is theirs."""
    renewals = 0
    while not released.wait(RENEWED_EVERY):
        renewals += 1
        renewed = msgspec.structs.replace(claim, renewals=renewals)
        try:
            version = destination.write_document(
                NAME, msgspec.json.encode(renewed), expected=version
            )
        except Superseded:
            return
        except DestinationError:
            continue  # the next renewal may get through


def _is_gone(document: Document) -> bool:
    """Whether the holder ran on this machine and does no more, or the document is no claim."""
    try:
        claim = msgspec.json.decode(document.content, type=_Claim)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return True
    if claim.machine != _machine():
        return False
    try:
        os.kill(claim.pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False


def _holder(document: Document | None) -> str | None:
    with suppress(msgspec.DecodeError, UnicodeDecodeError):
        if document is not None:
            return msgspec.json.decode(document.content, type=_Claim).holder
    return None


def _machine() -> str:
    """This start of this machine, and its process numbers, under a name that tells nothing."""
    facts = [os.uname().nodename]
    with suppress(OSError):
        facts.append(Path("/proc/sys/kernel/random/boot_id").read_text())
        facts.append(str(Path("/proc/self/ns/pid").stat().st_ino))
    return hashlib.sha256("\0".join(facts).encode()).hexdigest()[:16]
