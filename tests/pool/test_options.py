"""`options`: each option, how they add up, and what is refused."""

import concurrent.futures
import math
import threading
from collections.abc import Callable
from typing import Any

import pytest

import filch

Make = Callable[..., filch.Pool]

BAD = [
    ({"priority": 1.5}, TypeError, "1.5"),
    ({"priority": "5"}, TypeError, "'5'"),
    ({"priority": None}, TypeError, "None"),
    ({"priority": True}, TypeError, "True"),
    ({"timeout": 0}, ValueError, "0"),
    ({"timeout": -1}, ValueError, "-1"),
    ({"timeout": math.nan}, ValueError, "nan"),
    ({"timeout": "5"}, TypeError, "'5'"),
    ({"timeout": True}, TypeError, "True"),
    ({"name": 5}, TypeError, "5"),
    ({"name": b"x"}, TypeError, "b'x'"),
    ({"context": 5}, TypeError, "5"),
    ({"context": {}}, TypeError, "{}"),
    ({"force": None}, TypeError, "None"),
    ({"force": "yes"}, TypeError, "'yes'"),
    ({"force": 1}, TypeError, "1"),
]


@pytest.mark.parametrize(("options", "error", "value"), BAD, ids=str)
def test_a_bad_option_is_refused(make_pool: Make, options: dict[str, Any], error: type[Exception], value: str) -> None:
    """A mistake would show in a worker, or never."""
    pool = make_pool(1)
    (name,) = options
    for options_of in (pool.options, pool.options(name="x").options):
        with pytest.raises(error) as refused:
            options_of(**options)
        assert str(refused.value).startswith(f"{name} must be ")
        assert f"not {value}" in str(refused.value)
        assert not str(refused.value).endswith(".")


def test_an_unknown_option_is_refused(make_pool: Make) -> None:
    """A misspelt option would be ignored; the message says which there are."""
    pool = make_pool(1)
    for options_of in (pool.options, pool.options(name="x").options):
        with pytest.raises(TypeError, match=r"priority, timeout, name, context, force.*'priorty'"):
            options_of(priorty=5)


def test_options_are_by_name_only(make_pool: Make) -> None:
    """A number would be taken for a priority by one reader and for a timeout by the next."""
    with pytest.raises(TypeError):
        make_pool(1).options(5)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"timeout": None},
        {"timeout": math.inf},
        {"timeout": 1e30},
        {"name": None},
        {"name": ""},
        {"priority": -(10**30)},
    ],
    ids=str,
)
def test_what_is_at_the_edge_is_taken(make_pool: Make, options: dict[str, Any]) -> None:
    """A value that is still right would be refused, or break the task."""
    view = make_pool(1).options(**options)
    assert view.submit(abs, -1).result(20) == 1
    assert list(view.map(abs, [-1])) == [1]


# Priority.


def test_a_higher_priority_starts_sooner(make_pool: Make, gate: threading.Event) -> None:
    """Urgent work would wait behind what was submitted before it; equals would change places."""
    pool = make_pool(1)
    seen: list[Any] = []
    entered = threading.Event()
    pool.submit(lambda: (entered.set(), gate.wait(20)))
    assert entered.wait(20)
    for number in range(3):
        for priority in (0, 5, -5, 1):
            pool.options(priority=priority).submit(seen.append, (priority, number))
    pool.options(priority=2).map(seen.append, [(2, 0), (2, 1)])
    gate.set()
    assert pool.wait_idle(20)
    expected = [(5, n) for n in range(3)] + [(2, 0), (2, 1)]
    expected += [(priority, n) for priority in (1, 0, -5) for n in range(3)]
    assert seen == expected


# Names.


def test_a_name_is_what_a_task_is_called(make_pool: Make, log: Any, eventually: Any) -> None:
    """A message about a task would not say which; the name of a wrapper or a lambda says nothing."""
    pool = make_pool(1)

    def fail() -> None:
        raise LookupError

    pool.options(name="load orders").submit(fail)
    pool.options(name="load orders", timeout=60).submit(fail)
    pool.options(timeout=60).submit(fail)
    pool.submit(fail)

    def all_are_logged() -> bool:
        pool.submit(int).result(20)  # the last reference may be merged by the worker
        return len(log.records) == 4

    eventually(all_are_logged, "all are logged")
    names = sorted(record.getMessage().rsplit("error of ")[1] for record in log.take())
    own = fail.__qualname__
    assert names == sorted(["load orders", "load orders", own, own])


# How they add up.


def test_options_add_up(make_pool: Make) -> None:
    """A view of a view would forget the options of the first, or change them."""
    pool = make_pool(1)
    first = pool.options(priority=5, name="first")
    second = first.options(timeout=30)
    third = second.options(name=None, priority=0)
    text = "options(priority={}, timeout={}, name={!r}, context=True, force=False)"
    assert repr(first).endswith(text.format(5, None, "first"))
    assert repr(second).endswith(text.format(5, 30.0, "first"))
    assert repr(third).endswith(text.format(0, 30.0, None))


def test_a_view_is_an_executor(make_pool: Make) -> None:
    """What takes an executor would not take a view: dask looks for `_max_workers`, others for the class."""
    pool = make_pool(3)
    view = pool.options(priority=1)
    assert isinstance(view, concurrent.futures.Executor)
    assert view._max_workers == 3
    future = view.submit(abs, -1)
    assert concurrent.futures.wait([future], 20).done == {future}


def test_a_view_shares_the_pool(make_pool: Make) -> None:
    """A view would have threads or an end of its own."""
    pool = make_pool(1)
    views = [pool.options(priority=number) for number in range(20)]
    assert len({view.submit(threading.get_ident).result(20) for view in views}) == 1
    views[3].shutdown()
    for submit in (pool.submit, views[0].submit):
        with pytest.raises(filch.PoolShutdown):
            submit(abs, -1)


def test_a_view_keeps_its_pool(make_pool: Make) -> None:
    """A view of a pool that nobody else holds would be of no use."""
    view = filch.Pool(1).options(name="x")
    assert view.submit(abs, -1).result(20) == 1
    view.shutdown()


def test_a_view_in_a_with_block_ends_the_pool(make_pool: Make) -> None:
    """Leaving the block would leave the threads behind."""
    ran: list[int] = []
    pool = make_pool(1)
    with pool.options(name="x") as view:
        view.submit(ran.append, 1)
    assert ran == [1]
    assert len(pool._threads) == 0
