"""Only one run publishes at a time, and a dead one holds nobody up."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from converter.publish import claim
from converter.storage.local_destination import LocalDestination


@pytest.fixture
def destination(tmp_path: Path) -> LocalDestination:
    return LocalDestination(tmp_path / "zarr")


def never() -> None:
    raise AssertionError("nobody else holds the claim")


def test_a_claim_leaves_nothing(destination: LocalDestination) -> None:
    with claim.claimed(destination, never):
        assert destination.read_document(claim.NAME) is not None
    assert destination.read_document(claim.NAME) is None
    with claim.claimed(destination, never):
        pass


def test_others_wait_until_it_is_given_back(destination: LocalDestination) -> None:
    told, inside, most = [], [], []

    def hold() -> None:
        with claim.claimed(destination, lambda: told.append(1)):
            inside.append(1)
            most.append(len(inside))
            time.sleep(0.2)
            inside.pop()

    threads = [threading.Thread(target=hold) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert most == [1, 1, 1, 1]
    assert 1 <= len(told) <= 3


HOLDER = """
import sys, time
from pathlib import Path
from converter.publish import claim
from converter.storage.local_destination import LocalDestination
with claim.claimed(LocalDestination(Path(sys.argv[1])), lambda: None):
    print("held", flush=True)
    time.sleep(600)
"""


def test_a_holder_that_was_killed_is_followed_at_once(destination: LocalDestination) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(destination.root)], stdout=subprocess.PIPE
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"held\n"
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    with claim.claimed(destination, never):
        pass


def test_a_holder_elsewhere_is_followed_when_it_renews_no_more(
    destination: LocalDestination, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claim, "EXPIRES_AFTER", 0.5)
    monkeypatch.setattr(claim, "_LOOK_AGAIN", 0.05)
    destination.write_document(
        claim.NAME, b'{"holder": "x", "machine": "elsewhere", "pid": %d}' % os.getpid()
    )
    told: list[int] = []
    with claim.claimed(destination, lambda: told.append(1)):
        assert told == [1]
    assert destination.read_document(claim.NAME) is None


def test_a_holder_renews_its_claim(
    destination: LocalDestination, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claim, "RENEWED_EVERY", 0.02)
    with claim.claimed(destination, never):
        versions = set()
        while len(versions) < 3:
            document = destination.read_document(claim.NAME)
            assert document is not None
            versions.add(document.version)
    assert destination.read_document(claim.NAME) is None


def test_what_is_no_claim_holds_nobody_up(destination: LocalDestination) -> None:
    destination.write_document(claim.NAME, b"\xff{")
    with claim.claimed(destination, never):
        pass
