"""Scenarios of a pool under a load, or under none: CPU, memory, and what a task waits when workers are blocked."""

import asyncio
import random
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
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

NOT_MEASURED_BY_CALLS = "a plain call never waits"
LAZY = "it takes a task only when a worker is free for it"


# feed

FEED_SECONDS = 0.001


def feed(submit: Callable[[Any], object]) -> Case:
    """Return the case that measures the CPU time of the whole process for a task that comes each millisecond."""

    def measure(opened: Any, size: int) -> float:
        start = time.process_time_ns()
        for _ in range(size):
            submit(opened)
            time.sleep(FEED_SECONDS)
        return (time.process_time_ns() - start) / size

    return Case(measure)


def feed_joblib(parallel: Any) -> None:
    from joblib import delayed

    parallel([delayed(noop)()])


FEED = Scenario(
    name="feed",
    what="CPU time of the whole process for one task that does nothing each millisecond, its feeder included",
    operation="task",
    size=300,
    cases={
        CALL: feed(lambda _: noop()),
        THREAD_POOL_EXECUTOR: feed(lambda pool: pool.submit(noop)),
        THREAD_POOL: feed(lambda pool: pool.apply_async(noop)),
        JOBLIB: feed(feed_joblib),
        ASYNCIO: Case(
            feed(lambda loop: asyncio.run_coroutine_threadsafe(async_noop(), loop)).measure, open_loop_in_thread
        ),
        HYPERTILE: feed(lambda pool: pool.spawn(noop)),
        FILCH: feed(lambda pool: pool.submit(noop)),
    },
)


# storm

BLOCKERS = 16
BLOCK_SECONDS = 0.1
SHORT_TASKS = 1_000


def block_seconds(size: int) -> float:
    """Return how long a blocker sleeps: less in a run of a smaller scale, so that it ends sooner."""
    return BLOCK_SECONDS * min(1.0, size / SHORT_TASKS)


def percentile_99(values: list[int]) -> float:
    return sorted(values)[len(values) * 99 // 100]


def storm(submit: Callable[..., Any], block: Callable[[float], None], size: int) -> float:
    """Measure what a short task waits from its submission to its start; `submit` returns how to wait for the end."""
    waits: SimpleQueue[int] = SimpleQueue()

    def short(submitted: int) -> None:
        waits.put(time.perf_counter_ns() - submitted)

    ends = [submit(block, block_seconds(size)) for _ in range(BLOCKERS)]
    ends += [submit(short, time.perf_counter_ns()) for _ in range(size)]
    for end in ends:
        end()
    return percentile_99([waits.get_nowait() for _ in range(size)])


def storm_executor(pool: Any, size: int) -> float:
    return storm(lambda function, argument: pool.submit(function, argument).result, time.sleep, size)


def storm_thread_pool(pool: Any, size: int) -> float:
    return storm(lambda function, argument: pool.apply_async(function, (argument,)).get, time.sleep, size)


def storm_filch(pool: Any, size: int) -> float:
    import filch

    def block(seconds: float) -> None:
        with filch.blocking():
            time.sleep(seconds)

    return storm(lambda function, argument: pool.submit(function, argument).result, block, size)


def storm_asyncio(runner: asyncio.Runner, size: int) -> float:
    waits = []

    async def short(submitted: int) -> None:
        waits.append(time.perf_counter_ns() - submitted)

    async def root() -> None:
        tasks = [asyncio.create_task(asyncio.sleep(block_seconds(size))) for _ in range(BLOCKERS)]
        tasks += [asyncio.create_task(short(time.perf_counter_ns())) for _ in range(size)]
        await asyncio.gather(*tasks)

    runner.run(root())
    return percentile_99(waits)


STORM = Scenario(
    name="storm",
    what=f"what short tasks wait for their start, 99th percentile, behind {BLOCKERS} tasks that sleep 100 ms",
    operation="wait",
    size=SHORT_TASKS,
    most_rounds=5,
    warm=False,
    cases={
        THREAD_POOL_EXECUTOR: Case(storm_executor),
        THREAD_POOL: Case(storm_thread_pool),
        ASYNCIO: Case(storm_asyncio),
        FILCH: Case(storm_filch),
    },
    left_out={CALL: NOT_MEASURED_BY_CALLS, JOBLIB: LAZY, HYPERTILE: "nothing but a loop can wait for its tasks"},
)


# cpu

SHARES = 64


def uneven_shares(size: int) -> list[int]:
    """Return how many turns each task does: the same in every run, a few tasks long and most short."""
    chance = random.Random(7)
    weights = [min(8.0, chance.paretovariate(1.2)) for _ in range(SHARES)]
    return [max(1, round(size * weight / sum(weights))) for weight in weights]


def burn(turns: int) -> int:
    """Use CPU time in pure Python."""
    total = 0
    for turn in range(turns):
        total += turn & 7
    return total


def cpu_call(nothing: None, size: int) -> int:
    shares = uneven_shares(size)
    for share in shares:
        burn(share)
    return sum(shares)


def cpu_executor(pool: Any, size: int) -> int:
    shares = uneven_shares(size)
    futures = [pool.submit(burn, share) for share in shares]
    for future in futures:
        future.result()
    return sum(shares)


def cpu_thread_pool(pool: Any, size: int) -> int:
    shares = uneven_shares(size)
    results = [pool.apply_async(burn, (share,)) for share in shares]
    for result in results:
        result.get()
    return sum(shares)


def cpu_hypertile(pool: Any, size: int) -> int:
    shares = uneven_shares(size)
    pool.wait([pool.spawn(burn, share) for share in shares])
    return sum(shares)


def cpu_joblib(parallel: Any, size: int) -> int:
    from joblib import delayed

    shares = uneven_shares(size)
    require(len(parallel(delayed(burn)(share) for share in shares)), SHARES)
    return sum(shares)


CPU = Scenario(
    name="cpu",
    what=f"{SHARES} tasks of uneven length that compute in pure Python; the plain call does them one after another",
    operation="loop turn",
    size=2_000_000,
    cases={
        CALL: timed(cpu_call),
        THREAD_POOL_EXECUTOR: timed(cpu_executor),
        THREAD_POOL: timed(cpu_thread_pool),
        JOBLIB: timed(cpu_joblib),
        HYPERTILE: timed(cpu_hypertile),
        FILCH: timed(cpu_executor),
    },
    left_out={ASYNCIO: "its one thread computes as the plain call does"},
)


# memory


def footprint(contender: str) -> Case:
    """Return the case that measures in a fresh process, whose memory nobody else has used."""

    def measure(workers: int, size: int) -> float:
        command = [sys.executable, "-m", "benchmarks.footprint", contender, str(size), str(workers)]
        root = Path(__file__).parents[1]
        return float(subprocess.run(command, cwd=root, check=True, stdout=subprocess.PIPE, text=True).stdout)

    return Case(measure, nullcontext)


MEMORY = Scenario(
    name="memory",
    what="resident memory that a waiting task takes, in a fresh process whose workers are busy",
    operation="task",
    size=50_000,
    smallest=20_000,  # with fewer, the pages that memory comes in say more than the tasks
    unit="B",
    most_rounds=3,
    warm=False,
    cases={name: footprint(name) for name in (THREAD_POOL_EXECUTOR, THREAD_POOL, ASYNCIO, HYPERTILE, FILCH)},
    left_out={CALL: NOT_MEASURED_BY_CALLS, JOBLIB: LAZY},
)


# idle


def idle(_: Any, size: int) -> float:
    """Measure the CPU time of the whole process, in percent of one core, while nothing happens."""
    cpu, wall = time.process_time_ns(), time.perf_counter_ns()
    time.sleep(size / 1_000)
    return 100 * (time.process_time_ns() - cpu) / (time.perf_counter_ns() - wall)


IDLE = Scenario(
    name="idle",
    what="CPU use of the whole process while a pool that has worked has nothing to do, in percent of one core",
    operation="millisecond",
    size=2_000,
    unit="%",
    most_rounds=3,
    warm=False,
    cases={
        CALL: Case(idle),
        THREAD_POOL_EXECUTOR: Case(idle),
        THREAD_POOL: Case(idle),
        JOBLIB: Case(idle),
        ASYNCIO: Case(idle, open_loop_in_thread),
        HYPERTILE: Case(idle),
        FILCH: Case(idle),
    },
)
