"""An open recording whose samples lie in one file, all on one grid."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from numpy.typing import NDArray

from converter.contract.codes import FailureCode, RecordingError
from converter.recording.readers.binary import SampleMatrix, check_bounds
from converter.recording.signal import Channel, Gap, SignalGroup, SourceFacts


class MatrixSource:
    """One group of channels over a `SampleMatrix`, samples in the type of the file.

    The matrix is the source's from here on. Raises RecordingError `empty_recording` without
    channels or samples. Memory: what the matrix keeps, and the block returned.
    """

    def __init__(
        self,
        name: str,
        matrix: SampleMatrix,
        n_samples: int,
        rate: Fraction,
        channels: Sequence[Channel],
        facts: SourceFacts,
        granule: int = 1,
        gaps: tuple[Gap, ...] = (),
    ) -> None:
        self._matrix = matrix
        if not channels or n_samples < 1:
            self.close()
            raise RecordingError(
                FailureCode.EMPTY_RECORDING,
                f"{name} holds {len(channels)} channels of {max(0, n_samples)} samples.",
            )
        self.groups = (SignalGroup(rate, n_samples, tuple(channels), granule, gaps),)
        self.facts = facts

    def read(self, group: int, start: int, stop: int) -> NDArray[Any]:
        """Samples `start:stop` as (n_channels, stop - start)."""
        check_bounds(start, stop, self.groups[group].n_samples)
        return self._matrix.read(start, stop)

    def close(self) -> None:
        """Close the file; closing twice is harmless."""
        self._matrix.close()
