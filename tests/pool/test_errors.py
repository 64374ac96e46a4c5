"""Errors of tasks: they come out as they were raised, with a traceback that starts in user code, and none gets lost."""

import asyncio
import contextlib
import gc
import itertools
import logging
import threading
import traceback
import weakref
from collections.abc import Callable
from concurrent.futures import CancelledError, as_completed, wait
from pathlib import Path
from typing import Any

import pytest

import filch

Make = Callable[..., filch.Pool]
Occupy = Callable[..., list[filch.Future[Any]]]


class Boom(Exception):
    """What tasks raise."""


class Falsey(Exception):
    """An error that is false, as one with a length of its own may be."""

    def __bool__(self) -> bool:
        return False

    def __len__(self) -> int:
        return 0

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]


def inner() -> None:
    raise Boom("here")


def outer(*_: object) -> None:
    inner()


GET: dict[str, Callable[[filch.Pool, Callable[..., Any]], Any]] = {
    "result": lambda pool, fn: pool.submit(fn).result(20),
    "a view": lambda pool, fn: pool.options(priority=1).submit(fn).result(20),
    "context=None": lambda pool, fn: pool.options(context=None).submit(fn).result(20),
    "a timeout": lambda pool, fn: pool.options(timeout=60).submit(fn).result(20),
    "force": lambda pool, fn: pool.options(force=True).submit(fn).result(20),
    "map": lambda pool, fn: next(pool.map(lambda _: fn(), [1])),
    "map with a buffer": lambda pool, fn: next(pool.map(lambda _: fn(), [1], buffersize=1)),
    "broadcast": lambda pool, fn: pool.broadcast(fn)[0].result(20),
    "await": lambda pool, fn: asyncio.run(awaited(pool, fn)),
    "inside a task": lambda pool, fn: pool.submit(lambda: pool.submit(fn).result()).result(20),
}


async def awaited(pool: filch.Pool, fn: Callable[..., Any]) -> Any:
    return await pool.submit(fn)


@pytest.fixture(params=list(GET))
def get(request: pytest.FixtureRequest) -> Callable[[filch.Pool, Callable[..., Any]], Any]:
    """Every way to get at a result."""
    return GET[request.param]


KINDS = [
    Boom("x"),
    Falsey("y"),
    SystemExit(3),
    KeyboardInterrupt("z"),
    GeneratorExit(),
    BaseException("plain"),
    ExceptionGroup("several", [Boom("a"), ValueError("b")]),
    TimeoutError("of its own"),
    RuntimeError("cannot schedule new futures after shutdown"),
    RecursionError(),
    MemoryError(),
]


ENDS_A_LOOP = SystemExit | KeyboardInterrupt | GeneratorExit


@pytest.mark.parametrize(
    ("way", "error"),
    [(way, error) for way in GET for error in KINDS if way != "await" or not isinstance(error, ENDS_A_LOOP)],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_an_error_of_any_kind_comes_out(make_pool: Make, way: str, error: BaseException) -> None:
    """An error would be swallowed because it is false or no Exception, be taken for filch's own, or end the worker."""
    pool = make_pool(1)

    def fail() -> None:
        raise error

    with pytest.raises(BaseException) as raised:
        GET[way](pool, fail)
    if way != "await":  # asyncio makes a TimeoutError of its own
        assert raised.value is error
    assert (type(raised.value), raised.value.args) == (type(error), error.args)
    assert pool.submit(abs, -1).result(20) == 1
    assert pool.statistics().threads_started == 1


@pytest.mark.parametrize("error", KINDS, ids=lambda error: type(error).__name__)
def test_exception_gives_the_error(make_pool: Make, error: BaseException) -> None:
    """The same for those who ask for the error instead of letting it raise."""
    pool = make_pool(1)

    def fail() -> None:
        raise error

    future = pool.submit(fail)
    assert wait([future], 20).done == {future}
    assert future.exception() is error
    assert future.exception() is not None
    if not isinstance(error, Falsey):  # the standard library's own mistake, up to 3.13
        assert repr(future).endswith(f"state=finished raised {type(error).__name__}>")
    assert future.done()
    assert not future.cancelled()


def test_stop_iteration_is_an_error_too(make_pool: Make) -> None:
    """A next() that runs dry in a task would end the caller's loop."""
    future = make_pool(1).submit(next, iter([]))
    with pytest.raises(StopIteration):
        future.result(20)
    assert isinstance(future.exception(), StopIteration)


@pytest.mark.parametrize("error", [StopIteration(5), StopAsyncIteration(5)], ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("how", ["await", "run_in_executor", "wrap_future", "gather"])
def test_stop_iteration_reaches_a_coroutine(make_pool: Make, error: Exception, how: str) -> None:
    """A StopIteration cannot be raised in a coroutine: the one who awaits would hang for ever."""
    pool = make_pool(1)

    def fail() -> None:
        raise error

    async def program() -> None:
        async with asyncio.timeout(20):
            if how == "await":
                await pool.submit(fail)
            elif how == "run_in_executor":
                await asyncio.get_running_loop().run_in_executor(pool, fail)
            elif how == "wrap_future":
                await asyncio.wrap_future(pool.submit(fail))
            else:
                await asyncio.gather(pool.submit(fail))

    with pytest.raises((RuntimeError, StopAsyncIteration)) as raised:
        asyncio.run(program())
    assert raised.value is error or raised.value.__cause__ is error


# Tracebacks.


def test_a_traceback_starts_in_user_code(make_pool: Make, get: Callable[[filch.Pool, Callable[..., Any]], Any]) -> None:
    """The reader would have to go through filch's own frames to find his mistake."""
    with pytest.raises(Boom) as raised:
        get(make_pool(1), outer)
    frames = [frame.name for frame in traceback.extract_tb(raised.value.__traceback__)]
    assert frames[-2:] == ["outer", "inner"]
    package = str(Path(filch.__file__).parent)
    own = [f.name for f in traceback.extract_tb(raised.value.__traceback__) if f.filename.startswith(package)]
    assert not {"call", "run", "run_timed", "main", "_run_forced", "_work"} & set(own)


def test_the_stored_traceback_starts_in_user_code(make_pool: Make) -> None:
    """An error that is looked at, or logged, and not raised would begin with frames of filch."""
    pool = make_pool(1)
    for submit in (pool.submit, pool.options(timeout=60).submit, pool.options(force=True).submit):
        error = submit(outer).exception(20)
        assert error is not None
        assert [frame.name for frame in traceback.extract_tb(error.__traceback__)] == ["outer", "inner"]


def test_an_error_without_python_frames(make_pool: Make, get: Callable[[filch.Pool, Callable[..., Any]], Any]) -> None:
    """An error that comes out of C code at once has no frame of its own: cutting off filch's would go wrong."""
    pool = make_pool(1)
    with pytest.raises(TypeError):
        get(pool, divmod)
    assert pool.submit(abs, -1).result(20) == 1


def test_causes_and_notes_are_kept(make_pool: Make) -> None:
    """What an error says of its origin would be lost on the way."""

    def fail() -> None:
        try:
            raise KeyError("first")
        except KeyError as first:
            error = Boom("second")
            error.add_note("a note")
            raise error from first

    error = make_pool(1).submit(fail).exception(20)
    assert error is not None
    assert isinstance(error.__cause__, KeyError)
    assert error.__notes__ == ["a note"]


def test_an_error_keeps_the_context_it_was_raised_in(make_pool: Make, occupy: Occupy, gate: threading.Event) -> None:
    """Raising a task's error while another is handled would write that one into it for the next reader."""
    pool = make_pool(1)
    future = pool.submit(outer)
    assert wait([future], 20).done
    try:
        raise LookupError
    except LookupError:
        with pytest.raises(Boom):
            future.result()
    with pytest.raises(Boom) as raised:
        future.result()
    assert "outer" in [frame.name for frame in traceback.extract_tb(raised.value.__traceback__)]


# No circles.


@pytest.fixture
def no_collector() -> Any:
    """Switch the cycle collector off, so that what is in a circle stays."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("name", [name for name in GET if name != "await"])
def test_an_error_leaves_no_circle(make_pool: Make, no_collector: None, eventually: Any, name: str) -> None:
    """Everything in the frames of a failed task would stay in memory until the cycle collector comes by."""
    pool = make_pool(1)

    def once() -> weakref.ref[Any]:
        try:
            GET[name](pool, outer)
        except Boom as error:
            return weakref.ref(error)
        raise AssertionError

    ref = once()

    def is_gone() -> bool:
        pool.submit(int).result(20)
        return ref() is None

    eventually(is_gone, "the error goes without the collector")


def wait_in_vain(future: filch.Future[Any]) -> None:
    for wait_for in (future.result, future.exception):
        with contextlib.suppress(TimeoutError):
            wait_for(0)


def cancel_another(future: filch.Future[Any], pool: filch.Pool) -> None:
    other = pool.submit(int)
    assert other.cancel()
    with contextlib.suppress(CancelledError):
        other.result()


BEFORE: dict[str, Callable[[filch.Future[Any], filch.Pool], Any]] = {
    "callback": lambda future, _: future.add_done_callback(lambda future: future.exception()),
    "timeout": lambda future, _: wait_in_vain(future),
    "cancelled": cancel_another,
}
AFTER: dict[str, Callable[[filch.Future[Any]], Any]] = {
    "exception": lambda future: future.exception(20),
    "wait": lambda future: wait([future], 20),
    "as_completed": lambda future: list(as_completed([future], 20)),
}


@pytest.mark.parametrize("how", [*BEFORE, *AFTER])
def test_other_ends_leave_no_circle(make_pool: Make, no_collector: None, eventually: Any, how: str) -> None:
    """The same for those who get at the error in another way, or at no error."""
    pool = make_pool(1)

    class Local:
        pass

    def once() -> weakref.ref[Any]:
        local = Local()
        gate = threading.Event()
        ref = weakref.ref(local)

        def fail() -> None:
            assert local
            gate.wait(20)
            inner()

        future = pool.submit(fail)
        if how in BEFORE:
            BEFORE[how](future, pool)
        gate.set()
        if how in AFTER:
            AFTER[how](future)
        future.exception(20)
        return ref

    ref = once()

    def is_gone() -> bool:
        pool.submit(int).result(20)
        return ref() is None

    eventually(is_gone, "what the task held goes without the collector")


def test_work_makes_no_garbage(make_pool: Make, no_collector: None) -> None:
    """Every task would leave a circle behind, and the collector have to run for what should go by itself."""
    pool = make_pool(1)

    def work() -> None:
        for future in [pool.submit(abs, -1) for _ in range(50)]:
            future.result(20)
        list(pool.map(abs, range(50)))
        list(pool.map(abs, range(50), buffersize=5))
        next(itertools.islice(pool.map(abs, range(50)), 3, 4))
        for _ in range(20):
            try:
                pool.submit(outer).result(20)
            except Boom:
                pass
        pool.submit(lambda: [pool.submit(abs, -1).result() for _ in range(20)] and None).result(20)
        assert wait([pool.submit(int) for _ in range(20)], 20).not_done == set()
        assert pool.wait_idle(20)

    work()
    gc.collect()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        work()
        gc.collect()
        found = [item for item in gc.garbage if isinstance(item, Boom | filch.Future) or "Frame" in type(item).__name__]
        assert found == []
    finally:
        gc.set_debug(0)
        gc.garbage.clear()


# Lost errors.


def look(pool: filch.Pool, log: Any, eventually: Any, count: int = 1) -> list[logging.LogRecord]:
    """Return what is logged when so many records have come."""

    def is_there() -> bool:
        for future in pool.broadcast(int):  # without the GIL, what a worker owns goes when that worker wakes
            future.result(20)
        return len(log.records) >= count

    eventually(is_there, f"{count} lost errors are logged")
    return list(log.take())


def test_a_lost_error_is_logged_once(make_pool: Make, log: Any, eventually: Any) -> None:
    """An error that nobody asks for would leave no trace at all, or several."""
    pool = make_pool(1)
    pool.submit(outer)
    (record,) = look(pool, log, eventually)
    assert record.levelname == "ERROR"
    assert "outer" in record.getMessage()
    assert isinstance(record.exc_info[1], Boom)  # type: ignore[index]
    assert "in inner" in logging.Formatter().format(record)
    gc.collect()
    assert pool.wait_idle(20)
    assert log.take() == []


@pytest.mark.parametrize(
    "error", [Falsey("f"), SystemExit(3), KeyboardInterrupt(), StopIteration(), Boom("b")], ids=repr
)
def test_a_lost_error_of_any_kind_is_logged(make_pool: Make, log: Any, eventually: Any, error: BaseException) -> None:
    """An error that is false or no Exception would leave no trace, or one without a traceback."""
    pool = make_pool(1)

    def fail() -> None:
        raise error

    pool.submit(fail)
    (record,) = look(pool, log, eventually)
    assert record.exc_info[1] is error  # type: ignore[index]
    assert "in fail" in logging.Formatter().format(record)


def test_each_lost_error_is_logged(make_pool: Make, log: Any, eventually: Any) -> None:
    """Of several lost errors only some would be seen: of a map for its effect, of a broadcast, of a view."""
    pool = make_pool(2)
    pool.submit(outer)
    pool.options(name="named").submit(outer)
    pool.broadcast(outer)
    pool.map(outer, range(3))
    assert pool.wait_idle(20)
    gc.collect()
    names = [record.getMessage() for record in look(pool, log, eventually, 7)]
    assert len(names) == 7
    assert sum("named" in name for name in names) == 1


async def in_executor(pool: filch.Pool) -> None:
    await asyncio.get_running_loop().run_in_executor(pool, outer)


ASK: dict[str, Callable[[filch.Pool], Any]] = {
    "result": lambda pool: pool.submit(outer).result(20),
    "exception": lambda pool: pool.submit(outer).exception(20),
    "callback": lambda pool: pool.submit(outer).add_done_callback(lambda future: future.exception()),
    "await": lambda pool: asyncio.run(awaited(pool, outer)),
    "run_in_executor": lambda pool: asyncio.run(in_executor(pool)),
    "inside a task": lambda pool: pool.submit(lambda: pool.submit(outer).result()).result(20),
    "map": lambda pool: list(pool.map(outer, range(5))),
}


@pytest.mark.parametrize("how", list(ASK))
def test_an_error_that_somebody_asked_for_is_not_logged(make_pool: Make, how: str) -> None:
    """A program that handles its errors would have its log filled with them."""
    pool = make_pool(1)
    with contextlib.suppress(Boom):
        ASK[how](pool)
    assert pool.wait_idle(20)
    gc.collect()
    pool.submit(int).result(20)  # the log is looked at when the test ends


def test_an_error_with_an_end_of_its_own_is_not_logged(make_pool: Make, occupy: Occupy, gate: threading.Event) -> None:
    """What was cancelled, by hand or with the pool, would be reported as lost."""
    pool = make_pool(1)
    occupy(pool)
    pool.submit(outer).cancel()
    pool.submit(outer).interrupt()
    pool.map(outer, range(3))
    pool.submit(outer)
    pool.shutdown(wait=False, cancel_futures=True)
    gate.set()
    pool.shutdown()
    gc.collect()


def test_the_log_may_use_the_pool(make_pool: Make, eventually: Any, log: Any) -> None:
    """A handler that sends its records through a pool, even the same one, would lock up."""
    pool = make_pool(1)
    sent: list[str] = []

    class Sending(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            pool.submit(sent.append, record.getMessage())

    logger = logging.getLogger("filch")
    handler = Sending()
    logger.addHandler(handler)
    try:
        pool.submit(outer)
        look(pool, log, eventually)
        eventually(lambda: sent, "the record is sent")
    finally:
        logger.removeHandler(handler)
    assert "outer" in sent[0]
