from __future__ import annotations

from pathlib import Path

import pytest

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
