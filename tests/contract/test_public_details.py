from __future__ import annotations

import unicodedata
from pathlib import PurePath, PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from converter.contract.codes import FailureCode, RecordingError
from converter.contract.details import LONGEST_DETAIL, public_detail


def test_exception_class_and_first_line() -> None:
    assert public_detail(ValueError("\nfirst\nsecond")) == "ValueError: first"
    assert public_detail(MemoryError()) == "MemoryError"
    assert public_detail("RuntimeError: a\nb") == "RuntimeError: a"


def test_recording_error_goes_under_its_cause() -> None:
    error = RecordingError(FailureCode.FILE_READ_ERROR, "x.fif: found 3 bytes, 4 were expected")
    assert public_detail(error) == "RecordingError: x.fif: found 3 bytes, 4 were expected"
    error.__cause__ = KeyError("/srv/secret")
    assert public_detail(error) == "KeyError: x.fif: found 3 bytes, 4 were expected"


@pytest.mark.parametrize(
    ("text", "public"),
    [
        ("[Errno 2] No such file: '/home/A B/x y.set'", "[Errno 2] No such file: '<path>'"),
        ('cannot read "/home/o\'brien/x y": bad', 'cannot read "<path>": bad'),
        ("open /scratch/w1/x.fif: failed", "open <path>: failed"),
        ("(/a/b), [/c/d]; /e/f.", "(<path>), [<path>]; <path>."),
        ("PosixPath('/a/b c')", "PosixPath('<path>')"),
        ("x=/a/b", "x=<path>"),
        ("unterminated '/home/A B/x", "unterminated '<path>"),
        (r"C:\Users\a\x.set and d:/x", "<path> and <path>"),
        (r"'C:\\Users\\A B\\x.set'", "'<path>'"),
        (r"\\server\share\x", "<path>"),
        ("file:///home/x/y", "<path>"),
        ("'file:///home/A B/y'", "'<path>'"),
        ("~/x and ~bob/y and ../../etc/passwd", "<path> and <path> and <path>"),
        ("\x1b[31m/home/x\x1b[0m\tbad\x00", "<path> bad"),
        ("sub-01/eeg/x.set: 'sub-01/my eeg/y.set'", "sub-01/eeg/x.set: 'sub-01/my eeg/y.set'"),
        ("µV/m, 1/s, 1 / 2, n/a, '/'", "µV/m, 1/s, 1 / 2, n/a, '/'"),
        (
            "GET https://u:p@h.org/a/b?X-Amz-Signature=1&x=2#f gave 403",
            "GET https://h.org/a/b gave 403",
        ),
        ("s3://nemar/nm000103/x", "s3://nemar/nm000103/x"),
        ("password=hunter2, ok", "password=<secret>, ok"),
        ("{'api_key': 'a b', 'n': 1}", "{'api_key': <secret>, 'n': 1}"),
        ("AWS_SECRET_ACCESS_KEY=abc/def+1", "AWS_SECRET_ACCESS_KEY=<secret>"),
        ("key AKIAIOSFODNN7EXAMPLE denied", "key <secret> denied"),
        ("X-Amz-Security-Token: abc/def", "<secret>"),
        ("Authorization: Bearer abc.def", "<secret>"),
    ],
)
def test_paths_and_secrets_are_withheld(text: str, public: str) -> None:
    assert public_detail(text) == public
    assert public_detail(public_detail(text)) == public


def test_paths_below_known_roots_may_hold_spaces() -> None:
    roots: list[str | PurePath] = [PurePosixPath("/scratch/A B"), "/scratch/A B/run 1/"]
    assert public_detail("open /scratch/A B/run 1/x.fif failed", roots) == "open <path> failed"


def test_unpaired_surrogates_are_removed() -> None:
    public_detail("a\udcffb").encode()


def test_length_counts_the_ellipsis() -> None:
    assert public_detail("y" * 300) == "y" * 300
    assert public_detail("y" * 301) == "y" * 299 + "…"


names = st.text(st.characters(exclude_characters="/\\'\"", categories=("L", "N")), min_size=1)
before = st.sampled_from(["", " ", "(", "=", ": ", ",", "[", "|", "»"])
quotes = st.sampled_from(["", "'", '"', "`"])


@given(st.text(), before, quotes, st.lists(names, min_size=2), st.text(), st.booleans())
def test_no_planted_path_survives(
    left: str, gap: str, quote: str, steps: list[str], right: str, spaced: bool
) -> None:
    path = "/" + "/".join(steps)
    if spaced and quote:
        path = path.replace(steps[0], f"{steps[0]} x", 1)
    detail = public_detail(OSError(f"{left.strip('~.')} {gap}{quote}{path}{quote} {right}"))
    assert len(detail) <= LONGEST_DETAIL
    assert path not in detail
    assert not {unicodedata.category(c) for c in detail} & {"Cc", "Cf", "Cs", "Zl", "Zp"}


@given(st.text(max_size=50), st.integers(0, 5000))
def test_never_longer_than_allowed(text: str, times: int) -> None:
    detail = public_detail(RuntimeError(text * times))
    assert len(detail) <= LONGEST_DETAIL
    detail.encode()
