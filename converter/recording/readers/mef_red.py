"""Range-encoded differences (RED), the compression of MEF 3 samples.

A block is a header of 304 bytes, 256 counts of byte values among them, and a range-coded stream
of bytes. Those are differences of one byte; the flag 0x80 tells that the next four bytes are a
sample as it is, which the first one always is, without a flag.

A byte of the stream depends on all before it, but blocks are independent: many are decoded side
by side, the n-th byte of each in one step. That takes as long for 500 blocks as for 50.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

HEADER_BYTES = 304
FEWEST_LANES = 40  # fewer blocks are decoded faster one after the other
# Samples that stand for no number: missing, and beyond the range of the amplifier on both sides.
MISSING, LOWEST, HIGHEST = -(2**31), -(2**31) + 1, 2**31 - 1

HEADER = np.dtype(
    [
        ("crc", "<u4"),
        ("flags", "u1"),
        ("protected", "V3"),
        ("discretionary", "V8"),
        ("detrend_slope", "<f4"),
        ("detrend_intercept", "<f4"),
        ("scale_factor", "<f4"),
        ("difference_bytes", "<u4"),
        ("n_samples", "<u4"),
        ("block_bytes", "<u4"),
        ("start_time", "<i8"),
        ("statistics", "u1", 256),
    ]
)

_KEY = 0x80
_KEY_BYTES = 4
_BOTTOM = 1 << 23  # a range of this or less takes in one more byte
_FIRST_BITS = 7  # of the first byte, in the decoder's first number
_LAST_SYMBOL = 255
_OVERRUN = 8  # bytes beyond its end that a decoder may take in before it is done


class DamagedBlock(ValueError):
    """A block whose bytes do not decode to the samples that its header counts."""


@dataclass(frozen=True, slots=True)
class Block:
    """A block's header as a record of HEADER, and the bytes of its stream."""

    header: np.void
    stream: NDArray[np.uint8]

    @property
    def n_symbols(self) -> int:
        """Bytes that the stream decodes to; the first flag is counted, but not encoded."""
        return int(self.header["difference_bytes"]) - 1

    @property
    def cost(self) -> int:
        """Bytes that decoding takes: streams, a symbol for each count, symbols as integers."""
        total = int(self.header["statistics"].sum(dtype=np.int64))
        return len(self.stream) + total + 16 * self.n_symbols


def decode(blocks: Sequence[Block]) -> list[NDArray[np.int32]]:
    """The samples of each block, with the codes MISSING, LOWEST and HIGHEST among them.

    The memory is the `cost` of the largest block times the number of blocks. Raises DamagedBlock.
    """
    for block in blocks:
        _check(block)
    # Blocks that are done first come last.
    order = sorted(range(len(blocks)), key=lambda index: -blocks[index].n_symbols)
    ordered = [blocks[index] for index in order]
    decoded = _side_by_side if len(blocks) >= FEWEST_LANES else _one_by_one
    samples = _samples(decoded(ordered), ordered)
    by_index = dict(zip(order, samples, strict=True))
    return [by_index[index] for index in range(len(blocks))]


def _check(block: Block) -> None:
    header, n_samples = block.header, int(block.header["n_samples"])
    fewest, most = n_samples + _KEY_BYTES - 1, (1 + _KEY_BYTES) * n_samples - 1
    if not header["statistics"].any() or not fewest <= block.n_symbols <= most:
        raise DamagedBlock(
            f"{block.n_symbols} bytes of differences for {n_samples} samples, "
            f"{fewest} to {most} were expected"
        )


def _shifted(stream: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The stream as bytes that the decoder takes in: its first number ends inside a byte."""
    shifted = stream >> np.uint8(8 - _FIRST_BITS)
    shifted[1:] |= stream[:-1] << np.uint8(_FIRST_BITS)
    return shifted


def _one_by_one(blocks: Sequence[Block]) -> NDArray[np.uint8]:
    """What the streams decode to, one after the other, each after the flag that is left out."""
    return np.frombuffer(b"".join(map(_symbols, blocks)), np.uint8)


def _symbols(block: Block) -> bytes:
    counts = block.header["statistics"].tolist()
    below = [0, *np.cumsum(block.header["statistics"].astype(np.int64)).tolist()]
    symbol_of = np.repeat(np.arange(256), counts).tolist()
    total = len(symbol_of)
    content = bytes(_shifted(block.stream)) + bytes(_OVERRUN)
    low, span, at = content[0], 1 << _FIRST_BITS, 1
    symbols = bytearray(1 + block.n_symbols)
    symbols[0] = _KEY
    end = len(content)
    for place in range(1, len(symbols)):
        while span <= _BOTTOM:
            if at == end:
                raise DamagedBlock("a stream that ends before its last sample")
            low = (low << 8 | content[at]) & 0xFFFFFFFF
            at += 1
            span <<= 8
        share = span // total
        count = low // share
        symbol = symbol_of[count if count < total else total - 1]
        start = share * below[symbol]
        low -= start
        span = span - start if symbol == _LAST_SYMBOL else share * counts[symbol]
        symbols[place] = symbol
    return bytes(symbols)


def _side_by_side(blocks: Sequence[Block]) -> NDArray[np.uint8]:
    """The same; the blocks come with their number of symbols descending."""
    lengths = np.array([block.n_symbols for block in blocks])
    symbols = np.empty((1 + lengths[0], len(blocks)), np.uint8)
    symbols[0] = _KEY
    lanes = _Lanes(blocks)
    # How many blocks have an n-th symbol, for all n.
    active = np.searchsorted(-lengths, -np.arange(lengths[0]), "left")
    for row, n_active in zip(symbols[1:], active.tolist(), strict=True):
        lanes.step(row[:n_active])
    lanes.check_ends()
    is_symbol = np.arange(len(symbols)) <= lengths[:, np.newaxis]
    flat: NDArray[np.uint8] = np.ascontiguousarray(symbols.T)[is_symbol]
    return flat


class _Lanes:
    """The range decoders of several blocks, one a lane."""

    def __init__(self, blocks: Sequence[Block]) -> None:
        n_lanes = len(blocks)
        counts = np.stack([block.header["statistics"] for block in blocks])
        below = np.zeros((n_lanes, 256), np.uint32)
        np.cumsum(counts[:, :-1], axis=1, out=below[:, 1:], dtype=np.uint32)
        self._counts = counts.astype(np.uint32).reshape(-1)
        self._below = below.reshape(-1)
        self._total = counts.sum(axis=1, dtype=np.uint32)
        self._last = self._total - 1
        # Each lane's symbol by count, one lane after the other.
        each = np.tile(np.arange(256, dtype=np.uint8), n_lanes)
        self._symbol_of = np.repeat(each, counts.reshape(-1))
        ends = np.cumsum(self._total.astype(np.int64))
        self._first = ends - self._total
        self._row = np.arange(n_lanes, dtype=np.int64) * 256
        # The n-th bytes of all streams lie together, as they are taken in at about one time.
        self._ends = np.array([len(block.stream) for block in blocks])
        content = np.zeros((self._ends.max() + _OVERRUN + 1, n_lanes), np.uint8)
        for lane, block in enumerate(blocks):
            content[: len(block.stream), lane] = _shifted(block.stream)
        self._low = content[0].astype(np.uint32)
        self._span = np.full(n_lanes, 1 << _FIRST_BITS, np.uint32)
        self._content = content.reshape(-1)
        self._n_lanes = n_lanes
        self._at = np.arange(n_lanes) + n_lanes

    def step(self, out: NDArray[np.uint8]) -> None:
        """Put the next symbol of the first `len(out)` lanes into `out`."""
        n = len(out)
        low, span, total = self._low[:n], self._span[:n], self._total[:n]
        self._take_in(low, span, self._at[:n])
        share = span // total
        count = np.minimum(low // share, self._last[:n])
        symbol = self._symbol_of.take(self._first[:n] + count)
        out[:] = symbol
        place = self._row[:n] + symbol
        start = share * self._below.take(place)
        low -= start
        rest = span - start
        np.multiply(share, self._counts.take(place), out=span)
        np.copyto(span, rest, where=symbol == _LAST_SYMBOL)

    def _take_in(
        self, low: NDArray[np.uint32], span: NDArray[np.uint32], at: NDArray[np.int64]
    ) -> None:
        """Widen ranges that are too narrow by a byte, or by more of them.

        A damaged stream may run into its padding, but not out of the array.
        """
        hungry = span <= _BOTTOM
        bits = np.left_shift(hungry, 3, dtype=np.uint32)
        low <<= bits
        low |= self._content.take(at, mode="clip") * hungry
        span <<= bits
        at += self._n_lanes * hungry
        still = np.flatnonzero(span <= _BOTTOM)
        while len(still):
            low[still] = low[still] << np.uint32(8) | self._content.take(at[still], mode="clip")
            at[still] += self._n_lanes
            span[still] <<= np.uint32(8)
            still = still[span[still] <= _BOTTOM]

    def check_ends(self) -> None:
        """DamagedBlock when a lane took in more than its stream."""
        if (self._at // self._n_lanes > self._ends + _OVERRUN).any():
            raise DamagedBlock("a stream that ends before its last sample")


def _samples(content: NDArray[np.uint8], blocks: Sequence[Block]) -> list[NDArray[np.int32]]:
    """What flags, keys and differences come to; each block's `content` begins with a flag."""
    flags = _flags(content)
    if flags[-1] + _KEY_BYTES >= len(content):
        raise DamagedBlock("a sample that ends beyond its block")
    keys = np.zeros(len(flags), np.uint32)
    is_sample = np.ones(len(content), bool)
    for byte in range(_KEY_BYTES):
        place = flags + 1 + byte
        keys |= content[place].astype(np.uint32) << np.uint32(8 * byte)
        is_sample[place] = False
    differences = content.view(np.int8).astype(np.int32)
    differences[flags] = 0
    # Sums wrap around, as the samples do.
    sums = np.cumsum(differences[is_sample], dtype=np.int32)
    at = flags - _KEY_BYTES * np.arange(len(flags))
    bases = keys.view(np.int32) - sums[at]
    sums += np.repeat(bases, np.diff(at, append=len(sums)))
    return _of_blocks(sums, content, is_sample, blocks)


def _of_blocks(
    samples: NDArray[np.int32],
    content: NDArray[np.uint8],
    is_sample: NDArray[np.bool_],
    blocks: Sequence[Block],
) -> list[NDArray[np.int32]]:
    """The samples of each block, which are as many as its header counts."""
    ends = np.cumsum([1 + block.n_symbols for block in blocks])
    begins = np.concatenate([[0], ends[:-1]])
    found = np.add.reduceat(is_sample, begins, dtype=np.int64)
    expected = np.array([int(block.header["n_samples"]) for block in blocks])
    wrong = np.flatnonzero((found != expected) | ~is_sample[begins])
    if len(wrong):
        block = int(wrong[0])
        raise DamagedBlock(f"{found[block]} samples, {expected[block]} were expected")
    return [part.copy() for part in np.split(samples, np.cumsum(found)[:-1])]


def _flags(content: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Where the flags are; the same byte inside a sample that follows a flag is none."""
    found = np.flatnonzero(content == _KEY)
    close = np.flatnonzero(np.diff(found) <= _KEY_BYTES) + 1
    if not len(close):
        return found
    is_flag = np.ones(len(found), bool)
    places = found.tolist()
    last = -1
    for index in close.tolist():
        # Its predecessor is a flag, or lies within the sample of the last flag before it.
        if is_flag[index - 1]:
            last = places[index - 1]
        is_flag[index] = places[index] > last + _KEY_BYTES
    return found[is_flag]
