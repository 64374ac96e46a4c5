"""Scenarios in which somebody waits for a task: another task, or a thread outside an idle pool."""

import asyncio
import statistics
import time
from collections.abc import Callable
from typing import Any

from .contenders import (
    ASYNCIO,
    CALL,
    FILCH,
    HYPERTILE,
    JOBLIB,
    THREAD_POOL,
    THREAD_POOL_EXECUTOR,
    async_noop,
    noop,
    open_loop_in_thread,
)
from .scenario import Case, Scenario, require, timed

DEPTH = 64
BRANCHES = 10
# Between two round trips, so that the workers have gone to sleep: the time of a few thread switches.
PAUSE_SECONDS = 0.0005

DEADLOCK = "it deadlocks once every worker waits for a task"
CANNOT_WAIT = {
    THREAD_POOL_EXECUTOR: DEADLOCK,
    THREAD_POOL: DEADLOCK,
    JOBLIB: "a task cannot make another one and wait for it",
    HYPERTILE: "a task cannot wait for another one",
}


# fib


def fib(n: int) -> int:
    return n if n < 2 else fib(n - 1) + fib(n - 2)


def forks(size: int) -> tuple[int, int, int]:
    """Return the largest n whose fib(n) forks at most `size` times, but at least 2; how often it forks; and fib(n)."""
    n, value, following = 2, 1, 2
    # fib(n) forks fib(n + 1) - 1 times.
    while value + following - 1 <= size:
        n, value, following = n + 1, following, value + following
    return n, following - 1, value


def fib_call(nothing: None, size: int) -> int:
    n, count, value = forks(size)
    require(fib(n), value)
    return count


def fib_executor(pool: Any, size: int) -> int:
    submit = pool.submit

    def fork(n: int) -> int:
        if n < 2:
            return n
        future = submit(fork, n - 1)
        return fork(n - 2) + int(future.result())

    n, count, value = forks(size)
    require(submit(fork, n).result(), value)
    return count


def fib_asyncio(runner: asyncio.Runner, size: int) -> int:
    async def fork(n: int) -> int:
        if n < 2:
            return n
        task = asyncio.create_task(fork(n - 1))
        return await fork(n - 2) + await task

    n, count, value = forks(size)
    require(runner.run(fork(n)), value)
    return count


FIB = Scenario(
    name="fib",
    what="Fibonacci numbers without a cut-off: one half is a task, the other a call, then the first is waited for",
    operation="task",
    size=10_945,  # fib(20)
    cases={CALL: timed(fib_call), ASYNCIO: timed(fib_asyncio), FILCH: timed(fib_executor)},
    left_out=CANNOT_WAIT,
    programs=True,
)


# nested


def descents(size: int) -> tuple[int, int]:
    """Return how many descents, and how deep each, make about `size` levels."""
    depth = min(DEPTH, size)
    return size // depth, depth


def run_descents(descend: Callable[[int], int], size: int) -> int:
    count, depth = descents(size)
    for _ in range(count):
        require(descend(depth), depth)
    return count * depth


def nested_call(nothing: None, size: int) -> int:
    def descend(left: int) -> int:
        return 1 + descend(left - 1) if left else 0

    return run_descents(descend, size)


def nested_executor(pool: Any, size: int) -> int:
    def descend(left: int) -> int:
        return 1 + int(pool.submit(descend, left - 1).result()) if left else 0

    return run_descents(descend, size)


def nested_asyncio(runner: asyncio.Runner, size: int) -> int:
    async def descend(left: int) -> int:
        return 1 + await asyncio.create_task(descend(left - 1)) if left else 0

    return run_descents(lambda depth: runner.run(descend(depth)), size)


NESTED = Scenario(
    name="nested",
    what=f"a task submits another one and waits for it, {DEPTH} deep",
    operation="level",
    size=20 * DEPTH,
    cases={CALL: timed(nested_call), ASYNCIO: timed(nested_asyncio), FILCH: timed(nested_executor)},
    left_out=CANNOT_WAIT,
)


# ping-pong


def ping_pong_call(nothing: None, size: int) -> int:
    def ping() -> None:
        noop()

    for _ in range(size):
        ping()
    return size


def ping_pong_executor(pool: Any, size: int) -> int:
    def ping() -> None:
        pool.submit(noop).result()

    futures = [pool.submit(ping) for _ in range(size)]
    for future in futures:
        future.result()
    return size


def ping_pong_asyncio(runner: asyncio.Runner, size: int) -> int:
    async def ping() -> None:
        await asyncio.create_task(async_noop())

    async def root() -> None:
        await asyncio.gather(*[asyncio.create_task(ping()) for _ in range(size)])

    runner.run(root())
    return size


PING_PONG = Scenario(
    name="pingpong",
    what="tasks that all at once submit a partner each and wait for its answer",
    operation="pair",
    size=1_000,
    cases={CALL: timed(ping_pong_call), ASYNCIO: timed(ping_pong_asyncio), FILCH: timed(ping_pong_executor)},
    left_out=CANNOT_WAIT,
)


# skynet


def tree(size: int) -> tuple[int, int]:
    """Return the leaves and the nodes of the largest full tree with at most `size` nodes, but at least one level."""
    leaves, nodes = BRANCHES, BRANCHES + 1
    while nodes * BRANCHES + 1 <= size:
        leaves, nodes = leaves * BRANCHES, nodes * BRANCHES + 1
    return leaves, nodes


def skynet_call(nothing: None, size: int) -> int:
    def node(first: int, leaves: int) -> int:
        if leaves == 1:
            return first
        part = leaves // BRANCHES
        return sum([node(first + branch * part, part) for branch in range(BRANCHES)])

    leaves, nodes = tree(size)
    require(node(0, leaves), leaves * (leaves - 1) // 2)
    return nodes


def skynet_executor(pool: Any, size: int) -> int:
    submit = pool.submit

    def node(first: int, leaves: int) -> int:
        if leaves == 1:
            return first
        part = leaves // BRANCHES
        futures = [submit(node, first + branch * part, part) for branch in range(BRANCHES)]
        return sum([future.result() for future in futures])

    leaves, nodes = tree(size)
    require(submit(node, 0, leaves).result(), leaves * (leaves - 1) // 2)
    return nodes


def skynet_asyncio(runner: asyncio.Runner, size: int) -> int:
    async def node(first: int, leaves: int) -> int:
        if leaves == 1:
            return first
        part = leaves // BRANCHES
        tasks = [asyncio.create_task(node(first + branch * part, part)) for branch in range(BRANCHES)]
        return sum([await task for task in tasks])

    leaves, nodes = tree(size)
    require(runner.run(node(0, leaves)), leaves * (leaves - 1) // 2)
    return nodes


SKYNET = Scenario(
    name="skynet",
    what=f"a tree of tasks, each with {BRANCHES} children that it waits for, that sums the numbers of its leaves",
    operation="task",
    size=11_111,  # four levels
    cases={CALL: timed(skynet_call), ASYNCIO: timed(skynet_asyncio), FILCH: timed(skynet_executor)},
    left_out=CANNOT_WAIT,
)


# round trip


def round_trips(trip: Callable[[Any], object]) -> Case:
    """Return the case that measures single trips, with a pause before each, and takes the median."""

    def measure(opened: Any, size: int) -> float:
        nanoseconds = []
        for _ in range(size):
            time.sleep(PAUSE_SECONDS)
            start = time.perf_counter_ns()
            trip(opened)
            nanoseconds.append(time.perf_counter_ns() - start)
        return statistics.median(nanoseconds)

    return Case(measure)


def trip_joblib(parallel: Any) -> None:
    from joblib import delayed

    parallel([delayed(noop)()])


def trip_loop_in_thread(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.run_coroutine_threadsafe(async_noop(), loop).result()


ROUND_TRIP = Scenario(
    name="roundtrip",
    what="submit one task to an idle pool and wait for it (the median of the trips)",
    operation="trip",
    size=300,
    cases={
        CALL: round_trips(lambda _: noop()),
        THREAD_POOL_EXECUTOR: round_trips(lambda pool: pool.submit(noop).result()),
        THREAD_POOL: round_trips(lambda pool: pool.apply_async(noop).get()),
        JOBLIB: round_trips(trip_joblib),
        ASYNCIO: Case(round_trips(trip_loop_in_thread).measure, open_loop_in_thread),
        HYPERTILE: round_trips(lambda pool: pool.wait(pool.spawn(noop))),
        FILCH: round_trips(lambda pool: pool.submit(noop).result()),
    },
)
