"""What memory and space this machine has for a run, in bytes, read anew at every call.

Memory is the machine's or, where that is less, what the cgroups allow that a container or a batch
job puts processes into. Source of the files: Linux, "The /proc Filesystem", "Control Group v2"
and "Memory Resource Controller" (v1).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path, PurePosixPath

ROOT = Path("/")

# cgroup v1 counts up to this many bytes for "no limit": the largest whole page of 63 bits.
_NO_LIMIT = (1 << 63) - (1 << 20)

# What of its memory a system can be expected to give away that does not tell.
_UNTOLD_SHARE = 2

_IN_MEMORY = frozenset({"tmpfs", "ramfs"})


@dataclass(frozen=True, slots=True)
class _Version:
    """The files of one version of the memory controller; `root` has none of them in v2."""

    limits: tuple[str, ...]
    usage: str
    reclaimable: tuple[str, ...]  # of memory.stat: the page cache, as MemAvailable counts it
    kills: str


_V1 = _Version(
    ("memory.limit_in_bytes",),
    "memory.usage_in_bytes",
    ("total_inactive_file", "total_active_file"),
    "memory.oom_control",
)
_V2 = _Version(
    ("memory.max", "memory.high"),
    "memory.current",
    ("inactive_file", "active_file", "slab_reclaimable"),
    "memory.events",
)


@dataclass(frozen=True, slots=True)
class _Mount:
    """A line of mountinfo; `top` is the directory of the file system that is mounted."""

    device: str
    top: str
    point: str
    kind: str
    options: frozenset[str]


def available_memory(root: Path = ROOT) -> int:
    """What new work may use now: of the machine and of every cgroup above this process.

    Page cache counts as available, as it makes room when asked to. Never below 0.
    """
    machine = _fields(root / "proc/meminfo").get("MemAvailable")
    free = [_untold_memory() if machine is None else machine * 1024]
    for version, folder in _cgroups(root):
        limit, usage = _limit(version, folder), _number(folder / version.usage)
        if limit is not None and usage is not None:
            stat = _fields(folder / "memory.stat")
            free.append(limit - usage + sum(stat.get(name, 0) for name in version.reclaimable))
    return max(0, min(free))


def total_memory(root: Path = ROOT) -> int:
    """The most that could ever be available."""
    machine = _fields(root / "proc/meminfo").get("MemTotal")
    totals = [_physical_memory() if machine is None else machine * 1024]
    limits = (_limit(version, folder) for version, folder in _cgroups(root))
    return min(totals + [limit for limit in limits if limit is not None])


def resident_memory(pid: int, root: Path = ROOT) -> int:
    """What a process holds that no other shares: not the pages it still has from its parent.

    0 for a process that is gone, or where the system does not tell.
    """
    process = root / "proc" / str(pid)
    private = _fields(process / "smaps_rollup").get("Private_Dirty")
    if private is None:
        private = _fields(process / "status").get("RssAnon", 0)
    return private * 1024


def oom_kills(root: Path = ROOT) -> int:
    """How many processes of this cgroup, or of the machine, the kernel killed for their memory.

    To be compared with an earlier call; 0 where the system does not tell.
    """
    for version, folder in _cgroups(root):
        kills = _fields(folder / version.kills).get("oom_kill")
        if kills is not None:
            return kills
    return _fields(root / "proc/vmstat").get("oom_kill", 0)


def free_space(path: Path) -> int:
    """Free bytes of the volume of `path` for this user; 0 when it can hold no further file.

    A volume that lies in memory has no more than the memory that is available. Raises OSError.
    """
    status = os.statvfs(path)
    if status.f_files and not status.f_favail:
        return 0
    free = status.f_bavail * status.f_frsize
    return min(free, available_memory()) if lies_in_memory(path) else free


def lies_in_memory(path: Path, root: Path = ROOT) -> bool:
    """Whether files of `path` take memory (tmpfs, as /tmp often is). Raises OSError."""
    device = path.stat().st_dev
    name = f"{os.major(device)}:{os.minor(device)}"
    return any(mount.device == name and mount.kind in _IN_MEMORY for mount in _mounts(root))


def _limit(version: _Version, folder: Path) -> int | None:
    limits = [_number(folder / name) for name in version.limits]
    # In v1 this is the least of the cgroup and of all above it, those not seen from here too.
    limits.append(_fields(folder / "memory.stat").get("hierarchical_memory_limit"))
    told = [limit for limit in limits if limit is not None and limit < _NO_LIMIT]
    return min(told, default=None)


def _cgroups(root: Path) -> tuple[tuple[_Version, Path], ...]:
    """The cgroups of this process that control memory, its own first, up to the highest seen."""
    return _cgroups_of(root, tuple(_lines(root / "proc/self/cgroup")), _mounts(root))


@lru_cache(4)  # asked several times a recording, and hardly ever another
def _cgroups_of(
    root: Path, lines: tuple[str, ...], mounts: tuple[_Mount, ...]
) -> tuple[tuple[_Version, Path], ...]:
    return tuple(_parsed_cgroups(root, lines, mounts))


def _parsed_cgroups(
    root: Path, lines: Iterable[str], mounts: Iterable[_Mount]
) -> Iterator[tuple[_Version, Path]]:
    paths: dict[str, str] = {}  # of the process, by controllers; v2 has none
    for line in lines:
        _, controllers, own_path = (*line.split(":", 2), "", "")[:3]
        paths |= dict.fromkeys(controllers.split(","), own_path)
    for mount in mounts:
        path: str | None
        if mount.kind == "cgroup2":
            version, path = _V2, paths.get("")
        elif mount.kind == "cgroup" and "memory" in mount.options:
            version, path = _V1, paths.get("memory")
        else:
            continue
        if path is not None:
            top = root / mount.point.lstrip("/")
            own = top / _beneath(path, mount.top)
            yield version, own
            while own != top:
                own = own.parent
                yield version, own


def _beneath(path: str, top: str) -> str:
    """A cgroup's path below the directory that is mounted; empty for one that lies outside."""
    inside = PurePosixPath(path)
    if ".." in inside.parts or not inside.is_relative_to(top):
        return ""
    return str(inside.relative_to(top))


def _mounts(root: Path) -> tuple[_Mount, ...]:
    return _mounts_of(tuple(_lines(root / "proc/self/mountinfo")))


@lru_cache(4)
def _mounts_of(lines: tuple[str, ...]) -> tuple[_Mount, ...]:
    return tuple(_parsed_mounts(lines))


def _parsed_mounts(lines: Iterable[str]) -> Iterator[_Mount]:
    for line in lines:
        before, _, after = line.partition(" - ")
        fields, (kind, *rest) = before.split(), after.split() or [""]
        if len(fields) >= 5:
            top, point = (
                re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), text)
                for text in fields[3:5]
            )
            options = rest[-1].split(",") if rest else []
            yield _Mount(fields[2], top, point, kind, frozenset(options))


def _fields(path: Path) -> dict[str, int]:
    """Whole numbers of a file with a name and a number a line; empty when it can't be read."""
    found = {}
    for line in _lines(path):
        name, number, *_ = (*line.split(), "", "")
        if number.isdecimal():
            found[name.rstrip(":")] = int(number)
    return found


def _number(path: Path) -> int | None:
    """The whole number that a file holds; None for "max", and for a file that can't be read."""
    text = next(iter(_lines(path)), "").strip()
    return int(text) if text.isdecimal() else None


def _lines(path: Path) -> list[str]:
    with suppress(OSError):
        return path.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    return []


def _physical_memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _untold_memory() -> int:
    """What is likely to be available where nothing tells: on macOS, for one."""
    if "SC_AVPHYS_PAGES" in os.sysconf_names:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")
    return _physical_memory() // _UNTOLD_SHARE
