"""The digest that an annex key names, as something that bytes can be checked against.

Source of the backends and their names: git-annex, "backends" and "key format".
"""

from __future__ import annotations

import re

from ..storage.objects import Checksum, hashing
from .annex import AnnexKey

_BACKEND = re.compile(r"(?P<hash>MD5|SHA1|SHA(?:2|3_)?\d{3}|BLAKE2[BS]\d{3})E?")
_HEX = re.compile(r"[0-9a-fA-F]+")


def checksum_of(key: AnnexKey) -> Checksum | None:
    """What the key's content must hash to; None for a backend whose hash is not known here.

    WORM and URL keys name no digest. SKEIN, XXH3, BLAKE3 and the parallel BLAKE2 are not in
    Python's library. What such a key tells of its content is its size.
    """
    backend = _BACKEND.fullmatch(key.backend)
    if backend is None:
        return None
    name = backend["hash"]
    bits = int(name[-3:]) if name[-3:].isdecimal() else None
    new = hashing((name[:7] if name.startswith("BLAKE2") else name).lower(), bits)
    if new is None:
        return None
    # A digest that no content can have is one all the same.
    digest = key.name.partition(".")[0] if key.backend.endswith("E") else key.name
    return Checksum(name, digest.lower(), new)
