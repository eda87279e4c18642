"""Work shared out among threads, with its results in the order of its items."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

AHEAD = 4  # see Workers.in_order


class Workers:
    """The caller's thread and `threads - 1` others, its helpers.

    Worth it for functions that spend their time in long calls of numpy, BLAS or Blosc. At the
    end of the `with` block no helper is left, whatever ended it.
    """

    def __init__(self, threads: int) -> None:
        if threads < 1:
            raise ValueError(f"{threads} threads asked for, one or more were expected")
        self._helpers = threads - 1
        self._pool = ThreadPoolExecutor(self._helpers, "signal") if self._helpers else None

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)

    def in_order(
        self, function: Callable[[Item], Result], items: Iterable[Item]
    ) -> Iterator[Result]:
        """`function` of each item, in the order of the items.

        The items are made in the caller's thread, each when it is needed. An item goes to a
        helper, or stays with the caller when all helpers have enough to do; at most AHEAD a
        helper are taken up whose results the caller has not got. What a function raises, the
        caller gets in its turn; what an item raises, at once.
        """
        if self._pool is None:
            yield from map(function, items)
            return
        waiting: deque[Future[Result]] = deque()
        for item in items:
            busy = sum(not future.done() for future in waiting)
            if busy < 2 * self._helpers:
                waiting.append(self._pool.submit(function, item))
            else:
                waiting.append(_done(function, item))
            while waiting and (waiting[0].done() or len(waiting) >= AHEAD * self._helpers):
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def _done(function: Callable[[Item], Result], item: Item) -> Future[Result]:
    future: Future[Result] = Future()
    try:
        future.set_result(function(item))
    except Exception as error:
        future.set_exception(error)
    return future
