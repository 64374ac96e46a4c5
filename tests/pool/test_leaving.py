"""Leaving `with` and `async with`, and pools that are dropped."""

import asyncio
import gc
import signal
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

import pytest

import filch

Make = Callable[..., filch.Pool]
Occupy = Callable[..., list[filch.Future[Any]]]


class Boom(Exception):
    """What is raised inside of blocks."""


# with.


def test_leaving_waits_for_all() -> None:
    """The lines after the block would run before its work is done."""
    ran: list[int] = []
    with filch.Pool(2) as pool:
        for number in range(100):
            pool.submit(ran.append, number)
    assert len(ran) == 100
    assert len(pool._threads) == 0


@pytest.mark.parametrize("error", [Boom, KeyboardInterrupt, SystemExit, GeneratorExit, asyncio.CancelledError])
def test_leaving_by_an_error_cancels_the_queue(
    make_pool: Make, occupy: Occupy, gate: threading.Event, error: type[BaseException]
) -> None:
    """An error inside the block would come out only when the whole queue was worked off."""
    ran: list[int] = []
    with pytest.raises(error), make_pool(1) as pool:  # noqa: PT012
        occupy(pool)
        queued = [pool.submit(ran.append, number) for number in range(100)]
        queued[0].add_done_callback(lambda _: gate.set())  # when it is cancelled, the running task may end
        raise error
    assert ran == []
    assert all(future.cancelled() for future in queued)
    assert len(pool._threads) == 0


def test_leaving_by_an_error_waits_for_what_runs(make_pool: Make, gate: threading.Event) -> None:
    """A running task would still use what the program cleans up behind the block."""
    ended: list[int] = []
    entered = threading.Event()

    def task() -> None:
        entered.set()
        gate.wait(20)
        ended.append(1)

    with pytest.raises(Boom), make_pool(1) as pool:  # noqa: PT012
        pool.submit(task)
        pool.submit(int).add_done_callback(lambda _: gate.set())
        assert entered.wait(20)
        raise Boom
    assert ended == [1]


def test_the_error_that_leaves_is_the_one_that_was_raised(make_pool: Make) -> None:
    """The user would see an error of the pool, or a chain with one, in the place of his own."""
    pool = make_pool(1)
    with pytest.raises(Boom) as raised, pool:  # noqa: PT012
        pool.shutdown()
        raise Boom
    assert raised.value.__context__ is None


@pytest.mark.parametrize("failing", [True, False])
def test_exit_timeout_bounds_the_leaving(make_pool: Make, occupy: Occupy, gate: threading.Event, failing: bool) -> None:
    """A result that timed out would raise on time, but the block would wait for the stuck worker."""
    pool = make_pool(1, exit_timeout=0.05)
    start = time.monotonic()
    try:
        with pool:
            (running,) = occupy(pool)
            if failing:
                running.result(0.01)
    except TimeoutError:
        assert failing
    assert not gate.is_set()
    assert running.running()
    assert time.monotonic() - start < 10


def test_a_block_may_be_entered_again(make_pool: Make) -> None:
    """The standard library lets a pool be entered while it is entered; the inner block ends it."""
    pool = make_pool(1)
    with pool, pool as same:
        assert same is pool
        assert pool.submit(abs, -1).result(20) == 1
    with pytest.raises(filch.PoolShutdown), pool:
        pool.submit(int)


@pytest.mark.skipif(not hasattr(signal, "raise_signal"), reason="there are no signals here")
def test_ctrl_c_while_leaving_cancels_and_comes_out_at_once(
    make_pool: Make, occupy: Occupy, gate: threading.Event, run_script: Callable[..., str]
) -> None:
    """Somebody who presses Ctrl-C while the block waits would wait on, for the queue and for what runs."""
    source = """
import filch, signal, threading, os, _thread
gate, queued = threading.Event(), []
pool = filch.Pool(1, daemon=True)
try:
    with pool:
        entered = threading.Event()
        pool.submit(lambda: (entered.set(), gate.wait()))
        assert entered.wait(20)
        queued += [pool.submit(int) for _ in range(10)]
        helper = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
        helper.start()
except KeyboardInterrupt:
    print("out", all(future.cancelled() for future in queued), gate.is_set())
"""
    assert run_script(source) == "out True False\n"


# async with.


def test_async_with_keeps_the_loop_alive(make_pool: Make, occupy: Occupy, gate: threading.Event) -> None:
    """Leaving the block would stop the whole program until the last task has ended."""
    ran: list[int] = []

    async def program() -> None:
        asyncio.get_running_loop().call_later(0.02, gate.set)  # never, if the loop stands still
        async with make_pool(1) as pool:
            occupy(pool)
            pool.submit(ran.append, 1)
        assert gate.is_set()
        assert len(pool._threads) == 0

    asyncio.run(program())
    assert ran == [1]


def test_async_with_left_by_an_error_cancels_the_queue(make_pool: Make, occupy: Occupy, gate: threading.Event) -> None:
    """An error inside the block would come out only when the whole queue was worked off."""

    async def program() -> None:
        with pytest.raises(Boom):  # noqa: PT012
            async with make_pool(1) as pool:
                occupy(pool)
                queued = [pool.submit(int) for _ in range(10)]
                queued[0].add_done_callback(lambda _: gate.set())
                raise Boom
        assert all(future.cancelled() for future in queued)

    asyncio.run(program())


def test_async_with_of_a_cancelled_coroutine(make_pool: Make, occupy: Occupy, gate: threading.Event) -> None:
    """A coroutine that is cancelled inside the block would not be cancelled, or not leave the pool."""

    async def program() -> list[Any]:
        queued: list[Any] = []

        async def child() -> None:
            async with make_pool(1) as pool:
                occupy(pool)
                queued.extend(pool.submit(int) for _ in range(10))
                queued[0].add_done_callback(lambda _: gate.set())
                await asyncio.Event().wait()

        task = asyncio.ensure_future(child())
        while not queued:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return queued

    assert all(future.cancelled() for future in asyncio.run(program()))


def test_async_with_cancelled_while_it_leaves(make_pool: Make, occupy: Occupy, gate: threading.Event) -> None:
    """A coroutine that runs out of time while the pool ends would wait on, or its queue still be worked off."""
    queued: list[Any] = []

    async def program() -> None:
        with pytest.raises(TimeoutError):  # noqa: PT012
            async with asyncio.timeout(0.05):
                async with make_pool(1) as pool:
                    occupy(pool)
                    queued.extend(pool.submit(int) for _ in range(10))
        assert not gate.is_set()
        assert all(future.cancelled() for future in queued)
        gate.set()

    asyncio.run(program())


def test_async_with_heeds_exit_timeout(make_pool: Make, occupy: Occupy, gate: threading.Event) -> None:
    """The bound would hold for the one block and not for the other."""

    async def program() -> None:
        async with make_pool(1, exit_timeout=0.05) as pool:
            occupy(pool)

    asyncio.run(program())
    assert not gate.is_set()


def test_async_with_of_an_unused_pool(make_pool: Make) -> None:
    """A block in which nothing is submitted would hang."""

    async def program() -> None:
        async with make_pool(2) as pool:
            assert isinstance(pool, filch.Pool)
        async with pool:
            pass

    asyncio.run(program())


# Dropped.


def test_a_dropped_pool_finishes_its_queue(eventually: Any) -> None:
    """Work that was taken would never be done because nobody holds the pool."""
    ran: list[int] = []
    gate, running = threading.Event(), threading.Event()
    pool = filch.Pool(1)
    pool.submit(lambda: (running.set(), gate.wait(20)))
    assert running.wait(20)
    futures = [pool.submit(ran.append, number) for number in range(100)]
    threads = pool._threads
    ref = weakref.ref(pool)
    del pool
    gc.collect()
    assert ref() is None
    gate.set()
    assert [future.result(20) for future in futures] == [None] * 100
    assert ran == list(range(100))
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()


@pytest.mark.parametrize("used", [0, 1, 5])
def test_a_dropped_pool_ends_its_threads(eventually: Any, used: int) -> None:
    """Every pool that is forgotten would leave its threads behind for good."""
    before = set(threading.enumerate())
    for _ in range(5):
        pool = filch.Pool(3)
        for future in [pool.submit(int) for _ in range(used)]:
            future.result(20)
        assert pool.wait_idle(20)
        del pool
    gc.collect()
    eventually(lambda: set(threading.enumerate()) <= before, "the threads end")


def test_a_pool_in_a_circle_is_dropped(eventually: Any) -> None:
    """A pool that hangs on an object that hangs on it, as in any class with callbacks, would never end."""

    class Service:
        def __init__(self) -> None:
            self.pool = filch.Pool(2)
            self.futures = [self.pool.submit(self.work) for _ in range(5)]

        def work(self) -> "Service":
            return self

    before = set(threading.enumerate())
    service = Service()
    for future in service.futures:
        future.result(20)
    ref = weakref.ref(service)
    del service, future

    def is_gone() -> bool:
        gc.collect()
        return ref() is None and set(threading.enumerate()) <= before

    eventually(is_gone, "the service and its threads go")


def test_a_dropped_pool_lets_its_tasks_fork_and_join() -> None:
    """Tasks of a dropped pool could not wait for tasks of their own."""
    gate = threading.Event()

    def fib(n: int) -> int:
        return n if n < 2 else filch.spawn(fib, n - 1).result() + filch.spawn(fib, n - 2).result()

    pool = filch.Pool(1)
    pool.submit(gate.wait, 20)
    future = pool.submit(fib, 7)
    del pool
    gc.collect()
    gate.set()
    assert future.result(20) == 13


def test_the_last_reference_to_a_pool_may_be_in_a_task() -> None:
    """A pool that is dropped by one of its own tasks would wait for it, or lose what is queued behind it."""
    box = [filch.Pool(1)]
    first = box[0].submit(lambda: box.clear() or (gc.collect() and None))
    try:
        second = box[0].submit(abs, -1)
    except IndexError:
        second = None
    assert first.result(20) is None
    assert second is None or second.result(20) == 1
