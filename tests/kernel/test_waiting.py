"""Waits inside of tasks: they never lack a worker, and never run a stranger's work.

Not here: circles of tasks that wait for each other, and how threads come and go.
"""

import concurrent.futures
import contextlib
import sys
import threading
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from filch.exceptions import Cancelled
from kernel.engines import PATIENCE, held, results, start_thread


def nested(engine: Any, depth: int) -> int:
    return 0 if depth == 0 else engine.submit(nested, engine, depth - 1).result() + 1


def fib(engine: Any, n: int) -> int:
    if n < 2:
        return n
    left = engine.submit(fib, engine, n - 1)
    return fib(engine, n - 2) + int(left.result())


@pytest.mark.parametrize("depth", [1, 10, 200])
def test_nested(engine: Any, depth: int) -> None:
    """A task that waits for a task that waits and so on hangs or fails."""
    assert engine.submit(nested, engine, depth).result(PATIENCE) == depth


@pytest.mark.slow
@pytest.mark.parametrize("ask", ["result", "exception", "wait", "as_completed"])
def test_nested_1000_deep_with_one_worker(make_engine: Any, ask: str) -> None:
    """A thousand nested waits do not come through with one worker, or take a thread for each."""
    engine = make_engine(1)

    def ask_for(future: Any) -> int:
        if ask == "exception":
            assert future.exception() is None
        elif ask == "wait":
            assert concurrent.futures.wait([future]).done == {future}
        elif ask == "as_completed":
            assert list(concurrent.futures.as_completed([future])) == [future]
        return int(future.result())

    def dive(depth: int) -> int:
        return 0 if depth == 0 else ask_for(engine.submit(dive, depth - 1)) + 1

    assert engine.submit(dive, 1000).result(PATIENCE) == 1000
    assert engine._counters()["threads"] <= 1000 / 30


@pytest.mark.slow
def test_nested_10000_deep(script: Callable[..., str]) -> None:
    """A very deep chain of waits crashes the interpreter or hangs; an error that says so is good enough."""
    out = script("""
engine = make_engine(1)

def dive(depth):
    return 0 if depth == 0 else engine.submit(dive, depth - 1).result() + 1

try:
    print(engine.submit(dive, 10_000).result())
except RecursionError:
    print("RecursionError")
print(engine.submit(int).result())
""")
    assert out in ("10000\n0\n", "RecursionError\n0\n")


@pytest.mark.parametrize("n", [12])
def test_fork_join(engine: Any, n: int) -> None:
    """Fork-join comes to a wrong result, or hangs."""
    assert engine.submit(fib, engine, n).result(PATIENCE) == 144


@pytest.mark.slow
def test_fork_join_from_many(make_engine: Any, together: Any) -> None:
    """Several fork-joins in one engine keep each other from coming to an end."""
    engine = make_engine(2)
    assert together(*[lambda: engine.submit(fib, engine, 13).result(PATIENCE)] * 3) == [233] * 3


def test_the_awaited_task_runs_here(make_engine: Any) -> None:
    """A wait for a task that has not started calls another thread, although it could run it itself."""
    engine = make_engine(1)

    def wait() -> list[int]:
        futures = [engine.submit(threading.get_ident) for _ in range(5)]
        order = [futures[3], futures[0], futures[4], futures[1], futures[2]]
        return [threading.get_ident(), *(future.result() for future in order)]

    assert len(set(engine.submit(wait).result(PATIENCE))) == 1
    assert engine._counters()["threads_started"] == 1
    assert engine._counters()["handoffs"] == 0


def test_what_its_waiter_has_run_leaves_the_deque(make_engine: Any) -> None:
    """Tasks that their waiter has run fill up the deque, and push others out of it."""
    engine = make_engine(1)

    def run() -> dict[str, int]:
        for _ in range(1000):
            engine.submit(int).result()
        return dict(engine._counters())

    counters = engine.submit(run).result(PATIENCE)
    assert (counters["local"], counters["spilled"], counters["injected"]) == (0, 0, 0)


def test_descendants_run_here_newest_first(kernel: ModuleType, make_engine: Any) -> None:
    """A wait does not use the time for its own descendants, or takes an older one first."""
    engine = make_engine(1)
    outside = kernel.Future()
    order: list[Any] = []

    def child(number: int) -> None:
        order.append(number)
        if number == 2:
            engine.submit(order.append, "grandchild")
        if len(order) == 5:
            outside.set_result("done")

    def wait() -> str:
        for number in range(4):
            engine.submit(child, number)
        found = outside.result()  # nobody can run this one
        order.append("after")
        return str(found)

    assert engine.submit(wait).result(PATIENCE) == "done"
    assert order == [3, 2, "grandchild", 1, 0, "after"]
    assert engine._counters()["threads_started"] == 1


@pytest.mark.parametrize("ask", ["wait", "as_completed"])
def test_waits_of_the_standard_library(engine: Any, ask: str) -> None:
    """The standard library's own waits hang inside a task."""

    def leaf(number: int) -> int:
        return number

    def run(level: int) -> int:
        if level == 0:
            return 1
        futures = [engine.submit(run, level - 1) for _ in range(3)]
        if ask == "wait":
            done = concurrent.futures.wait(futures, PATIENCE if level % 2 else None).done
            assert len(done) == 3
        else:
            done = set(concurrent.futures.as_completed(futures, None if level % 2 else PATIENCE))
        return sum(future.result() for future in done)

    assert engine.submit(run, 4).result(PATIENCE) == 81


@pytest.mark.parametrize("return_when", ["FIRST_COMPLETED", "FIRST_EXCEPTION", "ALL_COMPLETED"])
def test_wait_for_some_inside(make_engine: Any, return_when: str) -> None:
    """`wait()` inside a task comes back too late, or runs no task that it waits for."""
    engine = make_engine(1)

    def fail() -> None:
        raise LookupError

    def run() -> tuple[int, int]:
        futures = [engine.submit(fail), *(engine.submit(int) for _ in range(3))]
        done, not_done = concurrent.futures.wait(futures, return_when=return_when)
        for future in futures:
            future.exception()
        return len(done), len(not_done)

    done, not_done = engine.submit(run).result(PATIENCE)
    assert done + not_done == 4
    assert done == 4 if return_when == "ALL_COMPLETED" else done >= 1


def test_a_wait_runs_no_stranger(make_engine: Any, seed: int) -> None:
    """A waiting task runs work on its stack that is neither awaited nor its own descendant."""
    engine = make_engine(2)
    local = threading.local()
    strangers: list[Any] = []

    def run(family: int, level: int) -> int:
        under = getattr(local, "family", None)
        if under not in (None, family):
            strangers.append((under, family))
        local.family = family
        try:
            if level == 0:
                return 1
            futures = [engine.submit(run, family, level - 1) for _ in range(3)]
            return sum(future.result() for future in futures[:: 1 if level % 2 else -1])
        finally:
            local.family = under

    assert results([engine.submit(run, family, 4) for family in range(12)]) == [81] * 12
    assert strangers == []


def test_a_wait_runs_no_stranger_even_without_spare_threads(make_engine: Any) -> None:
    """At the limit of threads a waiting task runs a stranger to get on."""
    engine = make_engine(1, max_threads=1)
    local = threading.local()
    strangers: list[Any] = []

    def run(family: int, level: int) -> int:
        under = getattr(local, "family", None)
        if under not in (None, family):
            strangers.append((under, family))
        local.family = family
        try:
            return 1 if level == 0 else sum(results([engine.submit(run, family, level - 1) for _ in range(3)]))
        finally:
            local.family = under

    with held(engine):
        futures = [engine.submit(run, family, 3) for family in range(5)]
    assert results(futures) == [27] * 5
    assert strangers == []
    assert engine._counters()["threads_started"] == 1


def test_siblings_are_strangers(kernel: ModuleType, make_engine: Any) -> None:
    """A waiting task runs a task of its own parent, which is not its descendant."""
    engine = make_engine(1)
    local = threading.local()
    order: list[str] = []

    def sibling(outside: Any) -> None:
        order.append("sibling")
        assert not getattr(local, "waits", False)
        outside.set_result(None)

    def waiting(outside: Any) -> None:
        engine.submit(order.append, "child")
        local.waits = True
        outside.result()
        local.waits = False

    def parent() -> None:
        outside = kernel.Future()
        futures = [engine.submit(waiting, outside), engine.submit(sibling, outside)]
        for future in futures:
            future.result()

    # `waiting` lies on top of `parent`; only on another thread may the sibling run that ends its wait.
    engine.submit(parent).result(PATIENCE)
    assert order == ["child", "sibling"]
    assert engine._counters()["handoffs"] >= 1


def test_isolate_runs_nothing_here(kernel: ModuleType, make_engine: Any) -> None:
    """In `isolate()` a wait runs a task on the same stack."""
    engine = make_engine(1)
    local = threading.local()
    ran: list[bool] = []

    def child() -> None:
        ran.append(getattr(local, "isolated", False))

    def run() -> None:
        futures = [engine.submit(child) for _ in range(4)]
        with kernel.isolate():
            local.isolated = True
            with kernel.isolate():
                pass
            for ask in (futures[3].result, lambda: concurrent.futures.wait(futures[:2])):
                ask()
            local.isolated = False
        futures[2].result()

    engine.submit(run).result(PATIENCE)
    assert ran == [False] * 4


def test_isolate_ends_with_its_block(kernel: ModuleType, make_engine: Any) -> None:
    """After `isolate()`, also after one that was left by an error, waits call other threads for ever."""
    engine = make_engine(1)

    def run() -> int:
        with contextlib.suppress(LookupError), kernel.isolate():
            raise LookupError
        return nested(engine, 5)

    assert engine.submit(run).result(PATIENCE) == 5
    assert engine._counters()["threads_started"] == 1


def test_isolate_does_not_go_down_to_other_tasks(kernel: ModuleType, make_engine: Any) -> None:
    """Isolation of one task reaches a task that runs elsewhere, or later on the same thread."""
    engine = make_engine(1)

    def run() -> int:
        with kernel.isolate():
            return int(engine.submit(nested, engine, 5).result())

    assert engine.submit(run).result(PATIENCE) == 5
    assert engine._counters()["threads_started"] == 2


def test_isolate_and_blocking_outside_of_tasks(kernel: ModuleType, make_engine: Any) -> None:
    """The context managers fail where no task runs."""
    with kernel.isolate(), kernel.blocking():
        pass
    assert make_engine().submit(int).result(PATIENCE) == 0


@pytest.mark.parametrize("timed", [False, True], ids=["untimed", "timed"])
@pytest.mark.parametrize("ask", ["result", "wait", "as_completed"])
@pytest.mark.parametrize("size", [1, 2])
def test_a_lock_across_a_wait(make_engine: Any, size: int, ask: str, timed: bool) -> None:
    """A task that holds a lock while it waits gets a stranger on its stack that asks for that lock (rayon#592).

    Or what it waits for starves, because strangers that ask for the lock take up the processor that it gave away.
    """
    engine = make_engine(size)
    lock = threading.Lock()
    timeout = [PATIENCE] * timed

    def run(number: int) -> int:
        # A stranger on the same stack would wait here for ever.
        assert lock.acquire(timeout=PATIENCE)
        try:
            futures = [engine.submit(int) for _ in range(1 if timed and ask == "result" else 3)]
            if ask == "wait":
                assert concurrent.futures.wait(futures, *timeout).not_done == set()
            elif ask == "as_completed":
                assert len(list(concurrent.futures.as_completed(futures, *timeout))) == 3
            return number + sum(future.result(*timeout) for future in futures)
        finally:
            lock.release()

    with held(engine, size):
        futures = [engine.submit(run, number) for number in range(20)]
    assert results(futures) == list(range(20))


@pytest.mark.slow
@pytest.mark.parametrize(("max_threads", "depth"), [(100, 200), (1, 100)])
def test_the_depth_of_helping_is_bounded(make_engine: Any, max_threads: int, depth: int) -> None:
    """Tasks lie on top of each other without limit, though threads could take over."""
    engine = make_engine(1, max_threads=max_threads)
    local = threading.local()
    depths: list[int] = []

    def dive(depth: int) -> None:
        local.depth = getattr(local, "depth", 0) + 1
        depths.append(local.depth)
        if depth:
            engine.submit(dive, depth - 1).result()
        local.depth -= 1

    engine.submit(dive, depth).result(PATIENCE)
    assert len(depths) == depth + 1
    if max_threads > 1:
        assert 32 <= max(depths) <= 64 + 1
    else:  # no thread is to be had: it goes on where it is, rather than not at all
        assert max(depths) == depth + 1


def test_the_stack_is_bounded_by_the_recursion_limit(make_engine: Any) -> None:
    """Helping eats up the stack that the task itself may need."""
    engine = make_engine(1)

    def deep(level: int) -> int:
        return nested(engine, 40) if level == 0 else deep(level - 1)

    # Two thirds of the limit are in use, so the waits hand over instead of nesting on this stack.
    level = sys.getrecursionlimit() * 2 // 3
    assert engine.submit(deep, level).result(PATIENCE) == 40
    assert engine._counters()["threads_started"] >= 2


@pytest.mark.parametrize("size", [1, 2])
def test_progress_at_the_limit_of_threads(make_engine: Any, size: int) -> None:
    """With no spare thread to be had, nested waits hang."""
    engine = make_engine(size, max_threads=size)
    assert engine.submit(nested, engine, 100).result(PATIENCE) == 100
    assert engine.submit(fib, engine, 12).result(PATIENCE) == 144

    def timed(depth: int) -> int:
        return 0 if depth == 0 else engine.submit(timed, depth - 1).result(PATIENCE) + 1

    assert engine.submit(timed, 50).result(PATIENCE) == 50
    assert engine._counters()["threads_started"] == size


def test_progress_at_the_limit_for_what_spilled(make_engine: Any) -> None:
    """With no spare thread to be had, a wait does not find its own descendants in the injector."""
    engine = make_engine(1, max_threads=1)

    def run() -> int:
        futures = [engine._spawn(int, priority=number % 3 - 1) for number in range(600)]
        return sum(results(concurrent.futures.as_completed(futures)))

    assert engine.submit(run).result(PATIENCE) == 0


def test_the_limit_of_threads_is_kept(kernel: ModuleType, make_engine: Any, eventually: Any) -> None:
    """More threads are started for waiting tasks than `max_threads` allows, or fewer."""
    engine = make_engine(2, max_threads=5)
    outside = kernel.Future()
    waiting = [engine.submit(outside.result) for _ in range(20)]
    eventually(lambda: engine._counters()["running"] == 5, "five tasks wait in five threads")
    assert engine._counters()["threads"] == 5
    outside.set_result("done")
    assert results(waiting) == ["done"] * 20
    assert engine._counters()["threads_started"] == 5


@pytest.mark.parametrize("how", ["interrupt", "expire"])
@pytest.mark.parametrize("ask", ["result", "timed", "wait", "as_completed", "wait_idle"])
def test_a_waiting_task_can_be_stopped(
    kernel: ModuleType, make_engine: Any, eventually: Any, how: str, ask: str
) -> None:
    """A task that waits does not hear that it is asked to stop."""
    engine, other = make_engine(1), make_engine(1)
    outside = kernel.Future()
    ended: list[BaseException] = []

    def run() -> None:
        try:
            if ask == "wait":
                concurrent.futures.wait([outside])
            elif ask == "as_completed":
                list(concurrent.futures.as_completed([outside]))
            elif ask == "wait_idle":
                other.wait_idle()
            else:
                outside.result(*[600] * (ask == "timed"))
        except BaseException as error:
            ended.append(error)
            raise

    with held(other):
        future = engine.submit(run)
        eventually(lambda: engine._counters()["handoffs"], "the task sleeps")
        assert future.interrupt() if how == "interrupt" else future.expire(KeyError())
        assert engine.wait_idle(PATIENCE)
    assert type(ended[0]) is Cancelled
    assert type(future.exception(0)) is (Cancelled if how == "interrupt" else KeyError)
    outside.set_result(None)
    assert engine.submit(int).result(PATIENCE) == 0


def test_a_task_that_was_asked_to_stop_begins_no_wait(kernel: ModuleType, make_engine: Any) -> None:
    """A wait that begins after the request to stop sleeps all the same, or runs a task before."""
    engine = make_engine(1)
    ran: list[int] = []

    def run() -> None:
        kernel.current_future().interrupt()
        waiting = engine.submit(ran.append, 1)
        try:
            waiting.result()
        finally:
            waiting.cancel()

    assert type(engine.submit(run).exception(PATIENCE)) is Cancelled
    assert ran == []


def test_a_done_future_can_be_asked_by_a_task_that_was_asked_to_stop(kernel: ModuleType, make_engine: Any) -> None:
    """Asking a finished future is a checkpoint, so a task cannot tidy up."""
    engine = make_engine(1)

    def run() -> int:
        done = engine.submit(int)
        done.result()
        kernel.current_future().interrupt()
        return int(done.result())

    assert engine.submit(run).result(PATIENCE) == 0


def test_a_request_to_stop_is_for_one_task_alone(kernel: ModuleType, make_engine: Any) -> None:
    """A task that runs on top of an interrupted one is stopped in its place."""
    engine = make_engine(1)
    seen: list[str] = []

    def child(under: Any) -> None:
        assert under.interrupt()
        kernel.checkpoint()
        nested(engine, 3)
        seen.append("child")

    def run() -> None:
        engine.submit(child, kernel.current_future()).result()
        seen.append("result")
        kernel.checkpoint()
        seen.append("checkpoint")

    assert type(engine.submit(run).exception(PATIENCE)) is Cancelled
    assert seen == ["child", "result"]


@pytest.mark.parametrize("ask", ["result", "wait", "as_completed", "wait_idle"])
def test_timed_waits(kernel: ModuleType, make_engine: Any, ask: str) -> None:
    """A wait with a timeout inside a task comes back early, late or not at all, or without its processor."""
    engine, other = make_engine(1), make_engine(1)
    outside = kernel.Future()

    def run(seconds: float) -> float:
        start = time.monotonic()
        if ask == "result":
            with pytest.raises(TimeoutError):
                outside.result(seconds)
        elif ask == "wait":
            assert concurrent.futures.wait([outside], seconds).not_done == {outside}
        elif ask == "as_completed":
            with pytest.raises(TimeoutError):
                list(concurrent.futures.as_completed([outside], seconds))
        else:
            assert other.wait_idle(seconds) is False
        assert engine._counters()["excess"] == 0
        return time.monotonic() - start

    with held(other):
        assert engine.submit(run, 0).result(PATIENCE) < PATIENCE / 2
        assert engine.submit(run, -1).result(PATIENCE) < PATIENCE / 2
        assert 0.05 <= engine.submit(run, 0.05).result(PATIENCE) < PATIENCE / 2


def test_others_run_while_a_task_waits(kernel: ModuleType, make_engine: Any) -> None:
    """A task that waits keeps its processor to itself."""
    engine = make_engine(1)
    outside = kernel.Future()
    waiting = [engine.submit(outside.result) for _ in range(3)]
    assert engine.submit(int).result(PATIENCE) == 0
    engine.submit(outside.set_result, "from inside").result(PATIENCE)
    assert results(waiting) == ["from inside"] * 3


def test_a_task_of_another_engine(make_engine: Any) -> None:
    """A wait for a task of another engine hangs, or runs that task on the wrong engine's thread."""
    engine, other = make_engine(1), make_engine(1)

    def run() -> tuple[int, int]:
        return other.submit(threading.get_ident).result(), threading.get_ident()

    inner, outer = engine.submit(run).result(PATIENCE)
    assert inner != outer
    assert inner == other.submit(threading.get_ident).result(PATIENCE)


def test_a_future_from_elsewhere(make_engine: Any) -> None:
    """A task cannot wait for a future of the standard library's pool, or keeps others from running meanwhile."""
    engine = make_engine(1)

    def run(future: Any) -> Any:
        return list(concurrent.futures.as_completed([future, engine.submit(int)]))[-1]

    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        gate = threading.Event()
        future = pool.submit(gate.wait, PATIENCE)
        waiting = engine.submit(run, future)
        other = engine.submit(gate.set)
        assert waiting.result(PATIENCE) is future
        assert other.done()


def test_a_wait_in_the_middle_of_a_wait(make_engine: Any) -> None:
    """A destructor that waits, where a task is about to sleep, takes the wake-up that was for the task."""
    ended, seen, go, queued = (threading.Event() for _ in range(4))
    waiting: list[int] = []
    inner: list[Any] = []

    def start(run: Callable[[], None], number: int) -> threading.Thread:
        thread = start_thread(run, number)
        if threading.get_ident() in waiting:  # where a destructor may come as well
            waiting.clear()
            inner.append(engine.submit(lambda: ended.set() or seen.wait(PATIENCE)).result(PATIENCE))
        return thread

    def slow() -> None:
        go.set()
        ended.wait(PATIENCE)

    def outer() -> str:
        future = engine.submit(slow)
        future.add_done_callback(lambda _: seen.set())
        assert go.wait(PATIENCE)
        assert queued.wait(PATIENCE)
        waiting.append(threading.get_ident())
        future.result()
        return "came back"

    engine = make_engine(2, start_thread=start)
    asked = engine.submit(outer)
    assert go.wait(PATIENCE)
    others = [engine.submit(int) for _ in range(2)]
    queued.set()
    assert asked.result(PATIENCE) == "came back"
    assert inner == [True]
    assert results(others) == [0, 0]


def test_a_task_that_was_taken_over_by_hand(make_engine: Any) -> None:
    """A task waits for one whose `set_running_or_notify_cancel()` somebody has called, and its worker is looked for."""
    here, there = make_engine(1), make_engine(2)
    with held(here):
        future = here.submit(int)
        assert future.set_running_or_notify_cancel()
        asked = [there.submit(future.result), there.submit(future.exception)]
        assert future.interrupt()
        with pytest.raises(TimeoutError):
            asked[0].result(0.05)
        future.set_result(7)
        assert results(asked) == [7, None]


def test_any_of_several(make_engine: Any) -> None:
    """A task that waits for any of several runs the first of them itself, and is back when that is over."""
    engine = make_engine(2)
    gate, busy, other, begun = (threading.Event() for _ in range(4))

    def slow() -> None:
        begun.set()
        gate.wait(PATIENCE)

    def parent() -> int:
        assert busy.wait(PATIENCE)
        futures = [engine.submit(slow), engine.submit(abs, -1)]
        done = concurrent.futures.wait(futures, return_when=concurrent.futures.FIRST_COMPLETED).done
        return int(done.pop().result())

    asked = engine.submit(parent)
    engine.submit(lambda: busy.set() or other.wait(PATIENCE))
    assert begun.wait(PATIENCE)
    other.set()
    try:
        assert asked.result(PATIENCE / 2) == 1
    finally:
        gate.set()
