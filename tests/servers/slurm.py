"""A real SLURM of one machine for tests: munged, slurmctld and slurmd on free ports.

Debian has them in the packages slurm-wlm and munge. slurmd starts jobs for root only.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from tests.servers.seaweedfs import free_ports, tether

START_SECONDS = 120.0
JOB_SECONDS = 900.0
DAEMONS = ("munged", "slurmctld", "slurmd")
PATH = os.pathsep.join([os.environ.get("PATH", ""), "/usr/local/sbin", "/usr/sbin"])

CONFIGURATION = """\
ClusterName=tests
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmctldPort={controller}
SlurmdPort={node}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerParameters=sched_interval=1,batch_sched_delay=0
MailProg=/bin/true
ReturnToService=2
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} RealMemory={memory} State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def why_not() -> str | None:
    """Why SLURM can't be started on this machine; None when it can."""
    missing = [name for name in (*DAEMONS, "sbatch") if shutil.which(name, path=PATH) is None]
    if missing:
        return f"SLURM is not installed: no {', '.join(missing)} (slurm-wlm and munge of Debian)"
    return None if os.geteuid() == 0 else "only root can start SLURM's daemons"


@dataclass
class Slurm:
    """Starts the daemons, with all that they write in `folder`; use it as a context manager."""

    folder: Path
    _daemons: list[subprocess.Popen[bytes]] = field(default_factory=list, init=False)

    def __enter__(self) -> Slurm:
        self._configure()
        try:
            own = {name: self.folder / f"munge.{name}" for name in ("socket", "key", "pid", "seed")}
            files = {"socket": "socket", "key-file": "key", "pid-file": "pid", "seed-file": "seed"}
            options = [f"--{option}={own[name]}" for option, name in files.items()]
            self._start("munged", "-F", "-f", f"--log-file={self.folder}/munge.log", *options)
            self._await(own["socket"].exists)
            self._start("slurmctld", "-D", "-c")
            self._start("slurmd", "-D")
            self._await(lambda: "idle" in self.call("sinfo", "-h", "-o", "%T", check=False))
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End the jobs and the daemons."""
        with suppress(subprocess.SubprocessError):
            self.call("scancel", "--signal=KILL", "--full", "--user=root", check=False)
            self._await(lambda: not self.call("squeue", "-h", check=False))
        for daemon in reversed(self._daemons):
            with suppress(psutil.NoSuchProcess):
                for child in psutil.Process(daemon.pid).children(recursive=True):
                    child.kill()
            daemon.kill()
            daemon.wait()

    @property
    def environment(self) -> dict[str, str]:
        """Of programs that shall find it."""
        return {
            **{name: text for name, text in os.environ.items() if not name.startswith("SLURM")},
            "PATH": PATH,
            "SLURM_CONF": str(self.folder / "slurm.conf"),
        }

    def call(self, *command: str, check: bool = True, cwd: Path | None = None) -> str:
        """Run one of its programs; return what it printed."""
        done = subprocess.run(
            command,
            cwd=cwd,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=JOB_SECONDS,
            check=False,
        )
        assert not check or done.returncode == 0, f"{command}: {done.stdout}"
        return done.stdout

    def _configure(self) -> None:
        for name in ("state", "spool"):
            (self.folder / name).mkdir(parents=True)
        key = self.folder / "munge.key"
        key.touch(mode=0o600)
        key.write_bytes(os.urandom(128))
        controller, node = free_ports(2)
        (self.folder / "slurm.conf").write_text(
            CONFIGURATION.format(
                folder=self.folder,
                host=socket.gethostname().partition(".")[0],
                controller=controller,
                node=node,
                cpus=os.cpu_count(),
                memory=psutil.virtual_memory().total // 2 >> 20,
            )
        )

    def _start(self, name: str, *options: str) -> None:
        with (self.folder / f"{name}.out").open("ab") as log:
            self._daemons.append(
                subprocess.Popen(
                    [*tether(), name, *options],
                    env=self.environment,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            )

    def _await(self, condition) -> None:
        end = time.monotonic() + START_SECONDS
        while not condition():
            dead = [daemon.args for daemon in self._daemons if daemon.poll() is not None]
            assert not dead, f"{dead}: {self._said()}"
            assert time.monotonic() < end, self._said()
            time.sleep(0.2)

    def _said(self) -> str:
        files = sorted(self.folder.glob("*.out"))
        return "\n".join(file.read_text("utf-8", "replace")[-2000:] for file in files)
