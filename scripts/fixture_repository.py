"""Make a git repository of the fixture dataset: the same commit wherever it is made."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

DATASET = Path(__file__).resolve().parent.parent / "fixtures" / "nm099999"

_WHO = {"NAME": "nemar-convert", "EMAIL": "fixtures@nemar-convert.invalid"}
_IDENTITY = {
    **{
        f"GIT_{role}_{key}": value
        for role in ("AUTHOR", "COMMITTER")
        for key, value in _WHO.items()
    },
    "GIT_AUTHOR_DATE": "2026-01-01T00:00:00+0000",
    "GIT_COMMITTER_DATE": "2026-01-01T00:00:00+0000",
}
# Nothing that the user or the machine configured takes part.
_NEUTRAL = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_DEFAULT_HASH": "sha1",
    "LC_ALL": "C",
}
_OPTIONS = (
    *("-c", "core.autocrlf=false"),
    *("-c", "core.fileMode=false"),
    *("-c", f"core.attributesFile={os.devnull}"),
    *("-c", "commit.gpgSign=false"),
)


def make_repository(destination: Path, dataset: Path = DATASET) -> tuple[Path, str]:
    """Copy the dataset into `destination` and commit it; the repository's path and the SHA.

    Raises FileExistsError when a folder of the dataset's name is there, CalledProcessError
    when git fails.
    """
    repository = destination / dataset.name
    if repository.exists():
        raise FileExistsError(f"{repository} exists already, a place for a new one is expected")
    shutil.copytree(dataset, repository, copy_function=shutil.copyfile)
    _git(repository, "init", "--quiet", "--template=", "--initial-branch=main")
    _git(repository, "add", "--all", "--force")
    _git(repository, "commit", "--quiet", "--no-verify", "--message=Fixture dataset")
    return repository, _git(repository, "rev-parse", "HEAD").strip()


def _git(repository: Path, *arguments: str) -> str:
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    return subprocess.run(
        ["git", *_OPTIONS, *arguments],
        cwd=repository,
        env=inherited | _NEUTRAL | _IDENTITY,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    ).stdout


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("destination", type=Path, help="folder that gets the repository nm099999")
    try:
        _, sha = make_repository(parser.parse_args().destination)
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"fixture_repository: {error}", file=sys.stderr)
        return 1
    print(sha)
    return 0


if __name__ == "__main__":
    sys.exit(main())
