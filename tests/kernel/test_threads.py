"""Threads of an engine: how many, how they come and go, and what if one cannot be started or its prologue fails."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import BrokenExecutor
from types import ModuleType
from typing import Any

import pytest

from kernel.engines import PATIENCE, held, is_settled, results, spin_until, start_thread


class Odd(BaseException):
    """As a KeyboardInterrupt, but one that stops no test run."""


class Factory:
    """Starts threads, but raises at the calls that `fails` chooses, counted from 0."""

    def __init__(self, fails: Callable[[int], bool], error: type[BaseException] = RuntimeError) -> None:
        self.fails = fails
        self.error = error
        self.calls = 0
        self.numbers: list[int] = []

    def __call__(self, run: Callable[[], None], number: int) -> threading.Thread:
        self.calls += 1
        if self.fails(self.calls - 1):
            raise self.error("can't start new thread")
        self.numbers.append(number)
        return start_thread(run, number)


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("how", ["the same engine", "what is waited for", "idleness"])
def test_a_wait_in_the_middle_of_starting_a_thread(make_engine: Any, moment: str, how: str) -> None:
    """A signal handler that comes while its thread starts a worker, and waits for that worker, waits for ever."""
    waits: list[Any] = []

    def wait() -> None:
        if how == "the same engine":
            waits.append(engine.submit(abs, -3).result(PATIENCE))
        elif how == "what is waited for":
            waits.append(max((future.result(PATIENCE) for future in engine._unfinished()), default=3))
        else:
            waits.append(engine.wait_idle(PATIENCE))

    def start(run: Callable[[], None], number: int) -> threading.Thread:
        first = not calls
        calls.append(number)
        if first and moment == "before":
            wait()
        thread = start_thread(run, number)
        if first and moment == "after":
            wait()
        return thread

    calls: list[int] = []
    engine = make_engine(start_thread=start)
    assert engine.submit(abs, -3).result(PATIENCE) == 3
    assert waits == [True if how == "idleness" else 3]
    assert engine.submit(abs, -4).result(PATIENCE) == 4
    assert engine.wait_idle(PATIENCE)
    assert engine._counters()["threads"] == engine._counters()["threads_started"] == 1


def test_an_error_after_a_wait_in_the_middle_of_starting_a_thread(make_engine: Any) -> None:
    """The worker that another has replaced is counted off twice when its start fails."""

    def start(run: Callable[[], None], number: int) -> threading.Thread:
        calls.append(number)
        if len(calls) == 1:
            assert engine.submit(abs, -3).result(PATIENCE) == 3
            raise Odd
        return start_thread(run, number)

    calls: list[int] = []
    engine = make_engine(start_thread=start)
    with pytest.raises(Odd):
        engine.submit(abs, -5)
    assert engine.submit(abs, -4).result(PATIENCE) == 4
    assert engine.wait_idle(PATIENCE)
    assert is_settled(engine)
    assert len(calls) == 2


@pytest.mark.parametrize("error", [RuntimeError, OSError, MemoryError, Odd])
def test_the_first_thread_cannot_be_started(make_engine: Any, error: type[BaseException]) -> None:
    """A task is taken that nobody will run, or the engine is unusable from then on."""
    factory = Factory(lambda call: call < 3, error)
    engine = make_engine(2, start_thread=factory)
    for submit in (engine.submit, engine._spawn, engine.submit):
        with pytest.raises(error, match="start new thread"):
            submit(int)
        assert engine._unfinished() == []
        assert engine.wait_idle(0) is True
        assert engine._counters()["threads"] == 0
    assert engine.submit(int).result(PATIENCE) == 0
    assert factory.calls == 4


@pytest.mark.parametrize("fails", ["always", "alternately", "twice"])
@pytest.mark.parametrize("error", [RuntimeError, OSError, MemoryError])
def test_it_goes_on_with_the_threads_it_has(make_engine: Any, log: Any, fails: str, error: type[BaseException]) -> None:
    """An engine that cannot start its second thread loses tasks, or complains again and again."""
    chosen = {
        "always": lambda call: call > 0,
        "alternately": lambda call: call % 2 == 1,
        "twice": lambda c: c in (1, 2),
    }
    engine = make_engine(4, start_thread=Factory(chosen[fails], error))
    futures = [engine.submit(int, number) for number in range(500)]
    with held(engine):
        futures += [engine.submit(int, number) for number in range(500, 1000)]
    assert results(futures) == list(range(1000))
    (warning,) = log.take("filch")
    assert "start new thread" in warning
    assert engine.wait_idle(PATIENCE)
    assert engine._counters()["threads"] == (1 if fails == "always" else engine._counters()["threads_started"])


def test_other_errors_of_the_factory_are_not_kept_quiet(make_engine: Any) -> None:
    """An error that says nothing of a lack of threads is swallowed, and the task with it."""
    engine = make_engine(2, start_thread=Factory(lambda call: call == 1, Odd))
    with held(engine):
        with pytest.raises(Odd):
            engine.submit(int)
        assert len(engine._unfinished()) == 1
    assert engine.submit(int).result(PATIENCE) == 0


def test_a_thread_that_was_started_all_the_same(make_engine: Any, eventually: Any) -> None:
    """An interrupt of the factory after it has started the thread is swallowed, or leaves the engine unusable."""
    threads: list[threading.Thread] = []
    ran: list[int] = []

    def start(run: Callable[[], None], number: int) -> threading.Thread:
        threads.append(start_thread(run, number))
        spin_until(lambda: bool(engine._live_threads()))
        raise Odd

    engine = make_engine(start_thread=start)
    with pytest.raises(Odd):
        engine.submit(ran.append, 1)
    assert engine.wait_idle(PATIENCE)
    assert len(ran) <= 1
    assert engine.submit(int).result(PATIENCE) == 0
    eventually(lambda: is_settled(engine), "the worker goes to sleep")
    assert engine._live_threads() == threads
    engine._close()
    threads[0].join(PATIENCE)


@pytest.mark.parametrize("timed", [False, True], ids=["untimed", "timed"])
@pytest.mark.parametrize("error", [RuntimeError, OSError])
def test_waits_go_on_without_new_threads(make_engine: Any, log: Any, error: type[BaseException], timed: bool) -> None:
    """A wait hands over to a thread that cannot be started, and then sleeps although it could do the work itself."""
    engine = make_engine(start_thread=Factory(lambda call: call > 0, error))

    def dive(depth: int) -> int:
        return 0 if depth == 0 else engine.submit(dive, depth - 1).result(*[PATIENCE] * timed) + 1

    assert engine.submit(dive, 80).result(PATIENCE) == 80
    assert len(log.take("filch")) == 1
    assert engine._counters()["threads"] == 1


def test_a_hand_over_that_failed_is_tried_again(kernel: ModuleType, make_engine: Any, log: Any) -> None:
    """After a thread could not be started for a blocked task's processor, that lies idle for ever."""
    engine = make_engine(start_thread=Factory(lambda call: call == 1))
    outside = kernel.Future()
    started = threading.Event()

    def wait() -> Any:
        engine.submit(int)
        started.set()
        with kernel.isolate():
            return outside.result()

    waiting = engine.submit(wait)
    assert started.wait(PATIENCE)
    spin_until(lambda: engine._counters()["handoffs"] >= 1)
    assert engine.submit(outside.set_result, "done").result(PATIENCE) is None
    assert waiting.result(PATIENCE) == "done"
    assert len(log.take("filch")) <= 1


def test_numbers_are_the_lowest_free(kernel: ModuleType, make_engine: Any, eventually: Any) -> None:
    """Two threads that live at the same time have the same number, or numbers grow for ever."""
    factory = Factory(lambda _: False)
    engine = make_engine(1, start_thread=factory, keep_alive=0)
    for _ in range(3):
        outside = kernel.Future()
        waiting = [engine.submit(outside.result) for _ in range(4)]
        eventually(lambda: engine._counters()["running"] == 4, "all wait")
        outside.set_result(None)
        results(waiting)
        eventually(lambda: engine._counters()["threads"] == 1, "spare threads have retired")
    assert sorted(set(factory.numbers)) == [0, 1, 2, 3]
    assert factory.numbers[:4] == [0, 1, 2, 3]


@pytest.mark.parametrize("keep_alive", [0, 0.05])
def test_spare_threads_retire(kernel: ModuleType, make_engine: Any, eventually: Any, keep_alive: float) -> None:
    """Threads above `max_workers` stay for ever, or those up to it go too."""
    engine = make_engine(2, keep_alive=keep_alive)
    outside = kernel.Future()
    waiting = [engine.submit(outside.result) for _ in range(6)]
    eventually(lambda: engine._counters()["running"] == 6, "all wait")
    outside.set_result(None)
    results(waiting)
    eventually(lambda: engine._counters()["threads"] == 2, "spare threads have retired")
    assert len(engine._live_threads()) == 2
    before = engine._counters()["threads_started"]
    start = time.monotonic()
    spin_until(lambda: time.monotonic() > start + 4 * keep_alive)  # what would retire now retires
    with held(engine, 2):
        assert engine._counters()["threads_started"] == before
    eventually(lambda: is_settled(engine), "both are idle again")
    assert engine._counters()["threads"] == 2


def test_spare_threads_are_used_again(kernel: ModuleType, make_engine: Any) -> None:
    """Every block starts a thread of its own although spare ones are idle."""
    engine = make_engine(2)
    for _ in range(20):
        gate = threading.Barrier(3)

        def block(gate: threading.Barrier = gate) -> None:
            with kernel.blocking():
                gate.wait(PATIENCE)

        results([engine.submit(block) for _ in range(3)])
        assert engine.wait_idle(PATIENCE)
    assert engine._counters()["threads_started"] <= 5


def test_live_threads(make_engine: Any) -> None:
    """`_live_threads` lacks a worker, or has one that has ended."""
    engine = make_engine(3)
    with held(engine, 3):
        alive = {thread for thread in threading.enumerate() if thread.name.startswith("worker_")}
        assert set(engine._live_threads()) == alive
        assert len(alive) == 3
    engine._close()
    for thread in alive:
        thread.join(PATIENCE)
    assert engine._live_threads() == []


def test_the_prologue_runs_first_and_once_a_thread(kernel: ModuleType, make_engine: Any) -> None:
    """A thread runs a task before its prologue, runs that twice, or counts it as a task."""
    local = threading.local()
    calls: list[int] = []

    def prologue() -> None:
        assert kernel.current_future() is None
        assert kernel.current_engine() is None
        local.ready = getattr(local, "ready", 0) + 1
        calls.append(threading.get_ident())

    engine = make_engine(3, prologue=prologue)
    assert results([engine.submit(getattr, local, "ready") for _ in range(100)]) == [1] * 100
    with held(engine, 3):
        pass
    assert len(calls) == len(set(calls)) == 3
    assert engine._breakage is None


class Broken(Exception):
    """What a prologue raises."""


@pytest.mark.parametrize("error", [Broken, SystemExit])
def test_a_prologue_that_fails(make_engine: Any, log: Any, eventually: Any, error: type[BaseException]) -> None:
    """A prologue's error is lost, leaves tasks without an end, or the same exception object is in several futures."""
    gate = threading.Event()
    cause = error("no luck")

    def prologue() -> None:
        assert gate.wait(PATIENCE)
        raise cause

    engine = make_engine(2, prologue=prologue)
    futures = [engine.submit(int) for _ in range(5)] + [engine._spawn(int, priority=1)]
    cancelled = engine.submit(int)
    assert cancelled.cancel()
    gate.set()
    errors = [future.exception(PATIENCE) for future in futures]
    assert all(isinstance(each, BrokenExecutor) for each in errors)
    assert len({id(each) for each in errors}) == len(errors)
    assert all(each.__cause__ is cause for each in errors)
    assert "no luck" in str(errors[0])
    assert cancelled.cancelled()
    eventually(lambda: engine._breakage is not None, "the engine is broken")
    assert engine._breakage is cause
    for submit in (engine.submit, engine._spawn):
        with pytest.raises(BrokenExecutor, match="no luck") as caught:
            submit(int)
        assert caught.value.__cause__ is cause
        assert caught.value not in errors
    eventually(lambda: engine._counters()["threads"] == 0, "its threads have ended")
    assert engine.wait_idle(PATIENCE)
    assert engine._closed
    assert 1 <= len(log.take("concurrent.futures")) <= 2


def test_a_later_prologue_fails(make_engine: Any, log: Any, eventually: Any) -> None:
    """A task that runs when another thread's prologue fails is stopped, or loses its result."""
    calls = 0

    def prologue() -> None:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise Broken

    engine = make_engine(2, prologue=prologue)
    gate = threading.Event()
    running = engine.submit(gate.wait, PATIENCE)
    eventually(running.running, "it runs")
    doomed = engine.submit(int)
    assert isinstance(doomed.exception(PATIENCE), BrokenExecutor)
    gate.set()
    assert running.result(PATIENCE) is True
    eventually(lambda: engine._counters()["threads"] == 0, "its threads have ended")
    log.take("concurrent.futures")


def test_a_prologue_that_is_tried_again(make_engine: Any, log: Any) -> None:
    """With `restart`, a prologue that fails at first breaks the engine."""
    calls = 0

    def prologue() -> None:
        nonlocal calls
        calls += 1
        if calls <= 2:
            raise Broken

    engine = make_engine(1, prologue=prologue, restart=True)
    assert results([engine.submit(int) for _ in range(5)]) == [0] * 5
    assert calls == 3
    assert engine._breakage is None
    assert not engine._closed
    assert len(log.take("concurrent.futures")) == 2


def test_a_prologue_that_is_tried_in_vain(make_engine: Any, log: Any) -> None:
    """With `restart`, a prologue that always fails hangs its tasks, tries for ever, or the engine never works again."""
    working = False
    calls = 0

    def prologue() -> None:
        nonlocal calls
        calls += 1
        if not working:
            raise Broken

    engine = make_engine(1, prologue=prologue, restart=True)
    for _ in range(2):
        future = engine.submit(int)
        assert isinstance(future.exception(PATIENCE), BrokenExecutor)
    assert calls < 20
    assert engine.wait_idle(PATIENCE)
    working = True
    assert engine.submit(int).result(PATIENCE) == 0
    assert engine._breakage is None
    log.take("concurrent.futures")
