"""Engines for the kernel suite: how they are made, held, released and audited."""

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import pytest

# A destructor or a callback of the collector (hypothesis has one) may swallow the exception on its way to a forced
# task, and says so; the task is asked again.
MAY_SWALLOW = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
# Seconds until a test gives up on something that must come.  Not how long it takes: a loaded machine is slow.
PATIENCE = float(os.environ.get("FILCH_TEST_PATIENCE", "20"))
# What the counters hold when nothing is queued or running, besides `threads` and `idle`, which are equal then.
ZERO_WHEN_IDLE = ("searching", "running", "excess", "injected", "local")


def start_thread(run: Callable[[], None], number: int) -> threading.Thread:
    """Start a worker's thread; the engine's default in the suite."""
    thread = threading.Thread(target=run, name=f"worker_{number}", daemon=True)
    thread.start()
    return thread


@contextmanager
def running(kernel: ModuleType, max_workers: int = 1, **options: Any) -> Iterator[Any]:
    """Make an engine; at the end, cancel what has not started, wait for its threads, and audit its counters."""
    threads: list[threading.Thread] = []
    start = options.pop("start_thread", start_thread)

    def start_and_note(run: Callable[[], None], number: int) -> threading.Thread:
        threads.append(start(run, number))
        return threads[-1]

    defaults = {
        "lifo": True,
        "max_threads": max(max_workers, min(512, 32 + 8 * max_workers)),
        "keep_alive": 10.0,
        "seed": None,
        "prologue": None,
        "restart": False,
    }
    engine = kernel.Engine(max_workers, start_thread=start_and_note, **{**defaults, **options})
    try:
        yield engine
    finally:
        engine._cancel_pending()
        for thread in threads:
            thread.join(PATIENCE)
    assert not [thread.name for thread in threads if thread.is_alive()], "a closed engine has threads left"
    left = engine._counters()
    assert {name: left[name] for name in (*ZERO_WHEN_IDLE, "threads", "idle")} == dict.fromkeys(
        (*ZERO_WHEN_IDLE, "threads", "idle"), 0
    ), "a closed engine has something left"
    assert engine._live_threads() == []
    assert engine._unfinished() == []


def is_settled(engine: Any) -> bool:
    """Are all threads asleep, and is nothing queued, running or on its way?"""
    now = engine._counters()
    return now["threads"] == now["idle"] and not any(now[name] for name in ZERO_WHEN_IDLE)


@contextmanager
def held(engine: Any, count: int = 1, submit: Callable[..., Any] | None = None) -> Iterator[None]:
    """Hold `count` processors with a task each inside the block; they run nothing else meanwhile."""
    gate = threading.Event()
    started = threading.Semaphore(0)

    def hold() -> None:
        started.release()
        assert gate.wait(PATIENCE * 2)

    futures = [(submit or engine.submit)(hold) for _ in range(count)]
    try:
        for _ in futures:
            assert started.acquire(timeout=PATIENCE), f"the engine does not run {count} tasks at once"
        yield
    finally:
        gate.set()
    for future in futures:
        future.result(PATIENCE)


def results(futures: Any) -> list[Any]:
    """Return the result of each future; an error is raised."""
    return [future.result(PATIENCE) for future in futures]


def spin_until(condition: Callable[[], bool]) -> None:
    """Wait awake: one who slept would come too late to the race."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0)  # lets the others go on


def elsewhere(call: Callable[[], Any]) -> Any:
    """Make a call in a thread that is no worker, and return its result when it has ended."""
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(call()), daemon=True)
    thread.start()
    thread.join(PATIENCE)
    assert found, "the call in another thread failed or did not end"
    return found[0]
