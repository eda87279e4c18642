"""The signal path's figures as tables, and how they stand to what is asked of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from rich.table import Table

from .measuring import Measurement
from .recordings import Recording
from .report import MB, Part, fraction, table

ONE, TWO, PEERS, LIMIT = "ours, 1 thread", "ours, 2 threads", "biosigIO", "limit"

MOST_CPU_OF_PEER, MOST_WALL_OF_PEER = 1 / 6, 1 / 5
MOST_CPU_OF_LIMIT, MOST_WALL_OF_LIMIT = 2.5, 1.8
MOST_PEAK = 250 * MB
SAME_STEPS = 2.0  # of quantisation, within which two stores have the same signal


@dataclass(slots=True)
class Result:
    """Medians by side, and bytes and files of the store of either converter.

    `difference` is the largest one of the two signals in the middle ten seconds, in steps of
    our level 0; None where it can't be told.
    """

    name: str
    recording: Recording
    repeats: int
    sides: Mapping[str, Measurement]
    peer_error: str | None
    stores: dict[str, tuple[int, int]] = field(default_factory=dict)
    difference: float | None = None

    def to_json(self) -> Mapping[str, Any]:
        """Seconds and bytes, raw."""
        return {
            "recording": {**asdict(self.recording.shape), "bytes": self.recording.size},
            "repeats": self.repeats,
            "sides": {side: asdict(measured) for side, measured in self.sides.items()},
            "stores": {
                side: {"bytes": size, "files": files} for side, (size, files) in self.stores.items()
            },
            "difference_steps": self.difference,
            "biosigio_error": self.peer_error,
        }


def tables(results: Sequence[Result], part: Part) -> list[Table]:
    """Figures, ratios; the part gets the targets."""
    return [_figures(results), _ratios(results, part)] if results else []


def _figures(results: Sequence[Result]) -> Table:
    made = table(
        "Seconds; MB of the file, of peak memory above the imports, and of the store",
        "recording",
        [
            "file",
            *(f"CPU\n{side}" for side in ("ours", "2 threads", "biosigIO", "limit")),
            *(f"wall\n{side}" for side in ("ours", "2 threads", "biosigIO", "limit")),
            *(f"peak\n{side}" for side in ("ours", "2 threads", "biosigIO")),
            *(f"store\n{side}" for side in ("ours", "biosigIO")),
        ],
    )
    for result in results:
        sides = result.sides
        made.add_row(
            result.name,
            f"{result.recording.size / MB:.0f}",
            *(_number(sides, side, "cpu", 1, 2) for side in (ONE, TWO, PEERS, LIMIT)),
            *(_number(sides, side, "wall", 1, 2) for side in (ONE, TWO, PEERS, LIMIT)),
            *(_number(sides, side, "peak", MB, 0) for side in (ONE, TWO, PEERS)),
            *(
                f"{result.stores[s][0] / MB:.1f}" if s in result.stores else "-"
                for s in (ONE, PEERS)
            ),
        )
    return made


def _number(
    sides: Mapping[str, Measurement], side: str, field: str, unit: float, digits: int
) -> str:
    return f"{getattr(sides[side], field) / unit:.{digits}f}" if side in sides else "-"


def _ratios(results: Sequence[Result], part: Part) -> Table:
    made = table(
        "Against the targets; differences of the signals in quantisation steps",
        "recording",
        [
            *("CPU of biosigIO\n1/6 at most", "wall of biosigIO\n1/5 at most"),
            *("CPU of limit\n2.5 at most", "wall of limit\n2 threads, 1.8"),
            *("peak, MB\n250 at most", "store of biosigIO\n1 at most", "differs\nat most"),
        ],
    )
    for result in results:
        made.add_row(result.name, *_cells(result, part))
        if result.peer_error:
            made.add_row(f"  biosigIO: {result.peer_error}")
    made.caption = "Sizes in parentheses: biosigIO's samples differ, and coarser ones take less."
    made.caption_justify = "left"
    return made


def _cells(result: Result, part: Part) -> list[str]:
    sides, name = result.sides, result.name
    ours, two, limit = sides[ONE], sides[TWO], sides[LIMIT]
    peer = sides.get(PEERS)
    cells = ["-", "-"]
    if peer is not None:
        cpu = part.target(f"{name}, CPU of biosigIO's", ours.cpu / peer.cpu, MOST_CPU_OF_PEER)
        wall = part.target(f"{name}, wall of biosigIO's", ours.wall / peer.wall, MOST_WALL_OF_PEER)
        cells = [cpu.cell(fraction(cpu.value)), wall.cell(fraction(wall.value))]
    for what, value, most in (
        ("CPU of the limit's", ours.cpu / limit.cpu, MOST_CPU_OF_LIMIT),
        ("wall of the limit's, 2 threads", two.wall / limit.wall, MOST_WALL_OF_LIMIT),
    ):
        cells.append(part.target(f"{name}, {what}", value, most).cell(f"{value:.2f}"))
    peak = max(ours.peak, two.peak)
    cells.append(part.target(f"{name}, peak", peak, MOST_PEAK).cell(f"{peak / MB:.0f}"))
    cells.append(_size(result, part))
    cells.append("-" if result.difference is None else f"{result.difference:.2f}")
    return cells


def _size(result: Result, part: Part) -> str:
    """A store of coarser samples is smaller: sizes are held against each other where both
    stores have the same signal."""
    if PEERS not in result.stores:
        return "-"
    size = result.stores[ONE][0] / result.stores[PEERS][0]
    if result.difference is None or result.difference > SAME_STEPS:
        return f"({size:.3f})"
    return part.target(f"{result.name}, size of biosigIO's", size, 1).cell(f"{size:.3f}")
