"""The life of a task by combinations: how it ends, what is done to it, and when.

Not here: futures made by hand, and how a thread sleeps until a future is done.
"""

import concurrent.futures
import gc
import logging
import threading
import traceback
import weakref
from collections.abc import Callable
from concurrent.futures import CancelledError
from contextlib import suppress
from types import ModuleType
from typing import Any

import pytest

from filch.exceptions import Cancelled
from kernel.engines import PATIENCE, held


class Odd(BaseException):
    """An error that is no `Exception`."""


OUTCOMES = {"output": None, "exception": LookupError("lost"), "base_exception": Odd("odd"), "exit": SystemExit(3)}
# What is done: it returns this before, during and after the run.
INTERVENTIONS: dict[str, tuple[bool | None, bool | None, bool | None]] = {
    "cancel": (True, False, False),
    "interrupt": (True, True, False),
    "expire": (True, True, False),
    "drop": (None, None, None),
}


class Life:
    """One task in its run: it says that it started, waits to be let on, and ends as it was told to."""

    def __init__(self, outcome: str) -> None:
        self.error = OUTCOMES[outcome]
        self.started = threading.Event()
        self.let_on = threading.Event()
        self.runs = 0

    def run(self) -> str:
        self.runs += 1
        self.started.set()
        assert self.let_on.wait(PATIENCE)
        if self.error is not None:
            raise self.error
        return "output"

    def check(self, future: Any) -> None:
        """The future has the run's own end."""
        assert (future.done(), future.running(), future.cancelled()) == (True, False, False)
        assert future.exception(0) is self.error
        if self.error is None:
            assert future.result(0) == "output"
        else:
            with pytest.raises(type(self.error)) as caught:
                future.result(0)
            assert caught.value is self.error
        assert future._state == "FINISHED"


@pytest.fixture(params=OUTCOMES)
def life(request: pytest.FixtureRequest) -> Life:
    return Life(request.param)


def intervene(future: Any, how: str) -> bool | None:
    """Cancel, interrupt or expire; what that returned."""
    error = KeyError("expired")
    return getattr(future, how)(*[error] * (how == "expire"))  # type: ignore[no-any-return]


@pytest.mark.parametrize("how", ["cancel", "interrupt", "expire"])
@pytest.mark.parametrize("workers", [1, 2])
def test_before_it_starts(make_engine: Any, life: Life, how: str, workers: int) -> None:
    """A task that was cancelled, interrupted or given up while it waited still runs, or ends in another way."""
    engine = make_engine(workers)
    called = []
    with held(engine, workers):
        future = engine.submit(life.run)
        future.add_done_callback(called.append)
        assert (future.done(), future.running(), future.cancelled(), future._state) == (False, False, False, "PENDING")
        assert intervene(future, how) is INTERVENTIONS[how][0]
        assert called == [future]
        assert future.done()
        if how == "expire":
            assert isinstance(future.exception(0), KeyError)
            assert (future.cancelled(), future._state) == (False, "FINISHED")
        else:
            assert (future.cancelled(), future._state) == (True, "CANCELLED_AND_NOTIFIED")
            for ask in (future.result, future.exception):
                with pytest.raises(CancelledError):
                    ask(0)
        assert future.cancel() is future.cancelled()
        assert future.expire(KeyError()) is False
    assert engine.wait_idle(PATIENCE)
    assert life.runs == 0
    assert called == [future]


@pytest.mark.parametrize("how", ["cancel", "interrupt"])
def test_while_it_runs_and_goes_on(make_engine: Any, life: Life, how: str) -> None:
    """A running task that is cancelled or asked to stop, and comes to no checkpoint, does not end as it wants to."""
    engine = make_engine()
    future = engine.submit(life.run)
    assert life.started.wait(PATIENCE)
    assert (future.done(), future.running(), future._state) == (False, True, "RUNNING")
    assert intervene(future, how) is INTERVENTIONS[how][1]
    assert intervene(future, how) is INTERVENTIONS[how][1]
    assert (future.done(), future.running(), future.cancelled()) == (False, True, False)
    life.let_on.set()
    concurrent.futures.wait([future], PATIENCE)
    life.check(future)
    assert life.runs == 1


def test_while_it_runs_and_is_given_up(make_engine: Any, life: Life) -> None:
    """An expired task keeps its future from ending at once, changes that end later, or its own error is logged."""
    engine = make_engine()
    called = []
    future = engine.submit(life.run)
    future.add_done_callback(called.append)
    assert life.started.wait(PATIENCE)
    assert future.expire(KeyError("expired")) is True
    assert called == [future]
    assert isinstance(future.exception(0), KeyError)
    assert future._state == "FINISHED"
    assert future.expire(LookupError()) is False
    life.let_on.set()
    assert engine.wait_idle(PATIENCE)
    assert engine.submit(int).result(PATIENCE) == 0
    assert isinstance(future.exception(0), KeyError)
    assert called == [future]
    assert life.runs == 1


@pytest.mark.parametrize("how", ["cancel", "interrupt", "expire"])
def test_after_it_has_ended(make_engine: Any, life: Life, how: str) -> None:
    """What comes too late changes the end of a task, or claims that it did something."""
    life.let_on.set()
    future = make_engine().submit(life.run)
    concurrent.futures.wait([future], PATIENCE)
    life.check(future)
    assert intervene(future, how) is INTERVENTIONS[how][2]
    life.check(future)
    assert life.runs == 1


@pytest.mark.parametrize("when", ["before", "during", "after"])
def test_nobody_keeps_the_future(make_engine: Any, log: Any, eventually: Any, life: Life, when: str) -> None:
    """A task whose future was dropped does not run, or its error is not logged exactly once."""
    engine = make_engine()
    if when == "before":
        with held(engine):
            engine.submit(life.run)
        life.let_on.set()
        assert life.started.wait(PATIENCE)
    else:
        future = engine.submit(life.run)
        assert life.started.wait(PATIENCE)
        if when == "after":
            life.let_on.set()
            concurrent.futures.wait([future], PATIENCE)
        del future
        life.let_on.set()
    assert engine.wait_idle(PATIENCE)
    # Its own references are gone by the time that the worker has run another task.
    assert engine.submit(int).result(PATIENCE) == 0
    gc.collect()
    assert life.runs == 1
    # Without the GIL, the worker that made the error is the one that lets it go.
    eventually(lambda: len(log.records) >= (life.error is not None), "it is logged")
    assert len(log.take("filch")) == (life.error is not None)


@pytest.mark.parametrize("ask", ["result", "exception"])
def test_an_error_that_was_asked_for_is_not_logged(make_engine: Any, ask: str) -> None:
    """An error that somebody has seen is logged all the same."""
    future = make_engine().submit(divmod, 1, 0)
    concurrent.futures.wait([future], PATIENCE)
    with pytest.raises(ZeroDivisionError):
        raise getattr(future, ask)()
    del future
    gc.collect()


def test_the_logged_error_names_the_task(make_engine: Any, log: Any, eventually: Any) -> None:
    """The log of a lost error does not say which task it came from, or lacks the traceback."""

    def lose_it() -> None:
        raise LookupError("lost")

    engine = make_engine()
    engine.submit(lose_it)
    engine._spawn(lose_it, name="the named one")
    assert engine.wait_idle(PATIENCE)
    engine.submit(int).result(PATIENCE)
    gc.collect()
    eventually(lambda: len(log.records) >= 2, "both are logged")
    infos = [record.exc_info for record in log.records]
    said = log.take("filch")
    assert len(said) == 2
    assert any("lose_it" in line for line in said)  # in either order: without the GIL, they may go in any
    assert any("the named one" in line for line in said)
    assert all(info and "raise LookupError" in "".join(traceback.format_exception(*info)) for info in infos)


def test_an_error_that_is_lost_while_another_is_logged(make_engine: Any, log: Any, eventually: Any) -> None:
    """`logging` ignores what is logged in the middle of logging, and the second error would never be seen."""
    engine = make_engine()

    def lose_it() -> None:
        raise LookupError("lost")

    last: list[Any] = []

    class Dropper(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            last.clear()

    with held(engine):
        futures = [engine._spawn(lose_it, name=name) for name in ("one", "two")]
    assert engine.wait_idle(PATIENCE)
    dropper = Dropper()
    last.append(futures.pop())
    logging.getLogger("filch").addHandler(dropper)
    try:
        del futures[:]

        def is_there() -> bool:
            engine.submit(int).result(PATIENCE)
            gc.collect()
            return len(log.records) >= 2

        eventually(is_there, "both are logged")
    finally:
        logging.getLogger("filch").removeHandler(dropper)
    assert sorted(line[-3:] for line in log.take("filch")) == ["one", "two"]


def test_cancelled_futures_and_asked_for_stops_are_not_lost_errors(kernel: ModuleType, make_engine: Any) -> None:
    """A task that was asked to stop, and did, is logged as a lost error."""
    engine = make_engine()
    started = threading.Event()

    def stop() -> None:
        started.set()
        while True:
            kernel.checkpoint()

    future = engine.submit(stop)
    assert started.wait(PATIENCE)
    waiting = engine.submit(int)
    assert waiting.cancel()
    assert future.interrupt()
    del future, waiting
    assert engine.wait_idle(PATIENCE)
    gc.collect()


@pytest.mark.parametrize("how", ["interrupt", "expire"])
def test_a_checkpoint_stops_the_task(kernel: ModuleType, make_engine: Any, how: str) -> None:
    """A task that was asked to stop runs past its next checkpoint, or the one after it is stopped too."""
    engine = make_engine()
    started = threading.Event()
    stopped: list[BaseException] = []

    def run() -> None:
        started.set()
        try:
            while True:
                kernel.checkpoint()
        except BaseException as error:
            stopped.append(error)
            raise

    future = engine.submit(run)
    after = engine.submit(kernel.checkpoint)
    assert started.wait(PATIENCE)
    assert intervene(future, how) is True
    assert after.result(PATIENCE) is None
    assert type(stopped[0]) is Cancelled
    assert type(future.exception(PATIENCE)) is (Cancelled if how == "interrupt" else KeyError)
    assert future.cancelled() is False


def test_a_checkpoint_raises_again_and_again(kernel: ModuleType, make_engine: Any) -> None:
    """A task that swallows the request to stop never hears of it again."""
    raised = []

    def run() -> str:
        kernel.current_future().interrupt()
        for _ in range(3):
            try:
                kernel.checkpoint()
            except Cancelled:
                raised.append(True)
        return "finished"

    assert make_engine().submit(run).result(PATIENCE) == "finished"
    assert raised == [True] * 3


def test_checkpoints_outside_of_tasks(kernel: ModuleType) -> None:
    """A checkpoint or a question for the current task fails where there is none."""
    assert kernel.checkpoint() is None
    assert kernel.current_future() is None
    assert kernel.current_engine() is None


def test_a_task_knows_itself(kernel: ModuleType, make_engine: Any) -> None:
    """A task does not see its own future or engine, or sees those of a task that ran on top of it."""
    engine, other = make_engine(), make_engine()

    def know(depth: int) -> list[Any]:
        me = kernel.current_future()
        above = engine.submit(know, depth - 1).result() if depth else []
        elsewhere = other.submit(kernel.current_engine).result()
        assert elsewhere is other
        assert kernel.current_future() is me
        assert kernel.current_engine() is engine
        return [me, *above]

    future = engine.submit(know, 3)
    found = future.result(PATIENCE)
    assert found[0] is future
    assert len({id(each) for each in found}) == 4


def test_a_callback_is_outside_of_the_task(kernel: ModuleType, make_engine: Any) -> None:
    """A callback runs while its task still counts as running on that thread."""
    engine = make_engine()
    seen: list[Any] = []
    with held(engine):
        future = engine.submit(int)
        future.add_done_callback(lambda done: seen.append((done.done(), kernel.current_future())))
    assert engine.wait_idle(PATIENCE)
    assert seen == [(True, None)]


def test_callbacks_in_order_and_once(make_engine: Any, log: Any) -> None:
    """Callbacks run in another order, twice or not at all, or one that raises keeps the others from running."""
    engine = make_engine()
    order: list[Any] = []

    def fail(kind: type[BaseException]) -> Callable[[Any], None]:
        def callback(future: Any) -> None:
            order.append(kind)
            raise kind

        return callback

    with held(engine):
        future = engine.submit(int)
        for callback in (lambda _: order.append(1), fail(LookupError), lambda _: order.append(2), fail(SystemExit)):
            future.add_done_callback(callback)
        future.add_done_callback(order.append)
    assert engine.wait_idle(PATIENCE)
    assert order == [1, LookupError, 2, SystemExit, future]
    future.add_done_callback(lambda _: order.append(threading.get_ident()))
    future.add_done_callback(fail(KeyError))
    assert order[5:] == [threading.get_ident(), KeyError]
    assert len(log.take("concurrent.futures")) == 3
    assert engine.submit(int).result(PATIENCE) == 0


def test_a_callback_may_submit_wait_and_add_a_callback(make_engine: Any) -> None:
    """A callback is entered with something locked."""
    engine = make_engine(2)
    seen: list[Any] = []
    ended = threading.Event()

    def callback(future: Any) -> None:
        seen.append(engine.submit(lambda: "inner"))
        future.add_done_callback(lambda _: seen.append("late"))
        seen.append(future.result())
        ended.set()

    with held(engine, 2):
        future = engine.submit(lambda: "outer")
        future.add_done_callback(callback)
    assert ended.wait(PATIENCE)
    assert seen[0].result(PATIENCE) == "inner"
    assert seen[1:] == ["late", "outer"]


def test_cancelled_in_a_task_by_itself(kernel: ModuleType, make_engine: Any) -> None:
    """A task that raises `CancelledError` itself makes its future look cancelled."""

    def run() -> None:
        raise CancelledError("my own")

    future = make_engine().submit(run)
    assert type(future.exception(PATIENCE)) is CancelledError
    assert future.cancelled() is False


def test_a_task_that_returns_an_error_has_not_failed(make_engine: Any) -> None:
    """A returned exception object is raised."""
    error = LookupError()
    future = make_engine().submit(lambda: error)
    assert future.result(PATIENCE) is error
    assert future.exception() is None


class Thing:
    """Something that a weak reference can watch."""


def is_gone(engine: Any, watches: list[Any]) -> bool:
    """Are the watched things gone, by their reference counts alone?

    On a free-threaded Python a thread that had a thing lets go of it the next time that it runs: so every worker does.
    """
    with held(engine, engine.max_workers):
        pass
    return all(watch() is None for watch in watches)


def test_what_a_finished_task_keeps(make_engine: Any, eventually: Any) -> None:
    """A finished task keeps its function, arguments, keyword arguments or context alive through its future."""
    things = [Thing() for _ in range(3)]
    watches = [weakref.ref(thing) for thing in things]

    def make(thing: Thing) -> Callable[..., int]:
        return lambda *_, **__: id(thing) and 0

    engine = make_engine()
    future = engine.submit(make(things[0]), things[1], key=things[2])
    assert future.result(PATIENCE) == 0
    gc.disable()
    try:
        del things
        eventually(lambda: is_gone(engine, watches), "a finished task keeps what it was given")
    finally:
        gc.enable()
    assert future.result() == 0


@pytest.mark.parametrize("how", ["cancel", "interrupt", "expire"])
def test_what_a_task_that_never_ran_keeps(make_engine: Any, how: str) -> None:
    """A cancelled task keeps its arguments alive as long as somebody has the future."""
    thing = Thing()
    watch = weakref.ref(thing)
    engine = make_engine()
    with held(engine):
        future = engine.submit(id, thing)
        del thing
        intervene(future, how)
        assert watch() is None
    assert future.done()
    future.exception() if how == "expire" else None


def test_an_error_makes_no_circle(make_engine: Any, eventually: Any) -> None:
    """An error, its traceback and the future refer to each other, so only the collector frees what is in the frames."""
    watches = []

    def fail() -> None:
        thing = Thing()
        watches.append(weakref.ref(thing))
        raise LookupError

    def ask(futures: list[Any]) -> None:
        assert isinstance(futures[0].exception(), LookupError)
        with suppress(LookupError):
            futures.pop().result()  # this frame, which the traceback leads to, keeps nothing of it

    engine = make_engine()
    gc.disable()
    try:
        futures = [engine.submit(fail)]
        concurrent.futures.wait(futures, PATIENCE)
        assert engine.submit(int).result(PATIENCE) == 0
        assert watches[0]() is not None
        ask(futures)
        eventually(lambda: is_gone(engine, watches), "only the collector frees the error")
    finally:
        gc.enable()


def test_the_traceback_begins_in_the_task(make_engine: Any) -> None:
    """The traceback of a task's error is cut, or shows the worker's own frames."""

    def fail() -> None:
        raise LookupError

    error = make_engine().submit(fail).exception(PATIENCE)
    names = [frame.name for frame in traceback.extract_tb(error.__traceback__)]
    assert names == ["fail"]


def test_the_result_of_the_result_is_the_same_each_time(make_engine: Any) -> None:
    """A result can be had only once."""
    future = make_engine().submit(object)
    assert future.result(PATIENCE) is future.result(0)
    assert list(concurrent.futures.as_completed([future], 0)) == [future]
    assert concurrent.futures.wait([future], 0).done == {future}


@pytest.mark.parametrize("ask", ["result", "exception"])
def test_a_timeout_of_the_caller(make_engine: Any, ask: str) -> None:
    """Asking with a timeout waits for ever, or changes the future."""
    engine = make_engine()
    with held(engine):
        future = engine.submit(int)
        for timeout in (0, -1, 0.001):
            with pytest.raises(TimeoutError):
                getattr(future, ask)(timeout)
        assert future._state == "PENDING"
    assert future.result(PATIENCE) == 0


def test_a_callable_whose_attributes_raise(make_engine: Any, log: Any) -> None:
    """A task's name is looked up when it fails, and what raises there ends the worker."""

    class Hostile:
        def __getattr__(self, name: str) -> Any:
            raise RuntimeError(name)

        def __call__(self) -> None:
            raise LookupError

    engine = make_engine()
    with pytest.raises(LookupError):
        engine.submit(Hostile()).result(PATIENCE)
    assert engine.submit(int).result(PATIENCE) == 0


@pytest.mark.parametrize("error", ["late", None, KeyError])
def test_a_future_expires_with_an_exception(kernel: ModuleType, error: Any) -> None:
    """Whoever asks would get a strange error, long after the mistake."""
    future = kernel.Future()
    with pytest.raises(TypeError, match="a future expires with an exception, not"):
        future.expire(error)
    assert not future.done()
