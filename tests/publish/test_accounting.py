from __future__ import annotations

import json
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from converter.contract.addresses import Addresses
from converter.contract.codes import REASONS, FailureCode, PendingReason
from converter.contract.index import (
    Entry,
    FailureEntry,
    GroupEntry,
    Index,
    PendingEntry,
    Provenance,
    StoreEntry,
    encode_index,
)
from converter.contract.validation import validate_index
from converter.publish.accounting import Accounts, EventsReference, account, build_index
from converter.publish.published import Published, UnreadableIndexError, read_published
from converter.work.outcome import Converted, Deferred, Failed, Outcome

NOW = "2026-01-02T03:04:05Z"
EARLIER = "2025-01-02T03:04:05Z"
COMMIT = "0123456789abcdef0123456789abcdef01234567"


@dataclass(frozen=True)
class Found:
    path: str

    @property
    def zarr(self) -> str:
        return f"{self.path}.zarr"


def store(path: str, updated: str = NOW) -> StoreEntry:
    group = GroupEntry(
        name="eeg_250hz",
        modality="EEG",
        rate=250.0,
        n_channels=1,
        n_samples=100,
        duration_s=0.4,
        source_rate_hz=500.0,
        n_view_levels=0,
        view_chunk_columns=1024,
        chunk_samples=1000,
        shard_samples=75000,
    )
    return StoreEntry(
        path=path, zarr=f"{path}.zarr", updated_utc=updated, modalities=["eeg"], groups=[group]
    )


def converted(path: str) -> Converted:
    return Converted(entry=store(path), events=None)


def pending(
    path: str,
    attempts: int,
    reason: PendingReason = PendingReason.INFRA_FAILURE,
    error: str | None = "OSError: before",
) -> PendingEntry:
    return PendingEntry(
        path=path,
        zarr=f"{path}.zarr",
        reason=reason,
        attempts=attempts,
        last_error=error,
        last_attempt_utc=EARLIER,
    )


def failure(path: str, code: FailureCode, attempts: int = 0) -> FailureEntry:
    return FailureEntry(
        path=path,
        zarr=f"{path}.zarr",
        code=code,
        reason=REASONS[code],
        detail="OSError: before",
        attempts=attempts,
    )


def published(*entries: Entry) -> Published:
    accounts = Accounts(
        tuple(e for e in entries if isinstance(e, StoreEntry)),
        tuple(e for e in entries if isinstance(e, FailureEntry)),
        tuple(e for e in entries if isinstance(e, PendingEntry)),
        errors=0,
    )
    read = read_published(encode_index(index_of(accounts)))
    assert read is not None
    return read


def index_of(accounts: Accounts, events: EventsReference | None = None) -> Index:
    return build_index(
        accounts,
        Addresses.for_dataset("nm000103"),
        dataset_id="nm000103",
        commit=COMMIT,
        updated_utc=NOW,
        provenance=Provenance(doi="10.1/x", hed_version="8.3.0"),
        events=events,
    )


def entry_after(outcome: Outcome | None, prior: Entry | None) -> tuple[Entry, int]:
    outcomes = {} if outcome is None else {"a": outcome}
    before = {} if prior is None else published(prior).entries
    accounts = account([Found("a")], outcomes, {}, before, NOW)
    entries: list[Entry] = [*accounts.stores, *accounts.failures, *accounts.pending]
    (entry,) = entries
    return entry, accounts.errors


OUT_OF_MEMORY = Deferred(PendingReason.MEMORY_BUDGET, "MemoryError: at /tmp/x")
LATER = Deferred(PendingReason.NOT_ATTEMPTED, None, attempted=False)


def test_attempts_count_over_runs_until_the_fifth() -> None:
    prior: Entry | None = None
    for run in range(1, 5):
        prior, errors = entry_after(OUT_OF_MEMORY, prior)
        assert isinstance(prior, PendingEntry)
        assert (prior.attempts, prior.reason, errors) == (run, PendingReason.MEMORY_BUDGET, 1)
        assert (prior.last_error, prior.last_attempt_utc) == ("MemoryError: at <path>", NOW)
    given_up, errors = entry_after(OUT_OF_MEMORY, prior)
    assert isinstance(given_up, FailureEntry)
    assert (given_up.code, given_up.attempts) == (FailureCode.RETRY_EXHAUSTED, 5)
    assert (given_up.detail, errors) == ("MemoryError: at <path>", 1)
    again, _ = entry_after(OUT_OF_MEMORY, given_up)
    assert isinstance(again, FailureEntry)
    assert (again.code, again.attempts) == (FailureCode.RETRY_EXHAUSTED, 6)


def test_what_kept_a_recording_from_being_attempted_is_said() -> None:
    absent = Deferred(PendingReason.NOT_ATTEMPTED, "key K is absent", attempted=False)
    entry, errors = entry_after(absent, pending("a", 3))
    assert isinstance(entry, PendingEntry)
    assert (entry.attempts, entry.last_error, errors) == (3, "key K is absent", 0)


@pytest.mark.parametrize("outcome", [LATER, None])
def test_what_was_not_attempted_keeps_its_last_attempt(outcome: Outcome | None) -> None:
    entry, errors = entry_after(outcome, pending("a", 3))
    assert entry == PendingEntry(
        path="a",
        zarr="a.zarr",
        reason=PendingReason.NOT_ATTEMPTED,
        attempts=3,
        last_error="OSError: before",
        last_attempt_utc=EARLIER,
    )
    assert errors == 0
    exhausted = failure("a", FailureCode.RETRY_EXHAUSTED, 5)
    assert entry_after(outcome, exhausted) == (exhausted, 0)


@pytest.mark.parametrize(
    ("prior", "attempts"),
    [
        (None, 0),
        (store("a"), 0),
        (failure("a", FailureCode.CORRUPT_OR_TRUNCATED, 2), 0),
        (failure("a", FailureCode.RETRY_EXHAUSTED, 5), 5),
        (pending("a", 4), 4),
    ],
)
def test_a_verdict_keeps_count_of_the_retries_before_it(prior: Entry | None, attempts: int) -> None:
    entry, errors = entry_after(Failed(FailureCode.NOT_CONTINUOUS, "x.set: 3 epochs"), prior)
    assert entry == FailureEntry(
        path="a",
        zarr="a.zarr",
        code=FailureCode.NOT_CONTINUOUS,
        reason=REASONS[FailureCode.NOT_CONTINUOUS],
        detail="x.set: 3 epochs",
        attempts=attempts,
    )
    assert errors == 1


def test_carried_entries_stay_and_outcomes_go_before_them() -> None:
    found = [Found(p) for p in ("d", "c", "b", "a")]
    carried: dict[str, Entry] = {
        "a": store("a", EARLIER),
        "b": store("b", EARLIER),
        "c": pending("c", 2),
        "gone": store("gone"),
    }
    accounts = account(found, {"b": converted("b"), "gone": LATER}, carried, {}, NOW)
    assert accounts.stores == (store("a", EARLIER), store("b", NOW))
    assert [(p.path, p.reason, p.attempts) for p in accounts.pending] == [
        ("c", PendingReason.INFRA_FAILURE, 2),
        ("d", PendingReason.NOT_ATTEMPTED, 0),
    ]
    assert accounts.errors == 0


def test_index_has_the_events_fields_together_or_not_at_all() -> None:
    accounts = account([Found("a")], {"a": converted("a")}, {}, {}, NOW)
    bare = json.loads(encode_index(index_of(accounts)))
    assert bare.keys().isdisjoint({"events_parquet", "events_row_count"})
    assert (bare["doi"], bare["license"], bare["hed_version"]) == ("10.1/x", None, "8.3.0")
    url = Addresses.for_dataset("nm000103").events_url
    full = json.loads(encode_index(index_of(accounts, EventsReference(url, 3))))
    assert (full["events_parquet"], full["events_row_count"]) == (url, 3)


@pytest.mark.parametrize("commit", ["", "HEAD", COMMIT[:39], COMMIT + "0", COMMIT.upper()])
def test_no_index_without_a_whole_commit(commit: str) -> None:
    with pytest.raises(ValueError, match="40"):
        build_index(
            Accounts((), (), (), 0),
            Addresses.for_dataset("nm000103"),
            dataset_id="nm000103",
            commit=commit,
            updated_utc=NOW,
            provenance=Provenance(),
        )


paths = st.sampled_from([f"sub-0{n}/x_eeg.set" for n in range(8)])
outcomes_of_paths = st.dictionaries(
    paths,
    st.one_of(
        st.just(None),
        st.builds(Failed, st.sampled_from(FailureCode), st.none() | st.text()),
        st.builds(Deferred, st.sampled_from(PendingReason), st.none() | st.text(), st.booleans()),
    ),
)
kinds = st.one_of(
    st.just("store"), st.sampled_from(FailureCode), st.integers(min_value=0, max_value=4)
)


def prior_entry(path: str, kind: str | FailureCode | int) -> Entry:
    if isinstance(kind, FailureCode):
        return failure(path, kind, 5 if kind is FailureCode.RETRY_EXHAUSTED else 1)
    return pending(path, kind) if isinstance(kind, int) else store(path, EARLIER)


@given(st.lists(paths), outcomes_of_paths, st.dictionaries(paths, kinds), st.sets(paths))
def test_every_recording_is_accounted_for_once(
    discovered: list[str],
    drawn: dict[str, Outcome | None],
    kinds_before: dict[str, str | FailureCode | int],
    carry: set[str],
) -> None:
    outcomes = {path: outcome or converted(path) for path, outcome in drawn.items()}
    before = {path: prior_entry(path, kind) for path, kind in kinds_before.items()}
    carried = {path: entry for path, entry in before.items() if path in carry}
    found = [Found(path) for path in discovered]
    accounts = account(found, outcomes, carried, published(*before.values()).entries, NOW)
    document = json.loads(encode_index(index_of(accounts)))
    validate_index(document)
    assert document["discovered_count"] == len(set(discovered))
    arrays = [document[key] for key in ("stores", "failures", "pending")]
    assert {entry["path"] for array in arrays for entry in array} == set(discovered)
    assert all(array == sorted(array, key=lambda entry: entry["path"]) for array in arrays)
    assert accounts == account(
        found[::-1], outcomes, carried, published(*before.values()).entries, NOW
    )


def test_published_index_is_read_back_with_unknown_fields_ignored() -> None:
    before = published(store("a"), failure("b", FailureCode.EMPTY_RECORDING), pending("c", 1))
    assert before.entries == {
        "a": store("a"),
        "b": failure("b", FailureCode.EMPTY_RECORDING),
        "c": pending("c", 1),
    }
    assert (before.source_commit, before.engine_version) == (COMMIT, "3")
    assert (before.doi, before.events_parquet, before.events_row_count) == ("10.1/x", None, None)
    raw = json.loads(encode_index(index_of(Accounts((store("a"),), (), (), 0))))
    raw["new_field"], raw["engine_version"] = 1, 3
    raw["stores"][0]["source_key"] = "MD5E-s1--0"
    read = read_published(json.dumps(raw).encode())
    assert read is not None
    assert (read.stores, read.engine_version) == ({"a": store("a")}, "3")


def test_an_older_index_gives_its_stores_and_facts_only() -> None:
    raw = {
        "format": "nemar-zarr-index",
        "format_version": 1,
        "dataset_id": "nm000001",
        "source_commit": "a" * 40,
        "engine_version": "2",
        "doi": "10.1/x",
        "stores": [{"path": "a.edf", "zarr": "a.zarr", "source_key": "MD5E-s1--0"}],
    }
    read = read_published(json.dumps(raw).encode())
    assert read is not None
    assert (read.store_paths, read.doi) == ({"a.zarr"}, "10.1/x")
    assert not read.entries
    assert not read.is_of("a" * 40, "2")


def test_no_published_index() -> None:
    assert read_published(None) is None


@pytest.mark.parametrize(
    ("raw", "found"),
    [
        (b"", "damaged"),
        (b"\xff\xfe{}", "damaged"),
        (b"[]", "damaged"),
        (b'{"format": "nemar-zarr-index", "format_version": 4}', "version 4.*version 3"),
        (b'{"format": "nemar-zarr-index", "format_version": 2}', "damaged.*dataset_id"),
        (b'{"format": "nemar-zarr-manifest", "format_version": 1}', "manifest"),
        (b'{"format": "nemar-zarr-index", "format_version": 3}', "damaged.*dataset_id"),
        (b'{"format": "nemar-zarr-index", "format_version": 3, "x": "\xff"}', "damaged"),
    ],
)
def test_an_unreadable_index_is_named(raw: bytes, found: str) -> None:
    with pytest.raises(UnreadableIndexError, match=found):
        read_published(raw)
