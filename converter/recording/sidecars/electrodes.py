"""electrodes.tsv and coordsystem.json: where the sensors were."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .metadata import read_json
from .tables import Table, is_missing, parse_number

# electrodes.tsv beside an MEG recording holds EEG electrodes.
_PREFIXES = {"eeg": ("EEG",), "ieeg": ("iEEG",), "emg": ("EMG",), "meg": ("EEG", "MEG")}


@dataclass(frozen=True, slots=True)
class Electrodes:
    """Positions [x, y, z] by electrode name, in `units` along the axes of `system`.

    `system` and `units` are None where the dataset does not declare them.
    """

    positions: dict[str, list[float]]
    system: str | None = None
    units: str | None = None
    warnings: list[str] = field(default_factory=list)


def read_electrodes(table: Table, coordsystem: bytes | None, modality: str) -> Electrodes:
    """Electrodes of which all three coordinates are finite numbers; the first of one name.

    `coordsystem` is the content of coordsystem.json, `modality` the recording's BIDS suffix.
    An unreadable coordsystem.json adds a warning.
    """
    metadata: Mapping[str, Any] = {}
    warnings = []
    if coordsystem is not None:
        try:
            metadata = read_json(coordsystem)
        except ValueError as error:
            warnings.append(str(error))
    prefixes = _PREFIXES.get(modality.lower(), ())
    return Electrodes(
        _positions(table),
        _declared(metadata, prefixes, "CoordinateSystem"),
        _declared(metadata, prefixes, "CoordinateUnits"),
        warnings,
    )


def _positions(table: Table) -> dict[str, list[float]]:
    columns = [table.column(name) for name in ("name", "x", "y", "z")]
    positions: dict[str, list[float]] = {}
    for name, *cells in zip(*(column or [] for column in columns), strict=False):
        numbers = [parse_number(cell) for cell in cells]
        finite = [number for number in numbers if number is not None]
        if len(finite) == 3 and not is_missing(name):
            positions.setdefault(name, finite)
    return positions


def _declared(metadata: Mapping[str, Any], prefixes: tuple[str, ...], key: str) -> str | None:
    for prefix in prefixes:
        value = metadata.get(prefix + key)
        if isinstance(value, str) and not is_missing(value.strip()):
            # JSON can escape half a surrogate pair, which no UTF-8 file can hold.
            return value.strip().encode(errors="replace").decode()
    return None
