"""Who takes part, and how each is opened: a pool with its threads already running, a loop, or nothing at all.

Each contender runs in a process of its own (`turns.py`), so filch's two kernels can take part in one run.
"""

import asyncio
import importlib
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.pool import ThreadPool
from typing import Any, TypeVar

from .scenario import PROGRAMS, Open, require

_T = TypeVar("_T")

CALL = "call"
THREAD_POOL_EXECUTOR = "ThreadPoolExecutor"
THREAD_POOL = "ThreadPool"
JOBLIB = "joblib"
ASYNCIO = "asyncio"
HYPERTILE = "hypertile"
FILCH = "filch"  # in the scenarios, for both kernels
FILCH_PURE = "filch-pure"
FILCH_NATIVE = "filch-native"
FILCH_BINARY = "filch._kernel._native"
FILCHES = {"pure": FILCH_PURE, "native": FILCH_NATIVE}
GO, JAVA = PROGRAMS


def noop() -> None:
    """Do nothing: the whole cost is that of the contender."""


async def async_noop() -> None:
    """Do nothing, as a coroutine."""


def start_workers(submit: Callable[..., Any], workers: int) -> None:
    """Return once all workers run: each of as many tasks waits for the others."""
    meeting = threading.Barrier(workers + 1)
    for _ in range(workers):
        submit(meeting.wait)
    meeting.wait()


@contextmanager
def open_nothing(workers: int) -> Iterator[None]:
    yield None


@contextmanager
def open_thread_pool_executor(workers: int) -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(workers) as pool:
        start_workers(pool.submit, workers)
        yield pool


@contextmanager
def open_thread_pool(workers: int) -> Iterator[ThreadPool]:
    pool = ThreadPool(workers)
    start_workers(lambda wait: pool.apply_async(wait), workers)
    try:
        yield pool
    finally:
        pool.close()
        pool.join()


@contextmanager
def open_joblib(workers: int) -> Iterator[Any]:
    import joblib

    with joblib.Parallel(n_jobs=workers, backend="threading") as parallel:
        parallel(joblib.delayed(noop)() for _ in range(workers))
        yield parallel


@contextmanager
def open_runner(workers: int) -> Iterator[asyncio.Runner]:
    """Open a loop that runs in this thread while it is asked to."""
    with asyncio.Runner() as runner:
        runner.run(async_noop())
        yield runner


@contextmanager
def open_loop_in_thread(workers: int) -> Iterator[asyncio.AbstractEventLoop]:
    """Open a loop that runs in a thread of its own, for what is asked of it from outside."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    asyncio.run_coroutine_threadsafe(async_noop(), loop).result()
    try:
        yield loop
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@contextmanager
def open_filch(workers: int) -> Iterator[Any]:
    import filch

    with filch.Pool(max_workers=workers) as pool:
        start_workers(pool.submit, workers)
        yield pool


class Hypertile:
    """hypertile's pool, of which a process has one, and the loop in which its tasks are waited for."""

    def __init__(self, runner: asyncio.Runner, workers: int) -> None:
        import hypertile

        if hypertile.worker_count() is None:
            hypertile.configure(workers)
        require(hypertile.worker_count(), workers)
        self.spawn: Callable[..., Awaitable[Any]] = hypertile.to_thread
        self.map: Callable[..., Awaitable[list[Any]]] = hypertile.gather_to_thread
        self._runner = runner

    def wait(self, tasks: Awaitable[_T] | list[Awaitable[_T]]) -> list[_T]:
        """Return the results: nothing but a loop can wait for them."""

        async def wait() -> list[_T]:
            return [await task for task in (tasks if isinstance(tasks, list) else [tasks])]

        return self._runner.run(wait())


@contextmanager
def open_hypertile(workers: int) -> Iterator[Hypertile]:
    with asyncio.Runner() as runner:
        pool = Hypertile(runner, workers)
        pool.wait([pool.spawn(noop) for _ in range(workers)])
        yield pool


@dataclass(frozen=True)
class Contender:
    """Who takes part: which cases of the scenarios it runs, and where."""

    cases: str  # the key in the cases of a scenario
    open: Open | None = None
    program: str | None = None  # instead: the source of a program in `programs`
    module: str | None = None  # what has to be installed
    environment: Mapping[str, str] = field(default_factory=dict)

    def missing(self) -> str | None:
        """Return why it cannot take part in this process, or None.  What is there and does not load raises."""
        try:
            importlib.import_module(self.module or "sys")
        except ModuleNotFoundError as error:
            if error.name == FILCH_BINARY:
                return "no native kernel was built"
            if error.name != self.module:
                raise
            return f"{self.module} is not installed"
        return None


CONTENDERS: dict[str, Contender] = {
    CALL: Contender(CALL, open_nothing),
    THREAD_POOL_EXECUTOR: Contender(THREAD_POOL_EXECUTOR, open_thread_pool_executor),
    THREAD_POOL: Contender(THREAD_POOL, open_thread_pool),
    JOBLIB: Contender(JOBLIB, open_joblib, module="joblib"),
    ASYNCIO: Contender(ASYNCIO, open_runner),
    HYPERTILE: Contender(HYPERTILE, open_hypertile, module="hypertile"),
    FILCH_PURE: Contender(FILCH, open_filch, module="filch", environment={"FILCH_KERNEL": "pure"}),
    FILCH_NATIVE: Contender(FILCH, open_filch, module="filch", environment={"FILCH_KERNEL": "native"}),
    GO: Contender(GO, program="go_turns.go"),
    JAVA: Contender(JAVA, program="JavaTurns.java"),
}
