"""What a proxy saw, and which requests shall meet which fault."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, field
from urllib.parse import unquote

from tests.servers.faults import Fault


@dataclass
class Exchange:
    """One request as the proxy saw it; the numbers grow while it is under way."""

    method: str
    path: str  # as it was sent, with its query
    fault: Fault | None = None
    upstream_status: int | None = None  # None: the server has not answered, or was not asked
    status: int | None = None  # what the client was told; None: nothing
    received: int = 0  # bytes of the request's body that were passed on or dropped
    sent: int = 0  # bytes of the answer's body


@dataclass
class Rule:
    """A fault for the requests that fit, see `FaultProxy.inject`."""

    fault: Fault
    method: str | None
    path: re.Pattern[str]
    skip: int
    times: int | None
    share: float
    dice: random.Random = field(default_factory=lambda: random.Random(0))  # the same every run

    def takes(self, method: str, path: str) -> bool:
        """Tell whether a request meets the fault, and count it."""
        if (self.method and self.method != method) or not self.path.search(unquote(path)):
            return False
        if self.skip > 0:
            self.skip -= 1
            return False
        if self.times == 0 or self.dice.random() >= self.share:
            return False
        self.times = None if self.times is None else self.times - 1
        return True
