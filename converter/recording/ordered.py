"""Work shared out among threads, with its results in the order of its items."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

AHEAD = 2  # items a thread that are taken up before their turn: one at work, one in waiting


class Workers:
    """Threads for functions that spend their time in numpy, BLAS or Blosc.

    With one thread there is none but the caller's. At the end of the `with` block no thread
    is left, whatever ended it.
    """

    def __init__(self, threads: int) -> None:
        if threads < 1:
            raise ValueError(f"{threads} threads asked for, one or more were expected")
        self._ahead = AHEAD * threads
        self._pool = ThreadPoolExecutor(threads, "signal") if threads > 1 else None

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)

    def in_order(
        self, function: Callable[[Item], Result], items: Iterable[Item]
    ) -> Iterator[Result]:
        """`function` of each item, in the order of the items.

        The items are made in the caller's thread, each when it is needed, never more than
        AHEAD a thread before the result that the caller has got. What an item or a function
        raises, the caller gets in its turn.
        """
        if self._pool is None:
            yield from map(function, items)
            return
        waiting: deque[Future[Result]] = deque()
        for item in items:
            waiting.append(self._pool.submit(function, item))
            if len(waiting) == self._ahead:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
