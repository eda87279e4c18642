"""Memory and space as /proc and the cgroups tell them: made-up trees, and this machine."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from converter.work.machine import (
    available_memory,
    free_space,
    lies_in_memory,
    oom_kills,
    resident_memory,
    total_memory,
)

MB = 1 << 20
V2_MOUNT = "31 23 0:28 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate"
V1_MOUNTS = (
    "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu",
    "35 31 0:32 {top} /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory",
)


class Machine:
    """A /proc and a /sys with 16 GB of memory, 12 GB of it available."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.write("proc/meminfo", f"MemTotal: {16 << 20} kB\nMemAvailable: {12 << 20} kB\n")
        self.write("proc/vmstat", "nr_free_pages 7\noom_kill 5\n")

    def write(self, path: str, content: str) -> None:
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(content)

    def mounts(self, *lines: str) -> None:
        others = ("22 1 254:0 / / rw - ext4 /dev/vda rw", "a line that is none")
        self.write("proc/self/mountinfo", "\n".join([*others, *lines]) + "\n")

    def v2(self, path: str, maximum: str, current: int, cache: int, high: str = "max") -> None:
        folder = f"sys/fs/cgroup{path}"
        self.write(f"{folder}/memory.max", f"{maximum}\n")
        self.write(f"{folder}/memory.high", f"{high}\n")
        self.write(f"{folder}/memory.current", f"{current}\n")
        self.write(
            f"{folder}/memory.stat",
            f"anon {current - cache}\nfile {cache}\ninactive_file {cache // 2}\n"
            f"active_file {cache - cache // 2}\n",
        )

    def v1(self, path: str, limit: int, usage: int, hierarchical: int) -> None:
        folder = f"sys/fs/cgroup/memory{path}"
        self.write(f"{folder}/memory.limit_in_bytes", f"{limit}\n")
        self.write(f"{folder}/memory.usage_in_bytes", f"{usage}\n")
        self.write(
            f"{folder}/memory.stat",
            f"inactive_file 0\nhierarchical_memory_limit {hierarchical}\n"
            f"total_inactive_file {10 * MB}\ntotal_active_file {20 * MB}\n",
        )


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_without_cgroups_it_is_the_machines(machine: Machine) -> None:
    assert available_memory(machine.root) == 12 << 30
    assert total_memory(machine.root) == 16 << 30
    assert oom_kills(machine.root) == 5


def test_the_least_of_the_cgroups_above_counts(machine: Machine) -> None:
    machine.mounts(V2_MOUNT)
    machine.write("proc/self/cgroup", "0::/batch.slice/job 7/step\n")
    machine.v2("/batch.slice/job 7/step", "max", 900 * MB, 300 * MB)
    machine.v2("/batch.slice/job 7", str(1000 * MB), 950 * MB, 400 * MB)
    machine.v2("/batch.slice", "max", 3000 * MB, 0, high=str(3300 * MB))
    assert available_memory(machine.root) == 300 * MB
    assert total_memory(machine.root) == 1000 * MB
    machine.v2("/batch.slice/job 7/step", str(960 * MB), 900 * MB, 0)
    assert available_memory(machine.root) == 60 * MB
    assert total_memory(machine.root) == 960 * MB
    machine.v2("/batch.slice/job 7/step", str(800 * MB), 900 * MB, 0)
    assert available_memory(machine.root) == 0


def test_oom_kills_of_the_own_cgroup(machine: Machine) -> None:
    machine.mounts(V2_MOUNT)
    machine.write("proc/self/cgroup", "0::/job\n")
    machine.v2("/job", "max", 0, 0)
    machine.write("sys/fs/cgroup/job/memory.events", "low 0\nmax 9\noom 3\noom_kill 2\n")
    assert oom_kills(machine.root) == 2


@pytest.mark.parametrize(
    ("own", "top", "folder"),
    [
        ("/docker/abc", "/", "/docker/abc"),
        ("/docker/abc", "/docker/abc", ""),
        ("/docker/abc/inner", "/docker/abc", "/inner"),
        ("/docker/abc", "/docker/ab", ""),
        ("/../other", "/", ""),
    ],
)
def test_version_1_in_a_container(machine: Machine, own: str, top: str, folder: str) -> None:
    machine.mounts(*(line.format(top=top) for line in V1_MOUNTS))
    machine.write("proc/self/cgroup", f"5:cpu,cpuacct:/else\n4:memory:{own}\n0::/\n")
    machine.v1(folder, 2048 * MB, 500 * MB, (1 << 63) - 4096)
    machine.write(f"sys/fs/cgroup/memory{folder}/memory.oom_control", "under_oom 0\noom_kill 4\n")
    assert available_memory(machine.root) == (2048 - 500 + 30) * MB
    assert total_memory(machine.root) == 2048 * MB
    assert oom_kills(machine.root) == 4


def test_version_1_tells_limits_above_what_is_seen(machine: Machine) -> None:
    machine.mounts(*(line.format(top="/docker/abc") for line in V1_MOUNTS))
    machine.write("proc/self/cgroup", "4:memory:/docker/abc\n")
    machine.v1("", (1 << 63) - 4096, 500 * MB, 700 * MB)
    assert available_memory(machine.root) == (700 - 500 + 30) * MB
    assert total_memory(machine.root) == 700 * MB


def test_a_system_that_tells_nothing(tmp_path: Path) -> None:
    assert 0 < available_memory(tmp_path) <= total_memory(tmp_path)
    assert total_memory(tmp_path) == psutil.virtual_memory().total
    assert oom_kills(tmp_path) == 0
    assert resident_memory(1, tmp_path) == 0


def test_this_machine() -> None:
    assert 0 < available_memory() <= total_memory() <= psutil.virtual_memory().total
    assert oom_kills() >= 0


def test_a_process_by_what_it_shares_with_nobody() -> None:
    script = "held = b'x' * (80 << 20); print(flush=True); input()"
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    process.stdout.readline()
    assert 80 * MB <= resident_memory(process.pid) <= 110 * MB
    process.communicate(b"\n")
    assert resident_memory(process.pid) == 0


def test_free_space(tmp_path: Path) -> None:
    free = psutil.disk_usage(str(tmp_path)).free
    assert abs(free_space(tmp_path) - free) < free / 2
    with pytest.raises(FileNotFoundError):
        free_space(tmp_path / "nowhere")


def test_a_volume_without_room_for_a_file_has_no_space(tmp_path, monkeypatch) -> None:
    real = os.statvfs(tmp_path)
    for n_files, n_free, expected in (
        (1000, 0, 0),
        (0, 0, real.f_frsize),
        (1000, 1, real.f_frsize),
    ):
        fields = list(real)
        fields[4], fields[5], fields[7] = 1, n_files, n_free
        monkeypatch.setattr(os, "statvfs", lambda _, fields=fields: os.statvfs_result(fields))
        assert free_space(tmp_path) == expected


def test_a_volume_in_memory(tmp_path: Path, machine: Machine) -> None:
    device = tmp_path.stat().st_dev
    line = f"40 22 {os.major(device)}:{os.minor(device)} / /mnt rw - %s none rw"
    machine.mounts(line % "tmpfs")
    assert lies_in_memory(tmp_path, machine.root)
    machine.mounts(line % "ext4")
    assert not lies_in_memory(tmp_path, machine.root)


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="no /dev/shm here")
def test_space_in_memory_is_no_more_than_memory() -> None:
    assert lies_in_memory(Path("/dev/shm"))
    assert free_space(Path("/dev/shm")) <= total_memory()
