"""The end: closing, draining, cancelling what waits, dropping an engine, and who is told that it is idle."""

import gc
import threading
import weakref
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from filch.exceptions import DeadlockError, PoolShutdown
from kernel.engines import PATIENCE, elsewhere, held, results, start_thread


def joined(threads: list[threading.Thread]) -> bool:
    """Wait for the threads; have they all ended?"""
    for thread in threads:
        thread.join(PATIENCE)
    return not any(thread.is_alive() for thread in threads)


def test_close_refuses_and_ends(engine: Any) -> None:
    """A closed engine takes tasks, keeps idle threads, or does not finish what it has."""
    with held(engine, engine.max_workers):
        futures = [engine.submit(int, number) for number in range(300)]
        futures += [engine._spawn(int, (number,), priority=1) for number in range(300)]
        bulk = engine._submit_bulk(int, [(number,) for number in range(300)])
        threads = engine._live_threads()
        engine._close()
        engine._close()
        assert engine._closed
        for submit in (engine.submit, engine._spawn, lambda fn: engine._submit_bulk(fn, [()])):
            with pytest.raises(PoolShutdown):
                submit(int)
    assert joined(threads)
    assert results(futures) == [*range(300), *range(300)]
    assert [bulk.result(index, 0) for index in range(300)] == list(range(300))
    assert engine.wait_idle(PATIENCE)


def test_closing_ends_idle_threads(make_engine: Any) -> None:
    """Threads that sleep do not hear of the end."""
    engine = make_engine(4)
    with held(engine, 4):
        threads = engine._live_threads()
    assert engine.wait_idle(PATIENCE)
    engine._close()
    assert joined(threads)
    assert engine._counters()["threads"] == 0


def test_closing_an_engine_without_threads(make_engine: Any) -> None:
    """An engine that has never run anything cannot be closed, or starts a thread for that."""
    engine = make_engine()
    assert not engine._closed
    engine._close()
    assert engine._cancel_pending() == 0
    assert engine.wait_idle(PATIENCE)
    assert engine._counters()["threads_started"] == 0


@pytest.mark.slow
def test_closing_while_threads_fall_asleep(make_engine: Any, together: Any, many_switches: None) -> None:
    """A thread that goes to sleep at the moment of the end is not woken for it."""
    for _ in range(150):
        engine = make_engine(2)
        futures = [engine.submit(int) for _ in range(2)]
        threads = engine._live_threads()
        together(engine._close, lambda futures=futures: results(futures))
        assert joined(threads)


def fib(engine: Any, n: int) -> int:
    if n < 2:
        return n
    left = engine.submit(fib, engine, n - 1)
    return fib(engine, n - 2) + int(left.result())


def test_fork_join_goes_on_after_the_close(make_engine: Any, workers: int) -> None:
    """A task that runs when the engine is closed cannot spawn what it still needs."""
    engine = make_engine(workers)
    with held(engine, workers):
        futures = [engine.submit(fib, engine, 10) for _ in range(3)]
        engine._close()
    assert results(futures) == [55] * 3


def test_tasks_of_a_task_that_came_before_the_close(make_engine: Any) -> None:
    """A task may not spawn after the close although it waits for what it spawns, through several levels."""
    engine = make_engine(2)

    def spawn(level: int) -> int:
        if level == 0:
            return 1
        return sum(future.result() for future in [engine.submit(spawn, level - 1) for _ in range(3)])

    with held(engine, 2):
        future = engine.submit(spawn, 4)
        engine._close()
    assert future.result(PATIENCE) == 81


@pytest.mark.parametrize("lifo", [True, False], ids=["lifo", "fifo"])
def test_a_task_that_succeeds_itself_comes_to_an_end(make_engine: Any, lifo: bool) -> None:
    """A chain of tasks, each submitted by the one before, keeps a closed engine alive for ever."""
    engine = make_engine(1, lifo=lifo)
    refused: list[BaseException] = []
    links = 0

    def link() -> None:
        nonlocal links
        links += 1
        try:
            engine.submit(link)
        except PoolShutdown as error:
            refused.append(error)

    engine.submit(link)
    threads = engine._live_threads()
    engine._close()
    assert joined(threads)
    assert len(refused) == 1
    assert links >= 1


def test_other_threads_are_refused_while_tasks_still_spawn(make_engine: Any) -> None:
    """After the close a thread outside, or a task of another engine, may still submit."""
    engine, other = make_engine(), make_engine()

    def run() -> list[str]:
        return [elsewhere(try_it), other.submit(try_it).result(), try_it()]

    def try_it() -> str:
        try:
            engine.submit(int).result()
        except PoolShutdown:
            return "refused"
        return "taken"

    with held(engine):
        future = engine.submit(run)
        engine._close()
    assert future.result(PATIENCE) == ["refused", "refused", "taken"]


def test_cancel_pending(engine: Any) -> None:
    """Tasks that have not started run, keep waiters waiting or are counted wrongly; or running ones are stopped."""
    ran: list[int] = []
    with held(engine, engine.max_workers):
        futures = [engine.submit(ran.append, number) for number in range(20)]
        futures += [engine._spawn(ran.append, (number,), priority=number % 3 - 1) for number in range(20)]
        assert futures[3].cancel()
        mail = engine._broadcast(ran.append, (0,), {})
        assert engine._cancel_pending() == 39 + len(mail)
        assert all(future.cancelled() for future in [*futures, *mail])
        assert engine._cancel_pending() == 0
        assert engine._closed
        threads = engine._live_threads()
    assert joined(threads)
    assert ran == []


def test_cancel_pending_refuses_running_tasks_too(make_engine: Any) -> None:
    """A running task goes on spawning after all that waits was cancelled."""
    engine = make_engine()

    def run() -> int:
        inner = [engine.submit(int) for _ in range(5)]
        cancelled = elsewhere(engine._cancel_pending)
        assert all(future.cancelled() for future in inner)
        with pytest.raises(PoolShutdown):
            engine.submit(int)
        return int(cancelled)

    assert engine.submit(run).result(PATIENCE) == 5


@pytest.mark.parametrize("how", ["_close", "_cancel_pending"])
@pytest.mark.parametrize("where", ["task", "callback", "waiting"])
def test_ending_from_inside(make_engine: Any, how: str, where: str) -> None:
    """A task or a callback that ends its own engine hangs, or is itself hurt (cpython#131598)."""
    engine = make_engine(2)
    end = getattr(engine, how)

    def run() -> str:
        if where == "task":
            end()
        elif where == "waiting":
            engine.submit(end).result()
        return "done"

    with held(engine, 2):
        future = engine.submit(run)
        if where == "callback":
            future.add_done_callback(lambda _: end())
        threads = engine._live_threads()
    assert future.result(PATIENCE) == "done"
    assert joined(threads)
    assert engine._closed


def test_unfinished(make_engine: Any) -> None:
    """A future without an end is missing, or one that has an end is there, or running ones are not the first."""
    engine = make_engine(2)
    gate = threading.Event()
    started = threading.Semaphore(0)

    def run() -> None:
        started.release()
        assert gate.wait(PATIENCE)

    def outer() -> None:
        inner.append(engine.submit(run))
        inner[0].result()

    inner: list[Any] = []
    done = engine.submit(int)
    done.result(PATIENCE)
    running = [engine.submit(outer), engine.submit(run)]
    for _ in running:
        assert started.acquire(timeout=PATIENCE)
    queued = [engine.submit(int), engine._spawn(int, priority=1), *engine._broadcast(int, (), {})]
    cancelled = engine.submit(int)
    cancelled.cancel()
    unfinished = engine._unfinished()
    assert set(unfinished[:3]) == {*running, *inner}
    assert set(unfinished[3:]) == set(queued)
    gate.set()
    results([*running, *queued])
    assert engine.wait_idle(PATIENCE)
    assert engine._unfinished() == []


def test_wait_idle(engine: Any, together: Any) -> None:
    """An engine is called idle while something is queued or runs, or never."""
    assert engine.wait_idle(0) is True
    gate = threading.Event()
    future = engine.submit(gate.wait, PATIENCE)
    for timeout in (0, -1, 0.01):
        assert engine.wait_idle(timeout) is False
    gate.set()
    assert engine.wait_idle() is True
    assert future.done()
    futures = [engine.submit(int) for _ in range(100)]
    assert engine.wait_idle(PATIENCE) is True
    assert all(future.done() for future in futures)


def test_wait_idle_in_a_task(make_engine: Any) -> None:
    """A task that waits for the idleness of another engine hangs, and so does one that waits for that of its own."""
    engine, other = make_engine(), make_engine()

    def run() -> bool:
        other.submit(int)
        with pytest.raises(DeadlockError):
            engine.wait_idle()
        return bool(other.wait_idle())

    assert engine.submit(run).result(PATIENCE) is True


def test_wait_idle_after_the_end(make_engine: Any) -> None:
    """Who waits for an engine to be idle is not told when it ends."""
    engine = make_engine(2)
    gate = threading.Event()
    engine.submit(gate.wait, PATIENCE)
    futures = [engine.submit(gate.wait, PATIENCE) for _ in range(5)]
    found: list[bool] = []
    waiter = threading.Thread(target=lambda: found.append(engine.wait_idle(PATIENCE)), daemon=True)
    waiter.start()
    cancelled = engine._cancel_pending()
    gate.set()
    waiter.join(PATIENCE)
    assert found == [True]
    assert sum(future.cancelled() for future in futures) == cancelled


OPTIONS = {"lifo": True, "max_threads": 40, "keep_alive": 10.0, "seed": None, "prologue": None, "restart": False}


def engine_to_drop(kernel: ModuleType) -> tuple[Any, list[threading.Thread]]:
    threads: list[threading.Thread] = []

    def start(run: Callable[[], None], number: int) -> threading.Thread:
        threads.append(start_thread(run, number))
        return threads[-1]

    return kernel.Engine(2, start_thread=start, **OPTIONS), threads


def test_a_dropped_engine_finishes_and_ends(kernel: ModuleType) -> None:
    """An engine that nobody keeps loses what is queued, keeps its threads, or stays in memory because of them."""
    engine, threads = engine_to_drop(kernel)
    watch = weakref.ref(engine)
    gate = threading.Event()
    futures = [engine.submit(gate.wait, PATIENCE) for _ in range(20)]
    assert engine in kernel.engines()
    del engine
    assert watch() is None
    gate.set()
    assert results(futures) == [True] * 20
    assert joined(threads)


def test_an_engine_that_is_dropped_by_its_own_task(kernel: ModuleType) -> None:
    """The last reference to an engine goes in one of its tasks, and it waits for itself."""
    engine, threads = engine_to_drop(kernel)
    box = [engine]
    watch = weakref.ref(engine)
    del engine

    def run() -> str:
        box.clear()
        return "done"

    assert box[0].submit(run).result(PATIENCE) == "done"
    assert joined(threads)
    gc.collect()
    assert watch() is None


def test_an_idle_engine_in_a_circle(kernel: ModuleType) -> None:
    """An engine that only the collector can free is not freed, or its threads stay."""
    engine, threads = engine_to_drop(kernel)
    circle = [engine]
    circle.append(circle)
    engine.submit(int).result(PATIENCE)
    del engine, circle
    gc.collect()
    assert joined(threads)


def test_destructors_that_submit(make_engine: Any, eventually: Any) -> None:
    """Destructors that submit, in a worker or outside, are entered with something locked."""
    engine = make_engine(2)
    ran: list[int] = []

    class Submitter:
        def __del__(self) -> None:
            engine.submit(ran.append, 1)

    for _ in range(50):
        engine.submit(id, Submitter()).result(PATIENCE)
        future = engine.submit(Submitter)
        future.result(PATIENCE)
        del future

    def all_ran() -> bool:
        with held(engine, 2):  # on a free-threaded Python a thread lets go of things the next time that it runs
            pass
        return len(ran) == 100

    eventually(all_ran, "all destructors' tasks have run")


def test_engines(kernel: ModuleType, make_engine: Any) -> None:
    """`engines()` lacks an engine that is alive, or keeps one that is not."""
    mine = [make_engine(), make_engine()]
    assert set(mine) <= set(kernel.engines())
    dropped, _ = engine_to_drop(kernel)
    watch = weakref.ref(dropped)
    assert dropped in kernel.engines()
    del dropped
    assert watch() is None
    assert set(mine) <= set(kernel.engines())


def test_the_end_of_the_main_thread(script: Callable[..., str]) -> None:
    """After the main thread has ended it can submit, or other threads cannot, in engines old and new."""
    out = script("""
from filch.exceptions import DeadlockError, PoolShutdown

def try_it(engine):
    try:
        return engine.submit(int).result()
    except PoolShutdown as error:
        return str(error)

def elsewhere(engine):
    found = []
    thread = threading.Thread(target=lambda: found.append(try_it(engine)))
    thread.start()
    thread.join()
    return found[0]

engine = make_engine()
waiting = engine.submit(threading.Event().wait, 0.05)
kernel.main_ended()
for each in (engine, make_engine()):
    print(try_it(each))
    print(elsewhere(each))
print(engine.submit.__name__, waiting.result())
for each in kernel.engines():
    each._close()
    for thread in each._live_threads():
        thread.join()
""")
    first, second, third, fourth, last = out.splitlines()
    assert first == third
    assert "interpreter" in first
    assert second == fourth == "0"
    assert last == "submit False"


@pytest.mark.parametrize("state", ["unused", "idle", "closed", "in a circle"])
def test_an_engine_at_the_end_of_the_interpreter(script: Callable[..., str], state: str) -> None:
    """The destructor of an engine complains when the interpreter takes its modules away."""
    script(
        f"""
engine = make_engine(2)
if {state!r} != "unused":
    future = engine.submit(int)
    assert future.result(10) == 0 and engine.wait_idle(10)
if {state!r} == "closed":
    engine._close()
    for thread in engine._live_threads():
        thread.join()
circle = [engine, kernel, sys]
circle.append(circle)
if {state!r} != "in a circle":
    circle.clear()
""",
        quiet=True,
    )


def test_a_subclass_with_a_destructor_of_its_own(kernel: ModuleType) -> None:
    """A class that has a `__del__` takes the kernel's place, and the threads never end."""
    dropped: list[str] = []

    class Own(kernel.Engine):  # type: ignore[name-defined, misc]
        def __del__(self) -> None:
            dropped.append("own")

    options = {"lifo": True, "max_threads": 2, "keep_alive": 10.0, "seed": 1, "prologue": None, "restart": False}
    threads: list[threading.Thread] = []

    def start(run: Callable[[], None], number: int) -> threading.Thread:
        threads.append(start_thread(run, number))
        return threads[-1]

    engine = Own(2, start_thread=start, **options)
    engine.submit(int).result(PATIENCE)
    del engine
    gc.collect()
    assert dropped == ["own"]
    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive()
