"""The initializer: where it runs, and what becomes of the pool when it fails."""

import gc
import threading
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, as_completed, wait
from concurrent.futures.thread import BrokenThreadPool
from typing import Any

import pytest

import filch

Make = Callable[..., filch.Pool]


@pytest.fixture(autouse=True)
def _critical_is_expected(log: Any) -> Any:
    """Take what is logged of failed initializers; a test that wants to see it takes it first."""
    yield
    records = log.take("concurrent.futures")
    assert {record.levelname for record in records} <= {"CRITICAL"}


def fail(gate: threading.Event | None = None) -> None:
    if gate is not None:
        gate.wait(20)
    raise OSError("no licence")


def test_it_runs_once_in_each_thread(make_pool: Make) -> None:
    """A thread would work without its connection, or make it again for each task."""
    seen: list[tuple[int, tuple[Any, ...]]] = []
    pool = make_pool(3, initializer=lambda *args: seen.append((threading.get_ident(), args)), initargs=("a", 1))
    barrier = threading.Barrier(3)
    idents = {future.result(20) for future in [pool.submit(lambda: [barrier.wait(20)].clear()) for _ in range(3)]}
    for _ in range(10):
        pool.submit(int).result(20)
    assert idents == {None}
    assert len(seen) == len({ident for ident, _ in seen}) == 3
    assert {args for _, args in seen} == {("a", 1)}
    assert {ident for ident, _ in seen} == {thread.ident for thread in pool._threads}


def test_it_runs_before_the_first_task(make_pool: Make) -> None:
    """A task would find its thread not ready."""
    local = threading.local()
    pool = make_pool(2, initializer=setattr, initargs=(local, "ready", True))
    assert all(future.result(20) for future in [pool.submit(lambda: local.ready) for _ in range(50)])


def test_threads_that_help_out_have_run_it_too(make_pool: Make) -> None:
    """A thread that stands in while others wait would work without its connection."""
    local = threading.local()
    pool = make_pool(1, initializer=setattr, initargs=(local, "ready", True))

    def blocks() -> bool:
        with filch.blocking():
            return bool(pool.submit(lambda: local.ready).result(20))

    assert pool.submit(blocks).result(20)
    assert pool.statistics().threads_started == 2


def test_it_is_not_inside_a_task(make_pool: Make) -> None:
    """The initializer would be taken for a task: interrupted, or found as the current pool's."""
    seen: list[Any] = []
    pool = make_pool(1, initializer=lambda: seen.append(filch.current_pool()))
    pool.submit(int).result(20)
    assert seen == [None]


def test_a_failure_breaks_the_pool(make_pool: Make, log: Any) -> None:
    """A pool whose threads cannot work would take tasks and never run them; nobody would learn why."""
    pool = make_pool(2, initializer=fail)
    with pytest.raises(BrokenThreadPool, match="no licence") as raised:
        pool.submit(int).result(20)
    assert isinstance(raised.value, BrokenExecutor)
    assert isinstance(raised.value.__cause__, OSError)
    assert pool._broken
    assert "broken" in repr(pool)
    (record, *_) = log.take("concurrent.futures")
    assert record.levelname == "CRITICAL"
    assert isinstance(record.exc_info[1], OSError)


def test_a_broken_pool_refuses(make_pool: Make, ways_in: Any, eventually: Any) -> None:
    """Work would be taken that nobody is there to run."""
    pool = make_pool(1, initializer=fail)
    assert isinstance(pool.submit(int).exception(20), BrokenThreadPool)
    for way in ways_in(pool):
        with pytest.raises(BrokenThreadPool, match="no licence") as raised:
            way()
        assert isinstance(raised.value.__cause__, OSError)
    pool.shutdown()
    eventually(lambda: not pool._threads, "the thread ends")


def test_everybody_who_waits_gets_an_error_of_his_own(make_pool: Make, gate: threading.Event) -> None:
    """All futures would share one exception object, whose traceback grows and leads from one to the other."""
    pool = make_pool(1, initializer=fail, initargs=(gate,))
    futures = [pool.submit(int) for _ in range(5)]
    gate.set()
    assert wait(futures, 20).not_done == set()
    assert set(as_completed(futures, 20)) == set(futures)
    errors = [future.exception(20) for future in futures]
    assert {type(error) for error in errors} == {BrokenThreadPool}
    assert len({id(error) for error in errors}) == 5
    assert all(isinstance(error.__cause__, OSError) for error in errors if error is not None)


def test_a_map_hears_of_it(make_pool: Make, gate: threading.Event) -> None:
    """Whoever waits for the results of a map would wait for ever, or not learn why."""
    pool = make_pool(1, initializer=fail, initargs=(gate,))
    maps = [pool.map(abs, range(3)), pool.options(name="x").map(abs, range(3)), pool.map(abs, range(3), buffersize=2)]
    gate.set()
    for results in maps:
        with pytest.raises(BrokenThreadPool) as raised:
            next(results)
        assert isinstance(raised.value.__cause__, OSError)


def test_callbacks_hear_of_it(make_pool: Make, gate: threading.Event) -> None:
    """A callback, and so an asyncio program, would never be called."""
    pool = make_pool(1, initializer=fail, initargs=(gate,))
    called: list[Any] = []
    heard = threading.Event()
    future = pool.submit(int)
    future.add_done_callback(called.append)
    future.add_done_callback(lambda _: heard.set())
    gate.set()
    assert heard.wait(20)
    assert called == [future]
    assert isinstance(future.exception(), BrokenThreadPool)


def test_waiting_for_the_end_of_a_broken_pool(make_pool: Make, gate: threading.Event) -> None:
    """shutdown, wait_idle or the with block would wait for tasks that are never to run."""
    with make_pool(2, initializer=fail, initargs=(gate,)) as pool:
        futures = [pool.submit(int) for _ in range(10)]
        gate.set()
        assert pool.wait_idle(20)
    assert all(isinstance(future.exception(0), BrokenThreadPool) for future in futures)
    assert len(pool._threads) == 0


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, GeneratorExit])
def test_an_error_of_any_kind_breaks_it(make_pool: Make, error: type[BaseException]) -> None:
    """sys.exit() in an initializer would end the thread and leave the tasks waiting."""

    def leave() -> None:
        raise error

    pool = make_pool(1, initializer=leave)
    broken = pool.submit(int).exception(20)
    assert isinstance(broken, BrokenThreadPool)
    assert isinstance(broken.__cause__, error)


def test_running_tasks_finish_when_another_thread_fails(make_pool: Make, gate: threading.Event) -> None:
    """The failure of one thread would take the result of a task that runs on another one."""
    first = threading.Lock()

    def only_one() -> None:
        if not first.acquire(blocking=False):
            raise OSError

    pool = make_pool(2, initializer=only_one)
    entered = threading.Event()
    running = pool.submit(lambda: (entered.set(), gate.wait(20)))
    assert entered.wait(20)
    assert isinstance(pool.submit(int).exception(20), BrokenThreadPool)
    assert not running.done()
    gate.set()
    assert running.result(20) == (None, True)
    assert pool.wait_idle(20)


def test_errors_of_a_broken_pool_are_not_lost_errors(make_pool: Make, log: Any) -> None:
    """One failed initializer would be logged once for each task that was queued."""
    pool = make_pool(1, initializer=fail)
    pool.submit(int)
    assert pool.wait_idle(20)
    gc.collect()
    assert log.take("filch") == []


# on_broken="restart".


def test_restart_tries_again(make_pool: Make) -> None:
    """One bad start would make the pool useless for ever."""
    tries: list[int] = []

    def flaky() -> None:
        tries.append(1)
        if len(tries) < 3:
            raise OSError("transient")

    pool = make_pool(1, initializer=flaky, on_broken="restart")
    results: list[Any] = []
    for _ in range(5):
        future = pool.submit(abs, -1)
        results.append(future.exception(20) or future.result(20))
        if results[-1] == 1:
            break
    assert results[-1] == 1
    assert len(tries) == 3
    assert pool._broken is False
    assert pool.submit(abs, -2).result(20) == 2
    assert len(tries) == 3


def test_restart_does_not_try_for_ever(make_pool: Make, log: Any) -> None:
    """A start that always fails would keep those who wait, and fill the log."""
    tries: list[int] = []

    def always() -> None:
        tries.append(1)
        raise OSError("for good")

    pool = make_pool(1, initializer=always, on_broken="restart")
    for number in range(1, 4):
        error = pool.submit(int).exception(20)
        assert isinstance(error, BrokenThreadPool)
        assert isinstance(error.__cause__, OSError)
        assert pool.wait_idle(20)
        assert 0 < len(tries) <= 5 * number
    assert len(log.take("concurrent.futures")) == len(tries)


def test_restart_ends_every_future(make_pool: Make, gate: threading.Event) -> None:
    """A future that was queued behind the failing start would be left without an end."""
    pool = make_pool(2, initializer=fail, initargs=(gate,), on_broken="restart")
    futures = [pool.submit(int) for _ in range(20)]
    results = pool.map(int, range(3))
    gate.set()
    assert wait(futures, 20).not_done == set()
    errors = [future.exception() for future in futures]
    assert {type(error) for error in errors} == {BrokenThreadPool}
    assert len({id(error) for error in errors}) == 20
    with pytest.raises(BrokenThreadPool):
        next(results)


def test_restart_keeps_no_threads(make_pool: Make, eventually: Any) -> None:
    """Every failed start would leave a thread behind."""
    before = threading.active_count()
    pool = make_pool(4, initializer=fail, on_broken="restart")
    for _ in range(10):
        assert pool.submit(int).exception(20) is not None
    eventually(lambda: threading.active_count() <= before, "the threads of failed starts end")
    assert pool.wait_idle(20)
    pool.shutdown()
