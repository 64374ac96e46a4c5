"""Tasks that wait for tasks of their own pool: they never lock up, whatever they wait with."""

import concurrent.futures
import threading
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, as_completed, wait
from typing import Any

import pytest

import filch

Make = Callable[..., filch.Pool]

WAITS: dict[str, Callable[[list[Any]], list[Any]]] = {
    "result": lambda futures: [future.result() for future in futures],
    "result from the back": lambda futures: [future.result() for future in futures[::-1]],
    "result with a timeout": lambda futures: [future.result(30) for future in futures],
    "exception": lambda futures: [future.exception() or future.result() for future in futures],
    "wait": lambda futures: [future.result() for future in wait(futures).done],
    "wait with a timeout": lambda futures: [future.result() for future in wait(futures, 30).done],
    "as_completed": lambda futures: [future.result() for future in as_completed(futures)],
    "as_completed with a timeout": lambda futures: [future.result() for future in as_completed(futures, 30)],
}


@pytest.fixture(params=list(WAITS))
def gather(request: pytest.FixtureRequest) -> Callable[[list[Any]], list[Any]]:
    """Every way to wait for futures; returns their results in some order."""
    return WAITS[request.param]


@pytest.mark.parametrize("workers", [1, 2])
def test_a_task_waits_for_its_own(make_pool: Make, gather: Callable[[list[Any]], list[Any]], workers: int) -> None:
    """A task that submits to its own pool and waits would never finish once every worker waits."""
    pool = make_pool(workers)

    def parent() -> list[int]:
        return sorted(gather([pool.submit(pow, 2, exponent) for exponent in range(5)]))

    assert pool.submit(parent).result(20) == [1, 2, 4, 8, 16]
    assert [future.result(20) for future in [pool.submit(parent) for _ in range(8)]] == [[1, 2, 4, 8, 16]] * 8


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_fork_join_comes_to_its_end(make_pool: Make, gather: Callable[[list[Any]], list[Any]], workers: int) -> None:
    """A recursion in which every task waits for two more would lock up."""
    pool = make_pool(workers)

    def fib(n: int) -> int:
        return n if n < 2 else sum(gather([pool.submit(fib, n - 1), pool.submit(fib, n - 2)]))

    assert pool.submit(fib, 9).result(30) == 34


def test_waiting_for_a_stranger(make_pool: Make, gather: Callable[[list[Any]], list[Any]]) -> None:
    """A task would lock up on a task that somebody else has submitted before or after it."""
    pool = make_pool(1)
    box: list[Any] = []
    filled = threading.Event()

    def parent() -> list[Any]:
        assert filled.wait(20)
        return sorted(gather(box))

    future = pool.submit(parent)
    box += [pool.submit(abs, -number) for number in range(3)]
    filled.set()
    assert future.result(20) == [0, 1, 2]


def test_waiting_for_a_future_of_another_pool(make_pool: Make, gather: Callable[[list[Any]], list[Any]]) -> None:
    """Two pools whose tasks wait for each other's would lock up."""
    first, second = make_pool(1), make_pool(1)

    def there(number: int) -> int:
        return sum(gather([first.submit(abs, -number), first.submit(abs, -1)]))

    def here() -> list[int]:
        return sorted(gather([second.submit(there, number) for number in range(3)]))

    assert first.submit(here).result(20) == [1, 2, 3]


def test_waiting_for_a_future_that_nobody_runs(make_pool: Make) -> None:
    """A future that is completed by hand, from a task behind the waiting one, would never be completed."""
    pool = make_pool(1)
    promise: concurrent.futures.Future[int] = filch.Future()
    waiting = pool.submit(promise.result)
    pool.submit(promise.set_result, 5)
    assert waiting.result(20) == 5


def test_waiting_for_the_first(make_pool: Make, gate: threading.Event) -> None:
    """wait(FIRST_COMPLETED) in a task would wait for all, or lock up."""
    pool = make_pool(2)

    def parent() -> int:
        futures = [pool.submit(gate.wait, 20), pool.submit(abs, -1), pool.submit(abs, -2)]
        done, pending = wait(futures, return_when=FIRST_COMPLETED)
        assert done
        return len(done) + len(pending)

    assert pool.submit(parent).result(20) == 3


@pytest.mark.parametrize("gather", ["wait", "as_completed"])
def test_one_that_takes_long_does_not_hold_up_the_others(make_pool: Make, gate: threading.Event, gather: str) -> None:
    """A task that waits for any of several would run the first of them itself, and be back when that is over."""
    pool = make_pool(2)
    other, busy, begun = threading.Event(), threading.Event(), threading.Event()

    def slow() -> None:
        begun.set()
        gate.wait(20)

    def parent() -> int:
        assert busy.wait(20)
        futures = [pool.submit(slow), pool.submit(abs, -1)]
        if gather == "wait":
            return int(wait(futures, return_when=FIRST_COMPLETED).done.pop().result())
        return int(next(as_completed(futures)).result())

    future = pool.submit(parent)
    pool.submit(lambda: busy.set() or other.wait(20))
    assert begun.wait(20)
    other.set()
    assert future.result(10) == 1
    assert not gate.is_set()


def test_many_are_awaited_with_a_timeout_again_and_again(make_pool: Make) -> None:
    """What is awaited would be looked up in a list of all that is awaited: hours for 20,000."""
    pool = make_pool(1)

    def parent() -> int:
        futures = [pool.submit(abs, -number) for number in range(20_000)]
        wait(futures, 0)
        return len(wait(futures, 60).done)

    assert pool.submit(parent).result(60) == 20_000


def test_a_map_in_a_task_runs_on_other_workers_too(make_pool: Make) -> None:
    """Nested parallel work would run on the worker that waits for it, one call after the other."""
    pool = make_pool(3)
    barrier = threading.Barrier(3)
    assert pool.submit(lambda: sorted(pool.map(lambda _: barrier.wait(20), range(3)))).result(20) == [0, 1, 2]


def test_many_blocked_parents_need_few_threads(make_pool: Make) -> None:
    """Every waiting task would cost a thread: 200 of them hundreds."""
    pool = make_pool(4)

    def parent(number: int) -> int:
        return sum(future.result() for future in [pool.submit(int, number) for _ in range(5)])

    assert [future.result(40) for future in [pool.submit(parent, number) for number in range(200)]] == [
        5 * number for number in range(200)
    ]
    assert pool.statistics().threads_started <= 32 + 8 * 4


def test_max_threads_is_a_limit(make_pool: Make) -> None:
    """More threads than allowed would start; or with no more of them, waiting tasks would lock up."""
    pool = make_pool(2, max_threads=3)

    def parent(depth: int) -> int:
        if depth == 0:
            return 1
        futures = [pool.submit(parent, depth - 1) for _ in range(2)]
        return sum(future.result() for future in futures)

    assert pool.submit(parent, 8).result(40) == 256
    assert pool.statistics().threads_started <= 3


def test_a_waiting_task_keeps_off_the_locks_of_strangers(make_pool: Make, gate: threading.Event) -> None:
    """A task that waits with a lock held would run a stranger on its stack that wants the same lock, and lock up."""
    pool = make_pool(2)
    lock = threading.Lock()
    child_runs, held = threading.Event(), threading.Event()

    def child() -> int:
        child_runs.set()
        gate.wait(20)
        return 1

    def holder() -> int:
        with lock:
            future = pool.submit(child)
            held.set()
            assert child_runs.wait(20)  # on the other worker
            return future.result()

    def taker() -> int:
        with lock:
            return 2

    futures = [pool.submit(holder)]
    assert held.wait(20)
    futures += [pool.submit(taker) for _ in range(3)]
    assert child_runs.wait(20)
    gate.set()
    assert [future.result(20) for future in futures] == [1, 2, 2, 2]


def test_a_thousand_deep_at_one_worker(run_script: Callable[..., str]) -> None:
    """Nested waits would overflow the stack of the only worker, or lock up."""
    source = """
import filch
pool = filch.Pool(1)
def nest(depth):
    return 0 if depth == 0 else pool.submit(nest, depth - 1).result() + 1
print(pool.submit(nest, 1000).result())
pool.shutdown()
"""
    assert run_script(source) == "1000\n"


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("how", ["result", "result from the back", "wait"])
def test_a_circle_of_waits_is_found(make_pool: Make, how: str, workers: int) -> None:
    """Tasks that wait for each other would hang for ever and say nothing."""
    pool, gather = make_pool(workers), WAITS[how]
    box: dict[str, Any] = {}
    filled = threading.Event()

    def first() -> Any:
        assert filled.wait(20)
        return gather([box["second"]])

    def second() -> Any:
        assert filled.wait(20)
        return gather([box["first"]])

    box["first"] = pool.options(name="head").submit(first)
    box["second"] = pool.options(name="tail").submit(second)
    filled.set()
    for future in box.values():
        with pytest.raises(filch.DeadlockError, match=r"'head' waits for 'tail'|'tail' waits for 'head'"):
            future.result(20)


def test_a_task_that_waits_for_itself_is_told(make_pool: Make) -> None:
    """The shortest circle would hang for ever."""
    pool = make_pool(1)
    box: list[Any] = []
    filled = threading.Event()

    def selfish() -> Any:
        assert filled.wait(20)
        return box[0].result()

    box.append(pool.submit(selfish))
    filled.set()
    with pytest.raises(filch.DeadlockError, match="selfish"):
        box[0].result(20)
