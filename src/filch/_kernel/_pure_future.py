"""The pure kernel's future, and how a thread sleeps until something is done.  What workers do meanwhile is in `_pure`.

One re-entrant lock, `_lock`, guards every state, queue and list of the pure kernel.  Three rules make that enough:

1. A signal handler or a destructor may run kernel code in the middle of kernel code of the same thread, and a handler
   may raise there.  So between a check and the store that relies on it stands no call; where two stores belong
   together, the only call comes last.
2. Whoever is about to sleep announces it first, and after that looks once more for what it would sleep for.
3. Code of the user's runs without the lock, and nobody sleeps with it, not even a destructor that was entered with it.

Lock order: the condition of a future, then `_lock`.  The protocol pages are in native/README.md.
"""

from __future__ import annotations

import asyncio
import contextvars
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import _base
from time import monotonic, sleep
from typing import Any, Protocol

from filch._kernel._common import (
    ConditionLock,
    HelpingEvent,
    Waiters,
    for_coroutines,
    report_lost_error,
    report_unexpected_state,
)

PENDING, RUNNING, FINISHED = _base.PENDING, _base.RUNNING, _base.FINISHED
CANCELLED, NOTIFIED = _base.CANCELLED, _base.CANCELLED_AND_NOTIFIED
DONE = frozenset((CANCELLED, NOTIFIED, FINISHED))

_lock = threading.RLock()


class _Gate:
    """Advice, in front of the busy uses of `_lock`: how many threads are inside, or on their way in?

    Under the GIL, a thread that blocks on a lock owns it before it has the GIL back, so the next one blocks too, and
    from then on every use costs a switch of threads.  Whoever sees somebody inside yields until the way is free.
    Nobody is lost if the count is wrong: the lock decides.  Without the GIL, `step` is 0, and it stays open.
    The busiest sections write out what `with gate` does.
    """

    __slots__ = ("inside", "step", "vain")

    def __init__(self) -> None:
        self.inside = 0
        self.vain = 0  # how often in a row standing back was of no use
        self.step = int(getattr(sys, "_is_gil_enabled", lambda: True)())

    def stand_back(self) -> None:
        for _ in range(YIELDS):
            sleep(0)
            if self.inside <= 0:
                self.vain = 0
                return
        self.vain += 1
        if self.vain > YIELDS:  # an asynchronous exception took somebody out without a word
            self.inside = self.vain = 0

    def __enter__(self) -> None:
        if self.inside > 0:
            self.stand_back()
        self.inside += self.step

    def __exit__(self, *error: object) -> None:
        self.inside -= self.step


YIELDS = 20
gate = _Gate()


class Sleeper(Protocol):
    """What a future needs to know of a worker."""

    task: Any

    def wait(
        self, source: Any, awaited: Iterable[Any], every: bool, done: Callable[[], bool], deadline: float | None
    ) -> bool: ...

    def interrupt(self, task: Any, side: Side) -> None: ...

    def insist(self, task: Any, side: Side) -> None: ...


class _Local(threading.local):
    worker: Any = None  # the _Worker of this thread

    def __init__(self) -> None:
        self.starting: list[Any] = []  # workers that this thread is to start, or is in the middle of starting


_local = _Local()


class Parker:
    """A thread's place to sleep.  All but the sleep is under `_lock`: an armed parker gets one token, never two.

    A worker that has given its processor up is next in line for one from the moment it is unparked, not from when it
    gets going: `worker`.
    """

    __slots__ = ("armed", "lock", "worker")

    def __init__(self) -> None:
        self.armed = False
        self.worker: Any = None
        self.lock = threading.Lock()  # locked, unless there is a token
        self.lock.acquire()

    def arm(self) -> None:
        self.disarm()
        self.armed = True

    def disarm(self) -> None:
        self.armed = False
        self.lock.acquire(False)

    def unpark(self) -> None:
        if self.armed:
            self.armed = False
            worker, self.worker = self.worker, None
            if worker is not None:
                worker.core.take_back(worker)
            try:  # see rule 1: one call, and the last
                self.lock.release()
            except RuntimeError:
                pass  # a token lies there: a destructor that waits has come in where `park` had taken the last one

    def park(self, timeout: float | None = None) -> None:
        """Sleep until unparked or until `timeout` seconds are over, with `_lock` let go however deep it is held."""
        with unlocked():
            if self.lock.acquire(True, -1 if timeout is None else min(max(timeout, 0), threading.TIMEOUT_MAX)):
                return
        with _lock:
            self.disarm()


class unlocked:
    """See the contract: a signal handler or a destructor may have come in while this thread held the lock.

    It may also have come in while this thread was starting a worker that now must not be waited for.
    """

    __slots__ = ("_held",)

    def __enter__(self) -> None:
        self._held = _lock._release_save() if _lock._is_owned() else None  # type: ignore[attr-defined]
        if _local.starting:
            try:
                starting, _local.starting = _local.starting, []
                for worker in starting:
                    worker.core.replace(worker)
            except BaseException:
                self.__exit__()
                raise

    def __exit__(self, *error: object) -> None:
        if self._held is not None:
            _lock._acquire_restore(self._held)  # type: ignore[attr-defined]


class Failure:
    """An error in the place of a result.  While nobody has asked for it, it is of the class `Unasked`."""

    __slots__ = ("__weakref__", "error", "name")

    def __init__(self, error: BaseException, name: str = "", asked: bool = False) -> None:
        self.error = error
        self.name = name
        if not asked:
            self.asked = False
            with _lock:
                failures.append(weakref.ref(self))
                if len(failures) > _Unasked.many:
                    failures[:] = [there for there in failures if there() is not None]
                    _Unasked.many = 2 * len(failures) + 64

    @property
    def asked(self) -> bool:
        return type(self) is Failure

    @asked.setter
    def asked(self, asked: bool) -> None:
        self.__class__ = Failure if asked else Unasked


class Unasked(Failure):
    """If it goes, it is logged.  A class of its own: a destructor swallows exceptions that are sent to forced tasks."""

    __slots__ = ()

    def report(self) -> None:
        if not sys.is_finalizing():
            error, self.asked = self.error, True
            report_lost_error(self.name, error)

    def __del__(self) -> None:
        if _lock._is_owned():  # type: ignore[attr-defined]
            overdue.append(Failure(self.error, self.name, asked=True))  # handlers have locks of their own
        else:
            self.report()


class _Unasked:
    """When to look through `failures` for dead ones."""

    many = 64


failures: list[weakref.ref[Failure]] = []  # not asked for when they came about
overdue: deque[Failure] = deque()  # to be reported as soon as the lock is not held


def report_overdue() -> None:
    while overdue:
        failure = overdue.popleft()
        failure.asked = False
        assert isinstance(failure, Unasked)
        failure.report()


class Extra:
    """What few tasks have.  Without it a task has no keyword arguments and runs in an empty context."""

    __slots__ = ("alarm", "context", "force", "kwargs", "name")

    def __init__(
        self,
        kwargs: dict[str, Any],
        context: contextvars.Context | None,
        name: str | None = None,
        force: bool = False,
        alarm: Callable[[], Callable[[], None]] | None = None,
    ) -> None:
        self.kwargs = kwargs
        self.context = context  # None: run in the worker's own
        self.name = name
        self.force = force
        self.alarm = alarm  # called when the task starts; gives what is called when it ends


class Side:
    """What few futures have: somebody who waits, listens or interrupts."""

    __slots__ = ("callbacks", "condition", "interrupted", "sleepers", "waiters")

    def __init__(self) -> None:
        self.condition: threading.Condition | None = None
        self.waiters: Waiters | None = None  # made together with the condition
        self.callbacks: list[Callable[[Any], object]] = []
        self.sleepers: list[Parker] = []
        self.interrupted = False


def name_of(fn: object, extra: Extra | None = None) -> str:
    if extra is not None and extra.name:
        return extra.name
    try:
        name = getattr(fn, "__qualname__", None)
    except Exception:  # it is somebody's code
        name = None
    return name if isinstance(name, str) else type(fn).__qualname__


def call(fn: Callable[..., Any], args: Sequence[Any], extra: Extra | None) -> Any:
    """The result of a call, or a `Failure`.  The traceback starts in the called function."""
    try:
        if extra is None:
            return contextvars.Context().run(fn, *args)
        stop = extra.alarm() if extra.alarm is not None else None
        try:
            if extra.context is None:
                return fn(*args, **extra.kwargs)
            return extra.context.run(fn, *args, **extra.kwargs)
        finally:
            if stop is not None:
                stop()
    except BaseException as error:
        error.__traceback__ = error.__traceback__ and error.__traceback__.tb_next
        name = name_of(fn, extra)
        del fn, args, extra  # the error's traceback leads to this frame
        return Failure(error, name)


class Future(_base.Future):  # type: ignore[type-arg]
    """See the contract, `_native.pyi`."""

    # _value: the arguments until the task starts; then the result, or a Failure.
    # _home: where it was spawned (a Frame) while PENDING, its worker while RUNNING; None in a future made by hand.
    __slots__ = ("_extra", "_fn", "_home", "_side", "_state", "_value")

    def __init__(self, _fn: Any = None, _args: Any = None, _extra: Extra | None = None) -> None:
        self._state = PENDING
        self._fn = _fn
        self._value = _args
        self._extra = _extra
        self._side: Side | None = None
        self._home: Any = None

    def _aside(self) -> Side:
        side = Side()
        if self._side is None:
            self._side = side
        return self._side

    # What the standard library's wait(), as_completed() and asyncio reach into.

    @property
    def _condition(self) -> threading.Condition:  # type: ignore[override]
        with gate, _lock:
            side = self._aside()
            condition = threading.Condition(ConditionLock(_shield))  # type: ignore[arg-type]
            waiters = Waiters(weakref.ref(self), _helping)
            if side.condition is None:
                side.waiters = waiters
                side.condition = condition
            return side.condition

    @property
    def _waiters(self) -> Waiters:  # type: ignore[override]
        with self._condition:
            assert self._side is not None
            assert self._side.waiters is not None
            return self._side.waiters

    @property
    def _done_callbacks(self) -> list[Callable[[Any], object]]:
        with _lock:
            return self._aside().callbacks

    @property
    def _result(self) -> Any:
        return self._value if self._state == FINISHED and not isinstance(self._value, Failure) else None

    @_result.setter
    def _result(self, result: Any) -> None:
        if result is not None or not isinstance(self._value, Failure):
            self._value = result

    @property
    def _exception(self) -> BaseException | None:
        return self._value.error if isinstance(self._value, Failure) else None

    @_exception.setter
    def _exception(self, error: BaseException | None) -> None:
        self._value = None if error is None else Failure(error, asked=True)

    def _get_snapshot(self) -> tuple[bool, bool, Any, BaseException | None]:
        if self._state != FINISHED:
            return self.done(), self.cancelled(), None, None
        return True, False, self._result, self.exception()

    # The caller's side.

    def done(self) -> bool:
        return self._state in DONE

    def running(self) -> bool:
        return self._state == RUNNING

    def cancelled(self) -> bool:
        return self._state == CANCELLED or self._state == NOTIFIED

    def result(self, timeout: float | None = None) -> Any:
        try:
            self._wait(timeout)
            if isinstance(self._value, Failure):
                self._value.asked = True
                raise self._value.error
            return self._value
        finally:
            del self  # the error's traceback leads to this frame: no circle

    def exception(self, timeout: float | None = None) -> BaseException | None:
        self._wait(timeout)
        if not isinstance(self._value, Failure):
            return None
        self._value.asked = True
        return for_coroutines(self._value.error)

    def _wait(self, timeout: float | None) -> None:
        try:
            if self._state not in DONE:
                with gate, _lock:
                    side = self._aside()
                if not await_(side, (self,), True, self.done, timeout):
                    raise TimeoutError
            if self._state != FINISHED:
                raise _base.CancelledError
        finally:
            del self  # as in result()

    def add_done_callback(self, fn: Callable[[Any], object]) -> None:
        with gate, _lock:
            side = self._aside()
            if self._state not in DONE:
                side.callbacks.append(fn)
                return
        self._call_back(fn)

    def _call_back(self, fn: Callable[[Any], object]) -> None:
        try:
            with unlocked():
                fn(self)
        except BaseException as error:
            if not isinstance(error, Exception) and _local.worker is None:
                raise
            _base.LOGGER.exception("exception calling callback for %s", repr(self))

    def _invoke_callbacks(self) -> None:
        callbacks = self._done_callbacks
        while True:
            with _lock:  # whoever expires a task and the worker that runs it may both be here
                callback = callbacks.pop(0) if callbacks else None
            if callback is None:
                return
            self._call_back(callback)

    def __reduce__(self) -> str:
        raise TypeError("a future belongs to its process and cannot be pickled or copied; pass its result on")

    def __await__(self) -> Generator[Any, None, Any]:
        return asyncio.wrap_future(self).__await__()

    # The ends of a future.  Exactly one caller of `_settle` wins.

    def cancel(self) -> bool:
        if self._drop():
            self._tell()
        return self.cancelled()

    def _drop(self) -> bool:
        """Cancel, but leave it to the caller to `_tell`."""
        return self._settle(PENDING, NOTIFIED if self._home is not None else CANCELLED, None)

    def set_running_or_notify_cancel(self) -> bool:
        if self._settle(CANCELLED, NOTIFIED, None):
            return False
        with _lock:
            if self._state == PENDING:
                self._state = RUNNING
                self._home = None  # nobody runs it
                return True
        report_unexpected_state(self)
        return False

    def set_result(self, result: Any) -> None:
        if not self._finish(result):
            raise _base.InvalidStateError(f"{self._state}: {self!r}")

    def set_exception(self, exception: BaseException | None) -> None:
        assert exception is not None
        failure = Failure(exception, name_of(self._fn, self._extra), asked=self._home is None)
        try:
            self.set_result(failure)
        except _base.InvalidStateError:
            failure.asked = True
            raise

    def interrupt(self) -> bool:
        if self.cancel():
            return True
        with _lock:
            side = self._aside()
            worker = self._home
            if self._state != RUNNING:
                return False
            first = not side.interrupted
            if worker is not None and first:
                worker.interrupt(self, side)
        if first and worker is not None:
            worker.insist(self, side)
        return True

    def expire(self, error: BaseException) -> bool:
        if not isinstance(error, BaseException):
            raise TypeError(f"a future expires with an exception, not {error!r}")
        worker = self._home
        failure = Failure(error, name_of(self._fn, self._extra))
        ended = self._settle(RUNNING, FINISHED, failure) or self._settle(PENDING, FINISHED, failure)
        if not ended:
            failure.asked = True
        with _lock:
            side = self._aside()
            runs = hasattr(worker, "interrupt") and not side.interrupted
            if runs:
                worker.interrupt(self, side)
        if runs:
            worker.insist(self, side)
        if ended and side.callbacks:
            self._invoke_callbacks()
        return ended

    def _finish(self, value: Any) -> bool:
        if not (self._settle(RUNNING, FINISHED, value) or self._settle(PENDING, FINISHED, value)):
            return False
        self._tell()
        return True

    def _settle(self, before: str, after: str, value: Any) -> bool:
        """Move from state `before` to the done state `after`, if it is there, and wake who sleeps."""
        with gate, _lock:
            side = self._side
            condition = side.condition if side is not None else None
            if condition is None:  # whoever makes one from here on sees the end
                return self._close(before, after, value)
        assert side is not None
        with unlocked(), condition:
            with gate, _lock:
                closed = self._close(before, after, value)
            if closed and after != CANCELLED and side.waiters:
                how = "cancelled" if after == NOTIFIED else "exception" if isinstance(value, Failure) else "result"
                for waiter in side.waiters:
                    getattr(waiter, "add_" + how)(self)
            condition.notify_all()
        return closed

    def _close(self, before: str, after: str, value: Any) -> bool:
        if self._state != before:
            return False
        self._value = value
        self._state = after
        self._fn = self._extra = None
        if self._side is not None and self._side.sleepers:
            for parker in self._side.sleepers:
                parker.unpark()
            self._side.sleepers.clear()
        return True

    def _tell(self) -> None:
        """After the end, by whoever brought it about: forget the worker, run the callbacks."""
        self._home = None
        if self._side is not None and self._side.callbacks:
            self._invoke_callbacks()


def _shield(raised: bool) -> None:
    """For what holds the condition of a future."""
    worker = _local.worker
    if worker is not None and worker.forced:
        if raised:
            worker.raise_shield()
        else:
            worker.lower_shield()


def _helping() -> type[_HelpingEvent] | None:
    return None if _local.worker is None else _HelpingEvent


class _HelpingEvent(HelpingEvent):
    def __init__(self, every: bool) -> None:
        super().__init__(every)
        self.flag = False
        self.sleepers: list[Parker] = []

    def is_set(self) -> bool:
        return self.flag

    def set(self) -> None:
        with _lock:
            self.flag = True
            for parker in self.sleepers:
                parker.unpark()

    def clear(self) -> None:
        self.flag = False

    def wait(self, timeout: float | None = None) -> bool:
        return await_(self, self.awaited(), self.every, self.is_set, timeout)


def await_(source: Any, awaited: Iterable[Any], every: bool, done: Callable[[], bool], timeout: float | None) -> bool:
    """Wait until `done()`: whoever makes it true unparks `source.sleepers` under the lock.  False after the timeout.

    A worker runs or waits for `awaited`: every one of them, or any.
    """
    worker = _local.worker
    deadline = None if timeout is None else monotonic() + timeout
    if worker is not None:
        try:
            return bool(worker.wait(source, awaited, every, done, deadline))
        finally:
            del source, awaited, done  # the error of a task that ran here leads to this frame: no circle
    parker = Parker()
    try:
        while True:
            with gate, _lock:
                if parker not in source.sleepers:
                    source.sleepers.append(parker)
                parker.arm()
                if done():
                    return True
            parker.park(None if deadline is None else deadline - monotonic())
            if done():
                return True
            if deadline is not None and monotonic() >= deadline:
                return False
    finally:
        if parker in source.sleepers:
            with _lock:
                source.sleepers[:] = [other for other in source.sleepers if other is not parker]
