"""What is let go, and when: functions, arguments, contexts and results of tasks, and the pool itself."""

import contextvars
import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import as_completed, wait
from typing import Any

import pytest

import filch

Make = Callable[..., filch.Pool]
Occupy = Callable[..., list[filch.Future[Any]]]
variable: contextvars.ContextVar[Any] = contextvars.ContextVar("variable", default=None)


@pytest.fixture(autouse=True)
def _no_collector() -> Iterator[None]:
    """Switch the cycle collector off: what goes has to go by itself."""
    gc.disable()
    yield
    gc.enable()


@pytest.fixture
def is_let_go(eventually: Any) -> Callable[..., None]:
    """Return `is_let_go(pool, *refs)`: wait until nothing holds the objects any more."""

    def is_let_go(pool: filch.Pool, *refs: weakref.ref[Any]) -> None:
        def gone() -> bool:
            if not pool._shutdown:
                pool.submit(int).result(20)  # the last reference may be merged by the worker
            return all(ref() is None for ref in refs)

        eventually(gone, "everything is let go")

    return is_let_go


class Thing:
    """Something to hold on to; also a function."""

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def fail(self, *args: Any, **kwargs: Any) -> None:
        raise LookupError


WAYS: dict[str, Callable[[filch.Pool], Callable[..., Any]]] = {
    "submit": lambda pool: pool.submit,
    "view": lambda pool: pool.options(priority=1, name="x").submit,
    "timeout": lambda pool: pool.options(timeout=3600).submit,
    "force": lambda pool: pool.options(force=True).submit,
    "broadcast": lambda pool: lambda *args, **kwargs: pool.broadcast(*args, **kwargs)[0],
    "inside a task": lambda pool: lambda *args, **kwargs: pool.submit(lambda: pool.submit(*args, **kwargs)).result(20),
}


def submit_things(submit: Callable[..., Any], method: str) -> tuple[Any, list[weakref.ref[Any]]]:
    """Submit a function with arguments and a context that nobody else holds; its future and references to them."""
    fn, argument, keyword, value = Thing(), Thing(), Thing(), Thing()
    refs = [weakref.ref(thing) for thing in (fn, argument, keyword, value)]

    def run() -> Any:
        variable.set(value)
        return submit(getattr(fn, method), argument, keyword=keyword)

    return contextvars.copy_context().run(run), refs


@pytest.mark.parametrize("way", list(WAYS))
@pytest.mark.parametrize("method", ["__call__", "fail"])
def test_a_future_that_is_kept_holds_only_its_result(
    make_pool: Make, is_let_go: Callable[..., None], way: str, method: str
) -> None:
    """A list of futures would keep all that went into them."""
    pool = make_pool(1)
    future, refs = submit_things(WAYS[way](pool), method)
    error = future.exception(20)
    assert (error is None) == (method == "__call__")
    if error is not None:
        error.__traceback__ = None  # its frame holds them, and is the user's to keep
    is_let_go(pool, *refs)
    assert future.done()


@pytest.mark.parametrize("how", ["cancel", "interrupt", "shutdown", "expired"])
def test_a_future_that_was_given_up_holds_nothing(
    make_pool: Make, occupy: Occupy, gate: threading.Event, is_let_go: Callable[..., None], how: str
) -> None:
    """What was cancelled would be kept as long as its future, or as long as it stands in the queue."""
    pool = make_pool(1)
    if how != "expired":
        occupy(pool)
    submit = pool.options(timeout=0.01).submit if how == "expired" else pool.submit
    if how == "expired":
        entered = threading.Event()

        def slow(*args: Any, **kwargs: Any) -> None:
            entered.set()
            gate.wait(20)

        future = submit(slow)
        assert isinstance(future.exception(20), filch.TaskTimeout)
        gate.set()
        ref = weakref.ref(slow)
        del slow
        is_let_go(pool, ref)
        return
    future, refs = submit_things(submit, "__call__")
    if how == "shutdown":
        pool.shutdown(wait=False, cancel_futures=True)
    else:
        assert getattr(future, how)()
    assert future.cancelled()
    assert all(ref() is None for ref in refs)
    gate.set()


def test_a_worker_that_sleeps_holds_nothing(make_pool: Make, is_let_go: Callable[..., None], eventually: Any) -> None:
    """The last task of an idle pool, and its result, would live until the next task comes."""
    pool = make_pool(2)
    result = Thing()
    ref = weakref.ref(result)
    box = [result]
    del result
    future, refs = submit_things(pool.submit, "__call__")
    handed = pool.submit(box.pop)
    handed.result(20)
    future.result(20)
    assert pool.wait_idle(20)
    del handed, future
    eventually(lambda: pool.broadcast(int)[0].result(20) == 0 and all(r() is None for r in [ref, *refs]), "all let go")


def test_as_completed_lets_go_of_what_it_has_handed_over(make_pool: Make, is_let_go: Callable[..., None]) -> None:
    """Results would pile up until the last one is there."""
    pool = make_pool(1)
    futures = [pool.submit(Thing) for _ in range(10)]
    for future in as_completed(futures, 20):
        ref = weakref.ref(future.result())
        futures.remove(future)
        del future
        is_let_go(pool, ref)


def test_waiting_leaves_nothing_behind(
    make_pool: Make, occupy: Occupy, gate: threading.Event, is_let_go: Callable[..., None]
) -> None:
    """A future that was waited for would be kept by the waiter, or the waiter by a future that runs on."""
    pool = make_pool(1)
    (running,) = occupy(pool)
    future, refs = submit_things(pool.submit, "__call__")
    assert wait([running, future], 0).done == set()
    future.cancel()
    ref = weakref.ref(future)
    del future
    assert wait([running], 0).done == set()
    gate.set()
    assert running.result(20)
    is_let_go(pool, ref, *refs)


def test_callbacks_are_let_go(make_pool: Make, gate: threading.Event, is_let_go: Callable[..., None]) -> None:
    """A future that is kept would keep all that ever listened to it."""
    pool = make_pool(1)
    future = pool.submit(gate.wait, 20)
    callback = Thing()
    ref = weakref.ref(callback)
    future.add_done_callback(callback)
    late = Thing()
    late_ref = weakref.ref(late)
    del callback
    gate.set()
    assert future.result(20)
    future.add_done_callback(late)
    del late
    is_let_go(pool, ref, late_ref)


def test_a_chain_of_tasks_does_not_grow(make_pool: Make, is_let_go: Callable[..., None]) -> None:
    """A task that submits its own successor, for ever, would keep all its ancestors."""
    pool = make_pool(1)
    refs: list[weakref.ref[Any]] = []
    over = threading.Event()

    def link(thing: Thing, left: int) -> None:
        refs.append(weakref.ref(thing))
        if left:
            pool.submit(link, Thing(), left - 1)
        else:
            over.set()

    pool.submit(link, Thing(), 50)
    assert over.wait(20)
    assert pool.wait_idle(20)
    is_let_go(pool, *refs)


def test_frames_of_ended_ancestors_are_cut_out(make_pool: Make) -> None:
    """The same for what the pool itself remembers of where a task comes from."""
    pool = make_pool(1)
    counts: list[int] = []

    def link(left: int) -> None:
        if left % 500 == 0:
            counts.append(sum(type(item).__name__ == "Frame" for item in gc.get_objects()))
        if left:
            pool.submit(link, left - 1)

    pool.submit(link, 2000)
    assert pool.wait_idle(20)
    assert max(counts) - min(counts) < 50


def test_a_pool_that_was_shut_down_is_let_go(eventually: Any) -> None:
    """A program that makes a pool for each request would grow."""
    refs = []
    for _ in range(3):
        with filch.Pool(2) as pool:
            view = pool.options(priority=1)
            assert list(pool.map(abs, range(5))) == list(range(5))
            pool.submit(abs, -1).result(20)
            view.submit(abs, -1).result(20)
        refs.append(weakref.ref(pool))
        del pool, view
    eventually(lambda: all(ref() is None for ref in refs), "the pools are let go")


def test_a_result_lives_on_without_the_pool() -> None:
    """A future would need its pool to be asked for the result."""
    future = filch.Pool(1).submit(abs, -1)
    assert future.result(20) == 1
    gc.collect()
    assert future.result() == 1
