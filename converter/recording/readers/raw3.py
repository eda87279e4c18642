"""RAW3, the compression of ANT recordings: epochs, in each one channel after the other.

A channel of an epoch begins at a whole byte, with four bits that tell the method. Samples are
stored as they are, or as what is left of them after a prediction, in numbers of few bits; one
that these cannot hold follows its lowest number in a wider field.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

_COPY, _TIME, _TIME2, _CHANNEL = range(4)
_WIDE = 8  # added to the method where the first sample has 32 bits, not 16
_PAD = 8  # bytes after the last that a field is read out of


class DamagedEpoch(ValueError):
    """An epoch whose bytes are none; what is wrong with them."""


def most_bytes(n_samples: int) -> int:
    """More bytes than a channel of an epoch can take: two numbers of 32 bits for each sample."""
    return 16 + 8 * n_samples


def decode(raw: NDArray[np.uint8], n_channels: int, n_samples: int) -> NDArray[np.int32]:
    """The samples of an epoch as (n_channels, n_samples), in the order that they are stored in.

    Sums wrap around at 32 bits, as the numbers of the maker do. Raises DamagedEpoch.
    """
    padded = np.zeros(raw.size + _PAD, np.uint8)
    padded[: raw.size] = raw
    out = np.empty((n_channels, n_samples), np.int32)
    at = 0
    for row in range(n_channels):
        before = out[row - 1] if row else None
        at = _channel(padded, at, raw.size, out[row], before)
    return out


def _channel(
    padded: NDArray[np.uint8],
    at: int,
    size: int,
    out: NDArray[np.int32],
    before: NDArray[np.int32] | None,
) -> int:
    """Fill `out` from the byte `at` on; returns the byte that the next channel begins at."""
    if at >= size:
        raise DamagedEpoch("ends before its last channel")
    method, wide = int(padded[at]) >> 4 & 7, bool(padded[at] >> 7)
    if method == _COPY:
        width = 4 if wide else 2
        end = at + 1 + width * len(out)
        if end > size:
            raise DamagedEpoch("ends inside a channel")
        out[:] = padded[at + 1 : end].view(f">i{width}")
        return end
    if method > _CHANNEL or (method == _CHANNEL and before is None):
        raise DamagedEpoch(f"has the method {method + _WIDE * wide}")
    residuals, end = _residuals(padded, at, size, wide, len(out))
    if method == _TIME2:
        residuals[1:] = np.cumsum(residuals[1:])
    elif method == _CHANNEL and before is not None:
        residuals[1:] += before[1:].astype(np.int64) - before[:-1]
    out[:] = np.cumsum(residuals).astype(np.int32)
    return end


def _residuals(
    padded: NDArray[np.uint8], at: int, size: int, wide: bool, count: int
) -> tuple[NDArray[np.int64], int]:
    """What is left of `count` samples, the first of which is whole."""
    bits = int.from_bytes(padded[at : at + 2].tobytes(), "big")
    width, longer = (bits >> 6 & 63, bits & 63) if wide else (bits >> 8 & 15, bits >> 4 & 15)
    if not wide:
        width, longer = width or 16, longer or 16
    if not 1 <= width <= 32 or longer > 32:
        raise DamagedEpoch(f"has numbers of {width} and {longer} bits")
    head, whole = (16, 32) if wide else (12, 16)
    # A big-endian word begins at every byte; the field is in its upper bits.
    words = np.ndarray((size + 1,), ">u8", padded.data, 0, (1,))
    position, last = 8 * at + head, 8 * size
    if position + whole > last:
        raise DamagedEpoch("ends inside a channel")
    out = np.empty(count, np.int64)
    out[:1] = _fields(words, np.array([position]), whole)
    position += whole
    exceptions = []
    if width != longer:
        exceptions = _exceptions(words, position, last, count - 1, width, longer)
    moved = np.zeros(count, np.int64)
    moved[[at + 1 for at in exceptions]] = longer
    positions = position + width * np.arange(count) + np.cumsum(moved)
    end = int(positions[-1])  # where a sample after the last would begin
    if end > last:
        raise DamagedEpoch("ends inside a channel")
    out[1:] = _fields(words, positions[:-1], width)
    if exceptions:
        replaced = _fields(words, positions[exceptions] + width, longer) if longer else 0
        out[1:][exceptions] = replaced
    return out, -(-end // 8)


def _exceptions(
    words: NDArray[Any], position: int, last: int, count: int, width: int, longer: int
) -> list[int]:
    """Which of `count` numbers are the lowest of their width, so that a wider one follows.

    The lowest is looked for at every bit of a window at once; then each place counts that is a
    whole number of fields after the one before it.
    """
    found: list[int] = []
    lowest, shifts = -(1 << (width - 1)), np.arange(8, dtype=np.uint64)
    done = 0
    while done < count:
        if position + width > last:
            raise DamagedEpoch("ends inside a channel")
        stop = min(position + width * (count - done), last)
        begin = position >> 3
        fields = words[begin : (stop + 7) >> 3].astype(np.uint64)[:, np.newaxis] << shifts
        is_lowest = fields.view(np.int64) >> (64 - width) == lowest
        for place in (np.flatnonzero(is_lowest) + 8 * begin).tolist():
            steps, rest = divmod(place - position, width)
            if rest or steps < 0 or place >= stop:
                continue
            if done + steps >= count:
                break
            done += steps
            found.append(done)
            done += 1
            position = place + width + longer
        passed = min(count - done, max(0, -(-(stop - position) // width)))
        done += passed
        position += width * passed
    return found


def _fields(words: NDArray[Any], positions: NDArray[np.int64], width: int) -> NDArray[np.int64]:
    """The numbers of `width` bits, signed, that begin at these bits."""
    found = words[positions >> 3].astype(np.uint64) << (positions & 7).astype(np.uint64)
    signed: NDArray[np.int64] = found.view(np.int64) >> (64 - width)
    return signed
