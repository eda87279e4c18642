"""What a conversion can reach: its recording's files, its scratch, and the interpreter's own.

A reader that a file leads astray, or worse, finds nothing else: no other file of the machine, no
program to start, no network. What was in memory when the process began stays there to be read.
"""

from __future__ import annotations

import importlib.machinery
import os
import site
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final

from . import landlock, seccomp

# What the C library, its loader, BLAS and time zones read when they are first used.
_OF_THE_SYSTEM: Final = (
    *("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/usr/share/zoneinfo"),
    *("/etc/ld.so.cache", "/etc/localtime", "/sys/devices/system/cpu"),
    *("/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/proc/sys/vm/overcommit_memory"),
    *("/dev/urandom", "/dev/random", "/dev/zero"),
    *("/proc/self/status", "/proc/self/statm", "/proc/self/maps", "/proc/self/cgroup"),
)
_HOMES: Final = ("HOME", "TMPDIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME")


def is_possible() -> bool:
    """Whether this kernel can enclose a process."""
    return landlock.version() > 0 and Path("/proc/self/fd").is_dir()


def enclose(readable: Iterable[Path], store: Path, scratch: Path) -> None:
    """Let this process read these files and folders and write these two, for good.

    What else it reads is its interpreter's, and libraries'. Its home and its temporary folder
    are `scratch` from here on. Raises OSError.
    """
    scratch = scratch.absolute()
    os.environ.update(dict.fromkeys(_HOMES, str(scratch)))
    tempfile.tempdir = str(scratch)
    grants = [(path, landlock.READ) for path in software()]
    grants += [(path, landlock.READ) for path in readable]
    grants += [(Path(os.devnull), landlock.USE)]
    grants += [(store, landlock.WRITE), (scratch, landlock.LINK)]
    landlock.restrict(grants)
    with suppress(OSError):  # TCP is Landlock's anyway
        seccomp.forbid_sockets_and_children()


@cache
def software() -> tuple[Path, ...]:
    """What the interpreter and its libraries read: their folders, and files of the system.

    Of what is imported from elsewhere it is the folder of the package. Other entries of sys.path
    are left out: the folder that a program is started in is one. Found once, as to look at all
    modules takes longer than a short recording.
    """
    folders = {*site.getsitepackages(), site.getusersitepackages(), str(Path(os.__file__).parent)}
    for prefix in (sys.prefix, sys.base_prefix):
        folders.update(f"{prefix}/{name}" for name in ("lib", "lib64", "share"))
    for variable in ("PYTHONPATH", "LD_LIBRARY_PATH"):
        named = os.environ.get(variable, "").split(os.pathsep)
        folders.update(name for name in named if name.startswith("/"))
    within = tuple(f"{folder}/" for folder in folders)
    folders.update(place for place in _imported() if not place.startswith(within))
    return tuple(Path(place) for place in (*sorted(folders), *_OF_THE_SYSTEM))


def _imported() -> Iterator[str]:
    """Files of the modules that are imported, folders of the packages."""
    for name, module in list(sys.modules.items()):
        if "." in name:
            continue  # in its package's folder; to look at it would copy its memory
        spec = getattr(module, "__spec__", None)
        if isinstance(spec, importlib.machinery.ModuleSpec):
            yield from spec.submodule_search_locations or ()
            if spec.has_location and spec.origin:
                yield spec.origin
