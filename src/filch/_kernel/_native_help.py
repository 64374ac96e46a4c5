"""What the native kernel leaves to Python: messages, logs, and how the standard library's waiters help in workers."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import weakref
from collections.abc import Iterable
from concurrent.futures import _base
from concurrent.futures.thread import BrokenThreadPool
from time import sleep
from typing import Any

import filch._kernel._native as _public

_native: Any = _public  # with what the contract does not name

AGAIN = 1.0  # seconds that a forced task has to clean up before it is interrupted again


def current_thread() -> threading.Thread:
    return threading.current_thread()


def is_on_main() -> bool:
    return threading.current_thread() is threading.main_thread()


def report(name: str | None, error: BaseException) -> None:
    if not sys.is_finalizing():
        logging.getLogger("filch").error(
            "nobody asked for the error of %s", name, exc_info=(type(error), error, error.__traceback__)
        )


def callback_failed(future: Any, error: BaseException) -> None:
    _base.LOGGER.error("exception calling callback for %r", future, exc_info=(type(error), error, error.__traceback__))


def initializer_failed(error: BaseException) -> None:
    _base.LOGGER.critical("Exception in initializer:", exc_info=(type(error), error, error.__traceback__))


def unexpected_state(future: Any) -> None:
    _base.LOGGER.critical("Future %s in unexpected state: %s", id(future), future._state)
    raise RuntimeError("Future in unexpected state")


def broken_error(cause: BaseException) -> BrokenThreadPool:
    error = BrokenThreadPool(
        f"the initializer raised {cause!r}, so the pool takes no task; mend it, or pass on_broken='restart'"
    )
    error.__cause__ = cause
    return error


def no_thread(cause: BaseException) -> RuntimeError:
    error = RuntimeError(
        f"no thread could be started ({cause}), so the task cannot run; end some threads and try again"
    )
    error.__cause__ = cause
    return error


def warn_of_threads(error: BaseException, left: int) -> None:
    logging.getLogger("filch").warning(
        "no thread could be started (%s); the pool goes on with the %d it has", error, left
    )


def circle(names: list[str]) -> str:
    chain = " waits for ".join(map(repr, names))
    return f"tasks wait for each other in a circle: {chain}; break it, or wait with a timeout"


def stopped(error: StopIteration) -> BaseException:
    if asyncio._get_running_loop() is None:
        return error
    instead = RuntimeError("a task raised StopIteration, which cannot be raised in a coroutine; return instead")
    instead.__cause__ = error
    return instead


def copy_of(lost: BaseException | None) -> BaseException:
    lost = lost or _base.CancelledError()
    error = type(lost)(*lost.args)
    error.__cause__ = lost.__cause__
    return error


def awaited(future: Any) -> Any:
    return asyncio.wrap_future(future).__await__()


# Forced tasks that were interrupted: asked again and again while they run, since a destructor may swallow what is sent.

_insistent: list[list[Any]] = []  # worker, task, and: for a second or more
_insistent_lock = threading.Lock()


def insist(worker: Any, task: Any) -> None:
    with _insistent_lock:
        _insistent.append([worker, task, False])
        alone = len(_insistent) == 1
    if alone:
        try:
            threading.Thread(target=_insist, name="filch-insist", daemon=True).start()
        except RuntimeError:  # no thread can be had: it has been asked once, and the next one tries again
            _insistent.clear()


def _insist() -> None:
    while True:
        sleep(AGAIN)
        with _insistent_lock:
            _insistent[:] = [entry for entry in _insistent if entry[0].insist(entry[1], entry[2])]
            for entry in _insistent:
                entry[2] = True
            if not _insistent:
                return


# What wait() and as_completed() reach into.


class _ConditionLock:
    """The lock of a future's condition.  wait() holds many at a time: a forced task must not be torn out of there."""

    __slots__ = ("_acquire_restore", "_is_owned", "_release_save", "lock")

    def __init__(self) -> None:
        lock: Any = threading.RLock()
        self.lock = lock
        self._is_owned = lock._is_owned
        self._release_save = lock._release_save
        self._acquire_restore = lock._acquire_restore

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        _native._shield(True)
        got = bool(self.lock.acquire(blocking, timeout))
        if not got:
            _native._shield(False)
        return got

    def release(self) -> None:
        self.lock.release()
        _native._shield(False)

    __enter__ = acquire

    def __exit__(self, *error: object) -> None:
        self.release()


class _Waiters(list):  # type: ignore[type-arg]
    """`Future._waiters`.  A worker that installs a waiter here is about to sleep in `wait()` or `as_completed()`: the
    waiter's event is replaced by one that helps."""

    __slots__ = ("future",)

    def __init__(self, future: weakref.ref[Any]) -> None:
        super().__init__()
        self.future = future

    def append(self, waiter: Any) -> None:
        if _native._in_worker():
            if type(waiter.event) is not HelpingEvent:
                every = type(waiter) is _base._AllCompletedWaiter and not waiter.stop_on_exception
                waiter.event = HelpingEvent(every)
            waiter.event.futures.append(self.future())
        super().append(waiter)

    def remove(self, waiter: Any) -> None:
        super().remove(waiter)
        if type(waiter.event) is HelpingEvent:
            waiter.event.futures.remove(self.future())


class HelpingEvent(_native._Event):  # type: ignore[misc]
    """The `threading.Event` of a standard waiter, for workers."""

    def __init__(self, every: bool) -> None:
        self.every = every
        self.futures: list[Any] = []

    def wait(self, timeout: float | None = None) -> bool:
        awaited: Iterable[Any] = self.futures
        if not self.every:
            # What wait() or as_completed(), whose call this is, still waits for; its futures may be of other kinds too.
            caller = sys._getframe(1).f_locals
            pending = caller.get("not_done", caller.get("pending"))
            awaited = self.futures if pending is None else pending
        return bool(self.wait_for(tuple(awaited), self.every, timeout))


def condition_for(future: Any) -> tuple[threading.Condition, _Waiters]:
    return threading.Condition(_ConditionLock()), _Waiters(weakref.ref(future))  # type: ignore[arg-type]
