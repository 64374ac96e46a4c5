"""`_resize` and `_broadcast`: what is for each processor, and what if their number changes."""

import threading
import time
from collections import Counter
from types import ModuleType
from typing import Any

import pytest

from filch.exceptions import PoolShutdown
from kernel.engines import PATIENCE, held, is_settled, results


def test_more(make_engine: Any) -> None:
    """Processors that were added are not used, not even for work that waits already."""
    engine = make_engine(1, max_threads=1)
    with held(engine):
        meeting = threading.Barrier(3)
        futures = [engine.submit(meeting.wait, PATIENCE) for _ in range(3)]
        engine._resize(4, 4)
        assert engine.max_workers == 4
        assert sorted(results(futures)) == [0, 1, 2]
    with held(engine, 4):
        waiting = engine.submit(int)
        with pytest.raises(TimeoutError):
            waiting.result(0.02)
    assert waiting.result(PATIENCE) == 0


@pytest.mark.parametrize("idle", [True, False])
def test_fewer(make_engine: Any, eventually: Any, idle: bool) -> None:
    """Processors that were taken away are used on, or those that are left are not."""
    engine = make_engine(4, keep_alive=0)
    if idle:
        with held(engine, 4):
            pass
        engine._resize(1, 40)
    else:
        with held(engine, 4):
            waiting = [engine.submit(int, number) for number in range(20)]
            engine._resize(1, 40)
            assert engine.max_workers == 1
            assert engine._counters()["running"] == 4  # nobody is stopped
        assert results(waiting) == list(range(20))
    with held(engine):
        waiting = [engine.submit(int)]
        with pytest.raises(TimeoutError):
            waiting[0].result(0.02)
        assert engine._counters()["running"] == 1
    assert results(waiting) == [0]
    eventually(lambda: engine._counters()["threads"] == 1, "threads that are too many have retired")


def test_what_lies_on_a_processor_that_goes(make_engine: Any) -> None:
    """Tasks in the deque or the batch of a processor that is taken away are lost."""
    engine = make_engine(4)
    gate = threading.Event()
    spawned: list[Any] = []

    def spawn(number: int) -> None:
        spawned.extend(engine.submit(int, number) for _ in range(10))
        assert gate.wait(PATIENCE)

    with held(engine, 4):
        futures = [engine.submit(spawn, number) for number in range(4)]
        futures += [engine.submit(int, 4) for _ in range(40)]
        engine._resize(2, 40)
        engine._resize(3, 40)
        engine._resize(1, 40)
    gate.set()
    results(futures)
    assert Counter(results(spawned)) == Counter(dict.fromkeys(range(4), 10))


def test_up_and_down_at_once(make_engine: Any) -> None:
    """A resize that takes back one before it leaves too many or too few processors."""
    engine = make_engine(2)
    with held(engine, 2):
        for size in (1, 2, 1, 3, 2, 1, 2):
            engine._resize(size, 40)
        assert engine.max_workers == 2
    for _ in range(3):
        with held(engine, 2):
            waiting = engine.submit(int)
            with pytest.raises(TimeoutError):
                waiting.result(0.02)
        assert waiting.result(PATIENCE) == 0


@pytest.mark.slow
def test_under_load(kernel: ModuleType, make_engine: Any, together: Any, eventually: Any, seed: int) -> None:
    """Tasks are lost, or processors, when the size changes all the time."""
    engine = make_engine(2, keep_alive=0.01)
    stop: list[bool] = []

    def fib(n: int) -> int:
        if n < 2:
            return n
        left = engine.submit(fib, n - 1)
        with kernel.blocking():
            pass
        return fib(n - 2) + int(left.result())

    def work() -> list[int]:
        try:
            return [engine.submit(fib, 9).result(PATIENCE) for _ in range(10)]
        finally:
            stop.append(True)

    def change() -> int:
        changes = 0
        while len(stop) < 2:
            engine._resize(1 + changes % 4, 64)
            changes += 1
            time.sleep(0)
        engine._resize(3, 64)
        return changes

    first, second, changes = together(work, work, change)
    assert first == second == [34] * 10
    assert changes > 1
    assert engine.wait_idle(PATIENCE)
    eventually(lambda: is_settled(engine), "the engine comes to rest")
    with held(engine, 3):
        waiting = engine.submit(int)
        with pytest.raises(TimeoutError):
            waiting.result(0.02)
    assert waiting.result(PATIENCE) == 0


def test_a_broadcast_reaches_each_worker_once(make_engine: Any, workers: int) -> None:
    """A broadcast misses a worker, or reaches one twice."""
    engine = make_engine(workers)
    for _ in range(5):
        # They wait for each other, so that nobody can be quick and serve two.
        meeting = threading.Barrier(workers)

        def run(base: int, *, meeting: threading.Barrier) -> int:
            meeting.wait(PATIENCE)
            return base + threading.get_ident()

        futures = engine._broadcast(run, (0,), {"meeting": meeting})
        assert len(futures) == workers
        assert len(set(results(futures))) == workers


def test_a_broadcast_to_idle_workers_that_do_not_meet(make_engine: Any, workers: int) -> None:
    """One thread serves the mail of several processors, so a thread-local is set in too few threads."""
    engine = make_engine(workers)
    with held(engine, workers):
        pass
    for _ in range(10):
        idents = results(engine._broadcast(threading.get_ident, (), {}))
        assert len(set(idents)) == workers


def test_a_broadcast_to_busy_workers(make_engine: Any) -> None:
    """A broadcast does not come before what else a busy worker has to do, or does not wait for the running task."""
    engine = make_engine(2)
    order: list[Any] = []
    with held(engine, 2):
        others = [engine.submit(order.append, "other") for _ in range(10)]
        others += [engine._spawn(order.append, ("urgent",), priority=9) for _ in range(10)]
        mail = engine._broadcast(order.append, ("mail",), {})
        assert order == []
    results([*others, *mail])
    assert sorted(order[:2]) == ["mail", "mail"] or order.index("mail") < 10
    assert order.count("mail") == 2


def test_a_broadcast_that_is_cancelled_or_fails(make_engine: Any, eventually: Any) -> None:
    """Mail that nobody has to run keeps the engine busy, or an error in it breaks a worker."""
    engine = make_engine(2)
    with held(engine, 2):
        mail = engine._broadcast(divmod, (1, 0), {})
        assert mail[0].cancel()
    assert isinstance(mail[1].exception(PATIENCE), ZeroDivisionError)
    assert engine.wait_idle(PATIENCE)
    eventually(lambda: is_settled(engine), "the engine comes to rest")
    with held(engine, 2):
        pass


def test_a_broadcast_while_a_processor_is_given_away(kernel: ModuleType, make_engine: Any) -> None:
    """Mail for the processor of a blocked task waits for the end of the block."""
    engine = make_engine(1)

    def run() -> list[Any]:
        with kernel.blocking():
            return results(engine._broadcast(int, (), {}))

    assert engine.submit(run).result(PATIENCE) == [0]


def test_mail_survives_a_smaller_size(make_engine: Any) -> None:
    """Mail for a processor that is taken away is lost."""
    engine = make_engine(3)
    with held(engine, 3):
        mail = engine._broadcast(int, (), {})
        engine._resize(1, 40)
    assert results(mail) == [0] * 3


def test_a_broadcast_after_the_end(make_engine: Any) -> None:
    """A closed engine takes a broadcast that nobody will run."""
    engine = make_engine(2)
    engine._close()
    with pytest.raises(PoolShutdown):
        engine._broadcast(int, (), {})


def test_a_new_size_after_the_end(make_engine: Any) -> None:
    """A closed engine starts threads again when its size changes."""
    engine = make_engine(2)
    engine.submit(int).result(PATIENCE)
    engine._close()
    engine._resize(4, 40)
    assert engine.wait_idle(PATIENCE)
    assert engine._counters()["threads_started"] == 1
