"""How much memory and scratch space a recording takes, estimated before any of it is read.

All that is known are the format, the files' sizes and, where a sidecar tells it, the native rate.
Most formats are streamed: memory is a constant and a little for each channel. The others hold
samples in memory, a multiple of their files. The table has the multiples; the comments say what
was measured (`scripts/measure_needs.py`), and each is chosen so that little ever needs more.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from ..dataset.recording import Recording
from ..recording.rates import RATE_CAPS
from ..recording.readers import Format
from ..recording.sidecars.metadata import merge_json
from ..recording.waiting import IN_MEMORY

_MB = 1 << 20

MOST_THREADS: Final = 8
"""What a conversion is given beyond these has no memory in its need."""

# Blocks, buffers, and code that is imported on the way: 10 to 65 MB with one thread, and 10 MB for
# each thread more. MNE's readers hold a block of theirs, too.
_BASE = 240 * _MB
_LEAST_BASE = 64 * _MB
# Chunks of 4 s, their quantised and compressed copies and one of each view level: 55 kB a channel
# at 1000 Hz, and 150 kB with eight threads. A file of less than that does not fill them.
_CHANNEL = _MB // 4
_CHANNELS_OF_SMALL = 20  # times the file
_CHANNEL_ROW = 16  # bytes in channels.tsv, at least
_CHANNELS_UNTOLD, _CHANNELS_MOST = 512, 8192
# Events become Python objects and Arrow rows, one for each channel group: 15 to 33 times as much,
# and their rows once more on the way out of the worker.
_SIDECARS, _SIDECARS_SCRATCH = 60, 8

# A served sample, bytes: 4 as float32, which waits in memory or in scratch; in scratch 2 as int16,
# too, and two thirds more in views. Compression saves little of noise, and files end in half-filled
# blocks of the disk.
_WAITING, _SERVED = 4, 8
_STORE = 2 * _MB  # of metadata, at least
_UNLIKE_DECLARED = 1.25  # slower channels beside those of the declared rate


@dataclass(frozen=True, slots=True)
class Need:
    """Bytes that a recording takes while it is converted.

    `memory` is above what the process has when it starts, and rarely too little; `least` is
    what even the best case takes, so that a machine with less can never convert it.
    `scratch` is for what is fetched, the served signal and the store.
    """

    memory: int
    scratch: int
    least: int


@dataclass(frozen=True, slots=True)
class _Model:
    """How need follows from size.

    `sample` is the fewest bytes that a sample takes on disk; `held` and `least` are multiples
    of the files' size that are in memory, at most `most` bytes.
    """

    sample: float
    held: float = 0
    least: float = 0
    most: float = math.inf


_MODELS = {
    "EDF": _Model(2),
    "BDF": _Model(3),
    "BrainVision": _Model(2),
    "EEGLAB": _Model(4),
    # The cache of unpacked chunks, where these are large: 120 MB for a file of 69.
    "NWB": _Model(1, held=3, most=256 * _MB),
    "FIF": _Model(2),
    "CTF": _Model(4),
    "KIT": _Model(2),
    "4D/BTi": _Model(2),
    "GDF": _Model(2),
    "CNT": _Model(1),  # ANT's are compressed
    "Persyst": _Model(2),
    "Nihon Kohden": _Model(2),
    "Curry": _Model(4),
    # Blocks are held whole, as float32 and three times as float64: 7.9 times a file of one block,
    # nothing to speak of where there are many.
    "EGI MFF": _Model(4, held=9),
    # Blocks of all channels, decoded side by side, and the last one of each: 80 to 175 MB for
    # files of 3 to 11, and more only where blocks are hundreds of thousands of samples long.
    "MEF3": _Model(0.5, held=20, most=256 * _MB),
}
# A deflated v5 matrix of up to 64 MB is unpacked in memory, 1.1 to 1.4 times the file for float32;
# numbers of few digits pack better. A larger one is unpacked as it is read: 27 MB of any size. What
# is not deflated and v7.3 are streamed: 14 MB.
_EEGLAB_INSIDE = _Model(1.3, held=3, most=80 * _MB)
# Signal-Space Separation: float64, 2.0 times a file of float32, so 4 times one of int16. That a
# recording was shielded shows only in the file; that it can be corrected, in its sidecars.
_FIF_CORRECTED = _Model(2, held=4.5)
# Unpacked, and as float64: 3.4 times a packed file of float32, 6.2 times one that is corrected,
# too. Of int16 it is more: that packs better and grows fourfold.
_FIF_PACKED = _Model(1, held=10, least=2)
_STREAMED = _Model(2)


def need_of(
    recording: Recording, known: Format, *, is_fetched: bool, rate: float | None = None
) -> Need:
    """What a recording of a known format needs.

    `is_fetched` tells that annexed content is copied to scratch; files of git always are.
    `rate` is the native rate in Hz where something tells it (see `declared_rate`): scratch is
    for the served rate then, else for every sample of the file.
    """
    model = _model(recording, known)
    size = recording.size
    sidecars = sum(entry.size for entry in recording.sidecars.entries())
    held, least = (min(factor * size, model.most) for factor in (model.held, model.least))
    channels = min(_CHANNEL * _channels(recording), _CHANNELS_OF_SMALL * size)
    files = (*recording.members, *recording.sidecars.entries())
    copied = sum(entry.size for entry in files if is_fetched or entry.key is None)
    served = size / model.sample * _served_share(recording, rate)
    waiting = min(IN_MEMORY, _WAITING * served)
    return Need(
        memory=round(_BASE + channels + held + waiting + _SIDECARS * sidecars),
        scratch=round(copied + _SERVED * served + _STORE + _SIDECARS_SCRATCH * sidecars),
        least=round(_LEAST_BASE + least),
    )


def declared_rate(documents: Iterable[bytes]) -> float | None:
    """`SamplingFrequency` in Hz of a recording's JSON sidecars, the least specific first."""
    rate = merge_json(documents).values.get("SamplingFrequency")
    if isinstance(rate, bool) or not isinstance(rate, int | float):
        return None
    try:
        rate = float(rate)
    except OverflowError:
        return None
    return rate if math.isfinite(rate) and rate > 0 else None


def _model(recording: Recording, known: Format) -> _Model:
    if known.name == "EEGLAB" and not any(_is_external(e.path) for e in recording.members):
        return _EEGLAB_INSIDE
    if known.name == "FIF" and recording.extension == ".fif.gz":
        return _FIF_PACKED
    sidecars = recording.sidecars
    if known.name == "FIF" and sidecars.calibration and sidecars.crosstalk:
        return _FIF_CORRECTED
    return _MODELS.get(known.name, _STREAMED)


def _is_external(path: str) -> bool:
    return path.lower().endswith(".fdt")


def _channels(recording: Recording) -> int:
    table = recording.sidecars.channels
    told = _CHANNELS_UNTOLD if table is None else table.size // _CHANNEL_ROW
    return min(told, _CHANNELS_MOST)


def _served_share(recording: Recording, rate: float | None) -> float:
    cap = RATE_CAPS.get(recording.modality.upper())
    return 1.0 if rate is None or cap is None else min(1.0, _UNLIKE_DECLARED * cap / rate)
