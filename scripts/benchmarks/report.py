"""What a part of the benchmark found: figures, a table, and how they stand to the targets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich import box
from rich.table import Table

MB = 1e6


@dataclass(frozen=True, slots=True)
class Options:
    """How a part runs.

    `only` is a piece of a case's name, in any case; `longest` cuts recordings to so many
    seconds; `folder` is scratch.
    """

    folder: Path
    quick: bool = False
    repeats: int = 3
    only: str = ""
    longest: int | None = None
    say: Callable[[str], None] = print

    def wants(self, name: str) -> bool:
        """Whether a case of this name is measured."""
        return self.only.casefold() in name.casefold()


@dataclass(frozen=True, slots=True)
class Target:
    """A figure and the most it should be, or the least."""

    name: str
    value: float
    bound: float
    at_least: bool = False

    @property
    def met(self) -> bool:
        """Whether the figure is where it should be."""
        return self.value >= self.bound if self.at_least else self.value <= self.bound

    def cell(self, text: str) -> str:
        """The text of a table's cell, marked."""
        return f"[green]{text} ✓[/green]" if self.met else f"[red]{text} ✗[/red]"


@dataclass(slots=True)
class Part:
    """A part of the benchmark, when it has run. `figures` are for JSON, by case."""

    name: str
    tables: list[Table] = field(default_factory=list)
    figures: dict[str, Any] = field(default_factory=dict)
    targets: list[Target] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def target(self, name: str, value: float, bound: float, *, at_least: bool = False) -> Target:
        """Note a figure's target."""
        made = Target(f"{self.name}: {name}", value, bound, at_least)
        self.targets.append(made)
        return made

    def to_json(self) -> Mapping[str, Any]:
        """Plain objects."""
        targets = [
            {
                "name": one.name,
                "value": one.value,
                "least" if one.at_least else "most": one.bound,
                "met": one.met,
            }
            for one in self.targets
        ]
        return {"cases": self.figures, "targets": targets, "failures": self.failures}


def table(title: str, first: str, columns: Sequence[str]) -> Table:
    """A table with a left-aligned first column; the others hold numbers."""
    made = Table(
        title=title,
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
    )
    made.add_column(first)
    for column in columns:
        made.add_column(column, justify="right")
    return made


def fraction(ratio: float) -> str:
    """`1/6.2`, or `1.30` where it is more than one."""
    return f"1/{1 / ratio:.1f}" if 0 < ratio < 1 else f"{ratio:.2f}"
