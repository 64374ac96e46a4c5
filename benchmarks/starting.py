"""Scenarios of tasks that are started and not asked for a result: they are counted; and how soon one is stolen."""

import asyncio
import statistics
import threading
import time
from collections.abc import Callable
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
    open_loop_in_thread,
)
from .scenario import Case, Scenario, timed

SPAWNS = 10_000
STALL_NANOSECONDS = 10_000
# Between two thefts, so that the other workers have gone to sleep: the time of a few thread switches.
PAUSE_SECONDS = 0.0005

# Starts a function on a contender, with its arguments, and keeps nothing.
Start = Callable[..., object]

NO_WORKERS = "it has one thread and nobody to steal"


class Counter:
    """Tasks that do nothing but count themselves, without a lock: appending to a list is one step on every Python."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._ended: list[None] = []
        self._all_ended = threading.Event()

    def task(self) -> None:
        self._ended.append(None)
        # Whoever appended last sees the full length; of two, both may, and no harm is done.
        if len(self._ended) == self._size:
            self._all_ended.set()

    def wait(self) -> None:
        self._all_ended.wait()


def start_of_executor(pool: Any) -> Start:
    return pool.submit  # type: ignore[no-any-return]


def start_of_thread_pool(pool: Any) -> Start:
    return lambda function, *arguments: pool.apply_async(function, arguments)


def start_of_hypertile(pool: Any) -> Start:
    return pool.spawn  # type: ignore[no-any-return]


def start_of_loop(loop: asyncio.AbstractEventLoop) -> Start:
    async def run(function: Callable[..., object], *arguments: object) -> None:
        function(*arguments)

    def create(function: Callable[..., object], arguments: tuple[object, ...]) -> None:
        loop.create_task(run(function, *arguments))  # the loop keeps it until it has run

    return lambda function, *arguments: loop.call_soon_threadsafe(create, function, arguments)


STARTS: dict[str, Callable[[Any], Start]] = {
    THREAD_POOL_EXECUTOR: start_of_executor,
    THREAD_POOL: start_of_thread_pool,
    HYPERTILE: start_of_hypertile,
    FILCH: start_of_executor,
}


# spawn


def spawn(start: Start, size: int) -> int:
    """Start tasks and wait until all have run."""
    counter = Counter(size)
    task = counter.task
    for _ in range(size):
        start(task)
    counter.wait()
    return size


def spawn_call(nothing: None, size: int) -> int:
    task = Counter(size).task
    for _ in range(size):
        task()
    return size


def remote(start_of: Callable[[Any], Start]) -> Case:
    return timed(lambda opened, size: spawn(start_of(opened), size))


SPAWN = Scenario(
    name="spawn",
    what="start tasks from outside, while the pool is idle, and wait until all have run; nobody takes a result",
    operation="task",
    size=SPAWNS,
    cases={
        CALL: timed(spawn_call),
        ASYNCIO: Case(remote(start_of_loop).measure, open_loop_in_thread),
        **{name: remote(start_of) for name, start_of in STARTS.items()},
    },
    left_out={JOBLIB: "its results are always taken"},
    programs=True,
)


# spawn, local


def local(start_of: Callable[[Any], Start]) -> Case:
    """Return the case in which a task starts the tasks; nobody waits on a worker, which some could not."""

    def work(opened: Any, size: int) -> int:
        start, counter = start_of(opened), Counter(size)

        def root() -> None:
            task = counter.task
            for _ in range(size):
                start(task)

        start(root)
        counter.wait()
        return size

    return timed(work)


def local_asyncio(runner: asyncio.Runner, size: int) -> int:
    counter = Counter(size)

    async def task() -> None:
        counter.task()

    async def root() -> None:
        tasks = [asyncio.create_task(task()) for _ in range(size)]
        await tasks[-1]  # the loop runs them in order

    runner.run(root())
    counter.wait()
    return size


SPAWN_LOCAL = Scenario(
    name="spawnlocal",
    what="the same, started by a task of the pool",
    operation="task",
    size=SPAWNS,
    cases={
        CALL: timed(spawn_call),
        ASYNCIO: timed(local_asyncio),
        **{name: local(start_of) for name, start_of in STARTS.items()},
    },
    left_out={JOBLIB: "a task cannot make another one"},
    programs=True,
)


# spawn, busy


def stall() -> None:
    """Use the CPU for a while."""
    end = time.perf_counter_ns() + STALL_NANOSECONDS
    while time.perf_counter_ns() < end:
        pass


def busy(start_of: Callable[[Any], Start], loads: int) -> Case:
    """Return the case in which `loads` tasks stall and start themselves again all the while."""

    def measure(opened: Any, size: int) -> float:
        start, left = start_of(opened), Counter(loads)
        stopped = threading.Event()

        def load() -> None:
            stall()
            if stopped.is_set():
                left.task()
            else:
                start(load)

        for _ in range(loads):
            start(load)
        try:
            return timed(lambda start, size: spawn(start, size)).measure(start, size)
        finally:
            stopped.set()
            left.wait()

    return Case(measure)


LOADS = 4  # two for each worker of the usual two

SPAWN_BUSY = Scenario(
    name="spawnbusy",
    what=f"start tasks from outside, while {LOADS} tasks stall 10 us and start themselves again all the while",
    operation="task",
    size=SPAWNS // 10,
    most_rounds=5,  # it takes long where workers that compute keep the submitter from the GIL
    cases={
        ASYNCIO: Case(busy(start_of_loop, LOADS).measure, open_loop_in_thread),
        **{name: busy(start_of, LOADS) for name, start_of in STARTS.items()},
    },
    left_out={CALL: "a plain call has nobody beside it", JOBLIB: "its results are always taken"},
)


# steal


def steal_waits(start_of: Callable[[Any], Start], opened: Any, size: int) -> list[int]:
    """Return what tasks waited for their start that a worker starts, which then blocks until another has taken it."""
    start = start_of(opened)
    waits: list[int] = []
    ended: SimpleQueue[None] = SimpleQueue()

    def root() -> None:
        begun: SimpleQueue[int] = SimpleQueue()

        def probe() -> None:
            begun.put(time.perf_counter_ns())

        for _ in range(size):
            time.sleep(PAUSE_SECONDS)  # keeps this worker, and lets the others go to sleep
            started = time.perf_counter_ns()
            start(probe)
            waits.append(begun.get() - started)
        ended.put(None)

    start(root)
    ended.get()
    return waits


def steal_median(start_of: Callable[[Any], Start]) -> Case:
    return Case(lambda opened, size: statistics.median(steal_waits(start_of, opened, size)))


def steal_99(start_of: Callable[[Any], Start]) -> Case:
    def measure(opened: Any, size: int) -> float:
        waits = sorted(steal_waits(start_of, opened, size))
        return waits[len(waits) * 99 // 100]

    return Case(measure)


STEAL_LEFT_OUT = {CALL: "a plain call never waits", JOBLIB: "a task cannot make another one", ASYNCIO: NO_WORKERS}

STEAL = Scenario(
    name="steal",
    what="a task starts another one and blocks, all other workers asleep: until that one starts (the median)",
    operation="start",
    size=300,
    cases={name: steal_median(start_of) for name, start_of in STARTS.items()},
    left_out=STEAL_LEFT_OUT,
)

STEAL_99 = Scenario(
    name="steal99",
    what="the same, 99th percentile",
    operation="start",
    size=300,
    cases={name: steal_99(start_of) for name, start_of in STARTS.items()},
    left_out=STEAL_LEFT_OUT,
)
