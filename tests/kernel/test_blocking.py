"""`blocking()`: the processor is given away inside the block and taken back after it."""

import contextlib
import threading
from types import ModuleType
from typing import Any

import pytest

from kernel.engines import PATIENCE, held, is_settled, results


class Blocker:
    """Tasks that block until they are let go, and then until they are let end."""

    def __init__(self, kernel: ModuleType, engine: Any) -> None:
        self.kernel = kernel
        self.engine = engine
        self.unblock = threading.Event()
        self.end = threading.Event()
        self.blocked = threading.Semaphore(0)
        self.back = threading.Semaphore(0)

    def run(self) -> None:
        with self.kernel.blocking():
            self.blocked.release()
            assert self.unblock.wait(PATIENCE)
        self.back.release()
        assert self.end.wait(PATIENCE)

    def start(self, count: int) -> list[Any]:
        """Submit that many, and return when all of them are blocked."""
        futures = [self.engine.submit(self.run) for _ in range(count)]
        for _ in futures:
            assert self.blocked.acquire(timeout=PATIENCE)
        return futures

    def return_all(self, count: int) -> None:
        self.unblock.set()
        for _ in range(count):
            assert self.back.acquire(timeout=PATIENCE)


@pytest.fixture
def blocker(kernel: ModuleType, make_engine: Any, request: pytest.FixtureRequest) -> Blocker:
    return Blocker(kernel, make_engine(getattr(request, "param", 1)))


def test_others_run_meanwhile(blocker: Blocker) -> None:
    """A task that blocks keeps its processor to itself."""
    futures = blocker.start(5)  # all five are blocked at the same time, with one processor
    engine = blocker.engine
    assert results([engine.submit(int, number) for number in range(100)]) == list(range(100))
    blocker.end.set()
    blocker.return_all(5)
    results(futures)
    assert engine._counters()["handoffs"] >= 5
    assert engine._counters()["threads_started"] == 6


def test_what_was_waiting_runs_meanwhile(blocker: Blocker) -> None:
    """What lies in the deque, the batch or the injector when a task blocks is not taken up."""
    engine = blocker.engine
    ran: list[str] = []
    done = threading.Semaphore(0)

    def run(name: str) -> None:
        ran.append(name)
        done.release()

    def block() -> None:
        engine.submit(run, "deque")
        with blocker.kernel.blocking():
            for _ in range(3):
                assert done.acquire(timeout=PATIENCE)

    with held(engine):
        future = engine.submit(block)
        engine.submit(run, "batch")
        engine._spawn(run, ("injector",), priority=-1)
    future.result(PATIENCE)
    assert sorted(ran) == ["batch", "deque", "injector"]


def test_no_thread_without_work(blocker: Blocker) -> None:
    """A thread is started for a processor that was given away although nothing waits for it."""
    futures = blocker.start(1)
    assert blocker.engine._counters()["threads_started"] == 1
    blocker.return_all(1)
    assert blocker.engine._counters()["excess"] == 0
    blocker.end.set()
    results(futures)
    assert blocker.engine._counters()["threads_started"] == 1


def test_a_free_processor_is_taken_back_at_once(blocker: Blocker) -> None:
    """A task that comes back from a block to a free processor counts as one too many, or waits."""
    engine = blocker.engine
    futures = blocker.start(1)
    engine.submit(int).result(PATIENCE)
    assert engine.wait_idle(0) is False
    blocker.return_all(1)
    counters = engine._counters()
    assert (counters["excess"], counters["running"]) == (0, 1)
    # The processor is held again: nothing else runs.
    waiting = engine.submit(int)
    with pytest.raises(TimeoutError):
        waiting.result(0.02)
    blocker.end.set()
    results([waiting, *futures])


@pytest.mark.parametrize("blocker", [2], indirect=True)
def test_excess_and_standing_down(blocker: Blocker, eventually: Any) -> None:
    """A task that comes back to no free processor has to wait for one, or too many run from then on."""
    engine = blocker.engine
    blocked = blocker.start(2)
    gates = [threading.Event() for _ in range(2)]
    holders = [engine.submit(gate.wait, PATIENCE) for gate in gates]
    eventually(lambda: engine._counters()["running"] == 4, "the holders have taken over both processors")
    blocker.return_all(2)  # they go on at once
    assert engine._counters()["excess"] == 2
    started: list[int] = []
    waiting = [engine.submit(started.append, number) for number in range(3)]
    for left in (1, 0):
        gates[left].set()
        assert holders[left].result(PATIENCE) is True
        # The worker that has finished stands down, instead of taking what waits.
        eventually(lambda left=left: engine._counters()["excess"] == left, "a worker stands down")
        assert engine._counters()["running"] == 2 + left
        assert started == []
    blocker.end.set()
    results([*blocked, *waiting])
    assert sorted(started) == [0, 1, 2]  # by two workers at once
    assert engine.wait_idle(PATIENCE)
    eventually(lambda: is_settled(engine), "all processors are free again")
    with held(engine, 2):
        assert engine._counters()["running"] == 2


@pytest.mark.parametrize("blocker", [1], indirect=True)
def test_a_task_in_excess_that_ends(blocker: Blocker, eventually: Any) -> None:
    """The end of a task without a processor frees one that is not there, or leaves the count of excess wrong."""
    engine = blocker.engine
    blocked = blocker.start(1)
    with held(engine):
        blocker.end.set()
        blocker.return_all(1)
        results(blocked)
        eventually(lambda: engine._counters()["excess"] == 0, "the excess is over")
        waiting = engine.submit(int)
        with pytest.raises(TimeoutError):
            waiting.result(0.02)
        assert engine._counters()["running"] == 1
    assert waiting.result(PATIENCE) == 0


def test_a_task_in_excess_that_blocks_again(kernel: ModuleType, make_engine: Any, eventually: Any) -> None:
    """A task without a processor that blocks or waits gives one away that it has not."""
    engine = make_engine()
    go, outside = threading.Event(), kernel.Future()

    def run() -> int:
        with kernel.blocking():
            assert go.wait(PATIENCE)
        counters = engine._counters()
        with kernel.blocking():
            inside = engine._counters()
        waited = outside.result()
        return int(waited) + counters["excess"] + 10 * inside["excess"] + 100 * inside["running"]

    future = engine.submit(run)
    with held(engine):
        go.set()
        eventually(lambda: engine._counters()["running"] == 2 and not engine._counters()["excess"], "it waits")
        waiting = engine.submit(int)
        with pytest.raises(TimeoutError):
            waiting.result(0.02)
        outside.set_result(1000)
        # It goes on although the processor is held.
        assert future.result(PATIENCE) == 1201
    assert waiting.result(PATIENCE) == 0


def test_nested_blocks(kernel: ModuleType, make_engine: Any) -> None:
    """The inner of two nested blocks takes the processor back too early, or the outer one twice."""
    engine = make_engine()

    def run() -> list[int]:
        with kernel.blocking():
            with kernel.blocking():
                pass
            # Still given away: somebody else uses it.
            assert engine.submit(int).result(PATIENCE) == 0
            inside = engine.submit(threading.get_ident).result(PATIENCE)
        return [inside, threading.get_ident()]

    inside, outside = engine.submit(run).result(PATIENCE)
    assert inside != outside
    with held(engine):
        assert engine._counters()["excess"] == 0


def test_a_block_left_by_an_error(kernel: ModuleType, make_engine: Any) -> None:
    """A processor is lost when the block raises, or the error is."""
    engine = make_engine()

    def run() -> None:
        with kernel.blocking():
            raise LookupError

    for _ in range(3):
        assert type(engine.submit(run).exception(PATIENCE)) is LookupError
    with held(engine):
        pass


def test_one_block_object_used_twice(kernel: ModuleType, make_engine: Any) -> None:
    """A `blocking()` that is kept and entered again does not work the second time."""
    engine = make_engine()

    def run() -> int:
        block = kernel.blocking()
        found = []
        for _ in range(2):
            with block:
                found.append(engine.submit(int).result(PATIENCE))
        return len(found)

    assert engine.submit(run).result(PATIENCE) == 2
    assert engine._counters()["handoffs"] == 2


def test_spawning_in_a_block(kernel: ModuleType, make_engine: Any) -> None:
    """What a task spawns while it has no processor is lost, or waits until it has one again."""
    engine = make_engine()

    def run() -> list[int]:
        with kernel.blocking():
            futures = [engine.submit(int, number) for number in range(300)]
            return results(futures)

    assert engine.submit(run).result(PATIENCE) == list(range(300))


def test_waiting_in_a_block_runs_nothing_here(kernel: ModuleType, make_engine: Any) -> None:
    """A task that has given its processor away runs others on its thread all the same."""
    engine = make_engine()

    def run() -> tuple[int, int]:
        with kernel.blocking():
            return engine.submit(threading.get_ident).result(), threading.get_ident()

    inner, outer = engine.submit(run).result(PATIENCE)
    assert inner != outer


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 2])
def test_many_short_blocks(
    kernel: ModuleType, make_engine: Any, many_switches: None, eventually: Any, size: int
) -> None:
    """Processors are lost or doubled when blocks come and go all the time."""
    engine = make_engine(size)

    def run(number: int) -> int:
        for _ in range(3):
            with kernel.blocking(), contextlib.suppress(TimeoutError):
                if number % 7 == 0:
                    engine.submit(int).result(0)
        return number

    for _ in range(5):
        assert results([engine.submit(run, number) for number in range(200)]) == list(range(200))
    assert engine.wait_idle(PATIENCE)
    eventually(lambda: is_settled(engine), "all processors are free again")
    with held(engine, size):
        waiting = engine.submit(int)
        with pytest.raises(TimeoutError):
            waiting.result(0.02)
    assert waiting.result(PATIENCE) == 0


def test_one_block_for_many(make_engine: Any, kernel: ModuleType) -> None:
    """Tasks that enter the same object at a time spoil what it keeps, or take another one's processor back."""
    engine = make_engine(4)
    block = kernel.blocking()

    def enter() -> None:
        for _ in range(300):
            with block, block:
                pass

    results([engine.submit(enter) for _ in range(8)])
    assert engine.wait_idle(PATIENCE)
    assert is_settled(engine)


def test_left_in_another_task(make_engine: Any, kernel: ModuleType) -> None:
    """A block in a generator is left where that is closed, and the worker takes a second processor."""
    engine = make_engine(1)

    def block() -> Any:
        with kernel.blocking():
            yield

    def begin() -> Any:
        generator = block()
        next(generator)
        return generator

    generator = engine.submit(begin).result(PATIENCE)
    engine.submit(generator.close).result(PATIENCE)
    assert engine.submit(int).result(PATIENCE) == 0
    elsewhere = engine.submit(begin).result(PATIENCE)
    elsewhere.close()  # in a thread that is no worker
    assert engine.submit(int).result(PATIENCE) == 0
    assert engine.wait_idle(PATIENCE)
    assert is_settled(engine)
