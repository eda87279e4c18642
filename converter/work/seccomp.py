"""Linux's seccomp: a process gives up system calls for good, for itself and what it starts.

Landlock leaves UDP and the sockets of this machine's services alone; without the call that makes
a socket there is neither. A process that can start no other leaves none behind. Source: Linux,
"Seccomp BPF" (Documentation/userspace-api/seccomp_filter.rst), <linux/seccomp.h>,
<linux/filter.h> and <linux/audit.h>.
"""

from __future__ import annotations

import ctypes
import errno
import platform
import struct
from typing import Final, NamedTuple

from .libc import prctl

_PR_SET_SECCOMP, _MODE_FILTER = 22, 2


class _Architecture(NamedTuple):
    """Its name in <linux/audit.h>, and its numbers of calls."""

    name: int
    forbidden: tuple[int, ...]  # socket, and what starts a process and no thread
    clone: int


_ARCHITECTURES: Final = {
    "x86_64": _Architecture(0xC000003E, forbidden=(41, 57, 58), clone=56),
    "aarch64": _Architecture(0xC00000B7, forbidden=(198,), clone=220),
}
_IO_URING_SETUP: Final = 425  # it makes sockets, too
_CLONE3: Final = 435  # its flags are out of sight; without it the C library takes clone
_CLONE_THREAD: Final = 0x00010000
_X32: Final = 0x40000000  # from here on x86-64 has its calls a second time

# Instructions: load a word of the call's record, compare and jump, return.
_LOAD, _IF_EQUAL, _IF_AT_LEAST, _IF_ANY, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER_AT, _ARCHITECTURE_AT, _FLAGS_AT = 0, 4, 16
_ALLOW, _FAIL = 0x7FFF0000, 0x00050000


def forbid_sockets_and_children() -> None:
    """Have every call fail with EPERM that would make a socket, or a process that is no thread.

    To be called after Landlock, which sees to it that no program regains rights. Does nothing on
    architectures other than x86-64 and 64-bit ARM. Raises OSError where the kernel refuses.
    """
    known = _ARCHITECTURES.get(platform.machine())
    if known is None:
        return
    program = b"".join(struct.pack("=HBBI", *instruction) for instruction in _program(known))
    code = ctypes.create_string_buffer(program, len(program))
    # Native alignment: a short, then a pointer.
    record = struct.pack("@HP", len(program) // 8, ctypes.addressof(code))
    prctl(_PR_SET_SECCOMP, _MODE_FILTER, record)


def _program(known: _Architecture) -> list[tuple[int, int, int, int]]:
    """Instructions: a code, how many to leave out when it is true and when not, a number."""
    forbidden = (*known.forbidden, _IO_URING_SETUP)
    return [
        (_LOAD, 0, 0, _ARCHITECTURE_AT),
        (_IF_EQUAL, 1, 0, known.name),  # no calls of another architecture at all
        (_RETURN, 0, 0, _FAIL | errno.EPERM),
        (_LOAD, 0, 0, _NUMBER_AT),
        (_IF_EQUAL, 0, 1, _CLONE3),
        (_RETURN, 0, 0, _FAIL | errno.ENOSYS),
        (_IF_AT_LEAST, len(forbidden) + 3, 0, _X32),
        *((_IF_EQUAL, len(forbidden) + 2 - at, 0, number) for at, number in enumerate(forbidden)),
        (_IF_EQUAL, 0, 3, known.clone),
        (_LOAD, 0, 0, _FLAGS_AT),
        (_IF_ANY, 1, 0, _CLONE_THREAD),
        (_RETURN, 0, 0, _FAIL | errno.EPERM),
        (_RETURN, 0, 0, _ALLOW),
    ]
