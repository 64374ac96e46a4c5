"""Futures of tasks: cancel, interrupt, callbacks, waits, await."""

import asyncio
import contextlib
import sys
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, as_completed, wait
from typing import Any

import pytest

import filch

Make = Callable[..., filch.Pool]
Occupy = Callable[..., list[filch.Future[Any]]]


# cancel.


def test_a_cancelled_task_does_not_run(make_pool: Make, occupy: Occupy, gate: threading.Event) -> None:
    """Work that was taken back would be done all the same."""
    pool = make_pool(1)
    ran: list[int] = []
    occupy(pool)
    futures = [pool.submit(ran.append, number) for number in range(6)]
    assert [future.cancel() for future in futures[::2]] == [True] * 3
    gate.set()
    assert pool.wait_idle(20)
    assert ran == [1, 3, 5]
    for future in futures[::2]:
        assert (future.cancelled(), future.done(), future.running()) == (True, True, False)
        assert future.cancel()
        with pytest.raises(CancelledError):
            future.result()
        with pytest.raises(CancelledError):
            future.exception()


def test_a_task_that_runs_or_has_run_is_not_cancelled(make_pool: Make, occupy: Occupy, gate: threading.Event) -> None:
    """A caller would think that work was not done that is done, or under way."""
    pool = make_pool(1)
    (running,) = occupy(pool)
    assert running.running()
    assert not running.cancel()
    gate.set()
    assert running.result(20)
    assert not running.cancel()
    assert not running.cancelled()


def test_a_cancelled_future_wakes_those_who_wait(
    make_pool: Make, occupy: Occupy, together: Callable[..., list[Any]]
) -> None:
    """wait() and as_completed() would sleep until the worker comes to the cancelled task, which may be never."""
    pool = make_pool(1)
    occupy(pool)
    future = pool.submit(int)
    asleep = threading.Barrier(5)

    def result() -> None:
        asleep.wait(20)
        with pytest.raises(CancelledError):
            future.result()

    def waits() -> None:
        asleep.wait(20)
        assert wait([future]).done == {future}

    def completes() -> None:
        asleep.wait(20)
        assert list(as_completed([future])) == [future]

    def in_a_task() -> None:
        other = make_pool(1)
        asleep.wait(20)
        assert other.submit(lambda: wait([future]).done).result(20) == {future}

    def cancel() -> None:
        asleep.wait(20)
        assert future.cancel()

    together(result, waits, completes, in_a_task, cancel)


def test_waiting_for_a_future_that_is_cancelled_already(make_pool: Make, occupy: Occupy) -> None:
    """The same when the wait begins after the cancel, while the worker is still busy."""
    pool = make_pool(1)
    occupy(pool)
    futures = [pool.submit(int) for _ in range(3)]
    for future in futures:
        assert future.cancel()
    assert wait(futures, 20).not_done == set()
    assert set(as_completed(futures, 20)) == set(futures)


def test_cancel_runs_the_callbacks(make_pool: Make, occupy: Occupy) -> None:
    """Whoever listens for the end would not hear of it."""
    pool = make_pool(1)
    occupy(pool)
    future = pool.submit(int)
    called: list[Any] = []
    future.add_done_callback(called.append)
    assert future.cancel()
    assert called == [future]
    future.add_done_callback(called.append)
    assert called == [future] * 2


@pytest.mark.slow
def test_cancel_beside_the_start(make_pool: Make, together: Callable[..., list[Any]], many_switches: None) -> None:
    """A task would run though cancel() said it was cancelled, or be lost though it said it was not."""
    pool = make_pool(2)
    ran: set[int] = set()
    for start in range(0, 3000, 100):
        futures = [pool.submit(ran.add, number) for number in range(start, start + 100)]
        cancelled = {start + number for number, future in enumerate(futures) if future.cancel()}
        assert wait(futures, 20).not_done == set()
        assert pool.wait_idle(20)
        assert {start + number for number, future in enumerate(futures) if future.cancelled()} == cancelled
        assert ran & set(range(start, start + 100)) == set(range(start, start + 100)) - cancelled


def test_cancel_then_shutdown(make_pool: Make) -> None:
    """Cancelled tasks at the end of the queue would keep the pool from ending."""
    for _ in range(30):
        pool = make_pool(1)
        pool.submit(int).result(20)
        for _ in range(10):
            pool.submit(int).cancel()
        pool.shutdown()
        assert len(pool._threads) == 0


# interrupt.


def test_interrupt_cancels_what_has_not_started(make_pool: Make, occupy: Occupy, gate: threading.Event) -> None:
    """A queued task would start although it was asked to stop."""
    pool = make_pool(1)
    ran: list[int] = []
    occupy(pool)
    future = pool.submit(ran.append, 1)
    assert future.interrupt()
    assert future.cancelled()
    gate.set()
    assert pool.wait_idle(20)
    assert ran == []


def test_interrupt_asks_what_runs(make_pool: Make) -> None:
    """A running task would not hear that it should stop; its end would look like a failure, and be logged."""
    pool = make_pool(1)
    entered = threading.Event()

    def task() -> None:
        entered.set()
        while True:
            filch.checkpoint()

    future = pool.submit(task)
    assert entered.wait(20)
    assert future.interrupt()
    with pytest.raises(filch.Cancelled) as raised:
        future.result(20)
    assert isinstance(raised.value, CancelledError)
    assert not future.interrupt()
    assert pool.submit(abs, -1).result(20) == 1


def test_interrupt_after_the_end_says_so(make_pool: Make) -> None:
    """A caller would think that something was stopped."""
    future = make_pool(1).submit(int)
    assert future.result(20) == 0
    assert not future.interrupt()
    assert future.result() == 0


@pytest.mark.slow
@pytest.mark.parametrize("timeout", [None, 40])
def test_interrupt_at_any_moment_of_going_to_sleep(make_pool: Make, gate: threading.Event, timeout: Any) -> None:
    """An interrupt between the last look at it and the announcement of sleep would wake nobody."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        pool = make_pool(2)
        other = pool.submit(gate.wait, 40)
        for _ in range(300):
            entered = threading.Event()

            def task(entered: threading.Event = entered) -> None:
                entered.set()
                other.result(timeout)

            future = pool.submit(task)
            assert entered.wait(20)
            assert future.interrupt()
            assert isinstance(future.exception(20), filch.Cancelled)
    finally:
        sys.setswitchinterval(before)


@pytest.mark.parametrize("how", ["result", "result with a timeout", "wait", "as_completed", "blocked child"])
def test_interrupt_wakes_a_task_that_waits(make_pool: Make, gate: threading.Event, how: str) -> None:
    """A task that sleeps in a wait would not hear that it should stop."""
    pool = make_pool(2)
    entered = threading.Event()
    other = pool.submit(gate.wait, 40)

    def task() -> None:
        entered.set()
        if how == "result":
            other.result()
        elif how == "result with a timeout":
            other.result(40)
        elif how == "wait":
            wait([other])
        elif how == "as_completed":
            list(as_completed([other]))
        else:
            make_pool(1).submit(other.result).result()

    future = pool.submit(task)
    assert entered.wait(20)
    assert future.interrupt()
    assert isinstance(future.exception(20), filch.Cancelled)
    assert not other.done()


def test_an_interrupted_task_is_not_logged_as_lost(make_pool: Make, eventually: Any) -> None:
    """Whoever stops a task would find an error in the log."""
    pool = make_pool(1)
    entered = threading.Event()

    def task() -> None:
        entered.set()
        while True:
            filch.checkpoint()

    future = pool.submit(task)
    assert entered.wait(20)
    assert future.interrupt()
    assert pool.wait_idle(20)
    del future
    pool.submit(int).result(20)  # the log is looked at when the test ends


def test_a_cancelled_of_the_tasks_own_is_an_error(make_pool: Make, log: Any, eventually: Any) -> None:
    """A task that raises Cancelled though nobody asked it to stop would fail and leave no trace."""
    pool = make_pool(1)

    def task() -> None:
        raise filch.Cancelled("of its own")

    pool.submit(task)

    def is_logged() -> bool:
        pool.submit(int).result(20)
        return bool(log.records)

    eventually(is_logged, "it is logged")
    assert "of its own" in str(log.take()[0].exc_info[1])


# Callbacks.


def test_callbacks_run_once_in_their_order(make_pool: Make, gate: threading.Event) -> None:
    """A callback would run twice, never, or before one that was added before it."""
    pool = make_pool(1)
    called: list[int] = []
    future = pool.submit(gate.wait, 20)
    for number in range(10):
        future.add_done_callback(lambda _, number=number: called.append(number))
    gate.set()
    assert pool.wait_idle(20)
    assert called == list(range(10))
    future.add_done_callback(lambda _: called.append(10))
    assert called == list(range(11))


def test_a_callback_may_add_another(make_pool: Make, gate: threading.Event) -> None:
    """A callback that is added by a callback would be forgotten."""
    pool = make_pool(1)
    called: list[str] = []
    future = pool.submit(gate.wait, 20)
    future.add_done_callback(lambda f: f.add_done_callback(lambda _: called.append("inner")))
    gate.set()
    assert pool.wait_idle(20)
    assert called == ["inner"]


@pytest.mark.parametrize("error", [ValueError, SystemExit, KeyboardInterrupt, GeneratorExit, BaseException])
def test_a_callback_that_raises_harms_nobody(
    make_pool: Make, gate: threading.Event, log: Any, error: type[BaseException]
) -> None:
    """It would take down the worker, or keep other callbacks and those who wait from hearing of the end."""
    pool = make_pool(1)
    called: list[str] = []

    def bad(_: Any) -> None:
        raise error("from a callback")

    future = pool.submit(gate.wait, 20)
    future.add_done_callback(bad)
    future.add_done_callback(lambda _: called.append("good"))
    gate.set()
    assert future.result(20)
    assert pool.submit(abs, -2).result(20) == 2
    assert pool.wait_idle(20)
    assert called == ["good"]
    assert pool.statistics().threads_started == 1
    (record,) = log.take("concurrent.futures")
    assert record.getMessage().startswith("exception calling callback for <Future at ")
    assert isinstance(record.exc_info[1], error)


def test_a_callback_may_use_the_pool(make_pool: Make, gate: threading.Event) -> None:
    """A callback that submits would lock up."""
    pool = make_pool(1)
    chained: list[Any] = []
    called = threading.Event()

    def chain(_: Any) -> None:
        chained.append(pool.submit(abs, -1))
        called.set()

    pool.submit(gate.wait, 20).add_done_callback(chain)
    gate.set()
    assert called.wait(20)
    assert chained[0].result(20) == 1


@pytest.mark.parametrize("how", ["result", "wait", "as_completed", "map", "result of a map in another pool"])
def test_a_callback_may_wait_for_the_pool(make_pool: Make, gate: threading.Event, how: str) -> None:
    """A callback that waits for a task of the only worker, on that worker, would wait for ever."""
    pool, other = make_pool(1), make_pool(1)
    seen: list[Any] = []
    called = threading.Event()

    def callback(_: Any) -> None:
        if how == "result":
            seen.append(pool.submit(abs, -1).result(20))
        elif how == "wait":
            seen.extend(future.result() for future in wait([pool.submit(abs, -1)], 20).done)
        elif how == "as_completed":
            seen.extend(future.result() for future in as_completed([pool.submit(abs, -1)], 20))
        elif how == "map":
            seen.extend(pool.map(abs, [-1], timeout=20))
        else:
            seen.extend(other.map(lambda item: pool.submit(abs, item).result(), [-1], timeout=20))
        called.set()

    pool.submit(gate.wait, 20).add_done_callback(callback)
    gate.set()
    assert called.wait(20)
    assert seen == [1]


def test_a_callback_runs_where_the_task_ran(make_pool: Make, gate: threading.Event) -> None:
    """A callback would run in a thread that has nothing to do with it; late ones not in the one that adds them."""
    pool = make_pool(1)
    idents: list[int] = []
    future = pool.submit(lambda: gate.wait(20) and threading.get_ident())
    future.add_done_callback(lambda _: idents.append(threading.get_ident()))
    gate.set()
    assert pool.wait_idle(20)
    future.add_done_callback(lambda _: idents.append(threading.get_ident()))
    assert idents == [future.result(), threading.get_ident()]


# Waiting.


@pytest.mark.parametrize("timeout", [0, 0.0, 0.01, -1])
def test_a_wait_that_is_too_long_ends(make_pool: Make, occupy: Occupy, timeout: float) -> None:
    """A caller with little time would wait on."""
    pool = make_pool(1)
    (running,) = occupy(pool)
    for wait_for in (running.result, running.exception):
        with pytest.raises(TimeoutError):
            wait_for(timeout)
    assert wait([running], timeout).not_done == {running}
    with pytest.raises(TimeoutError):
        list(as_completed([running], timeout))
    assert running.running()


@pytest.mark.parametrize("timeout", [float("inf"), 1e30])
def test_a_very_long_timeout_is_none(make_pool: Make, timeout: float) -> None:
    """A number that stands for "no limit" would be an error."""
    pool = make_pool(1)
    assert pool.submit(abs, -1).result(timeout) == 1
    assert pool.submit(abs, -1).exception(timeout) is None
    assert pool.wait_idle(timeout)
    assert list(pool.map(abs, [-1], timeout=timeout)) == [1]
    assert pool.shutdown(timeout=timeout) == []


def test_many_wait_for_one(make_pool: Make, gate: threading.Event, together: Callable[..., list[Any]]) -> None:
    """Only one of those who wait would be woken."""
    future = make_pool(1).submit(gate.wait, 20)
    assert together(*[future.result] * 8, lambda: gate.set()) == [True] * 8 + [None]


def test_a_wait_that_gave_up_leaves_nothing_behind(make_pool: Make, occupy: Occupy, gate: threading.Event) -> None:
    """A future that is polled would grow with each look."""
    pool = make_pool(1)
    (running,) = occupy(pool)

    def size() -> int:
        side = getattr(running, "_side", None)  # in the native kernel, what waits is on the stack of who waits
        return len(side.sleepers if side is not None else ()) + len(running._waiters)

    for _ in range(20):
        with contextlib.suppress(TimeoutError):
            running.result(0)
        with contextlib.suppress(TimeoutError):
            running.exception(0.0001)
        wait([running], 0)
        with contextlib.suppress(TimeoutError):
            next(as_completed([running], 0))
    assert size() == 0


# await.


def test_a_future_is_awaited(make_pool: Make) -> None:
    """A coroutine would need run_in_executor for what it has as a future."""
    pool = make_pool(1)

    async def program() -> list[int]:
        first = await pool.submit(abs, -1)
        return [first, *await asyncio.gather(*[pool.submit(abs, -number) for number in range(20)])]

    assert asyncio.run(program()) == [1, *range(20)]


def test_an_awaited_error_is_raised(make_pool: Make) -> None:
    """A coroutine would go on as if the task had worked, or get another error."""
    pool = make_pool(1)

    async def program() -> None:
        with pytest.raises(ZeroDivisionError):
            await pool.submit(divmod, 1, 0)
        with pytest.raises(SystemExit):
            await pool.submit(_leave)

    asyncio.run(program())


def _leave() -> None:
    raise SystemExit(3)


def test_a_cancelled_await_cancels_the_task(make_pool: Make, occupy: Occupy, gate: threading.Event) -> None:
    """Work would be done that the coroutine has given up."""
    pool = make_pool(1)
    ran: list[int] = []
    occupy(pool)

    async def program() -> None:
        async def child() -> None:
            await pool.submit(ran.append, 1)

        task = asyncio.ensure_future(child())
        while not pool.statistics().tasks_queued:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(program())
    gate.set()
    assert pool.wait_idle(20)
    assert ran == []


def test_an_await_of_a_cancelled_future_is_cancelled(make_pool: Make, occupy: Occupy) -> None:
    """A coroutine that awaits what was cancelled elsewhere would wait for ever."""
    pool = make_pool(1)
    occupy(pool)

    async def program() -> None:
        future = pool.submit(int)
        asyncio.get_running_loop().call_soon(future.cancel)
        with pytest.raises(asyncio.CancelledError):
            await future

    asyncio.run(program())


def test_an_await_with_a_timeout(make_pool: Make, occupy: Occupy, gate: threading.Event) -> None:
    """A coroutine with little time would wait on; or the running task be taken for cancelled."""
    pool = make_pool(1)
    (running,) = occupy(pool)

    async def program() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await running

    asyncio.run(program())
    assert running.running()
    gate.set()
    assert running.result(20)


def test_an_interrupted_task_is_an_error_in_its_await(make_pool: Make) -> None:
    """A task that was asked to stop would look like the cancellation of the coroutine itself."""
    pool = make_pool(1)
    entered = threading.Event()

    def task() -> None:
        entered.set()
        while True:
            filch.checkpoint()

    async def program() -> None:
        future = pool.submit(task)
        assert entered.wait(20)
        assert future.interrupt()
        with pytest.raises(filch.Cancelled):
            await future

    asyncio.run(program())


def test_awaiting_outlives_no_loop(make_pool: Make, gate: threading.Event) -> None:
    """A task that ends when the loop is closed would raise in the worker, and the next task never run."""
    pool = make_pool(1)

    async def program() -> None:
        async def child() -> None:
            await pool.submit(gate.wait, 20)

        task = asyncio.ensure_future(child())
        while not pool.statistics().tasks_running:
            await asyncio.sleep(0)
        task.cancel()

    asyncio.run(program())
    gate.set()
    assert pool.submit(abs, -1).result(20) == 1
