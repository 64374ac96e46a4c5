"""Bulk calls: many calls of one function, with results by index."""

import gc
import random
import threading
import time
import weakref
from concurrent.futures import CancelledError
from types import ModuleType
from typing import Any

import pytest

from filch.exceptions import PoolShutdown
from kernel.engines import PATIENCE, elsewhere, held, is_settled, results

GRAINS = [1, 3, 1000]


def all_of(bulk: Any, count: int) -> list[Any]:
    return [bulk.result(index, PATIENCE) for index in range(count)]


@pytest.mark.parametrize("grain", GRAINS)
@pytest.mark.parametrize("count", [0, 1, 2, 500])
def test_results_by_index(engine: Any, grain: int, count: int) -> None:
    """A call is lost, is made twice, or its result is found at another's index."""
    calls = [0] * count

    def run(number: int, factor: int) -> int:
        calls[number] += 1
        return number * factor

    bulk = engine._submit_bulk(run, [(number, 7) for number in range(count)], grain=grain)
    assert all_of(bulk, count) == [number * 7 for number in range(count)]
    assert calls == [1] * count


def test_results_in_any_order(make_engine: Any, seed: int) -> None:
    """Results can only be asked for in the order of the calls."""
    engine = make_engine(2)
    bulk = engine._submit_bulk(int, [(number,) for number in range(300)])
    indexes = list(range(300))
    random.Random(seed).shuffle(indexes)
    assert [bulk.result(index, PATIENCE) for index in indexes] == indexes


@pytest.mark.parametrize("grain", GRAINS)
def test_started_in_order(make_engine: Any, grain: int) -> None:
    """Calls of one bulk start in another order than they were given in."""
    engine = make_engine(1)
    order: list[int] = []
    bulk = engine._submit_bulk(order.append, [(number,) for number in range(500)], grain=grain)
    all_of(bulk, 500)
    assert order == list(range(500))


@pytest.mark.parametrize("size", [2, 4])
def test_all_processors_take_part(make_engine: Any, size: int) -> None:
    """A bulk is left to one worker while others have nothing to do."""
    engine = make_engine(size)
    meeting = threading.Barrier(size)
    for grain in (1, 2):
        bulk = engine._submit_bulk(meeting.wait, [(PATIENCE,)] * size * grain, grain=1)
        assert sorted(all_of(bulk, size * grain)) == sorted([*range(size)] * grain)


def test_errors_in_their_place(engine: Any) -> None:
    """An error ends the bulk, is raised for another call, or is logged although somebody has seen it."""

    def run(number: int) -> int:
        if number % 5 == 0:
            raise LookupError(number)
        if number % 7 == 0:
            raise SystemExit(number)
        return number

    bulk = engine._submit_bulk(run, [(number,) for number in range(100)])
    for number in range(100):
        if number % 5 == 0 or number % 7 == 0:
            with pytest.raises(LookupError if number % 5 == 0 else SystemExit) as caught:
                bulk.result(number, PATIENCE)
            assert caught.value.args == (number,)
        else:
            assert bulk.result(number, PATIENCE) == number


def test_an_error_that_nobody_asks_for(make_engine: Any, log: Any, eventually: Any) -> None:
    """The error of a call that nobody asks for is lost without a word."""
    engine = make_engine()
    bulk = engine._submit_bulk(divmod, [(4, 2), (1, 0)])
    assert bulk.result(0, PATIENCE) == (2, 0)
    assert engine.wait_idle(PATIENCE)
    del bulk
    eventually(lambda: engine.submit(int).result(PATIENCE) == 0 and log.records, "it is logged")
    (message,) = log.take("filch")
    assert "divmod" in message


class Thing:
    """Something that a weak reference can watch."""


def is_gone(engine: Any, watches: list[Any]) -> bool:
    """Are the watched things gone?  On a free-threaded Python a thread lets go of them the next time that it runs."""
    with held(engine, engine.max_workers):
        pass
    return all(watch() is None for watch in watches)


def test_a_result_is_handed_over(make_engine: Any, eventually: Any) -> None:
    """A bulk keeps every result until the last is asked for, so a long one fills the memory."""
    engine = make_engine()
    bulk = engine._submit_bulk(Thing, [()] * 3)
    watches = [weakref.ref(bulk.result(index, PATIENCE)) for index in range(2)]
    eventually(lambda: is_gone(engine, watches), "the results are gone")
    assert type(bulk.result(2)) is Thing


@pytest.mark.parametrize("timeout", [0, -1, 0.01])
def test_timeouts(make_engine: Any, timeout: float) -> None:
    """Asking with a timeout waits for ever, or the result cannot be had later."""
    engine = make_engine()
    with held(engine):
        bulk = engine._submit_bulk(int, [(7,)])
        for _ in range(2):
            with pytest.raises(TimeoutError):
                bulk.result(0, timeout)
    assert bulk.result(0, PATIENCE) == 7


def test_cancel_before(engine: Any) -> None:
    """A cancelled bulk starts calls, or who waits for a result waits for ever."""
    ran: list[int] = []
    with held(engine, engine.max_workers):
        bulk = engine._submit_bulk(ran.append, [(number,) for number in range(50)])
        bulk.cancel()
        with pytest.raises(CancelledError):
            bulk.result(0, PATIENCE)
    assert engine.wait_idle(PATIENCE)
    assert ran == []
    with pytest.raises(CancelledError):
        bulk.result(49)


def test_cancel_during(make_engine: Any) -> None:
    """A bulk that is cancelled while it runs starts more calls, or loses the results that it has."""
    engine = make_engine()
    reached, go_on = threading.Event(), threading.Event()
    ran: list[int] = []

    def run(number: int) -> int:
        ran.append(number)
        if number == 3:
            reached.set()
            assert go_on.wait(PATIENCE)
        return number

    def ask() -> None:
        with pytest.raises(CancelledError):
            bulk.result(10, PATIENCE)
        raised.append(True)

    raised: list[bool] = []
    bulk = engine._submit_bulk(run, [(number,) for number in range(50)])
    assert reached.wait(PATIENCE)
    waiter = threading.Thread(target=ask, daemon=True)
    waiter.start()
    bulk.cancel()
    waiter.join(PATIENCE)
    assert raised == [True]
    go_on.set()
    assert engine.wait_idle(PATIENCE)
    assert ran == [0, 1, 2, 3]
    assert bulk.result(0) == 0
    with pytest.raises(CancelledError):
        bulk.result(4)


def test_cancel_after_all(make_engine: Any) -> None:
    """Cancelling a bulk that has ended hurts, or its unseen errors are logged although nobody wants them."""
    engine = make_engine()
    bulk = engine._submit_bulk(divmod, [(1, 0), (1, 1)])
    assert bulk.result(1, PATIENCE) == (1, 0)
    bulk.cancel()
    bulk.cancel()
    assert engine.submit(int).result(PATIENCE) == 0


@pytest.mark.parametrize("how", ["_cancel_pending", "_close"])
def test_the_end_of_the_engine(make_engine: Any, how: str) -> None:
    """A bulk does not come to its end when the engine is closed, or does when what waits is cancelled."""
    engine = make_engine()
    reached, go_on = threading.Event(), threading.Event()

    def run(number: int) -> int:
        if number == 3:
            reached.set()
            assert go_on.wait(PATIENCE)
        return number

    bulk = engine._submit_bulk(run, [(number,) for number in range(50)])
    assert reached.wait(PATIENCE)
    getattr(engine, how)()
    go_on.set()
    if how == "_close":
        assert all_of(bulk, 50) == list(range(50))
    else:
        assert bulk.result(0, PATIENCE) == 0
        with pytest.raises(CancelledError):
            bulk.result(49, PATIENCE)
    assert engine.wait_idle(PATIENCE)


@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize("timed", [False, True], ids=["untimed", "timed"])
def test_inside_of_a_task(make_engine: Any, size: int, timed: bool) -> None:
    """A task that waits for its own bulk hangs, or needs another thread with one worker."""
    engine = make_engine(size)
    timeout = [PATIENCE] * timed

    def run(level: int) -> int:
        if level == 0:
            return 1
        bulk = engine._submit_bulk(run, [(level - 1,)] * 4)
        return sum(bulk.result(index, *timeout) for index in range(4))

    assert engine.submit(run, 4).result(PATIENCE) == 256
    if size == 1 and not timed:
        assert engine._counters()["threads_started"] == 1


def test_at_the_limit_of_threads(make_engine: Any) -> None:
    """Nested bulks hang when no thread is left."""
    engine = make_engine(1, max_threads=1)

    def run(level: int) -> int:
        bulk = engine._submit_bulk(run, [(level - 1,)] * 3) if level else None
        return sum(bulk.result(index, PATIENCE) for index in range(3)) if bulk else 1

    assert engine.submit(run, 4).result(PATIENCE) == 81


def test_many_wait_for_one_bulk(make_engine: Any, together: Any, many_switches: None) -> None:
    """Threads that wait for different calls of a bulk keep each other from being woken."""
    engine = make_engine(2)
    for _ in range(50):
        with held(engine, 2):
            bulk = engine._submit_bulk(int, [(number,) for number in range(4)])
        asked = [lambda index=index, bulk=bulk: bulk.result(index, PATIENCE) for index in range(4)]
        assert together(*asked) == [0, 1, 2, 3]


@pytest.mark.slow
def test_the_result_comes_while_somebody_begins_to_wait(make_engine: Any, together: Any, many_switches: None) -> None:
    """Somebody who asks for a result at the moment in which it comes is not woken."""
    engine = make_engine(2)
    for _ in range(20):
        bulk = engine._submit_bulk(int, [(number,) for number in range(400)], grain=3)
        odd, even = together(
            lambda bulk=bulk: [bulk.result(index, PATIENCE) for index in range(0, 400, 2)],
            lambda bulk=bulk: [bulk.result(index, PATIENCE) for index in range(1, 400, 2)],
        )
        assert (odd, even) == (list(range(0, 400, 2)), list(range(1, 400, 2)))


def test_urgent_work_gets_in(make_engine: Any) -> None:
    """A task with a priority waits until a bulk is over."""
    engine = make_engine()
    order: list[Any] = []

    def run(number: int) -> None:
        order.append(number)
        if number == 50:
            elsewhere(lambda: engine._spawn(order.append, ("urgent",), priority=1))

    all_of(engine._submit_bulk(run, [(number,) for number in range(1000)]), 1000)
    assert engine.wait_idle(PATIENCE)
    assert order.index("urgent") == 51
    assert [each for each in order if each != "urgent"] == list(range(1000))


def test_work_from_outside_gets_in(make_engine: Any) -> None:
    """A task from outside, or another bulk, waits until a long bulk is over."""
    engine = make_engine()
    order: list[Any] = []

    def run(number: int) -> None:
        order.append(number)
        if number == 50:
            elsewhere(lambda: engine.submit(order.append, "task"))
            elsewhere(lambda: engine._submit_bulk(order.append, [("bulk",)]))

    all_of(engine._submit_bulk(run, [(number,) for number in range(1000)]), 1000)
    assert engine.wait_idle(PATIENCE)
    assert 51 <= order.index("task") <= 50 + 2 * 61
    assert order.index("bulk") <= 50 + 3 * 61
    assert [each for each in order if isinstance(each, int)] == list(range(1000))


def test_two_bulks_of_different_priority(make_engine: Any) -> None:
    """A bulk of a lower priority keeps one of a higher from running, or the other way round the lower starves."""
    engine = make_engine()
    order: list[str] = []
    with held(engine):
        low = engine._submit_bulk(order.append, [("low",)] * 200)
        high = engine._submit_bulk(order.append, [("high",)] * 200, priority=3)
    all_of(low, 200)
    all_of(high, 200)
    assert order[:50] == ["high"] * 50
    assert order.count("low") == order.count("high") == 200


def test_the_engine_is_idle_after_a_bulk(make_engine: Any, eventually: Any) -> None:
    """Something of a bulk is left in a queue when all its results are there."""
    engine = make_engine(2)
    for count in (1, 2, 100):
        all_of(engine._submit_bulk(int, [(1,)] * count), count)
        assert engine.wait_idle(PATIENCE)
        eventually(lambda: is_settled(engine), "the engine comes to rest")


def test_arguments_are_let_go(make_engine: Any, eventually: Any) -> None:
    """A bulk keeps the arguments of a call that was made."""
    engine = make_engine()
    things = [Thing() for _ in range(10)]
    watches = [weakref.ref(thing) for thing in things]
    bulk = engine._submit_bulk(id, [(thing,) for thing in things])
    all_of(bulk, 9)
    del things
    eventually(lambda: is_gone(engine, watches), "the arguments are gone")
    assert bulk.result(9) > 0


def test_a_bulk_that_is_dropped(make_engine: Any) -> None:
    """Calls are not made when nobody keeps the bulk."""
    engine = make_engine()
    ran: list[int] = []
    with held(engine):
        engine._submit_bulk(ran.append, [(number,) for number in range(100)])
    assert engine.wait_idle(PATIENCE)
    assert ran == list(range(100))


def test_blocking_in_a_bulk(kernel: ModuleType, make_engine: Any) -> None:
    """A call that gives its processor away keeps the rest of the bulk waiting."""
    engine = make_engine()
    meeting = threading.Barrier(4)

    def run() -> None:
        with kernel.blocking():
            meeting.wait(PATIENCE)

    all_of(engine._submit_bulk(run, [()] * 4), 4)
    assert results([engine.submit(int)]) == [0]


def test_a_slow_call_holds_nobody_up(make_engine: Any) -> None:
    """Results that are there cannot be had before the one of a slow call."""
    engine = make_engine(2)
    gate = threading.Event()

    def run(number: int) -> int:
        assert number or gate.wait(PATIENCE)
        return number

    bulk = engine._submit_bulk(run, [(number,) for number in range(100)])
    start = time.monotonic()
    assert [bulk.result(index, PATIENCE) for index in range(1, 100)] == list(range(1, 100))
    assert time.monotonic() - start < PATIENCE / 2
    gate.set()
    assert bulk.result(0, PATIENCE) == 0


def test_nothing_stays_of_calls_that_are_refused(make_engine: Any) -> None:
    """A function and all its arguments stay for ever, if their pool is closed."""

    class Thing:
        def __call__(self) -> None: ...

    engine = make_engine()
    engine._close()
    thing = Thing()
    watch = weakref.ref(thing)
    with pytest.raises(PoolShutdown):
        engine._submit_bulk(thing, [()] * 3)
    del thing
    gc.collect()
    assert watch() is None
