"""Tasks with `force`: an asynchronous exception stops their Python code, and never escapes the task it is meant for."""

import random
import threading
import time
from types import ModuleType
from typing import Any

import pytest

from filch.exceptions import Cancelled
from kernel.engines import MAY_SWALLOW, PATIENCE, results, spin_until

pytestmark = MAY_SWALLOW


def spin_for_ever(started: threading.Event, ended: list[str]) -> None:
    try:
        started.set()
        while True:
            pass
    finally:
        ended.append("finally")


@pytest.mark.parametrize("how", ["interrupt", "expire"])
def test_an_endless_loop_is_stopped(make_engine: Any, how: str) -> None:
    """A forced task that never comes to a checkpoint cannot be stopped, again and again on the same worker."""
    engine = make_engine()
    for _ in range(5):
        started, ended = threading.Event(), []
        future = engine._spawn(spin_for_ever, (started, ended), force=True)
        assert started.wait(PATIENCE)
        assert future.interrupt() if how == "interrupt" else future.expire(KeyError())
        assert engine.wait_idle(PATIENCE)
        assert ended == ["finally"]
        assert type(future.exception(0)) is (Cancelled if how == "interrupt" else KeyError)
        assert engine.submit(int).result(PATIENCE) == 0
    assert engine._counters()["threads_started"] == 1


def test_without_force_nothing_is_raised(make_engine: Any) -> None:
    """A task that was not submitted with `force` is stopped between two checkpoints."""
    engine = make_engine()
    started, stop = threading.Event(), []

    def run() -> int:
        started.set()
        turns = 0
        while not stop:
            turns += 1
        return turns

    future = engine.submit(run)
    assert started.wait(PATIENCE)
    assert future.interrupt()
    time.sleep(0)
    stop.append(True)
    assert future.result(PATIENCE) >= 0


def count_to(number: int) -> int:
    total = 0
    for _ in range(number):
        total += 1
    return total


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize("how", ["interrupt", "expire"])
def test_innocents_are_never_hit(
    make_engine: Any, together: Any, many_switches: None, seed: int, size: int, how: str
) -> None:
    """The exception comes late, and hits the next task of the same worker, a callback or the worker itself."""
    engine = make_engine(size)
    choose = random.Random(seed)
    rounds = 400
    callbacks = [0] * rounds
    forced: list[Any] = []
    innocent: list[Any] = []

    def callback(number: int) -> None:
        callbacks[number] += count_to(20) // 20

    def produce() -> None:
        for number in range(rounds):
            future = engine._spawn(count_to, (choose.randrange(400),), force=True)
            future.add_done_callback(lambda _, number=number: callback(number))
            innocent.append(engine.submit(count_to, 50))
            innocent.append(engine._spawn(count_to, (50,), force=True))
            forced.append(future)
            if number % 8 == 0:
                innocent[-1].result(PATIENCE)

    def stop() -> None:
        wait = random.Random(seed + 1)
        for number in range(rounds):
            spin_until(lambda number=number: len(forced) > number)
            count_to(wait.randrange(600))
            forced[number].interrupt() if how == "interrupt" else forced[number].expire(KeyError())

    together(produce, stop)
    assert results(innocent) == [50] * (2 * rounds)
    assert engine.wait_idle(PATIENCE)
    assert callbacks == [1] * rounds
    stopped = [future for future in forced if not future.cancelled() and future.exception(0) is not None]
    allowed = Cancelled if how == "interrupt" else KeyError
    assert {type(future.exception()) for future in stopped} <= {allowed}
    # Its threads are all right, too.
    assert engine._counters()["threads"] == engine._counters()["threads_started"] == size


@pytest.mark.slow
def test_who_lies_on_top_is_not_hit(kernel: ModuleType, make_engine: Any, many_switches: None) -> None:
    """A task that runs on top of a forced, waiting one is stopped in its place, or the kernel's own wait is torn."""
    engine = make_engine()
    for _ in range(200):
        spinning = threading.Event()
        stop: list[bool] = []

        def innocent(spinning: threading.Event = spinning, stop: list[bool] = stop) -> str:
            spinning.set()
            spin_until(lambda: bool(stop))
            return f"counted to {count_to(100)}"

        def outer(innocent: Any = innocent) -> str:
            inner = engine.submit(innocent)
            try:
                return str(inner.result())
            except Cancelled:
                assert inner.result() == "counted to 100"
                raise

        future = engine._spawn(outer, force=True)
        assert spinning.wait(PATIENCE)
        assert future.interrupt()
        stop.append(True)
        assert future.exception(PATIENCE) is None or type(future.exception()) is Cancelled
    assert engine._counters()["threads"] == 1


@pytest.mark.slow
def test_who_lies_below_is_not_hit(make_engine: Any, many_switches: None) -> None:
    """The exception for a task on top of a waiting one is raised in the one below."""
    engine = make_engine()
    for _ in range(100):
        started, ended = threading.Event(), []
        forced: list[Any] = []

        def outer(started: threading.Event = started, ended: Any = ended, forced: Any = forced) -> list[Any]:
            forced.append(engine._spawn(spin_for_ever, (started, ended), force=True))
            error = forced[0].exception()
            return [type(error), count_to(100), engine.submit(count_to, 50).result()]

        future = engine.submit(outer)
        assert started.wait(PATIENCE)
        assert forced[0].interrupt()
        assert future.result(PATIENCE) == [Cancelled, 100, 50]
        assert ended == ["finally"]
    assert engine._counters()["threads"] == 1


@pytest.mark.slow
@pytest.mark.parametrize("how", ["blocking", "wait", "timed", "submit"])
def test_in_the_middle_of_the_kernel(
    kernel: ModuleType, make_engine: Any, together: Any, many_switches: None, seed: int, how: str
) -> None:
    """The exception is raised inside of a kernel call, and leaves a processor, a lock or a count behind."""
    engine = make_engine()
    wait = random.Random(seed)

    def run(started: threading.Event) -> None:
        started.set()
        while True:
            if how == "blocking":
                with kernel.blocking():
                    pass
            elif how == "submit":
                results([engine.submit(count_to, 5) for _ in range(100)])  # few, as they are left behind
            else:
                engine.submit(count_to, 5).result(*[PATIENCE] * (how == "timed"))

    for _ in range(250):
        started = threading.Event()
        future = engine._spawn(run, (started,), force=True)
        assert started.wait(PATIENCE)
        count_to(wait.randrange(2000))
        assert future.interrupt()
        assert type(future.exception(PATIENCE)) is Cancelled
    assert engine.submit(count_to, 50).result(PATIENCE) == 50
    assert engine.wait_idle(PATIENCE)
    counters = engine._counters()
    assert (counters["excess"], counters["running"], counters["local"], counters["injected"]) == (0, 0, 0, 0)


def test_forced_while_it_sleeps_in_a_wait(kernel: ModuleType, make_engine: Any) -> None:
    """A forced task that sleeps in a wait is not woken, or gets the exception twice."""
    engine = make_engine()
    outside = kernel.Future()
    seen: list[str] = []

    def run() -> None:
        try:
            outside.result()
        except Cancelled:
            seen.append("cancelled")
            count_to(1000)
            seen.append("went on")
            raise

    future = engine._spawn(run, force=True)
    spin_until(lambda: engine._counters()["handoffs"] == 1)
    assert future.interrupt()
    assert type(future.exception(PATIENCE)) is Cancelled
    assert seen == ["cancelled", "went on"]
