from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings

from tests.environment import GIT_ENVIRONMENT as GIT_ENVIRONMENT
from tests.servers.fixtures import annex_dataset as annex_dataset
from tests.servers.fixtures import bucket as bucket
from tests.servers.fixtures import fault_proxy as fault_proxy
from tests.servers.fixtures import s3_server as s3_server

# An example that takes long on a busy machine is not slow by itself.
settings.register_profile("tests", deadline=None)
settings.load_profile("tests")

SHARED_REAL = Path(__file__).resolve().parents[2] / "shared" / "real"


@pytest.fixture(scope="session")
def real_dir() -> Path:
    """Real recordings, their expected outcomes and real trees, kept beside the checkout."""
    if not SHARED_REAL.is_dir():
        pytest.skip("the real recordings are not beside this checkout (../shared/real)")
    return SHARED_REAL


@pytest.fixture(scope="session")
def real_dataset(real_dir: Path) -> Path:
    return real_dir / "dataset"


def git(repository: Path, *arguments: str) -> str:
    """Run git in a repository, with no configuration but its own."""
    done = subprocess.run(
        ["git", *arguments],
        cwd=repository,
        env=GIT_ENVIRONMENT,
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout.strip()


def commit_all(repository: Path, message: str = "change") -> str:
    """Commit the whole work tree; return the commit's SHA."""
    if not (repository / ".git").exists():
        git(repository, "init", "-q", "-b", "main")
    git(repository, "add", "-A")
    git(repository, "commit", "-q", "--allow-empty", "-m", message)
    return git(repository, "rev-parse", "HEAD")


@pytest.fixture(scope="session")
def repository_of() -> Callable[[Path, Path], str]:
    """Copies a folder to a new git repository; returns the commit."""

    def make(source: Path, destination: Path) -> str:
        # The content only: the corpus is read-only, and its modes must not follow.
        shutil.copytree(source, destination, copy_function=shutil.copyfile)
        for folder, _, _ in os.walk(destination):
            Path(folder).chmod(0o755)
        return commit_all(destination)

    return make
