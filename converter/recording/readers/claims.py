"""What a header may claim, looked at before memory or time is spent on it."""

from __future__ import annotations

from typing import Final

from converter.contract.codes import FailureCode, RecordingError

MOST_CHANNELS: Final = 1 << 15
"""Several times what the densest arrays have."""

UNPACKED_FREELY: Final = 64 << 20
MOST_PACKED: Final = 100
"""Beyond UNPACKED_FREELY bytes, how many times its packed size something may have: noise packs by
2, integers kept as floats by 10, what was made to fill a machine by 1000."""


def damaged(name: str, sentence: str) -> RecordingError:
    """CORRUPT_OR_TRUNCATED on the file `name`, of which a sentence without its end says more."""
    return RecordingError(FailureCode.CORRUPT_OR_TRUNCATED, f"{name} {sentence}.")


def check_channels(name: str, count: int) -> None:
    """Raise CORRUPT_OR_TRUNCATED for more channels than any recording has."""
    if count > MOST_CHANNELS:
        raise damaged(name, f"declares {count} channels, at most {MOST_CHANNELS} were expected")


def check_unpacked(name: str, packed: int, unpacked: int) -> None:
    """Raise FILE_READ_ERROR for what unpacks to more than a recording would."""
    if unpacked > max(UNPACKED_FREELY, MOST_PACKED * packed):
        raise RecordingError(
            FailureCode.FILE_READ_ERROR,
            f"{name} has {packed} bytes that unpack to {unpacked} or more, at most "
            f"{MOST_PACKED} times as many were expected.",
        )
