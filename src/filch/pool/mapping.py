"""The iterators behind `map`."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from time import monotonic
from typing import Any, TypeVar

from filch._kernel import Bulk
from filch.pool import checks

_T = TypeVar("_T")


def check_map_arguments(fn: object, chunksize: int | None, buffersize: int | None) -> None:
    if not callable(fn):
        raise TypeError(f"map() calls a function on every item, and {fn!r} is not callable; pass the function first")
    if chunksize is not None and checks.whole("chunksize", chunksize) < 1:
        raise ValueError(f"chunksize must be >= 1, not {chunksize}; leave it out to take one call at a time")
    if buffersize is not None and not isinstance(buffersize, int):
        raise TypeError(f"buffersize must be an integer or None, not {buffersize!r}")
    if buffersize is not None and buffersize < 1:
        raise ValueError(f"buffersize must be None or > 0, not {buffersize}")


def _seconds_left(deadline: float | None) -> float | None:
    return None if deadline is None else deadline - monotonic()


def bulk_results(bulk: Bulk[_T], length: int, deadline: float | None) -> Iterator[_T]:
    """The results of a bulk in order; whoever stops early cancels the rest."""
    try:
        for index in range(length):
            yield bulk.result(index, _seconds_left(deadline))
    finally:
        bulk.cancel()


def submit_all(executor: Executor, fn: Callable[..., _T], arguments: Iterable[Any]) -> deque[Future[_T]]:
    return deque(executor.submit(fn, *items) for items in arguments)


def future_results(
    futures: deque[Future[_T]],
    deadline: float | None,
    submit_next: Callable[[], Iterable[Future[_T]]] = tuple,
) -> Iterator[_T]:
    """The results of futures in order; each handed over makes room for the next; who stops early cancels the rest."""
    try:
        while futures:
            yield _result_or_cancel(futures, deadline)
            futures.extend(submit_next())
    finally:
        for future in futures:
            if not future.cancel():
                future.add_done_callback(_ask)


def _ask(future: Future[Any]) -> None:
    """Nobody will ask for this one, and that is no mistake."""
    if not future.cancelled():
        future.exception()


def _result_or_cancel(futures: deque[Future[_T]], deadline: float | None) -> _T:
    future = futures.popleft()
    try:
        return future.result(_seconds_left(deadline))
    finally:
        future.cancel()
        del future, futures  # a result that raises leaves no circle
