"""Who takes part, and how each is opened: a pool with its threads already running, a loop, or nothing at all.

filch is imported when it is first opened, so that `FILCH_KERNEL` can still be set before.
"""

import asyncio
import importlib.util
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from multiprocessing.pool import ThreadPool
from typing import Any

from .scenario import Open

CALL = "call"
THREAD_POOL_EXECUTOR = "ThreadPoolExecutor"
THREAD_POOL = "ThreadPool"
JOBLIB = "joblib"
ASYNCIO = "asyncio"
FILCH = "filch"


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


CONTENDERS: dict[str, Open] = {
    CALL: open_nothing,
    THREAD_POOL_EXECUTOR: open_thread_pool_executor,
    THREAD_POOL: open_thread_pool,
    JOBLIB: open_joblib,
    ASYNCIO: open_runner,
    FILCH: open_filch,
}


def missing(contender: str) -> str | None:
    """Return why a contender cannot take part here, or None."""
    if contender in (JOBLIB, FILCH) and importlib.util.find_spec(contender) is None:
        return f"{contender} is not installed"
    return None
