"""`map`: order, errors in place, timeouts, chunks, who sees its calls, and what becomes of an unfinished one."""

import concurrent.futures
import gc
import itertools
import operator
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import filch

Make = Callable[..., filch.Pool]
Occupy = Callable[..., list[filch.Future[Any]]]
Map = Callable[..., Iterator[Any]]

SHAPES: dict[str, Callable[[filch.Pool], Map]] = {
    "plain": lambda pool: pool.map,
    "chunks": lambda pool: lambda *args, **options: pool.map(*args, chunksize=3, **options),
    "buffer": lambda pool: lambda *args, **options: pool.map(*args, buffersize=4, **options),
    "view": lambda pool: pool.options(priority=1).map,
    "named view": lambda pool: pool.options(name="named", timeout=60).map,
    "buffer of a view": lambda pool: (
        lambda *args, **options: pool.options(priority=1).map(*args, buffersize=4, **options)
    ),
}


@pytest.fixture(params=list(SHAPES))
def shape(request: pytest.FixtureRequest) -> Callable[[filch.Pool], Map]:
    """Every kind of map."""
    return SHAPES[request.param]


class Boom(Exception):
    """What tasks raise."""


def boom_at(bad: int) -> Callable[[int], int]:
    def fn(number: int) -> int:
        if number == bad:
            raise Boom(number)
        return number

    return fn


@pytest.mark.parametrize("workers", [1, 2, 8])
def test_results_keep_the_order_of_the_items(make_pool: Make, shape: Callable[[filch.Pool], Map], workers: int) -> None:
    """A result would come in the place of another."""
    mapped = shape(make_pool(workers))
    assert list(mapped(operator.neg, range(500))) == [-number for number in range(500)]


def test_several_iterables_go_side_by_side(make_pool: Make, shape: Callable[[filch.Pool], Map]) -> None:
    """The items of several inputs would not be given together, or the shortest would not end it."""
    mapped = shape(make_pool(2))
    assert list(mapped(operator.add, range(10), itertools.count(1))) == [2 * number + 1 for number in range(10)]
    assert list(mapped(max, "ab", "ba", "bb")) == ["b", "b"]


@pytest.mark.parametrize("inputs", [(), ([],), ([], itertools.count()), (range(3), "")], ids=repr)
def test_no_items_give_no_results(make_pool: Make, shape: Callable[[filch.Pool], Map], inputs: tuple[Any, ...]) -> None:
    """An empty input would hang or raise."""
    pool = make_pool(1)
    assert list(shape(pool)(operator.add, *inputs)) == []
    assert pool.wait_idle(20)


def test_everything_is_submitted_before_the_first_result_is_asked_for(
    make_pool: Make, gate: threading.Event, shape: Callable[[filch.Pool], Map]
) -> None:
    """Work would not begin until somebody looks at the results."""
    ran = threading.Semaphore(0)
    pool = make_pool(1)
    results = shape(pool)(lambda _: ran.release(), range(4))
    for _ in range(4):
        assert ran.acquire(timeout=20)
    assert list(results) == [None] * 4


@pytest.mark.parametrize("shape_name", ["plain", "chunks", "view", "named view"])
def test_a_map_that_nobody_looks_at_runs_all_the_same(make_pool: Make, shape_name: str) -> None:
    """`pool.map(print, items)`, called for its effect, would do nothing or a part of it."""
    seen: list[int] = []
    with filch.Pool(2) as pool:
        SHAPES[shape_name](pool)(seen.append, range(300))
        gc.collect()
    assert sorted(seen) == list(range(300))


def test_an_error_comes_in_its_place(make_pool: Make, shape: Callable[[filch.Pool], Map]) -> None:
    """The results before the error would be lost, or those after it would come."""
    results = shape(make_pool(2))(boom_at(30), range(60))
    assert list(itertools.islice(results, 30)) == list(range(30))
    with pytest.raises(Boom, match="30"):
        next(results)
    with pytest.raises(StopIteration):
        next(results)


def test_an_error_cancels_what_has_not_started(
    make_pool: Make, occupy: Occupy, gate: threading.Event, shape: Callable[[filch.Pool], Map]
) -> None:
    """Work whose results nobody can get any more would go on."""
    pool = make_pool(1)
    seen: list[int] = []
    entered = threading.Event()

    def fn(number: int) -> None:
        seen.append(number)
        if number == 0:
            raise Boom
        entered.set()
        gate.wait(20)

    results = shape(pool)(fn, range(100))
    with pytest.raises(Boom):
        next(results)
    running = {1} if entered.is_set() else set()
    gate.set()
    assert pool.wait_idle(20)
    assert set(seen) <= {0, 1, 2} | running


@pytest.mark.parametrize("name", ["plain", "named view", "buffer"])
def test_the_other_errors_of_a_map_that_failed_are_not_logged(
    make_pool: Make, gate: threading.Event, name: str
) -> None:
    """Whoever has heard of the first error would be told of each of the others as of something lost."""
    pool = make_pool(2)
    mapped = SHAPES[name](pool)
    late = threading.Event()

    def fail(number: int) -> None:
        if number == 1:
            late.set()
            gate.wait(20)
        if number == 0:
            late.wait(20)
        raise LookupError(number)

    results = mapped(fail, range(3))
    with pytest.raises(LookupError, match="0"):
        next(results)
    del results
    gate.set()
    assert pool.wait_idle(20)


def test_every_error_has_its_own_kind(make_pool: Make, shape: Callable[[filch.Pool], Map]) -> None:
    """Errors that are no Exception would be turned into something else, or end the worker."""
    pool = make_pool(1)
    for error in (Boom("x"), SystemExit(3), KeyboardInterrupt(), GeneratorExit(), BaseException("y")):

        def fn(_: int, error: BaseException = error) -> None:
            raise error

        with pytest.raises(BaseException) as raised:
            list(shape(pool)(fn, [1]))
        assert raised.value is error
    assert list(shape(pool)(abs, [-1])) == [1]


def test_stop_iteration_is_no_end_of_the_results(make_pool: Make, shape: Callable[[filch.Pool], Map]) -> None:
    """A `next()` that runs dry in a task would end the results early, as if there were no more."""
    results = shape(make_pool(1))(lambda item: item or next(iter([])), range(3))
    with pytest.raises(RuntimeError) as raised:
        list(results)
    assert isinstance(raised.value.__cause__, StopIteration)


def test_an_input_that_raises_is_heard(make_pool: Make, shape: Callable[[filch.Pool], Map]) -> None:
    """An error in the input would be taken for its end, or hang."""

    def source() -> Iterator[int]:
        yield from range(10)
        raise Boom("input")

    pool = make_pool(1)
    with pytest.raises(Boom, match="input"):
        list(shape(pool)(operator.neg, source()))
    assert pool.wait_idle(20)
    assert pool.submit(abs, -1).result(20) == 1


def test_what_was_not_taken_is_cancelled_when_the_results_are_dropped(
    make_pool: Make, occupy: Occupy, gate: threading.Event, shape: Callable[[filch.Pool], Map]
) -> None:
    """Whoever stops looking at the results, by `break` or an error, would pay for all of them."""
    pool = make_pool(1)
    seen: list[int] = []
    inside = threading.Event()

    def fn(number: int) -> None:
        seen.append(number)
        if number:
            inside.set()
            assert gate.wait(20)

    for _ in shape(pool)(fn, range(100)):
        assert inside.wait(20)  # the next call has begun
        break
    gc.collect()
    gate.set()
    assert pool.wait_idle(20)
    assert len(seen) <= 3  # of a chunk, the worker may have begun another call


def test_closing_a_map_twice_is_fine(make_pool: Make, shape: Callable[[filch.Pool], Map]) -> None:
    """Cleaning up after an unfinished map would raise."""
    results: Any = shape(make_pool(1))(abs, range(10))
    next(results)
    results.close()
    results.close()
    assert list(results) == []


# Timeouts.


def test_a_timeout_counts_from_the_call(
    make_pool: Make, occupy: Occupy, gate: threading.Event, shape: Callable[[filch.Pool], Map]
) -> None:
    """A slow task would have the time that is meant for all of them."""
    pool = make_pool(1)
    occupy(pool)
    results = shape(pool)(abs, range(3), timeout=0.05)
    with pytest.raises(TimeoutError):
        next(results)
    with pytest.raises(StopIteration):
        next(results)


def test_a_timeout_cancels_all_that_has_not_started(
    make_pool: Make, occupy: Occupy, gate: threading.Event, shape: Callable[[filch.Pool], Map]
) -> None:
    """The task that was waited for, or those after it, would run when nobody wants them any more."""
    pool = make_pool(1)
    seen: list[int] = []
    occupy(pool)
    results = shape(pool)(seen.append, range(10), timeout=0.05)
    with pytest.raises(TimeoutError):
        next(results)
    gate.set()
    assert pool.wait_idle(20)
    assert seen == []


def test_what_is_ready_comes_after_the_deadline_too(make_pool: Make, shape: Callable[[filch.Pool], Map]) -> None:
    """Results that are there would be refused because they are picked up late."""
    pool = make_pool(1)
    results = shape(pool)(abs, [-1, -2], timeout=0.001)
    assert pool.wait_idle(20)
    deadline = time.monotonic() + 0.002
    while time.monotonic() < deadline:
        pass
    assert list(results) == [1, 2]


@pytest.mark.parametrize("timeout", [0, -1, 0.0])
def test_a_deadline_that_is_over_is_no_error_of_its_own(
    make_pool: Make, occupy: Occupy, shape: Callable[[filch.Pool], Map], timeout: float
) -> None:
    """Time that has run out on the way here would raise something else than TimeoutError."""
    pool = make_pool(1)
    occupy(pool)
    with pytest.raises(TimeoutError):
        next(shape(pool)(abs, [-1], timeout=timeout))


def test_a_timeout_inside_a_task(make_pool: Make, occupy: Occupy, gate: threading.Event) -> None:
    """A map in a task of the pool would not heed its timeout, since the waiting task runs the calls itself."""
    pool = make_pool(1)

    def parent() -> None:
        with pytest.raises(TimeoutError):
            list(pool.map(lambda _: gate.wait(20), [1], timeout=0.05))

    pool.submit(parent).result(20)


# Chunks.


@pytest.mark.parametrize("chunksize", [1, 2, 7, 1000, 10**12])
def test_chunks_change_no_result(make_pool: Make, chunksize: int) -> None:
    """A call would be lost or made twice at the edge of a chunk."""
    pool = make_pool(3)
    calls: list[int] = []
    assert list(pool.map(lambda item: calls.append(item) or item, range(100), chunksize=chunksize)) == list(range(100))
    assert sorted(calls) == list(range(100))


def test_a_chunk_stays_on_one_thread(make_pool: Make) -> None:
    """`chunksize` would be taken and not heeded."""
    pool = make_pool(4)
    threads = list(pool.map(lambda _: threading.get_ident(), range(40), chunksize=10))
    assert [len(set(threads[start : start + 10])) for start in range(0, 40, 10)] == [1] * 4


def test_every_worker_gets_a_part(make_pool: Make) -> None:
    """A map would run on one worker while others have nothing to do."""
    barrier = threading.Barrier(3)
    assert sorted(make_pool(3).map(lambda _: barrier.wait(20), range(3))) == [0, 1, 2]


@pytest.mark.parametrize("chunksize", [0, -1])
def test_a_bad_chunksize_is_refused(make_pool: Make, chunksize: int) -> None:
    """A mistake would show when the results are asked for, or hang."""
    pool = make_pool(1)
    with pytest.raises(ValueError, match=f"chunksize must be >= 1, not {chunksize}"):
        pool.map(abs, [1], chunksize=chunksize)
    with pytest.raises(ValueError, match="chunksize must be >= 1"):
        pool.options(name="x").map(abs, [1], chunksize=chunksize)


# Those who replace submit.


def test_a_submit_on_the_instance_sees_every_call(make_pool: Make) -> None:
    """Progress bars and tracers that replace `submit` on the pool would stay at zero."""
    pool = make_pool(2)
    seen: list[tuple[Any, ...]] = []
    submit = pool.submit

    def counting(fn: Any, /, *args: Any, **kwargs: Any) -> Any:
        seen.append(args)
        return submit(fn, *args, **kwargs)

    pool.submit = counting  # type: ignore[method-assign]
    assert list(pool.map(abs, range(25))) == list(range(25))
    assert list(pool.map(abs, range(25), buffersize=3)) == list(range(25))
    assert list(pool.map(abs, range(25), chunksize=5)) == list(range(25))
    assert seen == [(number,) for number in range(25)] * 3


def test_a_submit_in_a_subclass_sees_every_call() -> None:
    """A pool class that adds something to every call would not get to see those of `map`."""

    class Doubling(filch.Pool):
        def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Any:
            return super().submit(lambda: 2 * fn(*args, **kwargs))

    with Doubling(2) as pool:
        assert list(pool.map(abs, [-1, -2])) == [2, 4]
        assert list(pool.map(abs, [-1, -2], buffersize=1)) == [2, 4]
        assert pool.submit(abs, -3).result(20) == 6


def test_a_submit_on_the_class_sees_every_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tracers that replace `Pool.submit` itself would not get to see the calls of `map`."""
    seen: list[Any] = []
    original = filch.Pool.submit

    def traced(self: filch.Pool, fn: Any, /, *args: Any, **kwargs: Any) -> Any:
        seen.append(args)
        return original(self, fn, *args, **kwargs)

    monkeypatch.setattr(filch.Pool, "submit", traced)
    with filch.Pool(1) as pool:
        assert list(pool.map(abs, [-1, -2])) == [1, 2]
        assert pool.submit(abs, -3).result(20) == 3
    assert seen == [(-1,), (-2,), (-3,)]


def test_a_submit_on_a_view_sees_every_call(make_pool: Make) -> None:
    """A progress bar over a view would stay at zero."""
    view = make_pool(2).options(priority=1)
    seen: list[Any] = []
    submit = view.submit

    def counting(fn: Any, /, *args: Any) -> Any:
        seen.append(args)
        return submit(fn, *args)

    view.submit = counting  # type: ignore[method-assign, assignment]
    assert list(view.map(abs, [-1, -2])) == [1, 2]
    assert seen == [(-1,), (-2,)]


def test_a_replaced_submit_may_return_futures_of_others(make_pool: Make) -> None:
    """A wrapper that gives a future of its own class would break `map`."""
    pool = make_pool(1)

    def elsewhere(fn: Any, /, *args: Any) -> concurrent.futures.Future[Any]:
        future: concurrent.futures.Future[Any] = concurrent.futures.Future()
        future.set_result(fn(*args) * 10)
        return future

    pool.submit = elsewhere  # type: ignore[method-assign, assignment]
    assert list(pool.map(abs, [-1, -2])) == [10, 20]


# Nesting, ends and references.


def test_maps_nest(make_pool: Make, shape: Callable[[filch.Pool], Map]) -> None:
    """A map whose calls use map themselves would lock up."""
    pool = make_pool(1)
    mapped = shape(pool)
    rows = mapped(lambda size: sum(mapped(lambda item: sum(mapped(abs, range(item))), range(size))), range(6))
    assert list(rows) == [0, 0, 0, 1, 4, 10]


def test_a_map_of_a_pool_that_is_shut_down_is_refused(make_pool: Make, shape: Callable[[filch.Pool], Map]) -> None:
    """Items would be taken and never run."""
    pool = make_pool(1)
    pool.shutdown()
    with pytest.raises(filch.PoolShutdown):
        shape(pool)(abs, [1])


def test_the_results_outlive_the_pool(shape: Callable[[filch.Pool], Map]) -> None:
    """Results that are picked up after the with block would be lost."""
    with filch.Pool(2) as pool:
        results = shape(pool)(operator.neg, range(4))
    assert list(results) == [0, -1, -2, -3]


@pytest.mark.parametrize("name", ["plain", "chunks", "view"])
def test_a_map_keeps_a_dropped_pool_going(name: str) -> None:
    """`Pool().map(...)` would lose its calls with the pool."""
    results = SHAPES[name](filch.Pool(2))(operator.neg, range(100))
    gc.collect()
    assert list(results) == [-number for number in range(100)]


def test_cancel_futures_ends_a_map(
    make_pool: Make, occupy: Occupy, gate: threading.Event, shape: Callable[[filch.Pool], Map]
) -> None:
    """Whoever waits for a result of a map would wait for ever when the pool is shut down."""
    pool = make_pool(1)
    occupy(pool)
    results = shape(pool)(abs, range(10))
    pool.shutdown(wait=False, cancel_futures=True)
    with pytest.raises(concurrent.futures.CancelledError):
        next(results)


def test_cancel_futures_wakes_who_waits_for_a_map(
    make_pool: Make, occupy: Occupy, together: Callable[..., list[Any]], shape: Callable[[filch.Pool], Map]
) -> None:
    """A thread that is asleep in a map would not be woken by the shutdown that cancels it."""
    pool = make_pool(1)
    occupy(pool)
    asleep = threading.Event()

    def waiter() -> None:
        results = shape(pool)(abs, range(10))
        asleep.set()
        with pytest.raises(concurrent.futures.CancelledError):
            next(results)

    def canceller() -> None:
        assert asleep.wait(20)
        pool.shutdown(wait=False, cancel_futures=True)

    together(waiter, canceller)


def test_items_and_results_are_let_go(make_pool: Make, shape: Callable[[filch.Pool], Map], eventually: Any) -> None:
    """A long map would keep every item and every result until its end."""

    class Thing:
        pass

    pool = make_pool(1)
    things = [Thing() for _ in range(8)]
    refs = [weakref.ref(thing) for thing in things]

    def feed() -> Iterator[Thing]:
        while things:
            yield things.pop(0)

    results = shape(pool)(lambda thing: thing, feed())
    for ref in refs[:-1]:  # zip() keeps the last
        next(results)

        def is_gone(ref: Any = ref) -> bool:
            pool.submit(int).result(20)
            return ref() is None

        eventually(is_gone, "the item goes once its result was handed over")


def test_the_function_is_let_go(make_pool: Make, shape: Callable[[filch.Pool], Map], eventually: Any) -> None:
    """A closure would live as long as the results that were made with it, or as the pool."""

    class Function:
        def __call__(self, number: int) -> int:
            return -number

    pool = make_pool(1)
    function = Function()
    ref = weakref.ref(function)
    results = shape(pool)(function, range(4))
    del function
    assert list(results) == [0, -1, -2, -3]

    def is_gone() -> bool:
        pool.submit(int).result(20)
        return ref() is None

    eventually(is_gone, "the function goes with the last result")
