"""Scenarios of making tasks: from outside, from inside, one from another, and in bulk."""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Generator
from queue import SimpleQueue
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

BATCH = 5_000
SUBMITTERS = 8
CHAIN = 1_000
YIELDERS = 200

NO_SPAWN = "a task cannot make another one"


def batches(size: int) -> list[int]:
    """Return the sizes of the batches that `size` tasks are submitted in."""
    return [min(BATCH, size - start) for start in range(0, size, BATCH)]


# submit


def submit_call(nothing: None, size: int) -> int:
    for _ in range(size):
        noop()
    return size


def submit_executor(pool: Any, size: int) -> int:
    for batch in batches(size):
        futures = [pool.submit(noop) for _ in range(batch)]
        for future in futures:
            future.result()
    return size


def submit_thread_pool(pool: Any, size: int) -> int:
    for batch in batches(size):
        results = [pool.apply_async(noop) for _ in range(batch)]
        for result in results:
            result.get()
    return size


def submit_joblib(parallel: Any, size: int) -> int:
    from joblib import delayed

    for batch in batches(size):
        require(len(parallel(delayed(noop)() for _ in range(batch))), batch)
    return size


def submit_hypertile(pool: Any, size: int) -> int:
    for batch in batches(size):
        pool.wait([pool.spawn(noop) for _ in range(batch)])
    return size


async def gather_noops(size: int) -> None:
    await asyncio.gather(*[asyncio.create_task(async_noop()) for _ in range(size)])


def submit_asyncio(runner: asyncio.Runner, size: int) -> int:
    for batch in batches(size):
        runner.run(gather_noops(batch))
    return size


SUBMIT = Scenario(
    name="submit",
    what=f"submit tasks that do nothing from outside, {BATCH:,} at a time, then take every result",
    operation="task",
    size=4 * BATCH,
    cases={
        CALL: timed(submit_call),
        THREAD_POOL_EXECUTOR: timed(submit_executor),
        THREAD_POOL: timed(submit_thread_pool),
        JOBLIB: timed(submit_joblib),
        ASYNCIO: timed(submit_asyncio),
        HYPERTILE: timed(submit_hypertile),
        FILCH: timed(submit_executor),
    },
    programs=True,
)


# fan-out


def fan_out_executor(pool: Any, size: int) -> int:
    return int(pool.submit(submit_executor, pool, size).result())


def fan_out_thread_pool(pool: Any, size: int) -> int:
    return int(pool.apply_async(submit_thread_pool, (pool, size)).get())


def fan_out_asyncio(runner: asyncio.Runner, size: int) -> int:
    async def root() -> None:
        for batch in batches(size):
            await gather_noops(batch)

    runner.run(root())
    return size


FAN_OUT = Scenario(
    name="fanout",
    what=f"a task submits tasks that do nothing, {BATCH:,} at a time, and takes every result",
    operation="task",
    size=4 * BATCH,
    cases={
        CALL: timed(submit_call),
        THREAD_POOL_EXECUTOR: timed(fan_out_executor),
        THREAD_POOL: timed(fan_out_thread_pool),
        ASYNCIO: timed(fan_out_asyncio),
        FILCH: timed(fan_out_executor),
    },
    left_out={JOBLIB: NO_SPAWN, HYPERTILE: "a task cannot wait for another one"},
)


# submitters


def by_submitters(work: Any, opened: Any, size: int) -> float:
    """Measure `work` done by several threads at once, each its share, without the start of the threads."""
    share = max(1, size // SUBMITTERS)
    gate = threading.Barrier(SUBMITTERS + 1)
    failures = []

    def submitter() -> None:
        gate.wait()
        try:
            work(opened, share)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=submitter) for _ in range(SUBMITTERS)]
    for thread in threads:
        thread.start()
    gate.wait()
    start = time.perf_counter_ns()
    for thread in threads:
        thread.join()
    elapsed = time.perf_counter_ns() - start
    if failures:
        raise failures[0]
    return elapsed / (share * SUBMITTERS)


def submit_loop_in_thread(loop: asyncio.AbstractEventLoop, size: int) -> int:
    futures = [asyncio.run_coroutine_threadsafe(async_noop(), loop) for _ in range(size)]
    for future in futures:
        future.result()
    return size


SUBMIT_FROM_MANY = Scenario(
    name="submitters",
    what=f"{SUBMITTERS} outside threads submit tasks that do nothing and take every result",
    operation="task",
    size=8_000,
    smallest=SUBMITTERS,
    cases={
        CALL: Case(lambda opened, size: by_submitters(submit_call, opened, size)),
        THREAD_POOL_EXECUTOR: Case(lambda opened, size: by_submitters(submit_executor, opened, size)),
        THREAD_POOL: Case(lambda opened, size: by_submitters(submit_thread_pool, opened, size)),
        ASYNCIO: Case(lambda opened, size: by_submitters(submit_loop_in_thread, opened, size), open_loop_in_thread),
        FILCH: Case(lambda opened, size: by_submitters(submit_executor, opened, size)),
    },
    left_out={JOBLIB: "a Parallel belongs to one thread", HYPERTILE: "the loop that waits belongs to one thread"},
)


# chain


def chains(size: int) -> tuple[int, int]:
    """Return how many chains, and of how many hops each, make about `size` hops."""
    hops = min(CHAIN, size)
    return size // hops, hops


def chain_call(nothing: None, size: int) -> int:
    def hop(left: int) -> int | None:
        return left - 1 if left else None

    count, hops = chains(size)
    for _ in range(count):
        left: int | None = hops - 1
        while left is not None:
            left = hop(left)
    return count * hops


def run_chains(submit: Any, size: int) -> int:
    """Run chains of tasks; `submit` takes a function and its one argument."""
    ended: SimpleQueue[None] = SimpleQueue()

    def hop(left: int) -> None:
        if left:
            submit(hop, left - 1)
        else:
            ended.put(None)

    count, hops = chains(size)
    for _ in range(count):
        submit(hop, hops - 1)
        ended.get()
    return count * hops


def chain_executor(pool: Any, size: int) -> int:
    return run_chains(pool.submit, size)


def chain_thread_pool(pool: Any, size: int) -> int:
    return run_chains(lambda function, argument: pool.apply_async(function, (argument,)), size)


def chain_asyncio(runner: asyncio.Runner, size: int) -> int:
    count, hops = chains(size)

    async def chain() -> None:
        ended = asyncio.get_running_loop().create_future()
        running: list[asyncio.Task[None]] = []

        async def hop(left: int) -> None:
            if left:
                running[:] = [asyncio.create_task(hop(left - 1))]
            else:
                ended.set_result(None)

        running[:] = [asyncio.create_task(hop(hops - 1))]
        await ended

    for _ in range(count):
        runner.run(chain())
    return count * hops


CHAINED = Scenario(
    name="chain",
    what=f"each task submits the next one and ends, {CHAIN:,} deep",
    operation="hop",
    size=10 * CHAIN,
    cases={
        CALL: timed(chain_call),
        THREAD_POOL_EXECUTOR: timed(chain_executor),
        THREAD_POOL: timed(chain_thread_pool),
        ASYNCIO: timed(chain_asyncio),
        HYPERTILE: timed(lambda pool, size: run_chains(pool.spawn, size)),
        FILCH: timed(chain_executor),
    },
    left_out={JOBLIB: NO_SPAWN},
    programs=True,
)


# yield


def turns(size: int) -> tuple[int, int]:
    """Return how many tasks, and how many turns each, make about `size` turns."""
    tasks = min(YIELDERS, size)
    return tasks, size // tasks


def yield_call(nothing: None, size: int) -> int:
    tasks, each = turns(size)

    def turn() -> Generator[None, None, None]:
        for _ in range(each - 1):
            yield

    ready = deque(turn() for _ in range(tasks))
    while ready:
        task = ready.popleft()
        for _ in task:
            ready.append(task)
            break
    return tasks * each


def run_turns(submit: Any, size: int) -> int:
    """Run tasks that submit themselves again; `submit` takes a function and its one argument."""
    tasks, each = turns(size)
    ended: SimpleQueue[None] = SimpleQueue()

    def turn(left: int) -> None:
        if left:
            submit(turn, left - 1)
        else:
            ended.put(None)

    for _ in range(tasks):
        submit(turn, each - 1)
    for _ in range(tasks):
        ended.get()
    return tasks * each


def yield_executor(pool: Any, size: int) -> int:
    return run_turns(pool.submit, size)


def yield_thread_pool(pool: Any, size: int) -> int:
    return run_turns(lambda function, argument: pool.apply_async(function, (argument,)), size)


def yield_asyncio(runner: asyncio.Runner, size: int) -> int:
    tasks, each = turns(size)

    async def turn() -> None:
        for _ in range(each - 1):
            await asyncio.sleep(0)

    async def root() -> None:
        await asyncio.gather(*[asyncio.create_task(turn()) for _ in range(tasks)])

    runner.run(root())
    return tasks * each


YIELD = Scenario(
    name="yield",
    what=f"{YIELDERS} tasks take turns: each submits itself again until it has had its share",
    operation="turn",
    size=50 * YIELDERS,
    cases={
        CALL: timed(yield_call),
        THREAD_POOL_EXECUTOR: timed(yield_executor),
        THREAD_POOL: timed(yield_thread_pool),
        ASYNCIO: timed(yield_asyncio),
        HYPERTILE: timed(lambda pool, size: run_turns(pool.spawn, size)),
        FILCH: timed(yield_executor),
    },
    left_out={JOBLIB: NO_SPAWN},
)


# map


def same(item: int) -> int:
    return item


def map_call(nothing: None, size: int) -> int:
    require(list(map(same, range(size)))[-1], size - 1)
    return size


def map_pool(pool: Any, size: int) -> int:
    require(list(pool.map(same, range(size)))[-1], size - 1)
    return size


def map_joblib(parallel: Any, size: int) -> int:
    from joblib import delayed

    require(parallel(delayed(same)(item) for item in range(size))[-1], size - 1)
    return size


def map_asyncio(runner: asyncio.Runner, size: int) -> int:
    async def async_same(item: int) -> int:
        return item

    async def root() -> list[int]:
        return await asyncio.gather(*[async_same(item) for item in range(size)])

    require(runner.run(root())[-1], size - 1)
    return size


def map_hypertile(pool: Any, size: int) -> int:
    (results,) = pool.wait(pool.map(same, range(size)))
    require(results[-1], size - 1)
    return size


MAP = Scenario(
    name="map",
    what="map a function that returns its argument over a range, into a list",
    operation="item",
    size=20_000,
    cases={
        CALL: timed(map_call),
        THREAD_POOL_EXECUTOR: timed(map_pool),
        THREAD_POOL: timed(map_pool),
        JOBLIB: timed(map_joblib),
        ASYNCIO: timed(map_asyncio),
        HYPERTILE: timed(map_hypertile),
        FILCH: timed(map_pool),
    },
)
