"""Why annexed content cannot be had."""

from __future__ import annotations


class ContentError(Exception):
    """Content that cannot be had; `keys` has the annex keys, in the order of their paths."""

    def __init__(self, message: str, keys: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.keys = keys

    def __reduce__(self) -> tuple[type[ContentError], tuple[str, tuple[str, ...]]]:
        return type(self), (str(self), self.keys)


class MissingContent(ContentError):
    """Every place that was asked says that it has no such content, or there is none to ask."""


class DamagedContent(ContentError):
    """Content is not what its key tells, however often it was fetched."""


class UnreachableContent(ContentError):
    """A place refused the content or broke off, so that nobody knows whether it has it."""
