"""Signal handlers and forced stops that come in the middle of the kernel, and what waits at odd moments.

The handlers run in a process of their own, since signals go to the main thread of it.
"""

import concurrent.futures
import gc
import random
import threading
import weakref
from types import ModuleType
from typing import Any

import pytest

import filch
from kernel.engines import MAY_SWALLOW, PATIENCE, is_settled, results

HANDLER_THAT_RAISES = """
import signal, sys, filch
signal.signal(signal.SIGALRM, lambda *a: sys.exit(3))
pool = filch.Pool(2)
signal.setitimer(signal.ITIMER_REAL, float(sys.argv[1]))
for _ in range(20):
    pool.submit(int)
signal.setitimer(signal.ITIMER_REAL, 0)
sys.exit(3)
"""

HANDLER_THAT_WAITS = """
import signal, time, filch
pool = filch.Pool(2)
handled = 0
def handler(*_):
    global handled
    handled += 1
    assert pool.submit(int, 7).result(20) == 7
    signal.setitimer(signal.ITIMER_REAL, 0.0005)
signal.signal(signal.SIGALRM, handler)
signal.setitimer(signal.ITIMER_REAL, 0.001)
for number in range(4000):
    assert pool.submit(int, number).result(20) == number
signal.setitimer(signal.ITIMER_REAL, 0)
assert handled > 10
pool.shutdown()
print("fine")
"""

HANDLER_THAT_SHUTS_DOWN = """
import signal, sys, filch
for round in range(40):
    pool = filch.Pool(2)
    futures = []
    def handler(*_):
        pool.shutdown(wait=False)
    signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.0001 + 0.00002 * round)
    try:
        while True:
            futures.append(pool.submit(int))
            if len(futures) % 7 == 0:
                futures[-1].result(20)
    except filch.PoolShutdown:
        pass
    for future in futures:
        assert future.result(20) == 0
    assert pool.wait_idle(20)
print("fine")
"""

HANDLER_IN_THE_START_OF_A_THREAD = """
import random, signal, sys, filch
random.seed(int(sys.argv[1]))
def handler(*_):
    if sys.argv[2] == "shutdown":
        pool.shutdown()
    else:
        assert pool.submit(int, 7).result(20) == 7
signal.signal(signal.SIGALRM, handler)
for _ in range(40):
    pool = filch.Pool(1)  # its first submit starts the thread
    signal.setitimer(signal.ITIMER_REAL, random.uniform(2e-5, 3e-4))
    try:
        assert pool.submit(int).result(20) == 0
    except filch.PoolShutdown:
        pass
    signal.setitimer(signal.ITIMER_REAL, 0)
    pool.shutdown()
print("fine")
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", ["shutdown", "submit"])
def test_a_handler_in_the_start_of_a_thread(run_script: Any, seed: int, how: str) -> None:
    """A handler waits for the very worker that its thread is about to start, for ever."""
    for number in range(3):
        assert "fine" in run_script(HANDLER_IN_THE_START_OF_A_THREAD, str(seed + number), how)


@pytest.mark.slow
def test_a_handler_that_raises_in_submit(run_script: Any) -> None:
    """An exception in the middle of submit() leaves the pool neither idle nor at work, and the exit hangs."""
    for number in range(12):
        run_script(HANDLER_THAT_RAISES, str(2e-5 + 3e-5 * number), status=3)


@pytest.mark.slow
def test_a_handler_that_waits_in_submit(run_script: Any) -> None:
    """A handler that submits and waits in the middle of submit() makes the queue of the pool be forgotten."""
    assert "fine" in run_script(HANDLER_THAT_WAITS)


@pytest.mark.slow
def test_a_handler_that_shuts_down_in_submit(run_script: Any) -> None:
    """A task is taken after a handler has shut the pool down, and never ends."""
    assert "fine" in run_script(HANDLER_THAT_SHUTS_DOWN)


@MAY_SWALLOW
def test_a_forced_stop_inside_of_wait(make_engine: Any, many_switches: None) -> None:
    """The conditions that wait() holds stay locked when a forced task is torn out of it, and others never end."""
    engine = make_engine(3)
    for _ in range(30):
        gate, started = threading.Event(), threading.Event()
        others = [engine.submit(gate.wait, PATIENCE) for _ in range(2)]

        def poll(others: Any = others, started: threading.Event = started) -> None:
            started.set()
            while True:
                concurrent.futures.wait(others, timeout=0)

        forced = engine._spawn(poll, force=True)
        assert started.wait(PATIENCE)
        assert forced.interrupt()
        assert isinstance(forced.exception(PATIENCE), filch.Cancelled)
        gate.set()
        assert results(others) == [True, True]


def test_a_callback_waits_for_its_own_engine(make_engine: Any) -> None:
    """A done-callback that waits for a task of its own engine, on the only worker, hangs."""
    engine = make_engine()
    gate, found = threading.Event(), []
    future = engine.submit(gate.wait, PATIENCE)
    done = threading.Event()

    def callback(_: Any) -> None:
        found.append(engine.submit(abs, -3).result(PATIENCE))
        found.append(engine._submit_bulk(abs, [(-4,), (-5,)]).result(1, PATIENCE))
        done.set()

    future.add_done_callback(callback)
    gate.set()
    assert done.wait(PATIENCE)
    assert found == [3, 5]


def test_waiting_for_one_call_of_a_map_is_no_circle(make_engine: Any) -> None:
    """A task that waits for one call of a map is taken to wait for whichever call runs last."""
    engine = make_engine(4)
    first, second, known, go = [threading.Event() for _ in range(4)]
    box: list[Any] = []

    def call(number: int) -> Any:
        if number == 0:
            first.set()
            assert go.wait(PATIENCE)
            return 0
        assert first.wait(PATIENCE)
        assert known.wait(PATIENCE)
        second.set()
        return box[0].result()

    def waits() -> Any:
        assert second.wait(PATIENCE)
        return bulk.result(0)

    bulk = engine._submit_bulk(call, [(0,), (1,)])
    box.append(engine.submit(waits))
    known.set()
    assert second.wait(PATIENCE)
    go.set()
    assert box[0].result(PATIENCE) == 0
    assert bulk.result(1, PATIENCE) == 0


def test_threads_that_retire_while_they_are_called(
    kernel: ModuleType, make_engine: Any, eventually: Any, many_switches: None
) -> None:
    """A call and the end of a thread's patience meet: a token too many, and a worker dies of it."""
    engine = make_engine(1, keep_alive=0.0002)
    chosen = random.Random(5)

    def run() -> None:
        inner = [engine.submit(int) for _ in range(2)]
        with kernel.blocking():
            threading.Event().wait(chosen.random() * 0.0005)
        results(inner)

    for _ in range(150):
        results([engine.submit(run) for _ in range(chosen.randrange(1, 4))])
    eventually(lambda: is_settled(engine), "the engine is at rest")


def test_the_error_of_a_task_that_its_waiter_ran_is_in_no_circle(make_engine: Any) -> None:
    """The waiter's frames, which the traceback leads to, lead back to the future."""
    engine = make_engine()

    class Odd(Exception):
        pass

    def fail() -> None:
        raise Odd

    def outer() -> weakref.ref[Odd]:
        try:
            engine.submit(fail).result()
        except Odd as error:
            return weakref.ref(error)
        raise AssertionError("no error")

    gc.collect()
    gc.disable()
    try:
        there = engine.submit(outer).result(PATIENCE)
        for _ in range(3):
            engine.submit(int).result(PATIENCE)
        assert there() is None
    finally:
        gc.enable()


def test_recursion_close_to_the_limit_loses_no_task(make_engine: Any) -> None:
    """A task is begun on a stack without room for it, and its future never ends."""
    engine = make_engine(1, max_threads=1)
    children: list[Any] = []

    def dive(level: int) -> None:
        try:
            children.append(engine.submit(int))
            children[-1].result()
            dive(level + 1)
        except RecursionError:
            pass

    engine.submit(dive, 0).result(PATIENCE)
    assert len(children) > 20
    assert results(children) == [0] * len(children)
    assert engine.wait_idle(PATIENCE)
