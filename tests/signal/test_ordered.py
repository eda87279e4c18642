"""Work that is shared out among threads, against the same work in a loop."""

from __future__ import annotations

import threading
import weakref

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from converter.contract.codes import FailureCode, RecordingError
from converter.recording.ordered import AHEAD, Workers


def helpers():
    return [thread for thread in threading.enumerate() if thread.name.startswith("signal")]


@given(threads=st.integers(1, 4), n=st.integers(0, 60), slow=st.sets(st.integers(0, 60)))
@settings(max_examples=40)
def test_results_come_in_the_order_of_the_items(threads, n, slow):
    never = threading.Event()

    def work(item):
        if item in slow:
            never.wait(0.002)
        return item * item

    with Workers(threads) as workers:
        assert list(workers.in_order(work, range(n))) == [item * item for item in range(n)]
    assert not helpers()


def test_a_helper_and_the_caller_work_at_the_same_time():
    makers, done_by, reached = set(), {}, threading.Event()

    def items():
        for item in range(9):
            makers.add(threading.get_ident())
            yield item

    def work(item):
        done_by[item] = threading.get_ident()
        if item == 0:
            assert reached.wait(30)
        elif item == 2:  # the helper has item 0 at work and item 1 in waiting
            reached.set()
        return item

    with Workers(2) as workers:
        assert list(workers.in_order(work, items())) == list(range(9))
    assert makers == {threading.get_ident()} == {done_by[2]}
    assert done_by[0] != done_by[2]


def test_one_thread_is_the_caller_alone():
    with Workers(1) as workers:
        threads = list(workers.in_order(lambda item: threading.get_ident(), range(5)))
        assert not helpers()
    assert set(threads) == {threading.get_ident()}


@pytest.mark.parametrize("threads", [2, 3])
def test_what_waits_for_a_slow_consumer_is_bounded(threads):
    class Result:
        pass

    made: weakref.WeakSet[Result] = weakref.WeakSet()

    def work(_):
        result = Result()
        made.add(result)
        return result

    with Workers(threads) as workers:
        for _ in workers.in_order(work, range(300)):
            assert len(made) <= AHEAD * (threads - 1) + 2  # the consumer's own and the last one's


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_an_error_comes_in_its_turn_and_ends_all_threads(threads):
    error = RecordingError(FailureCode.CORRUPT_OR_TRUNCATED, "record 5 is not there.")

    def work(item):
        if item == 5:
            raise error
        return item

    got: list[int] = []
    with pytest.raises(RecordingError) as caught, Workers(threads) as workers:
        got.extend(workers.in_order(work, range(100)))
    assert caught.value is error
    assert got == [0, 1, 2, 3, 4]
    assert not helpers()


@pytest.mark.parametrize("threads", [1, 3])
def test_an_error_of_an_item_or_of_the_consumer_ends_all_threads(threads):
    def items():
        yield from range(10)
        raise RecordingError(FailureCode.CORRUPT_OR_TRUNCATED, "the file ends early.")

    with pytest.raises(RecordingError, match="early"), Workers(threads) as workers:
        list(workers.in_order(str, items()))
    assert not helpers()
    with pytest.raises(ZeroDivisionError), Workers(threads) as workers:
        [1 / (result - 3) for result in workers.in_order(int, range(10))]
    assert not helpers()


def test_no_thread_is_refused():
    with pytest.raises(ValueError, match="0 threads"):
        Workers(0)
