"""Context variables: a task sees those of its submitter, and cannot change them."""

import contextvars
import decimal
import threading
from collections.abc import Callable
from typing import Any

import pytest

import filch

Make = Callable[..., filch.Pool]
who = contextvars.ContextVar("who", default="nobody")


def as_user(name: str, fn: Callable[[], Any]) -> Any:
    """Call a function in a context in which `who` has this value."""
    context = contextvars.copy_context()
    context.run(who.set, name)
    return context.run(fn)


WAYS: dict[str, Callable[[filch.Pool], Callable[..., Any]]] = {
    "submit": lambda pool: lambda fn: pool.submit(fn).result(20),
    "a view": lambda pool: lambda fn: pool.options(priority=1).submit(fn).result(20),
    "a view with a timeout": lambda pool: lambda fn: pool.options(timeout=60).submit(fn).result(20),
    "map": lambda pool: lambda fn: next(pool.map(lambda _: fn(), [1])),
    "map with a buffer": lambda pool: lambda fn: next(pool.map(lambda _: fn(), [1], buffersize=1)),
    "map of a view": lambda pool: lambda fn: next(pool.options(name="x").map(lambda _: fn(), [1])),
    "broadcast": lambda pool: lambda fn: pool.broadcast(fn)[0].result(20),
}


@pytest.fixture(params=list(WAYS))
def run(request: pytest.FixtureRequest, make_pool: Make) -> Callable[[Callable[[], Any]], Any]:
    """Return `run(fn)`: the result of a function as a task of a pool of one, submitted in every way."""
    return WAYS[request.param](make_pool(1))


def test_a_task_sees_its_submitters_values(run: Callable[..., Any]) -> None:
    """The current user, request or trace would be lost in the worker."""
    assert as_user("ann", lambda: run(who.get)) == "ann"
    assert as_user("bob", lambda: run(who.get)) == "bob"


def test_no_value_leaks_from_the_one_who_started_the_thread(run: Callable[..., Any]) -> None:
    """Everybody would see the values of the first submitter, whose submission started the thread."""
    assert as_user("ann", lambda: run(who.get)) == "ann"
    assert run(who.get) == "nobody"


def test_a_task_cannot_change_its_submitters_values(run: Callable[..., Any]) -> None:
    """A task would change the submitter's context, or that of the next task."""

    def change() -> str:
        who.set("changed")
        return who.get()

    def submitter() -> str:
        assert run(change) == "changed"
        return who.get()

    assert as_user("ann", submitter) == "ann"
    assert run(who.get) == "nobody"
    assert run(change) == "changed"
    assert run(who.get) == "nobody"


def test_the_values_are_those_at_the_submission(make_pool: Make, gate: threading.Event) -> None:
    """A task that starts late would see what its submitter has set since."""
    pool = make_pool(1)
    pool.submit(gate.wait, 20)

    def submitter() -> Any:
        future = pool.submit(who.get)
        results = pool.map(lambda _: who.get(), range(2))
        who.set("later")
        gate.set()
        return [future.result(20), *results]

    assert as_user("ann", submitter) == ["ann"] * 3


def test_calls_of_one_map_do_not_see_each_others_values(make_pool: Make) -> None:
    """A call would see what the call before it has set, on the same thread or another one."""
    pool = make_pool(2)

    def change(number: int) -> str:
        before = who.get()
        who.set(f"changed by {number}")
        return before

    for chunksize in (None, 3):
        assert set(as_user("ann", lambda size=chunksize: list(pool.map(change, range(50), chunksize=size)))) == {"ann"}
        assert set(pool.map(change, range(50), chunksize=chunksize)) == {"nobody"}


def test_a_tasks_own_tasks_see_what_it_has_set(make_pool: Make) -> None:
    """Values would get lost on the way to a task of a task, also when the waiting task runs it itself."""
    pool = make_pool(1)

    def parent() -> list[str]:
        before = pool.submit(who.get).result()
        who.set("parent")
        return [before, pool.submit(who.get).result(), *pool.map(lambda _: who.get(), [1]), who.get()]

    assert as_user("ann", lambda: pool.submit(parent).result(20)) == ["ann", "parent", "parent", "parent"]


def test_what_a_helped_task_sets_stays_in_it(make_pool: Make) -> None:
    """A task that runs on the stack of its waiting parent would change the parent's values."""
    pool = make_pool(1)

    def parent() -> str:
        pool.submit(who.set, "child").result()
        return who.get()

    assert as_user("ann", lambda: pool.submit(parent).result(20)) == "ann"


def test_the_context_of_decimal_comes_along(make_pool: Make) -> None:
    """A calculation would have another precision in the pool than beside it."""
    pool = make_pool(1)
    with decimal.localcontext(prec=5):
        assert pool.submit(lambda: decimal.Decimal(1) / 3).result(20) == decimal.Decimal("0.33333")
    assert len(str(pool.submit(lambda: decimal.Decimal(1) / 3).result(20))) > 20


def test_context_none_runs_without_a_copy(make_pool: Make) -> None:
    """The option would be taken and not heeded: the copy would be paid for all the same."""
    pool = make_pool(1)
    view = pool.options(context=None)
    assert as_user("ann", lambda: view.submit(who.get).result(20)) == "nobody"
    assert as_user("ann", lambda: list(view.map(lambda _: who.get(), range(2)))) == ["nobody"] * 2
    assert as_user("ann", lambda: next(view.map(lambda _: who.get(), [1], buffersize=1))) == "nobody"
    assert as_user("ann", lambda: view.options(context=True).submit(who.get).result(20)) == "ann"
    assert as_user("ann", lambda: view.options(name="x").submit(who.get).result(20)) == "nobody"


def test_a_thread_starts_in_an_empty_context(make_pool: Make) -> None:
    """What runs in the worker's own context would see the values of whoever happened to start its thread."""
    seen: list[str] = []
    pool = make_pool(1, initializer=lambda: seen.append(who.get()))
    as_user("ann", lambda: pool.submit(int).result(20))
    assert seen == ["nobody"]
