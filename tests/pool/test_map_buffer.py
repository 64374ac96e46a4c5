"""`map(buffersize=)`: input is taken as results are, never more than so many items ahead."""

import gc
import itertools
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import filch

Make = Callable[..., filch.Pool]
Occupy = Callable[..., list[filch.Future[Any]]]


class Source:
    """Numbers without end, and how many were taken."""

    def __init__(self) -> None:
        self.taken = 0

    def __iter__(self) -> Iterator[int]:
        return self

    def __next__(self) -> int:
        self.taken += 1
        return self.taken - 1


@pytest.fixture(params=["pool", "view"])
def mapped(request: pytest.FixtureRequest, make_pool: Make) -> Callable[..., Iterator[Any]]:
    """The map of a pool of three, and of a view of one."""
    pool = make_pool(3)
    return pool.map if request.param == "pool" else pool.options(priority=2).map


def test_an_endless_input_is_fine(mapped: Callable[..., Iterator[Any]]) -> None:
    """An endless input would be read for ever before the first result."""
    assert list(itertools.islice(mapped(str, itertools.count(), buffersize=4), 50)) == [str(n) for n in range(50)]


@pytest.mark.parametrize("size", [1, 2, 3, 10])
def test_never_more_than_so_many_items_are_ahead(mapped: Callable[..., Iterator[Any]], size: int) -> None:
    """Memory would hold more items than asked for: at any time the difference of taken and handed over counts."""
    source = Source()
    handed = 0
    worst = []

    def watch() -> Iterator[int]:
        for item in source:
            worst.append(source.taken - handed)
            yield item

    for result in mapped(lambda item: item, watch(), buffersize=size):
        handed += 1
        assert result == handed - 1
        if handed == 60:
            break
    assert max(worst) == size


@pytest.mark.parametrize("size", [1, 3])
def test_the_input_is_taken_at_once_up_to_the_size(mapped: Callable[..., Iterator[Any]], size: int) -> None:
    """The workers would have nothing to do until the first result is asked for."""
    source = Source()
    results = mapped(abs, source, buffersize=size)
    assert source.taken == size
    next(results)
    assert source.taken == size
    next(results)
    assert source.taken == size + 1


def test_the_workers_go_ahead_while_nobody_asks(mapped: Callable[..., Iterator[Any]]) -> None:
    """Calls would run one by one as results are asked for, and never at the same time."""
    barrier = threading.Barrier(3)
    results = mapped(lambda _: barrier.wait(20), range(3), buffersize=3)
    assert sorted(results) == [0, 1, 2]


def test_a_buffer_larger_than_the_input(mapped: Callable[..., Iterator[Any]]) -> None:
    """A short input would raise or hang."""
    assert list(mapped(abs, range(3), buffersize=100)) == [0, 1, 2]
    assert list(mapped(abs, [], buffersize=100)) == []


def test_dropping_the_results_closes_the_input(mapped: Callable[..., Iterator[Any]], eventually: Any) -> None:
    """A file or a cursor behind the input would stay open after a `break`."""
    closed = threading.Event()

    def source() -> Iterator[int]:
        try:
            yield from itertools.count()
        finally:
            closed.set()

    for _ in mapped(abs, source(), buffersize=2):
        break
    eventually(closed.is_set, "the input is closed")


def test_dropping_the_results_cancels_what_is_buffered(make_pool: Make, occupy: Occupy, gate: threading.Event) -> None:
    """Calls would run that nobody can get the result of."""
    pool = make_pool(1)
    ran: list[int] = []
    results = pool.map(ran.append, itertools.count(), buffersize=5)
    next(results)
    assert pool.wait_idle(20)
    occupy(pool)
    done = len(ran)
    next(results)  # takes another item, whose call waits in the queue
    del results
    gc.collect()
    gate.set()
    assert pool.wait_idle(20)
    assert len(ran) == done


def test_an_error_of_the_input_cancels_what_is_buffered(make_pool: Make, occupy: Occupy, gate: threading.Event) -> None:
    """An input that breaks down would leave calls running whose results nobody can get."""
    pool = make_pool(1)
    ran: list[int] = []

    def source() -> Iterator[int]:
        yield from range(3)
        raise LookupError

    results = pool.map(ran.append, source(), buffersize=3)
    next(results)
    with pytest.raises(LookupError):
        list(results)
    occupy(pool)
    gate.set()
    assert pool.wait_idle(20)
    with pytest.raises(StopIteration):
        next(results)


def test_a_result_is_let_go_when_it_was_handed_over(make_pool: Make, eventually: Any) -> None:
    """A long stream would keep all of its results."""

    class Big:
        pass

    pool = make_pool(1)
    results = pool.map(lambda _: Big(), itertools.count(), buffersize=2)
    for _ in range(5):
        ref = weakref.ref(next(results))

        def is_gone(ref: Any = ref) -> bool:
            pool.submit(int).result(20)
            return ref() is None

        eventually(is_gone, "the result goes when nobody holds it")


def test_the_input_may_wait_for_the_pool(make_pool: Make) -> None:
    """An input that is itself made by the pool would lock up."""
    pool = make_pool(1)
    first = pool.map(abs, range(20), buffersize=2)
    second = pool.map(lambda number: number + 1, first, buffersize=2)
    assert list(second) == list(range(1, 21))


def test_it_works_inside_a_task(make_pool: Make) -> None:
    """A task that streams through its own pool would lock up or take too much."""
    pool = make_pool(1)
    source = Source()

    def parent() -> list[int]:
        return list(itertools.islice(pool.map(abs, source, buffersize=3), 10))

    assert pool.submit(parent).result(20) == list(range(10))
    assert source.taken == 12


@pytest.mark.parametrize(
    ("size", "error", "text"),
    [
        (0, ValueError, "buffersize must be None or > 0, not 0"),
        (-1, ValueError, "buffersize must be None or > 0, not -1"),
        ("1", TypeError, "buffersize must be an integer or None, not '1'"),
        (1.0, TypeError, "buffersize must be an integer or None, not 1.0"),
    ],
)
def test_a_bad_size_is_refused(
    mapped: Callable[..., Iterator[Any]], size: Any, error: type[Exception], text: str
) -> None:
    """A mistake would show when the results are asked for; and the input would be touched before."""
    source = Source()
    with pytest.raises(error, match=text):
        mapped(abs, source, buffersize=size)
    assert source.taken == 0
