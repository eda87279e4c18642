"""Files called .cnt: of Neuroscan or of ANT, which their first bytes tell."""

from __future__ import annotations

from converter.contract.codes import FailureCode, RecordingError
from converter.recording.local import LocalRecording
from converter.recording.readers import ant, neuroscan
from converter.recording.readers.binary import SampleFile
from converter.recording.signal import SignalSource


def open_cnt(recording: LocalRecording) -> SignalSource:
    """Open a .cnt file with the reader of its maker.

    Raises RecordingError: `unsupported_format` for content of another maker, else what the
    reader does.
    """
    file = SampleFile(recording.file)
    try:
        start = file.bytes(0, 12)
    finally:
        file.close()
    if start.startswith(neuroscan.SIGNATURE):
        return neuroscan.open_neuroscan(recording.file, recording.modality)
    if start.startswith((b"RIFF", b"RF64")):
        return ant.open_ant(recording.file, recording.modality)
    if not start:
        raise RecordingError(FailureCode.EMPTY_RECORDING, f"{file.name} is empty.")
    raise RecordingError(
        FailureCode.UNSUPPORTED_FORMAT,
        f"{file.name} does not begin as files of Neuroscan or of ANT do.",
    )
