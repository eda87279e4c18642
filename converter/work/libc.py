"""Calls of Linux's C library that Python has no function for."""

from __future__ import annotations

import ctypes
import os
from functools import cache


def prctl(option: int, *arguments: int | bytes) -> None:
    """Change something of this process or thread. Raises OSError."""
    given = [_argument(each) for each in (*arguments, 0, 0, 0, 0)[:4]]
    _checked(_library().prctl(option, *given))


def syscall(number: int, *arguments: int | bytes | None) -> int:
    """A call that the library has no function for either; what it returns. Raises OSError."""
    return _checked(_library().syscall(ctypes.c_long(number), *map(_argument, arguments)))


def _argument(value: int | bytes | None) -> ctypes.c_ulong | ctypes.c_char_p:
    """A whole register: the variadic functions read no less."""
    return ctypes.c_ulong(value) if isinstance(value, int) else ctypes.c_char_p(value)


@cache  # to open it takes half a millisecond
def _library() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
