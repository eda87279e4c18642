"""Served rates, the geometry that follows from them, and channel groups' names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

# The highest served rate of each modality, in Hz; the others keep their native rate.
# Source: the store contract, "Level 0".
RATE_CAPS: dict[str, int] = {"EEG": 250, "MEG": 250, "IEEG": 1000, "EMG": 1000}

CHUNK_SECONDS = 4
SHARD_SECONDS = 300
CHUNKS_PER_SHARD = SHARD_SECONDS // CHUNK_SECONDS


def served_rate(native: Fraction, modality: str) -> Fraction:
    """min(native, cap): never upsampled."""
    cap = RATE_CAPS.get(modality)
    return native if cap is None else min(native, Fraction(cap))


@dataclass(frozen=True, slots=True)
class Geometry:
    """Level-0 chunking, in samples.

    A short recording's chunk ends with it, and its shard with its last chunk, as in the
    stores that are deployed: readers take both from the attributes.
    """

    n_samples: int
    chunk: int
    shard: int

    @classmethod
    def of(cls, rate: Fraction, n_samples: int) -> Geometry:
        """Chunks of 4 s in shards of 300 s, at the served rate."""
        chunk = min(max(1, round(rate * CHUNK_SECONDS)), n_samples)
        chunks = -(-n_samples // chunk)
        return cls(n_samples, chunk, chunk * min(CHUNKS_PER_SHARD, chunks))


def group_names(modality: str, natives: Sequence[Fraction]) -> list[str]:
    """`eeg_250hz`, and `eeg_250hz_from500` for a second native rate that is served alike."""
    names: list[str] = []
    for native in natives:
        rounded = max(1, round(served_rate(native, modality)))
        name = f"{modality.lower()}_{rounded}hz"
        if name in names:
            name += f"_from{float(native):.10g}"
        names.append(name)
    return names
