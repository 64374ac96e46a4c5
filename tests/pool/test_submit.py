"""Submitting: what a call may look like, where and in which order it runs, and what comes back."""

import concurrent.futures
import contextlib
import functools
import operator
import threading
from collections.abc import Callable
from typing import Any

import pytest

import filch

Make = Callable[..., filch.Pool]
Occupy = Callable[..., list[filch.Future[Any]]]


def everything(*args: Any, **kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return args, kwargs


WAYS: dict[str, Callable[[filch.Pool], Callable[..., Any]]] = {
    "submit": lambda pool: pool.submit,
    "a view's submit": lambda pool: pool.options(priority=1).submit,
    "a view's submit with a timeout": lambda pool: pool.options(timeout=60).submit,
    "a view's submit with force": lambda pool: pool.options(force=True, timeout=60).submit,
    "broadcast": lambda pool: lambda *args, **kwargs: pool.broadcast(*args, **kwargs)[0],
}


@pytest.fixture(params=list(WAYS))
def way(request: pytest.FixtureRequest) -> Callable[[filch.Pool], Callable[..., Any]]:
    """Every way to hand a call to a pool."""
    return WAYS[request.param]


def test_arguments_of_any_name_go_through(make_pool: Make, way: Callable[[filch.Pool], Callable[..., Any]]) -> None:
    """A keyword argument that is called as a parameter of filch's own would not reach the function."""
    names = [
        "self",
        "fn",
        "args",
        "kwargs",
        "seconds",
        "task",
        "pool",
        "name",
        "priority",
        "timeout",
        "context",
        "force",
    ]
    kwargs = dict.fromkeys(names, 1)
    assert way(make_pool(1))(everything, 1, 2, **kwargs).result(20) == ((1, 2), kwargs)


def test_spawn_lets_arguments_of_any_name_through() -> None:
    """The module's function would take keyword arguments for its own."""
    assert filch.spawn(everything, 1, self=2, fn=3, pool=4).result(20) == ((1,), {"self": 2, "fn": 3, "pool": 4})


@pytest.mark.parametrize(
    "fn",
    [
        operator.neg,
        functools.partial(operator.mul, 1),
        (1).__add__,
        type("Meta", (), {"__call__": lambda self, x: x})(),
        int,
        lambda x: x,
    ],
    ids=["function", "partial", "slot", "object", "class", "lambda"],
)
def test_everything_callable_is_called(make_pool: Make, fn: Callable[[int], int]) -> None:
    """A callable without a name, or that is no Python function, would not run."""
    pool = make_pool(1)
    assert pool.submit(fn, 7).result(20) == fn(7)
    assert pool.options(timeout=60).submit(fn, 7).result(20) == fn(7)
    assert list(pool.map(fn, [7])) == [fn(7)]


@pytest.mark.parametrize("value", [None, 1, "print", (print,), "abs"], ids=repr)
def test_what_is_not_callable_is_refused_at_once(
    make_pool: Make, way: Callable[[filch.Pool], Callable[..., Any]], value: Any
) -> None:
    """The mistake would show in a worker, far from where it was made: `submit(f())` instead of `submit(f)`."""
    pool = make_pool(1)
    with pytest.raises(TypeError) as refused:
        way(pool)(value)
    assert repr(value) in str(refused.value)
    assert pool.statistics().tasks_submitted == 0
    assert pool.statistics().threads == 0


def test_spawn_and_map_refuse_what_is_not_callable(make_pool: Make) -> None:
    """The mistake would show in a worker, or when the first result is asked for."""
    pool = make_pool(1)
    for submit in (filch.spawn, pool.map, pool.options(priority=1).map, pool.options(name="x").map):
        with pytest.raises(TypeError, match="'print'"):
            submit("print", [1])  # type: ignore[operator]
    assert pool.statistics().tasks_submitted == 0


def test_submit_wants_a_function(make_pool: Make) -> None:
    """A call without a function would be taken."""
    pool = make_pool(1)
    for submit in (pool.submit, pool.options(name="x").submit, filch.spawn, pool.broadcast):
        with pytest.raises(TypeError):
            submit()  # type: ignore[call-arg]
        with pytest.raises(TypeError):
            submit(fn=print)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    "value", [None, 0, "", ValueError("returned"), NotImplemented, (), StopIteration(1), concurrent.futures.Future()]
)
def test_a_result_is_what_was_returned(make_pool: Make, value: Any) -> None:
    """An exception, a future or nothing, returned and not raised, would be taken for something else."""
    pool = make_pool(1)
    future = pool.submit(lambda: value)
    assert future.result(20) is value
    assert future.exception() is None
    assert list(pool.map(lambda _: value, [1])) == [value]


def test_a_future_is_one_of_the_standard_library(make_pool: Make) -> None:
    """Libraries that look for a concurrent.futures.Future would refuse it, or read another state from it."""
    pool = make_pool(1)
    for future in (pool.submit(int), pool.options(name="x").submit(int), *pool.broadcast(int)):
        assert isinstance(future, filch.Future)
        assert isinstance(future, concurrent.futures.Future)
        assert future.result(20) == 0
        assert (future.done(), future.running(), future.cancelled()) == (True, False, False)
        assert "state=finished returned int" in repr(future)


def test_tasks_from_outside_start_in_order(make_pool: Make, gate: threading.Event) -> None:
    """Equal tasks would start in another order than they were submitted."""
    pool = make_pool(1)
    seen: list[int] = []
    pool.submit(gate.wait, 20)
    for number in range(2000):
        pool.submit(seen.append, number)
    gate.set()
    pool.shutdown()
    assert seen == list(range(2000))


def test_tasks_in_views_of_equal_priority_start_in_order(make_pool: Make, gate: threading.Event) -> None:
    """A view would have a queue of its own."""
    pool = make_pool(1)
    seen: list[int] = []
    pool.submit(gate.wait, 20)
    ways = [
        pool.submit,
        pool.options(name="x").submit,
        pool.options(timeout=60).submit,
        pool.options(context=None).submit,
    ]
    for number in range(400):
        ways[number % 4](seen.append, number)
    gate.set()
    pool.shutdown()
    assert seen == list(range(400))


@pytest.mark.parametrize(("order", "expected"), [("lifo", [3, 2, 1, 0]), ("fifo", [0, 1, 2, 3])])
def test_order_is_that_of_a_tasks_own_tasks(make_pool: Make, order: str, expected: list[int]) -> None:
    """The option `order` would be taken and not heeded."""
    pool = make_pool(1, order=order)
    seen: list[int] = []

    def parent() -> None:
        for number in range(4):
            pool.submit(seen.append, number)

    pool.submit(parent)
    pool.shutdown()
    assert seen == expected


def test_a_worker_that_sleeps_is_called_before_a_thread_starts(make_pool: Make) -> None:
    """One task at a time would start as many threads as the pool may have."""
    pool = make_pool(16)
    idents = set()
    for _ in range(100):
        idents.add(pool.submit(threading.get_ident).result())
        assert pool.wait_idle(20)
    assert len(idents) == 1
    assert pool.statistics().threads_started == 1


def test_all_workers_run_at_once(make_pool: Make) -> None:
    """A pool of eight would run fewer than eight tasks at the same time."""
    pool = make_pool(8)
    barrier = threading.Barrier(8)
    assert sorted(future.result(20) for future in [pool.submit(barrier.wait, 20) for _ in range(8)]) == list(range(8))


def test_never_more_than_max_workers_run_at_once(make_pool: Make, gate: threading.Event, occupy: Occupy) -> None:
    """A pool of one is a mutex, a pool of four may stand for four connections: the promise would be broken."""
    pool = make_pool(4)
    occupy(pool, 4)
    started = threading.Event()
    future = pool.submit(started.set)
    assert pool.statistics().tasks_running == 4
    assert pool.statistics().tasks_queued == 1
    assert len(pool._threads) == 4
    assert not future.running()
    gate.set()
    assert started.wait(20)


def test_a_pool_of_one_is_a_mutex(make_pool: Make, together: Callable[..., list[Any]]) -> None:
    """Two tasks of a pool of one would overlap."""
    pool = make_pool(1)
    inside = threading.Lock()

    def alone() -> None:
        assert inside.acquire(blocking=False)
        inside.release()

    def submitter() -> None:
        for future in [pool.submit(alone) for _ in range(300)]:
            future.result(20)

    together(*[submitter] * 4)


def test_threads_are_named(make_pool: Make) -> None:
    """Nobody could tell in a debugger or a log whose thread it is."""
    barrier = threading.Barrier(3)

    def name() -> str:
        barrier.wait(20)
        return threading.current_thread().name

    for pool, prefix in ((make_pool(3, "mine"), "mine"), (make_pool(3), "filch"), (make_pool(3, ""), "filch")):
        assert sorted(future.result() for future in [pool.submit(name) for _ in range(3)]) == [
            f"{prefix}_{number}" for number in range(3)
        ]


def test_the_submitter_may_be_any_thread(make_pool: Make, together: Callable[..., list[Any]]) -> None:
    """Submissions of several threads would be lost or mixed up."""
    pool = make_pool(2)

    def submitter() -> list[int]:
        return [future.result(20) for future in [pool.submit(operator.neg, number) for number in range(500)]]

    assert together(*[submitter] * 6) == [[-number for number in range(500)]] * 6
    assert pool.statistics().tasks_submitted == 3000


def test_a_task_may_submit_to_another_pool_and_wait(make_pool: Make) -> None:
    """Pools whose tasks wait for each other's tasks would lock up."""
    first, second = make_pool(1), make_pool(1)

    def ping(depth: int) -> int:
        if depth == 0:
            return 0
        other = second if depth % 2 else first
        return other.submit(ping, depth - 1).result(30) + 1

    assert first.submit(ping, 20).result(30) == 20


def test_an_exception_while_submitting_many_leaves_the_pool_whole(make_pool: Make) -> None:
    """A generator of work that raises would leave the pool in the middle of something."""
    pool = make_pool(1)

    def work() -> Any:
        yield 1
        raise LookupError

    with contextlib.suppress(LookupError):
        for item in work():
            pool.submit(abs, item)
    assert pool.submit(abs, -2).result(20) == 2
