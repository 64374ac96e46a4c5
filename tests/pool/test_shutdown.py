"""`shutdown`: what it waits for, what it cancels, what it returns, and from where it may be called."""

import contextlib
import gc
import threading
import time
from collections.abc import Callable
from concurrent.futures import CancelledError, as_completed, wait
from typing import Any

import pytest

import filch

Make = Callable[..., filch.Pool]
Occupy = Callable[..., list[filch.Future[Any]]]
Together = Callable[..., list[Any]]


def test_shutdown_waits_for_all(make_pool: Make) -> None:
    """It would return while tasks are queued or running, or leave threads."""
    pool = make_pool(2)
    ran: list[int] = []
    futures = [pool.submit(ran.append, number) for number in range(500)]
    assert pool.shutdown() == []
    assert len(ran) == 500
    assert all(future.done() for future in futures)
    assert len(pool._threads) == 0


def test_tasks_of_running_tasks_still_run(make_pool: Make, gate: threading.Event, occupy: Occupy) -> None:
    """Work in progress would be cut off in its middle: a fork-join could not finish."""
    pool = make_pool(2)

    def fib(n: int) -> int:
        return n if n < 2 else pool.submit(fib, n - 1).result() + pool.submit(fib, n - 2).result()

    occupy(pool, 2)
    future = pool.submit(fib, 9)
    pool.shutdown(wait=False)
    gate.set()
    assert future.result(20) == 34
    pool.shutdown()


def test_tasks_that_nobody_waits_for_still_run(make_pool: Make, gate: threading.Event, occupy: Occupy) -> None:
    """The same for tasks that are spawned and left alone, and for maps inside of tasks."""
    pool = make_pool(1)
    ran: list[int] = []

    def parent() -> None:
        for number in range(10):
            pool.submit(ran.append, number)
        pool.map(ran.append, range(10, 300))

    occupy(pool)
    for _ in range(2):
        pool.submit(parent)
    pool.shutdown(wait=False)
    gate.set()
    pool.shutdown()
    assert sorted(ran) == sorted([*range(300), *range(300)])


def test_a_task_that_is_its_own_successor_comes_to_an_end(make_pool: Make) -> None:
    """A task that submits itself again would keep the pool, and the program, from ever ending."""
    pool = make_pool(1)
    refused = threading.Event()

    def again() -> None:
        try:
            pool.submit(again)
        except filch.PoolShutdown:
            refused.set()

    pool.submit(again)
    pool.shutdown()
    assert refused.wait(20)


def test_a_map_is_not_cut_off(make_pool: Make, occupy: Occupy, gate: threading.Event) -> None:
    """Calls of a map would be lost when other work is queued behind it."""
    pool = make_pool(1)
    ran: list[int] = []
    occupy(pool)
    results = pool.map(lambda item: ran.append(item) or item, range(500))
    others = [pool.submit(int) for _ in range(300)] + [pool.options(priority=1).submit(int) for _ in range(100)]
    gate.set()
    pool.shutdown()
    assert len(ran) == 500
    assert list(results) == list(range(500))
    assert all(future.result(0) == 0 for future in others)


@pytest.mark.parametrize("wait", [True, False])
def test_submit_after_shutdown_is_refused(make_pool: Make, ways_in: Any, wait: bool) -> None:
    """Work would be taken that nobody is there to run."""
    pool = make_pool(1)
    pool.submit(int).result(20)
    pool.shutdown(wait=wait)
    for way in ways_in(pool):
        with pytest.raises(filch.PoolShutdown, match="cannot schedule new futures after shutdown") as raised:
            way()
        assert isinstance(raised.value, RuntimeError)
    pool.shutdown()


def test_without_wait_it_returns_at_once(make_pool: Make, occupy: Occupy, gate: threading.Event) -> None:
    """A caller that has no time would wait; what is queued would be lost."""
    pool = make_pool(1)
    occupy(pool)
    future = pool.submit(abs, -1)
    pool.shutdown(wait=False)
    assert not future.done()
    gate.set()
    assert future.result(20) == 1


# cancel_futures.


def test_cancel_futures_cancels_what_has_not_started(make_pool: Make, occupy: Occupy, gate: threading.Event) -> None:
    """The queue would be worked off though nobody wants it any more; or a running task be cut off."""
    pool = make_pool(2)
    running = occupy(pool, 2)
    ran: list[int] = []
    queued = [pool.submit(ran.append, number) for number in range(100)]
    queued += [pool.options(priority=number % 3 - 1, timeout=60).submit(ran.append, number) for number in range(100)]
    left = pool.shutdown(wait=False, cancel_futures=True)
    assert all(future.cancelled() for future in queued)
    assert set(left) == set(running)
    assert not any(future.done() for future in running)
    gate.set()
    assert pool.shutdown() == []
    assert ran == []
    assert [future.result(0) for future in running] == [True, True]


def test_cancel_futures_reaches_what_a_task_has_spawned(make_pool: Make, gate: threading.Event) -> None:
    """Tasks in the deque of a worker would be forgotten."""
    pool = make_pool(1)
    entered = threading.Event()
    spawned: list[Any] = []

    def parent() -> None:
        spawned.extend(pool.submit(int) for _ in range(300))
        entered.set()
        gate.wait(20)

    future = pool.submit(parent)
    assert entered.wait(20)
    pool.shutdown(wait=False, cancel_futures=True)
    assert all(child.cancelled() for child in spawned)
    gate.set()
    assert future.result(20) is None


def test_cancel_futures_refuses_tasks_of_running_tasks(make_pool: Make, gate: threading.Event) -> None:
    """A running task could go on filling the queue that was just emptied."""
    pool = make_pool(1)
    entered = threading.Event()

    def parent() -> str:
        entered.set()
        gate.wait(20)
        try:
            pool.submit(int)
        except filch.PoolShutdown:
            return "refused"
        return "taken"

    future = pool.submit(parent)
    assert entered.wait(20)
    pool.shutdown(wait=False, cancel_futures=True)
    gate.set()
    assert future.result(20) == "refused"


def test_cancel_futures_wakes_those_who_wait(make_pool: Make, occupy: Occupy, together: Together) -> None:
    """Whoever waits for a cancelled future, in whatever way, would wait for ever."""
    pool = make_pool(1)
    other = make_pool(1)
    occupy(pool)
    futures = [pool.submit(int) for _ in range(4)]
    asleep = threading.Barrier(6)
    heard: list[Any] = []
    futures[0].add_done_callback(heard.append)

    def result() -> None:
        asleep.wait(20)
        with pytest.raises(CancelledError):
            futures[0].result()

    def waits() -> None:
        asleep.wait(20)
        assert wait(futures).not_done == set()

    def completes() -> None:
        asleep.wait(20)
        assert set(as_completed(futures)) == set(futures)

    def in_a_task() -> None:
        task = other.submit(lambda: (asleep.wait(20), wait(futures)))
        assert task.result(20)[1].not_done == set()

    def first() -> None:
        asleep.wait(20)
        assert next(as_completed(futures)) in futures

    def end() -> None:
        asleep.wait(20)
        pool.shutdown(wait=False, cancel_futures=True)

    together(result, waits, completes, in_a_task, first, end)
    assert heard == [futures[0]]


def test_cancel_futures_after_a_plain_shutdown(make_pool: Make, occupy: Occupy, gate: threading.Event) -> None:
    """Somebody who changes his mind while the pool finishes its queue could not stop it any more."""
    pool = make_pool(1)
    occupy(pool)
    queued = [pool.submit(int) for _ in range(10)]
    pool.shutdown(wait=False)
    pool.shutdown(wait=False, cancel_futures=True)
    assert all(future.cancelled() for future in queued)


def test_a_callback_of_a_cancelled_future_may_use_the_pool(make_pool: Make, occupy: Occupy) -> None:
    """A callback that looks at the pool, shuts it down or submits would lock up in the middle of the shutdown."""
    pool = make_pool(1)
    occupy(pool)
    refused: list[Any] = []

    def callback(_: Any) -> None:
        pool.statistics()
        pool.shutdown(wait=False, cancel_futures=True)
        with contextlib.suppress(filch.PoolShutdown):
            refused.append(pool.submit(int))

    futures = [pool.submit(int) for _ in range(5)]
    for future in futures:
        future.add_done_callback(callback)
    pool.shutdown(wait=False, cancel_futures=True)
    assert all(future.cancelled() for future in futures)
    assert refused == []


# timeout.


def test_a_timeout_ends_the_wait(make_pool: Make, occupy: Occupy, gate: threading.Event) -> None:
    """A shutdown that must not take long would take as long as the slowest task; nobody would learn what is left."""
    pool = make_pool(2)
    running = occupy(pool, 2)
    queued = pool.submit(abs, -1)
    start = time.monotonic()
    left = pool.shutdown(timeout=0.05)
    assert time.monotonic() - start >= 0.05
    assert set(left[:2]) == set(running)
    assert left[2:] == [queued]
    left = pool.shutdown(timeout=0, cancel_futures=True)
    assert set(left) == set(running)
    assert queued.cancelled()
    gate.set()
    assert pool.shutdown(timeout=20) == []


def test_a_timeout_that_is_not_needed_is_not_taken(make_pool: Make) -> None:
    """A quick shutdown would take the whole time it was given."""
    pool = make_pool(2)
    future = pool.submit(abs, -1)
    start = time.monotonic()
    assert pool.shutdown(timeout=40) == []
    assert time.monotonic() - start < 20
    assert future.result(0) == 1


def test_what_is_left_can_be_waited_for(make_pool: Make, occupy: Occupy, gate: threading.Event) -> None:
    """What shutdown returns would not be the futures that the submitter has."""
    pool = make_pool(1)
    (running,) = occupy(pool)
    (left,) = pool.shutdown(wait=False)
    assert left is running
    gate.set()
    assert wait([left], 20).done == {running}


@pytest.mark.parametrize("value", ["1", [], True, float("nan")], ids=repr)
def test_a_bad_timeout_is_refused(make_pool: Make, value: Any) -> None:
    """A mistake would show after the pool was closed, or never end."""
    pool = make_pool(1)
    with pytest.raises((TypeError, ValueError), match="timeout must be"):
        pool.shutdown(timeout=value)
    assert pool.submit(abs, -1).result(20) == 1


@pytest.mark.parametrize("value", [0, -1, -0.5])
def test_a_timeout_that_has_run_out_looks_once(make_pool: Make, occupy: Occupy, value: float) -> None:
    """Time that was used up on the way here would be an error, or no limit."""
    pool = make_pool(1)
    (running,) = occupy(pool)
    assert pool.shutdown(timeout=value) == [running]


# Again, and from everywhere.


def test_shutdown_again_and_again(make_pool: Make, occupy: Occupy, gate: threading.Event) -> None:
    """Cleaning up twice would raise or hang."""
    pool = make_pool(1)
    assert pool.shutdown() == []
    for options in ({}, {"wait": False}, {"cancel_futures": True}, {"timeout": 1}, {"wait": True}):
        assert pool.shutdown(**options) == []  # type: ignore[arg-type]
    with pool:
        pass


def test_shutdown_of_an_unused_pool_starts_nothing(make_pool: Make) -> None:
    """Ending a pool that was never used would hang, or cost threads."""
    before = set(threading.enumerate())
    for _ in range(3):
        with make_pool(3):
            pass
        make_pool(2).shutdown(cancel_futures=True)
        filch.Pool(2)
    assert set(threading.enumerate()) <= before


def test_the_positional_argument_is_wait(make_pool: Make, occupy: Occupy, gate: threading.Event) -> None:
    """`shutdown(False)`, as the standard library takes it, would wait."""
    pool = make_pool(1)
    occupy(pool)
    pool.shutdown(False)
    assert not gate.is_set()
    with pytest.raises(TypeError):
        pool.shutdown(True, True)  # type: ignore[misc]


def test_several_shut_down_at_once(make_pool: Make, occupy: Occupy, gate: threading.Event, together: Together) -> None:
    """Only one of those who wait for the end would be woken, or two would get into each other's way."""
    pool = make_pool(2)
    futures = occupy(pool, 2) + [pool.submit(int) for _ in range(50)]
    ends: list[Any] = [pool.shutdown] * 4
    ends += [lambda: pool.shutdown(wait=False), lambda: pool.shutdown(timeout=30), lambda: gate.set()]
    results = together(*ends)
    assert results[:4] == [[]] * 4
    assert results[5] == []
    assert all(future.done() for future in futures)


@pytest.mark.slow
def test_submitters_beside_a_shutdown(make_pool: Make, together: Together, many_switches: None) -> None:
    """A task that was taken at the last moment would never run, or the shutdown not wait for it."""
    for cancel in (False, True):
        for _ in range(15):
            pool = make_pool(2)
            taken: list[Any] = []

            def submit(pool: filch.Pool = pool, taken: list[Any] = taken) -> None:
                with contextlib.suppress(filch.PoolShutdown):
                    while True:
                        taken.append(pool.submit(int))

            def end(pool: filch.Pool = pool, taken: list[Any] = taken, cancel: bool = cancel) -> None:
                while len(taken) < 50:
                    pass
                pool.shutdown(cancel_futures=cancel)

            together(submit, submit, end)
            assert all(future.done() for future in taken)
            assert cancel or not any(future.cancelled() for future in taken)
            assert len(pool._threads) == 0


@pytest.mark.parametrize("options", [{}, {"wait": True}, {"cancel_futures": True}, {"timeout": 30}], ids=str)
def test_a_task_may_shut_down_its_own_pool(make_pool: Make, options: dict[str, Any]) -> None:
    """A task that ends the program would wait for itself."""
    pool = make_pool(2)
    future = pool.submit(lambda: pool.shutdown(**options) and None)
    assert future.result(20) is None
    with pytest.raises(filch.PoolShutdown):
        pool.submit(int)
    pool.shutdown()
    assert len(pool._threads) == 0


def test_a_done_callback_may_shut_down_the_pool(make_pool: Make, gate: threading.Event) -> None:
    """A callback that ends the program after the last task would wait for the worker it runs on."""
    pool = make_pool(1)
    ended = threading.Event()
    future = pool.submit(gate.wait, 20)
    future.add_done_callback(lambda _: (pool.shutdown(), ended.set()))
    gate.set()
    assert ended.wait(20)
    pool.shutdown()
    assert len(pool._threads) == 0


def test_the_with_block_inside_its_own_task(make_pool: Make) -> None:
    """A task that is handed its own pool and leaves its with block would wait for itself."""
    pool = make_pool(1)

    def task() -> int:
        with pool:
            return pool.submit(abs, -1).result()

    assert pool.submit(task).result(20) == 1


def test_a_task_may_shut_down_another_pool(make_pool: Make) -> None:
    """A task that uses a pool of its own, whose tasks use the outer one, would hold the worker they need."""
    outer = make_pool(1)

    def task() -> int:
        with filch.Pool(1) as inner:
            future = inner.submit(lambda: outer.submit(abs, -1).result())
        return future.result(0)

    assert outer.submit(task).result(20) == 1


def test_a_destructor_may_shut_down_the_pool(make_pool: Make) -> None:
    """An object that owns a pool could not clean up after itself, on whichever thread it goes."""

    class Owner:
        def __init__(self) -> None:
            self.pool = make_pool(2)
            self.future = self.pool.submit(abs, -1)

        def __del__(self) -> None:
            self.pool.shutdown()

    owner = Owner()
    future = owner.future
    del owner
    assert future.result(20) == 1

    owner = Owner()
    owner.cycle = owner  # type: ignore[attr-defined]
    future = owner.future
    del owner
    gc.collect()
    assert future.result(20) == 1


def test_the_last_reference_may_go_in_a_task(make_pool: Make, eventually: Any) -> None:
    """An object that owns the pool and goes on its own worker would wait there for itself."""

    class Owner:
        def __init__(self) -> None:
            self.pool = make_pool(1)

        def __del__(self) -> None:
            self.pool.shutdown()

    box = [Owner()]
    pool = box[0].pool
    future = pool.submit(box.clear)
    assert future.result(20) is None
    eventually(lambda: len(pool._threads) == 0, "the pool ends")
