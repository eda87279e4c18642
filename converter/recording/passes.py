"""Compiled passes over the samples of a block: passes.c, called with what it may touch only.

A block holds its channels in lanes: float32 of shape (n_blocks, n_samples, LANES), channel c in
lane c % LANES of block c // LANES. Each pass is one call without Python's lock, so threads share
them out.
"""

from __future__ import annotations

import ctypes
import hashlib
import math
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]
Int16 = NDArray[np.int16]
Int64 = NDArray[np.int64]

LANES: Final = 16
OUTPUTS: Final = 4
"""Neighbouring outputs that a product makes."""
FOLDED: Final = 4
"""Columns that become one."""
LARGEST: Final = 1e30
"""Beyond it float32 overflows in sums, and no sensor measures in any unit."""

_FOLDER = Path(__file__).parent
_LINE = 64  # bytes of a cache line
_C_TYPES = {
    np.dtype(np.int16): "int16_t",
    np.dtype(np.uint16): "uint16_t",
    np.dtype(np.int32): "int32_t",
    np.dtype(np.float32): "float",
    np.dtype(np.float64): "double",
}

# What the functions of passes.c take: addresses, sizes and floats.
_KINDS = {"a": ctypes.c_void_p, "s": ctypes.c_ssize_t, "f": ctypes.c_float}
_ARGUMENTS = {
    "rows_of_lanes": "asssas",
    "resample": "assaasasaaas",
    "quantise": "asssaaaas",
    "fold": "aasssaas",
    **{f"lanes_{c_type}": "assssaafas" for c_type in _C_TYPES.values()},
}


class _ArrayRecord(ctypes.Structure):
    """PyArrayInterface, which every array tells of itself. Source: numpy's array interface."""

    _fields_ = (
        ("two", ctypes.c_int),
        ("dimensions", ctypes.c_int),
        ("kind", ctypes.c_char),
        ("itemsize", ctypes.c_int),
        ("flags", ctypes.c_int),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("data", ctypes.c_void_p),
    )


_record_of = ctypes.PYFUNCTYPE(ctypes.POINTER(_ArrayRecord), ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


def _load() -> ctypes.CDLL:
    """The library for this machine. Raises ImportError where it was not compiled for this source.

    It is compiled by scripts/compile_passes.py whenever the package is installed.
    """
    digest = _digest()
    library = _opened(_FOLDER / "libpasses.so", digest)
    if library.has_avx2():
        return _opened(_FOLDER / "libpasses_avx2.so", digest)
    return library


def _digest() -> str:
    return hashlib.sha256((_FOLDER / "passes.c").read_bytes()).hexdigest()


def _opened(path: Path, digest: str) -> ctypes.CDLL:
    try:
        library = ctypes.CDLL(str(path))
        for name, arguments in _ARGUMENTS.items():
            function = getattr(library, name)
            function.argtypes = [_KINDS[kind] for kind in arguments]
            function.restype = ctypes.c_ssize_t if name.startswith("lanes") else None
        compiled = (ctypes.c_char * len(digest)).in_dll(library, "source_digest").value.decode()
    except (OSError, AttributeError, ValueError) as error:
        raise ImportError(f"{path.name} can't be loaded, install nemar-convert again") from error
    if compiled != digest:
        raise ImportError(f"{path.name} is not of this passes.c, install nemar-convert again")
    return library


_library = _load()


def n_blocks(n_channels: int) -> int:
    """How many groups of lanes so many channels fill."""
    return -(-n_channels // LANES)


def lane_values(values: NDArray[Any], dtype: type = np.float64) -> NDArray[Any]:
    """A value a channel, as one a lane; lanes without a channel have 0."""
    lanes: NDArray[Any] = np.zeros(n_blocks(len(values)) * LANES, dtype)
    lanes[: len(values)] = values
    return lanes


def empty_block(n_channels: int, n_samples: int) -> Float32:
    """An uninitialised block whose samples each begin a cache line."""
    shape = (n_blocks(n_channels), n_samples, LANES)
    size = math.prod(shape) * np.dtype(np.float32).itemsize
    memory = np.empty(size + _LINE, np.uint8)
    start = -_at(memory) % _LINE
    return memory[start : start + size].view(np.float32).reshape(shape)


def to_lanes(raw: NDArray[Any], first: Float64, sign: Float32, out: Float32) -> int:
    """Raw samples (n_channels, n) less each channel's `first`, times its `sign`, into `out`.

    `first` and `sign` are lane values. The difference of 16-bit integers and of float32 is taken
    in float32, else in float64. Gives the number of results that are no number or beyond
    LARGEST; lanes without a channel become 0.
    """
    raw = _readable(raw)
    _check(out.shape == (n_blocks(len(raw)), raw.shape[1], LANES) and _is_block(out))
    _check(first.dtype == np.float64 and sign.dtype == np.float32)
    _check(len(first) == len(sign) == len(out) * LANES)
    along, across = (stride // raw.itemsize for stride in raw.strides)
    lanes_of_type = getattr(_library, f"lanes_{_C_TYPES[raw.dtype]}")
    values = (_at(first), _at(sign), LARGEST)
    bad: int = lanes_of_type(_at(raw), along, across, *raw.shape, *values, _at(out), _stride(out))
    return bad


def to_rows(block: Float32, n_channels: int) -> Float32:
    """The samples of a block as (n_channels, n)."""
    _check(_is_block(block) and n_channels <= len(block) * LANES)
    out = np.empty((n_channels, block.shape[1]), np.float32)
    _library.rows_of_lanes(_at(block), _stride(block), *out.shape, _at(out), _stride(out))
    return out


def resample(
    block: Float32,
    starts: Int64,
    which: Int64,
    weights: Float32,
    ripple: Float32,
    constant: Float32,
    out: Float32,
) -> None:
    """Products of windows of a block and weights, into `out` (n_channels, OUTPUTS * n_products).

    Product p reads from sample `starts[p]` on, and has the weights (width, OUTPUTS) and the
    ripple (OUTPUTS) of number `which[p]`. To each output its ripple times the channel's
    `constant`, a lane value, is added.
    """
    n_sets, width, outputs = weights.shape
    _check(_is_block(block) and len(out) <= len(block) * LANES and _has_rows(out, np.float32))
    _check(out.shape[1] == OUTPUTS * len(starts) and len(constant) == len(block) * LANES)
    _check(outputs == OUTPUTS and ripple.shape == (n_sets, OUTPUTS))
    _check(len(starts) == len(which) > 0)
    _check(all(_is_plain(array, np.float32) for array in (weights, ripple, constant)))
    _check(_is_plain(starts, np.int64) and _is_plain(which, np.int64))
    _check(bool(starts.min() >= 0 and starts.max() + width <= block.shape[1]))
    _check(bool(which.min() >= 0 and which.max() < n_sets))
    samples = (_at(block), _stride(block), len(out))
    products = (_at(starts), _at(which), len(starts), _at(weights), width, _at(ripple))
    _library.resample(*samples, *products, _at(constant), _at(out), _stride(out))


def quantise(
    samples: Float32, middle: Float32, per_step: Float32, middle_code: Float32, out: Int16
) -> None:
    """Codes `(samples - middle) * per_step + middle_code`, to the nearest, into `out`.

    Samples and codes are (n_channels, n), the others values a channel; codes must fit int16.
    """
    _check(samples.shape == out.shape and _has_rows(samples, np.float32))
    _check(
        _has_rows(out, np.int16) and len(out) == len(middle) == len(per_step) == len(middle_code)
    )
    _check(all(_is_plain(array, np.float32) for array in (middle, per_step, middle_code)))
    values = (_at(middle), _at(per_step), _at(middle_code))
    _library.quantise(
        _at(samples), _stride(samples), *samples.shape, *values, _at(out), _stride(out)
    )


def fold(low: Int16, high: Int16, out: Int16) -> None:
    """Of FOLDED columns each the minimum of `low` and the maximum of `high`, into `out`.

    `low` and `high` are (n_channels, FOLDED * n), and have the same strides; `out` is
    (2, n_channels, n).
    """
    _check(low.shape == high.shape and low.strides == high.strides)
    _check(low.shape == (out.shape[1], FOLDED * out.shape[2]) and len(out) == 2)
    _check(all(_has_rows(array, np.int16) for array in (low, high, out[0])))
    below = (_at(low), _at(high), _stride(low), *out.shape[1:])
    _library.fold(*below, _at(out[0]), _at(out[1]), _stride(out[0]))


def _readable(raw: NDArray[Any]) -> NDArray[Any]:
    """The same samples in a type and layout that passes.c reads."""
    if raw.dtype not in _C_TYPES:
        raw = raw.astype(np.float64)
    whole = all(stride % raw.itemsize == 0 for stride in raw.strides)
    adjacent = whole and raw.itemsize in raw.strides
    return raw if adjacent and raw.flags.aligned else np.ascontiguousarray(raw)


def _is_block(array: Float32) -> bool:
    """Whether it is a block, or a stretch of one."""
    steps = (LANES * array.itemsize, array.itemsize)
    in_order = array.strides[1:] == steps or not array.size
    return array.dtype == np.float32 and array.shape[2] == LANES and in_order


def _has_rows(array: NDArray[Any], dtype: type) -> bool:
    return array.dtype == dtype and (array.strides[1] == array.itemsize or not array.size)


def _is_plain(array: NDArray[Any], dtype: type) -> bool:
    return array.dtype == dtype and array.flags.c_contiguous


def _stride(array: NDArray[Any]) -> int:
    """Elements from one row or block to the next."""
    return array.strides[0] // array.itemsize


def _check(is_right: bool) -> None:
    if not is_right:
        raise ValueError("an array of another type, shape or layout is expected")


def _at(array: NDArray[Any]) -> int:
    """Its address, in half the time that `array.ctypes.data` takes."""
    address: int = _record_of(array.__array_struct__, None).contents.data
    return address
