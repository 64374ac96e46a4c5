"""The timeout of a task: when its future ends, who hears of it, and how the task does."""

import threading
import time
import tracemalloc
from collections.abc import Callable
from concurrent.futures import as_completed, wait
from typing import Any

import pytest

import filch

Make = Callable[..., filch.Pool]
Occupy = Callable[..., list[filch.Future[Any]]]
SHORT = 0.02


def polite(ended: threading.Event) -> None:
    """Run until somebody asks to stop."""
    try:
        while True:
            filch.checkpoint()
            time.sleep(0)
    finally:
        ended.set()


def deaf(ended: threading.Event) -> None:
    """Run pure Python code, and look for nobody."""
    try:
        while True:
            pass
    finally:
        ended.set()


def test_a_task_that_takes_too_long_fails(make_pool: Make) -> None:
    """Whoever waits for a task would wait as long as it likes to run; the task would never learn of it."""
    pool = make_pool(1)
    ended = threading.Event()
    future = pool.options(timeout=SHORT).submit(polite, ended)
    with pytest.raises(filch.TaskTimeout, match=f"{SHORT} s") as raised:
        future.result(20)
    assert isinstance(raised.value, TimeoutError)
    assert isinstance(raised.value, filch.FilchError)
    assert ended.wait(20)
    assert pool.submit(abs, -1).result(20) == 1


@pytest.mark.parametrize("how", ["wait", "as_completed", "callback", "map"])
def test_everybody_hears_of_it(make_pool: Make, how: str) -> None:
    """Those who wait in another way than result() would go on waiting."""
    view = make_pool(1).options(timeout=SHORT)
    ended = threading.Event()
    if how == "map":
        with pytest.raises(filch.TaskTimeout):
            next(view.map(polite, [ended]))
    else:
        future = view.submit(polite, ended)
        if how == "wait":
            assert wait([future], 20).done == {future}
        elif how == "as_completed":
            assert list(as_completed([future], 20)) == [future]
        else:
            called = threading.Event()
            future.add_done_callback(lambda _: called.set())
            assert called.wait(20)
        assert isinstance(future.exception(20), filch.TaskTimeout)
    assert ended.wait(20)


def test_the_future_fails_though_the_task_hears_nothing(make_pool: Make, gate: threading.Event) -> None:
    """A task that never comes to a checkpoint would keep those who wait for it."""
    pool = make_pool(1)
    future = pool.options(timeout=SHORT).submit(gate.wait, 40)
    assert isinstance(future.exception(20), filch.TaskTimeout)
    assert future.done()
    assert not gate.is_set()
    gate.set()
    assert pool.submit(abs, -1).result(20) == 1


def test_the_time_counts_from_the_start(make_pool: Make, occupy: Occupy, gate: threading.Event) -> None:
    """A task would fail because it had to wait for its turn."""
    pool = make_pool(1)
    occupy(pool)
    future = pool.options(timeout=0.2).submit(abs, -1)
    alarm = make_pool(1).options(timeout=0.3).submit(gate.wait, 20)
    assert isinstance(alarm.exception(20), filch.TaskTimeout)  # so 0.3 s are over
    assert not future.done()
    gate.set()
    assert future.result(20) == 1


def test_a_task_that_is_quick_enough_is_left_alone(make_pool: Make) -> None:
    """The alarm of a task that has ended would ring in the next one on its thread."""
    pool = make_pool(1)
    view = pool.options(timeout=SHORT)
    assert [view.submit(abs, -number).result(20) for number in range(100)] == list(range(100))
    ended = threading.Event()
    late = pool.options(timeout=4 * SHORT).submit(polite, ended)  # outlives all of those alarms
    assert isinstance(late.exception(20), filch.TaskTimeout)
    assert "0.08 s" in str(late.exception())


def test_alarms_ring_in_the_order_of_their_deadlines(make_pool: Make) -> None:
    """A short timeout would have to wait for a long one that was set before it."""
    pool = make_pool(2)
    ended = [threading.Event(), threading.Event()]
    long = pool.options(timeout=30).submit(polite, ended[0])
    short = pool.options(timeout=SHORT).submit(polite, ended[1])
    assert isinstance(short.exception(20), filch.TaskTimeout)
    assert not long.done()
    long.interrupt()
    assert isinstance(long.exception(20), filch.Cancelled)


def test_many_timeouts_at_once(make_pool: Make) -> None:
    """Alarms that are due together would get lost."""
    pool = make_pool(8)
    ended = [threading.Event() for _ in range(40)]
    futures = [pool.options(timeout=SHORT).submit(polite, event) for event in ended]
    assert {type(future.exception(20)) for future in futures} == {filch.TaskTimeout}
    assert all(event.wait(20) for event in ended)


def test_a_task_that_waits_is_woken(make_pool: Make, gate: threading.Event) -> None:
    """A task that sleeps in a wait for another one would not hear that its time is over."""
    pool = make_pool(2)
    ended = threading.Event()
    other = pool.submit(gate.wait, 40)

    def waiting() -> None:
        try:
            other.result()
        finally:
            ended.set()

    assert isinstance(pool.options(timeout=SHORT).submit(waiting).exception(20), filch.TaskTimeout)
    assert ended.wait(20)
    assert not other.done()


@pytest.mark.parametrize("how", ["wait", "as_completed", "map"])
def test_a_task_that_waits_in_another_way_is_woken(make_pool: Make, gate: threading.Event, how: str) -> None:
    """The same for what the standard library offers to wait with, and for a map."""
    pool = make_pool(2)
    ended = threading.Event()
    other = pool.submit(gate.wait, 40)

    def waiting() -> None:
        try:
            if how == "wait":
                wait([other])
            elif how == "as_completed":
                list(as_completed([other]))
            else:
                list(pool.map(lambda _: other.result(), range(2)))
        finally:
            ended.set()

    assert isinstance(pool.options(timeout=SHORT).submit(waiting).exception(20), filch.TaskTimeout)
    if how == "map":
        gate.set()  # its calls run on the stack of the task
    assert ended.wait(20)


def test_an_error_at_the_end_of_the_time_is_not_lost(make_pool: Make, log: Any, gate: threading.Event) -> None:
    """The late result or error of a task that was given up would change its future, or be logged as a surprise."""
    pool = make_pool(1)

    def late() -> None:
        gate.wait(20)
        raise LookupError

    future = pool.options(timeout=SHORT).submit(late)
    error = future.exception(20)
    gate.set()
    assert pool.wait_idle(20)
    assert future.exception() is error
    assert isinstance(error, filch.TaskTimeout)


def test_a_lost_timeout_is_logged_with_the_tasks_name(make_pool: Make, log: Any, eventually: Any) -> None:
    """A task that is stopped while nobody looks would leave no trace."""
    pool = make_pool(1)
    ended = threading.Event()
    pool.options(timeout=SHORT, name="load").submit(polite, ended)
    assert ended.wait(20)
    assert pool.wait_idle(20)

    def is_logged() -> bool:
        pool.options(timeout=60).submit(int).result(
            20
        )  # wakes the clock and the worker, who may hold the last reference
        return bool(log.records)

    eventually(is_logged, "it is logged")
    (record,) = log.take()
    assert "load" in record.getMessage()
    assert isinstance(record.exc_info[1], filch.TaskTimeout)


def test_the_message_names_the_task(make_pool: Make) -> None:
    """Whoever reads the error would not learn which task took too long."""
    ended = threading.Event()
    future = make_pool(1).options(timeout=SHORT, name="load").submit(polite, ended)
    assert "load" in str(future.exception(20))
    assert ended.wait(20)


def test_tasks_with_a_timeout_leave_nothing_behind(make_pool: Make) -> None:
    """Every task with a timeout of an hour would cost memory for an hour, though it ended at once."""
    pool = make_pool(1)
    view = pool.options(timeout=3600)

    def many() -> None:
        for future in [view.submit(int) for _ in range(500)]:
            future.result(20)
        del future
        pool.submit(int).result(20)  # without the GIL, what the worker owns goes when it wakes
        assert pool.wait_idle(20)

    many()
    tracemalloc.start()
    try:
        many()
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(40):
            many()
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert grown < 20_000 * 20  # up to 512 that are called off may be there at a time
