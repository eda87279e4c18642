"""Symbolic links that git holds, resolved inside a tree and never on a disk."""

from __future__ import annotations

from collections.abc import Mapping

# As many as Linux follows before it speaks of a loop.
MAX_HOPS = 40


class RefusedLinkError(Exception):
    """A link leads where no recording's bytes may come from; the message completes its name."""


def resolve_link(path: str, targets: Mapping[str, str]) -> str:
    """The path of the tree that the link at `path` leads to, links on the way resolved too.

    `targets` has the target of every link of the tree by its path. The result may name
    nothing; it is empty for the tree's root. Raises RefusedLinkError when the way leaves the
    tree or runs in a circle.
    """
    at = path.split("/")[:-1]
    ahead = _steps(targets[path])
    hops = 1
    while ahead:
        step = ahead.pop()
        if step in ("", "."):
            continue
        if step == "..":
            if not at:
                raise RefusedLinkError("leads out of the dataset's tree")
            at.pop()
            continue
        at.append(step)
        target = targets.get("/".join(at))
        if target is not None:
            hops += 1
            if hops > MAX_HOPS:
                raise RefusedLinkError(f"leads through more than {MAX_HOPS} links or in a circle")
            at.pop()
            ahead += _steps(target)
    return "/".join(at)


def _steps(target: str) -> list[str]:
    """Path segments of a link's target, the first one last."""
    if target.startswith("/"):
        raise RefusedLinkError("leads out of the dataset's tree")
    return target.split("/")[::-1]
