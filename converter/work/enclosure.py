"""What a conversion can reach: its recording's files, its scratch, and the interpreter's own.

A reader that a file leads astray, or worse, finds nothing else: no other file of the machine, no
program to start, no TCP. What was in memory when the process began is out of Landlock's reach.
"""

from __future__ import annotations

import importlib.machinery
import os
import site
import sys
import sysconfig
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from . import landlock

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
    grants = [(path, landlock.READ) for path in (*_software(), *map(Path, _OF_THE_SYSTEM))]
    grants += [(path, landlock.READ) for path in readable]
    grants += [(Path(os.devnull), landlock.USE)]
    grants += [(store, landlock.WRITE), (scratch, landlock.LINK)]
    landlock.restrict(grants)


def _software() -> Iterator[Path]:
    """The interpreter's folders, and of what is imported from elsewhere its own folders.

    Other entries of sys.path are left out: the folder that a program is started in is one.
    """
    paths = sysconfig.get_paths()
    yield from (Path(paths[name]) for name in ("stdlib", "platstdlib", "purelib", "platlib"))
    yield from map(Path, (*site.getsitepackages(), site.getusersitepackages()))
    for prefix in (sys.prefix, sys.base_prefix):
        yield from (Path(prefix, name) for name in ("lib", "lib64", "share"))
    named = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    libraries = os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep)
    folders = [Path(name) for name in (*named, *libraries)]
    yield from (folder for folder in folders if folder.is_absolute())
    for module in list(sys.modules.values()):
        spec = getattr(module, "__spec__", None)
        if isinstance(spec, importlib.machinery.ModuleSpec) and "." not in spec.name:
            yield from map(Path, spec.submodule_search_locations or ())
            if spec.has_location and spec.origin:
                yield Path(spec.origin)
