"""Compiles converter/recording/passes.c; hatchling calls it for every wheel and editable install.

The compiler is $CC or the machine's cc; where there is none, Zig's from PyPI, which pip then
fetches for the build alone.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FLAGS = ("-std=gnu11", "-O3", "-Wall", "-Wextra", "-Wno-psabi", "-fPIC", "-shared")
X86 = ("x86_64", "amd64")
AVX2 = ("-mavx2", "-mfma")


class CompilePasses(BuildHookInterface[Any]):
    """The libraries beside their source: one for any machine, on x86-64 one with AVX2, too."""

    def dependencies(self) -> list[str]:
        """What pip fetches before it builds."""
        return [] if _own_compiler() else ["ziglang"]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and put the libraries into the wheel."""
        folder = Path(self.root, "converter", "recording")
        _compile(folder / "passes.c", folder / "libpasses.so")
        if platform.machine().lower() in X86:
            _compile(folder / "passes.c", folder / "libpasses_avx2.so", *AVX2)
        build_data["pure_python"] = False
        build_data["artifacts"].append("/converter/recording/libpasses*.so")
        tag = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["tag"] = f"py3-none-{tag}"


def _own_compiler() -> list[str]:
    """The machine's compiler as a command, empty without one."""
    named = shlex.split(os.environ.get("CC", "cc"))
    return named if shutil.which(named[0]) else []


def _compile(source: Path, library: Path, *flags: str) -> None:
    compiler = _own_compiler() or [sys.executable, "-m", "ziglang", "cc"]
    digest = hashlib.sha256(source.read_bytes()).hexdigest()
    made = library.with_suffix(f".{os.getpid()}")
    define = f'-DSOURCE_DIGEST="{digest}"'
    command = [*compiler, *FLAGS, *flags, define, str(source), "-o", str(made)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(
            f"{source.name} could not be compiled by {shlex.join(compiler)} (CC=... chooses "
            f"another compiler):\n{done.stderr}"
        )
    made.replace(library)  # a process that has the old one open keeps it
