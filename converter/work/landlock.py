"""Linux's Landlock: a process gives up rights for good, for itself and what it starts.

Source: Linux, "Landlock: unprivileged access control" (Documentation/userspace-api/landlock.rst)
and <linux/landlock.h>.
"""

from __future__ import annotations

import os
import stat
import struct
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from .libc import prctl, syscall

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same on every architecture
_GIVE_VERSION = 1
_PATH_BENEATH = 1
_PR_SET_NO_NEW_PRIVS = 38

# Rights on files, by bit. A file itself has only some of them; the rest are those of a folder.
_WRITE_FILE, _READ_FILE, _READ_DIR, _REMOVE_DIR, _REMOVE_FILE = (1 << bit for bit in range(1, 6))
_MAKE_DIR, _MAKE_REG, _MAKE_SYM, _TRUNCATE = (1 << bit for bit in (7, 8, 12, 14))
_EXECUTE, _IOCTL_DEVICE = 1 << 0, 1 << 15
_OF_A_FILE: Final = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEVICE

READ: Final = _READ_FILE | _READ_DIR
"""To read files and list folders."""

USE: Final = READ | _WRITE_FILE
"""To read and write what is there, as devices are."""

WRITE: Final = USE | _TRUNCATE | _REMOVE_DIR | _REMOVE_FILE | _MAKE_DIR | _MAKE_REG
"""To read, make, change and remove files and folders, but no links."""

LINK: Final = WRITE | _MAKE_SYM
"""The same, and symbolic links."""

# What each version of the interface knows: rights on files, then TCP (to bind and to connect),
# then whom signals and abstract Unix sockets reach.
_FILES = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 5: (1 << 16) - 1}
_NETWORK = {4: 0b11}
_SCOPES = {6: 0b11}


def version() -> int:
    """The version of the interface that this kernel has; 0 where it has none, or has it off."""
    if sys.platform != "linux":
        return 0
    try:
        return syscall(_CREATE_RULESET, None, 0, _GIVE_VERSION)
    except OSError:
        return 0


def restrict(grants: Iterable[tuple[Path, int]]) -> None:
    """Leave this thread, and all that it starts, with these rights on these paths and no others.

    Each path is a file or a folder, which stands for all below it; one that can't be opened is
    passed over. No program can be executed. From version 4 on no TCP connection is made or
    taken; UDP is not Landlock's. Raises OSError where the kernel refuses.
    """
    known = version()
    files, network, scopes = (_newest(known, table) for table in (_FILES, _NETWORK, _SCOPES))
    # The kernel refuses a longer record than it knows, unless the rest is zero.
    attributes = struct.pack("=QQQ", files, network, scopes)
    ruleset = syscall(_CREATE_RULESET, attributes, len(attributes), 0)
    try:
        for path, rights in grants:
            _grant(ruleset, path, rights & files)
        prctl(_PR_SET_NO_NEW_PRIVS, 1)
        syscall(_RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)


def _grant(ruleset: int, path: Path, rights: int) -> None:
    try:
        opened = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:  # what is not there, or not for this user, can't be read anyway
        return
    try:
        if not stat.S_ISDIR(os.fstat(opened).st_mode):
            rights &= _OF_A_FILE
        beneath = struct.pack("=Qi", rights, opened)
        syscall(_ADD_RULE, ruleset, _PATH_BENEATH, beneath, 0)
    finally:
        os.close(opened)


def _newest(known: int, table: dict[int, int]) -> int:
    """What the newest version of those known has in a table."""
    return max((bits for since, bits in table.items() if since <= known), default=0)
