"""Arrow without pandas, unless somebody asks for a data frame."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec

import pytest

PROGRAM = """
import sys
from converter.work.arrow import pa
table = pa.table({"onset_s": pa.array([0.5, 1.5])})
assert "pandas" not in sys.modules
assert list(table.to_pandas()["onset_s"]) == [0.5, 1.5]
assert "pandas" in sys.modules
"""


@pytest.mark.skipif(find_spec("pandas") is None, reason="pandas is not installed")
def test_pandas_is_imported_for_who_asks_for_it() -> None:
    subprocess.run([sys.executable, "-c", PROGRAM], check=True)
