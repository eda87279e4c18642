"""Why a recording has no store: failure codes, pending reasons and their words.

Source of the rules: the index contract, "Failure entries" and "Pending entries".
"""

from __future__ import annotations

from enum import StrEnum


class FailureCode(StrEnum):
    """A verdict that only a change to the data or the converter can change."""

    NOT_CONTINUOUS = "not_continuous"
    CORRUPT_OR_TRUNCATED = "corrupt_or_truncated"
    UNSUPPORTED_FORMAT = "unsupported_format"
    EMPTY_RECORDING = "empty_recording"
    FILE_READ_ERROR = "file_read_error"
    RECORDING_TOO_LARGE = "recording_too_large"
    CHANNEL_COUNT_MISMATCH = "channel_count_mismatch"
    MAXSHIELD_UNCALIBRATED = "maxshield_uncalibrated"
    RETRY_EXHAUSTED = "retry_exhausted"


class PendingReason(StrEnum):
    """Why a recording has no store yet, though a later run may make one."""

    INFRA_FAILURE = "infra_failure"
    MEMORY_BUDGET = "memory_budget"
    NOT_ATTEMPTED = "not_attempted"


REASONS: dict[FailureCode, str] = {
    FailureCode.NOT_CONTINUOUS: (
        "This file holds epochs or averages rather than one continuous recording, "
        "so there is no time series to show."
    ),
    FailureCode.CORRUPT_OR_TRUNCATED: (
        "The data file is damaged or shorter than its own header says, so it cannot be shown."
    ),
    FailureCode.UNSUPPORTED_FORMAT: "Recordings in this file format cannot be converted yet.",
    FailureCode.EMPTY_RECORDING: "The file holds no signal, so there is nothing to show.",
    FailureCode.FILE_READ_ERROR: "The recording could not be read.",
    FailureCode.RECORDING_TOO_LARGE: (
        "The recording needs more memory than the machines that convert it have."
    ),
    FailureCode.CHANNEL_COUNT_MISMATCH: (
        "Fewer channels could be read than channels.tsv declares, "
        "so the recording is withheld rather than shown incomplete."
    ),
    FailureCode.MAXSHIELD_UNCALIBRATED: (
        "The recording was made with internal active shielding, and the site's calibration "
        "files that are needed to correct it are not in the dataset."
    ),
    FailureCode.RETRY_EXHAUSTED: (
        "Converting the recording failed on five runs in a row and is no longer tried."
    ),
}


class RecordingError(Exception):
    """A recording cannot become a store; `code` is published, the message is its detail.

    Raised anywhere below a conversion; carries a sentence that names what was found and
    what was expected.
    """

    def __init__(self, code: FailureCode, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message

    def __reduce__(self) -> tuple[type[RecordingError], tuple[FailureCode, str]]:
        return type(self), (self.code, self.message)
