"""Every task runs exactly once, and every future has an end: a ledger with a cell for each task.

Not here: in which order they run.
"""

import concurrent.futures
import random
import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from filch.exceptions import PoolShutdown
from kernel.engines import PATIENCE, held, results, spin_until


class Ledger:
    """How often each task ran; each cell is written by its own task alone."""

    def __init__(self, count: int) -> None:
        self.cells = [0] * count

    def entry(self, number: int, how: str = "output") -> Callable[[], int]:
        def run() -> int:
            self.cells[number] += 1
            if how == "exception":
                raise LookupError(number)
            if how == "exit":
                raise SystemExit(number)
            return number

        return run


def test_from_outside(engine: Any, together: Any, seed: int) -> None:
    """A task from outside is lost, or runs twice, when several threads submit to busy and idle workers."""
    each, producers = 500, 3
    ledger = Ledger(each * producers)

    def produce(producer: int) -> list[Any]:
        choose = random.Random(seed + producer)
        futures = []
        for number in range(producer * each, (producer + 1) * each):
            futures.append(engine.submit(ledger.entry(number)))
            if choose.random() < 0.02:  # the workers run out of work
                assert futures[-1].result(PATIENCE) == number
        return futures

    found = together(*[lambda producer=producer: produce(producer) for producer in range(producers)])
    assert [future.result(PATIENCE) for futures in found for future in futures] == list(range(each * producers))
    assert ledger.cells == [1] * len(ledger.cells)


def test_from_inside(engine: Any) -> None:
    """A task that a task spawned is lost, or runs twice: on the way of spilling, stealing or helping."""
    depth, width = 3, 9
    count = sum(width**level for level in range(1, depth + 1))
    ledger = Ledger(count + 1)
    free = iter(range(count + 1))
    spawned: list[Any] = []
    lock = threading.Lock()

    def spawn(level: int) -> None:
        with lock:
            number = next(free)
        ledger.cells[number] += 1
        if level < depth:
            futures = [engine.submit(spawn, level + 1) for _ in range(width)]
            with lock:
                spawned.extend(futures)

    engine.submit(spawn, 0).result(PATIENCE)
    assert engine.wait_idle(PATIENCE)
    results(spawned)
    assert ledger.cells == [1] * (count + 1)
    assert engine._counters()["submitted"] == count + 1


def test_a_wide_spawn_is_spilled_and_stolen(engine: Any) -> None:
    """A task is lost, or runs twice, when more are spawned than a local deque holds."""
    count = 3000
    ledger = Ledger(count)

    def spawn() -> list[Any]:
        return [engine.submit(ledger.entry(number)) for number in range(count)]

    assert results(engine.submit(spawn).result(PATIENCE)) == list(range(count))
    assert ledger.cells == [1] * count


@pytest.mark.parametrize("where", ["outside", "inside"])
def test_with_errors_cancels_and_expiries(engine: Any, together: Any, seed: int, where: str) -> None:
    """A task is lost, runs twice, or has no end, when others around it fail, are cancelled or given up."""
    count = 1200
    choose = random.Random(seed)
    hows = [choose.choice(["output", "exception", "exit", "cancel", "expire", "interrupt"]) for _ in range(count)]
    ledger = Ledger(count)
    futures: list[Any] = []
    stopped: dict[int, bool] = {}

    def produce() -> None:
        for number, how in enumerate(hows):
            spawn = engine.submit if choose.random() < 0.7 else engine._spawn
            futures.append(spawn(ledger.entry(number, how)))

    def stop() -> None:
        for number, how in enumerate(hows):
            spin_until(lambda number=number: len(futures) > number)
            if how in ("cancel", "expire", "interrupt"):
                future = futures[number]
                stopped[number] = future.expire(KeyError(number)) if how == "expire" else getattr(future, how)()

    together(produce if where == "outside" else lambda: engine.submit(produce).result(PATIENCE), stop)
    assert engine.wait_idle(PATIENCE)
    for number, (how, future) in enumerate(zip(hows, futures, strict=True)):
        runs = ledger.cells[number]
        if future.cancelled():
            assert (runs, stopped[number]) == (0, True)
        elif how == "expire" and stopped[number]:
            assert isinstance(future.exception(0), KeyError)
            assert runs <= 1
        else:
            assert runs == 1
            assert type(future.exception(0)) is {"exception": LookupError, "exit": SystemExit}.get(how, type(None))


@pytest.mark.parametrize("how", ["close", "cancel"])
def test_with_a_shutdown_in_the_middle(engine: Any, together: Any, how: str) -> None:
    """A shutdown loses a task that was accepted, or one that it cancelled runs, or a submitter hangs."""
    ledger = Ledger(2000)
    futures: list[Any] = []
    enough = threading.Event()

    def produce() -> int:
        for number in range(len(ledger.cells)):
            try:
                futures.append(engine.submit(ledger.entry(number)))
            except PoolShutdown:
                return number
            if number == 200:
                enough.set()
        return len(ledger.cells)

    def end() -> int | None:
        assert enough.wait(PATIENCE)
        return engine._close() if how == "close" else engine._cancel_pending()

    accepted, cancelled = together(produce, end)
    assert len(futures) == accepted
    assert concurrent.futures.wait(futures, PATIENCE).not_done == set()
    ran = [number for number, future in enumerate(futures) if not future.cancelled()]
    assert [futures[number].result(0) for number in ran] == ran
    assert [number for number, runs in enumerate(ledger.cells) if runs] == ran
    assert max(ledger.cells) == 1
    if how == "close":
        assert len(ran) == accepted
    else:
        assert len(ran) + cancelled == accepted
    with pytest.raises(PoolShutdown):
        engine.submit(int)


def test_every_thief_takes_something(make_engine: Any) -> None:
    """A worker that has nothing to do never finds what lies in another worker's deque."""
    workers = 4
    engine = make_engine(workers)
    meeting = threading.Barrier(workers)

    def spawn() -> list[Any]:
        # All meet only if each is run by another worker, and the spawner has its hands full.
        futures = [engine.submit(meeting.wait, PATIENCE) for _ in range(workers - 1)]
        meeting.wait(PATIENCE)
        return futures

    for _ in range(50):
        results(engine.submit(spawn).result(PATIENCE))
    assert engine._counters()["stolen"] >= 50 * (workers - 1)
    assert 0 < engine._counters()["steals"] <= engine._counters()["stolen"]


def test_the_priorities_of_many_producers(engine: Any, together: Any) -> None:
    """A task with a priority is lost, or runs twice."""
    each = 400
    ledger = Ledger(each * 3)

    def produce(priority: int) -> list[Any]:
        start = (priority + 1) * each
        return [engine._spawn(ledger.entry(number), priority=priority) for number in range(start, start + each)]

    for futures in together(*[lambda priority=priority: produce(priority) for priority in (-1, 0, 1)]):
        results(futures)
    assert ledger.cells == [1] * len(ledger.cells)


def test_two_engines_do_not_mix(kernel: ModuleType, make_engine: Any) -> None:
    """A task of one engine runs on the thread of another."""
    engines = [make_engine(2), make_engine(2)]
    wrong: list[Any] = []

    def hop(level: int) -> int:
        mine = kernel.current_engine()
        if mine is not engines[level % 2]:
            wrong.append(level)
        return 0 if level == 0 else engines[(level - 1) % 2].submit(hop, level - 1).result() + 1

    for _ in range(20):
        assert results([engines[level % 2].submit(hop, level) for level in (7, 8, 9, 10)]) == [7, 8, 9, 10]
    assert wrong == []


def test_a_cancelled_task_makes_room(make_engine: Any) -> None:
    """Cancelled tasks keep an engine from becoming idle."""
    engine = make_engine(2)
    with held(engine, 2):
        futures = [engine._spawn(int, priority=number % 3) for number in range(300)]
        assert all(future.cancel() for future in futures)
        assert not engine.wait_idle(0.01)
    assert engine.wait_idle(PATIENCE)
