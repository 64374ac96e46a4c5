"""Context variables: a task runs in a copy of its submitter's context, and the thread's own is as before."""

import contextvars
from types import ModuleType
from typing import Any

import pytest

from kernel.engines import PATIENCE, elsewhere, held, results

variable: contextvars.ContextVar[Any] = contextvars.ContextVar("variable", default=None)
# Bound methods of C would run in any context; a plain function reads what the task sees.


def get() -> Any:
    return variable.get()


def change(value: Any) -> Any:
    before = variable.get()
    variable.set(value)
    return before


@pytest.fixture(autouse=True)
def _own_value() -> Any:
    token = variable.set("mine")
    yield
    variable.reset(token)


def submit(engine: Any, how: str, fn: Any, *args: Any) -> Any:
    """Submit in one of the ways in which that is possible, and return the result or results."""
    if how == "submit":
        return engine.submit(fn, *args).result(PATIENCE)
    if how == "spawn":
        return engine._spawn(fn, args, priority=1, name="named").result(PATIENCE)
    if how == "keywords":
        return engine.submit(lambda *, args: fn(*args), args=args).result(PATIENCE)
    if how == "bulk":
        bulk = engine._submit_bulk(fn, [args, args])
        first, second = bulk.result(0, PATIENCE), bulk.result(1, PATIENCE)
        assert first == second
        return first
    (found,) = set(results(engine._broadcast(fn, args, {})))
    return found


HOWS = ["submit", "spawn", "keywords", "bulk", "broadcast"]


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("where", ["outside", "inside"])
def test_a_task_sees_its_submitters_values(make_engine: Any, how: str, where: str) -> None:
    """A task does not see what its submitter has set."""
    engine = make_engine(2)

    def inner() -> Any:
        assert variable.get() == "mine"
        variable.set("inner")
        return submit(engine, how, get)

    if where == "outside":
        assert submit(engine, how, get) == "mine"
    else:
        assert engine.submit(inner).result(PATIENCE) == "inner"


@pytest.mark.parametrize("how", HOWS)
def test_a_task_changes_nobody_elses_values(make_engine: Any, how: str) -> None:
    """What a task sets is seen by its submitter, the next task of the worker, or another call of the same bulk."""
    engine = make_engine()
    for number in range(3):
        assert submit(engine, how, change, number) == "mine"
    assert variable.get() == "mine"
    assert elsewhere(lambda: engine.submit(get).result(PATIENCE)) is None


def test_the_values_at_the_time_of_the_submit(make_engine: Any) -> None:
    """A task sees what its submitter has set after it had submitted it."""
    engine = make_engine()
    with held(engine):
        future = engine.submit(get)
        variable.set("later")
        bulk = engine._submit_bulk(get, [()] * 3)
        variable.set("latest")
    assert future.result(PATIENCE) == "mine"
    assert [bulk.result(index, PATIENCE) for index in range(3)] == ["later"] * 3


def test_without_a_context(make_engine: Any) -> None:
    """With `context=False` a task sees its submitter's values all the same, or not those of its own thread."""
    engine = make_engine(1, prologue=lambda: variable.set("the thread's"))
    assert engine._spawn(get, context=False).result(PATIENCE) == "the thread's"
    assert engine._submit_bulk(get, [()], context=False).result(0, PATIENCE) == "the thread's"
    assert engine.submit(get).result(PATIENCE) == "mine"
    assert engine._spawn(change, ("changed",), context=False).result(PATIENCE) == "the thread's"
    assert engine._spawn(get, context=False).result(PATIENCE) == "changed"


def test_a_submitter_without_values(make_engine: Any) -> None:
    """A task from an empty context sees the values of the task before it, or of the thread."""
    engine = make_engine(1, prologue=lambda: variable.set("the thread's"))
    assert engine.submit(change, 1).result(PATIENCE) == "mine"
    assert contextvars.Context().run(engine.submit, get).result(PATIENCE) is None
    assert contextvars.Context().run(engine.submit, change, 2).result(PATIENCE) is None
    assert contextvars.Context().run(engine.submit, get).result(PATIENCE) is None


def test_helping_leaves_the_waiting_task_its_own(kernel: ModuleType, make_engine: Any) -> None:
    """A task that runs on top of a waiting one sees or changes that one's context, or leaves another one behind."""
    engine = make_engine()

    def run() -> list[Any]:
        inner = engine.submit(change, "inner")
        variable.set("outer")
        plain = engine._spawn(change, ("plain",), context=False)
        return [inner.result(), plain.result(), variable.get()]

    found = engine.submit(run).result(PATIENCE)
    assert found[0] == "mine"
    assert engine._counters()["threads_started"] == 1
    assert found[2] in ("outer", "plain")  # without a context of its own it may run in the one that it lies on


def test_tokens_can_be_used_in_the_task(make_engine: Any) -> None:
    """The context changes in the middle of a task, so a token is not accepted."""
    engine = make_engine()

    def run() -> Any:
        token = variable.set("a moment")
        engine.submit(change, 1).result()
        variable.reset(token)
        return variable.get()

    assert engine.submit(run).result(PATIENCE) == "mine"


def test_one_context_in_two_tasks_at_once(make_engine: Any) -> None:
    """Two tasks of one submitter enter the same context object."""
    engine = make_engine(4)
    with held(engine, 4):
        futures = [engine.submit(change, number) for number in range(100)]
        bulk = engine._submit_bulk(change, [(number,) for number in range(100)])
    assert set(results(futures)) == {"mine"}
    assert {bulk.result(index, PATIENCE) for index in range(100)} == {"mine"}
