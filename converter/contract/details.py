"""What of an error may be published: its class and first line, without paths and secrets.

Source of the rules: the index contract, "Failure entries".
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from pathlib import PurePath
from typing import Final

from .codes import RecordingError

LONGEST_DETAIL: Final = 300

_PATH: Final = "<path>"
_WITHHELD: Final = "<secret>"

# No line is read further: what stands there is never published, and patterns stay quick.
_LONGEST_LINE = 4000

_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_UNPRINTABLE = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})

_PATH_START = r"(?:file:|~[\w.-]*[\\/]|[A-Za-z]:[\\/]|\\\\|/|\.\.?[\\/])"
_TAIL = r"\S*[^\s'\"`,;:.)\]}>]"
_QUOTES = (
    ("'", "'"),
    ('"', '"'),
    ("`", "`"),
    ("`", "'"),
    ("‘", "’"),
    ("“", "”"),
    ("«", "»"),
    ("<", ">"),
)

_QUOTED_PATH = re.compile(
    "|".join(
        rf"{re.escape(start)}{_PATH_START}[^{re.escape(end)}]+(?:{re.escape(end)}|$)"
        for start, end in _QUOTES
    )
)
_ADDRESS = re.compile(
    "|".join(
        (
            rf"\bfile:{_TAIL}",
            r"(?P<scheme>\b[A-Za-z][A-Za-z0-9+.-]*://)(?:[^\s/?#'\"]*@)?(?P<rest>[^\s?#'\"<>]*)"
            r"(?:[?#][^\s'\"<>]*)?",
            rf"(?<![\w.~-])~[\w.-]*[\\/]{_TAIL}",
            rf"(?<![A-Za-z0-9])[A-Za-z]:[\\/]{_TAIL}",
            rf"\\\\{_TAIL}",
            rf"(?<![\w.\\/~-])\.\.?[\\/]{_TAIL}",
            rf"(?<![\w.-])/{_TAIL}",
        )
    )
)

_SECRETS = (
    re.compile(r"\b(?:AKIA|ASIA|AROA|AIDA|AGPA|ANPA|ANVA|ABIA|ACCA)[A-Z0-9]{12,}"),
    re.compile(r"(?i)\bx-amz-[\w-]+[\"']?\s*[=:]\s*[^\s&]+"),
    re.compile(r"(?i)\bauthorization[\"']?\s*[=:]\s*[\"']?(?:\w+\s+)?[^\s\"']+"),
    re.compile(r"(?i)\bbearer\s+\S+"),
)
_SECRET_VALUE = re.compile(
    r"(?i)((?:password|passwd|token|secret|credential|api[_-]?key)[\w-]{0,40}[\"']?\s*[=:]\s*)"
    r"(?:\"[^\"]*\"?|'[^']*'?|[^\s,;&)]+)"
)


def public_detail(
    problem: BaseException | str, secrets_roots: Iterable[str | PurePath] = ()
) -> str:
    """One line of at most 300 characters that may be published.

    An exception becomes its class and the first line of its message; a RecordingError goes
    under the class of its cause, when it has one. Local paths become `<path>` (those below
    `secrets_roots` also where they hold spaces and no quotes stand around them), secrets
    `<secret>`; paths relative to the dataset and URLs, bare of user and query, stay.
    """
    if isinstance(problem, str):
        return _shortened(_cleaned(_first_line(problem), secrets_roots))
    message = _cleaned(_first_line(str(problem)), secrets_roots)
    named = problem
    if isinstance(problem, RecordingError) and problem.__cause__ is not None:
        named = problem.__cause__
    name = type(named).__name__
    return _shortened(f"{name}: {message}" if message else name)


def _first_line(text: str) -> str:
    lines = (line for line in text.splitlines() if line.strip())
    return next(lines, "")[:_LONGEST_LINE]


def _cleaned(line: str, roots: Iterable[str | PurePath]) -> str:
    line = _ANSI.sub(" ", line)
    line = "".join(" " if unicodedata.category(c) in _UNPRINTABLE else c for c in line)
    line = _QUOTED_PATH.sub(_quoted_placeholder, line)
    for root in sorted((str(root).rstrip("/\\") for root in roots), key=len, reverse=True):
        if root:
            line = re.sub(re.escape(root) + r"[^\s'\"]*", _PATH, line)
    line = _ADDRESS.sub(_public_address, line)
    for secret in _SECRETS:
        line = secret.sub(_WITHHELD, line)
    line = _SECRET_VALUE.sub(rf"\1{_WITHHELD}", line)
    return " ".join(line.split())


def _quoted_placeholder(match: re.Match[str]) -> str:
    start, end = match[0][0], match[0][-1]
    return f"{start}{_PATH}{end if (start, end) in _QUOTES else ''}"


def _public_address(match: re.Match[str]) -> str:
    return _PATH if match["scheme"] is None else f"{match['scheme']}{match['rest']}"


def _shortened(text: str) -> str:
    return text if len(text) <= LONGEST_DETAIL else text[: LONGEST_DETAIL - 1] + "…"
