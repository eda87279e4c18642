"""Serving copies of BIDS electrophysiology datasets.

`convert_dataset` does what the command `nemar-convert` does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["Settings", "Summary", "__version__", "convert_dataset"]

if TYPE_CHECKING:
    from .pipeline import convert_dataset
    from .settings import Settings
    from .summary import Summary


def __getattr__(name: str) -> Any:
    # The scientific libraries take a second to import; `nemar-convert --help` needs none.
    if name in ("Settings", "Summary", "convert_dataset"):
        from . import pipeline

        return getattr(pipeline, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
