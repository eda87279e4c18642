"""Arrow, to be imported from here: without pandas, which nothing here needs.

Its first array imports pandas where that is installed: a second, and the memory of all that is
imported for a conversion once more, in every worker. Who asks Arrow for data frames still gets
them.
"""

from __future__ import annotations

import sys
from importlib.abc import MetaPathFinder

import pyarrow as pa

__all__ = ["pa"]


class _WithoutPandas(MetaPathFinder):
    def find_spec(self, name: str, *_: object) -> None:
        """Say that there is no pandas, and nothing of other modules."""
        if name == "pandas":
            raise ModuleNotFoundError(name)


_finder = _WithoutPandas()
sys.meta_path.insert(0, _finder)
try:
    pa.array([])
finally:
    sys.meta_path.remove(_finder)
