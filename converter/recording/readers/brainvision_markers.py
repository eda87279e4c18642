"""Where a BrainVision recording was stopped and started again, from its marker file.

The data file joins the segments, and markers count the samples of the joined file.
"""

from __future__ import annotations

import re
from pathlib import Path

from converter.recording.readers.binary import SampleFile
from converter.recording.readers.companions import is_bare, same_stem

MAX_BYTES = 64 << 20  # a million markers; what lies beyond is not read
_NEW_SEGMENT = re.compile(rb"(?:^|[\r\n])Mk\d+=New Segment,[^,\r\n]*,(\d{1,15})(?=[,\r\n]|$)", re.I)


def joints(header: Path, marker_file: str, n_samples: int) -> list[int]:
    """The samples, in order, at which segments begin, those at the very start left out.

    `marker_file` is the header's name for it. A recording whose markers are not there has none.
    """
    path = same_stem(header, (".vmrk", ".amrk"))
    if path is None and is_bare(marker_file):
        path = header.with_name(marker_file)
    try:
        if path is None or not path.is_file():
            return []
    except (OSError, ValueError):  # no name that a file can have
        return []
    file = SampleFile(path)
    try:
        text = file.bytes(0, MAX_BYTES)
    finally:
        file.close()
    begins = {int(match[1]) - 1 for match in _NEW_SEGMENT.finditer(text)}
    return sorted(begin for begin in begins if 0 < begin < n_samples)
