"""What can happen to a recording's files, and what somebody could do to them on purpose."""

from __future__ import annotations

import gzip
import random
import re
import struct
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final

Kind = Callable[[bytes, random.Random], bytes]

# Numbers that a program may take for a size, a count, a position or a rate.
WHOLE: Final = (
    *(0, 1, -1, 2, 7, 255, 32767, -32768, 65535, 10**6, -(10**6), 2**24),
    *(2**31 - 1, -(2**31), 2**32 - 1, 10**12, 2**62, -(2**63), 2**63 - 1),
)
REAL: Final = (0.0, -0.0, -1.0, 1e-300, 1e300, -1e12, float("nan"), float("inf"), 1e6)
WORDS: Final = (
    *("0", "-1", "1", "999999", "999999999999", "1e12", "1e309", "nan", "-inf", "0x7f"),
    *("1.5", "-0", "1e-320", " ", "\u0663", "1/0", "00000000000000000000001"),
)
NAME: Final = re.compile(rb"[\w. -]{1,60}\.(?:eeg|vmrk|fdt|dat|fif|bin|xml|meg4|res4)\b")

# Most of what is read with trust stands at the start.
HEAD: Final = 4096


def mutant(
    files: Mapping[str, bytes], rng: random.Random, secrets: tuple[str, ...]
) -> dict[str, bytes]:
    """The files of a recording after one to three accidents.

    `secrets` are names of a file that is not the recording's, to be put where names stand.
    """
    mutated = dict(files)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        name = rng.choice(sorted(mutated))
        kind = rng.choices(tuple(KINDS), tuple(KINDS.values()))[0]
        if rng.random() < 0.02 and len(mutated) > 1:
            del mutated[name]
        elif rng.random() < 0.08:
            mutated[name] = _refer(mutated[name], rng, rng.choice(secrets))
        else:
            mutated[name] = _unpacked(mutated[name], kind, rng)
    return mutated


def _unpacked(data: bytes, kind: Kind, rng: random.Random) -> bytes:
    """Most accidents of packed data happen to what is in it: else they would end in a checksum."""
    if rng.random() < 0.25:
        return kind(data, rng)
    if data[:2] == b"\x1f\x8b":
        with suppress(OSError, EOFError, zlib.error):
            return gzip.compress(kind(gzip.decompress(data), rng), 1, mtime=0)
    if data.startswith(b"MATLAB 5.0") and data[126:132] == b"IM\x0f\0\0\0":
        with suppress(zlib.error):
            packed = zlib.compress(kind(zlib.decompress(data[136:]), rng), 1)
            return data[:132] + len(packed).to_bytes(4, "little") + packed
    return kind(data, rng)


def _place(data: bytes, rng: random.Random) -> int:
    """A position, most likely in the head or at the very end."""
    end = rng.choices((HEAD, len(data)), (2, 1))[0]
    if rng.random() < 0.05:
        return rng.randrange(max(0, len(data) - 64), len(data) + 1)
    return rng.randrange(max(1, min(end, len(data))))


def _put(data: bytes, at: int, piece: bytes) -> bytes:
    return (data[:at] + piece + data[at + len(piece) :])[: max(len(data), at)]


def _flip(data: bytes, rng: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 8)) if data else 0):
        changed[min(_place(data, rng), len(data) - 1)] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _cut(data: bytes, rng: random.Random) -> bytes:
    return data[: _place(data, rng)]


def _grow(data: bytes, rng: random.Random) -> bytes:
    return data + rng.randbytes(rng.choice((1, 3, 100, 5000)))


def _number(data: bytes, rng: random.Random) -> bytes:
    """A binary number in the place of another."""
    if rng.random() < 0.3:
        piece = struct.pack(rng.choice(("<d", ">d")), rng.choice(REAL))
        if rng.random() < 0.5:
            piece = struct.pack(rng.choice(("<f", ">f")), _single(rng.choice(REAL)))
    else:
        size = rng.choice((1, 2, 4, 4, 8))
        number = rng.choice(WHOLE) % (1 << 8 * size)
        piece = number.to_bytes(size, "big" if rng.random() < 0.5 else "little")
    at = _place(data, rng)
    return _put(data, at - at % rng.choice((1, 2, len(piece))), piece)


def _single(value: float) -> float:
    return max(-3e38, min(3e38, value)) if value == value else value


def _text_number(data: bytes, rng: random.Random) -> bytes:
    """A text in the place of a number in text, of the same length where the format asks it."""
    numbers = list(re.finditer(rb"-?\d[\d.]*", data[: 4 * HEAD]))
    if not numbers:
        return _number(data, rng)
    found, word = rng.choice(numbers), rng.choice(WORDS).encode()
    if rng.random() < 0.6:
        width = len(found[0]) + rng.choice((0, 0, 4))
        return _put(data, found.start(), word[:width].ljust(width))
    return data[: found.start()] + word + data[found.end() :]


def _swap(data: bytes, rng: random.Random) -> bytes:
    """Two fields in each other's place."""
    size = rng.choice((2, 4, 8, 16, 80))
    first, second = (at - at % size for at in (_place(data, rng), _place(data, rng)))
    one, other = data[first : first + size], data[second : second + size]
    return _put(_put(data, first, other), second, one)


def _double(data: bytes, rng: random.Random) -> bytes:
    at, size = _place(data, rng), _size(rng)
    return data[:at] + data[at : at + size] + data[at:]


def _remove(data: bytes, rng: random.Random) -> bytes:
    at = _place(data, rng)
    return data[:at] + data[at + _size(rng) :]


def _blank(data: bytes, rng: random.Random) -> bytes:
    size = _size(rng)
    return _put(data, _place(data, rng), rng.choice((b"\0", b"\xff", b" ", b"7")) * size)


def _noise(data: bytes, rng: random.Random) -> bytes:
    return _put(data, _place(data, rng), rng.randbytes(_size(rng)))


def _size(rng: random.Random) -> int:
    return rng.choice((1, 2, 4, 16, 80, 256, 1000, 20000))


def _refer(data: bytes, rng: random.Random, secret: str) -> bytes:
    """The name of a file replaced by one that leads elsewhere."""
    names = list(NAME.finditer(data[: 16 * HEAD]))
    if not names:
        return _number(data, rng)
    found, name = rng.choice(names), secret.encode()
    if rng.random() < 0.5:
        return _put(data, found.start(), name[: len(found[0])].ljust(len(found[0]), b"\0"))
    return data[: found.start()] + name + data[found.end() :]


KINDS: Final[dict[Kind, float]] = {
    _flip: 4,
    _cut: 2,
    _grow: 0.5,
    _number: 6,
    _text_number: 3,
    _swap: 1.5,
    _double: 1,
    _remove: 1,
    _blank: 1,
    _noise: 1,
}
