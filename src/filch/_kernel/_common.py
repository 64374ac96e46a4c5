"""What both kernels have in Python: what they say, who asks forced tasks again, how standard waiters help in workers.

Not here: states, queues and sleeping, which each kernel has of its own.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import _base
from concurrent.futures.thread import BrokenThreadPool
from time import sleep
from typing import Any

AGAIN = 1.0  # seconds that a forced task has to clean up before it is interrupted again

# What they say.


_reports = threading.local()


def report_lost_error(name: str | None, error: BaseException) -> None:
    """Log it; in the middle of logging another one, as a destructor may come there, when that is done.

    `logging` ignores what is logged from inside (since 3.13.4).
    """
    waiting: deque[tuple[str | None, BaseException]] | None = getattr(_reports, "waiting", None)
    if waiting is None:
        waiting = _reports.waiting = deque()
    busy = bool(waiting)
    waiting.append((name, error))
    while waiting and not busy:
        try:
            name, error = waiting[0]
            logging.getLogger("filch").error(
                "nobody asked for the error of %s", name, exc_info=(type(error), error, error.__traceback__)
            )
        finally:
            waiting.popleft()


def warn_of_threads(error: BaseException, left: int) -> None:
    logging.getLogger("filch").warning(
        "no thread could be started (%s); the pool goes on with the %d it has", error, left
    )


def report_unexpected_state(future: Any) -> None:
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


def circle(names: Iterable[str]) -> str:
    chain = " waits for ".join(map(repr, names))
    return f"tasks wait for each other in a circle: {chain}; break it, or wait with a timeout"


def for_coroutines(error: BaseException) -> BaseException:
    """The error itself, or what stands for it where a coroutine asks: a StopIteration cannot be raised there."""
    if not isinstance(error, StopIteration) or asyncio._get_running_loop() is None:
        return error
    instead = RuntimeError("a task raised StopIteration, which cannot be raised in a coroutine; return instead")
    instead.__cause__ = error
    return instead


def fresh_copy(lost: BaseException) -> BaseException:
    """An error of its own for each who asks, so that their tracebacks do not grow together."""
    error = type(lost)(*lost.args)
    error.__cause__ = lost.__cause__
    return error


class Insistence:
    """Asks forced tasks that were interrupted again, every AGAIN seconds while they run, from one thread."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # of the list; nothing is called under it
        self._asks: list[Callable[[bool], bool]] = []
        self._asked: list[Callable[[bool], bool]] = []  # those of them that are here for AGAIN seconds or more

    def add(self, ask: Callable[[bool], bool]) -> None:
        """ask: returns whether the task runs, and interrupts it if told to."""
        with self._lock:
            self._asks.append(ask)
            alone = len(self._asks) == 1
        if alone:
            try:
                threading.Thread(target=self._run, name="filch-insist", daemon=True).start()
            except RuntimeError:  # no thread can be had: it has been asked once, and the next one tries again
                self._asks.clear()

    def forget(self) -> None:
        """In a forked child: the thread and the tasks are gone."""
        self.__init__()  # type: ignore[misc]

    def _run(self) -> None:
        while True:
            sleep(AGAIN)
            over = [ask for ask in tuple(self._asks) if not ask(ask in self._asked)]
            with self._lock:
                self._asks[:] = [ask for ask in self._asks if ask not in over]
                self._asked[:] = self._asks
                if not self._asks:  # under the lock: two such threads at once would ask twice in a second
                    return


# What the standard library's wait() and as_completed() reach into.


class ConditionLock:
    """The lock of a future's condition.  wait() holds many at a time: a forced task must not be torn out of there.

    shield: called with True before, and with False after, the lock is held.
    """

    __slots__ = ("_acquire_restore", "_is_owned", "_release_save", "_shield", "lock")

    def __init__(self, shield: Callable[[bool], None]) -> None:
        lock: Any = threading.RLock()
        self.lock = lock
        self._shield = shield
        self._is_owned = lock._is_owned
        self._release_save = lock._release_save
        self._acquire_restore = lock._acquire_restore

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        self._shield(True)
        got = bool(self.lock.acquire(blocking, timeout))
        if not got:
            self._shield(False)
        return got

    def release(self) -> None:
        self.lock.release()
        self._shield(False)

    __enter__ = acquire

    def __exit__(self, *error: object) -> None:
        self.release()


class Waiters(list):  # type: ignore[type-arg]
    """`Future._waiters`.  A worker that installs a waiter here is about to sleep in `wait()` or `as_completed()`: the
    waiter's event is replaced by one that helps.

    helping: returns the class of that event inside of a worker, and None elsewhere.
    """

    __slots__ = ("future", "helping")

    def __init__(self, future: weakref.ref[Any], helping: Callable[[], type[HelpingEvent] | None]) -> None:
        super().__init__()
        self.future = future
        self.helping = helping

    def append(self, waiter: Any) -> None:
        event = self.helping()
        if event is not None:
            if type(waiter.event) is not event:
                waiter.event = event(type(waiter) is _base._AllCompletedWaiter and not waiter.stop_on_exception)
            waiter.event.futures.append(self.future())
        super().append(waiter)

    def remove(self, waiter: Any) -> None:
        super().remove(waiter)
        if isinstance(waiter.event, HelpingEvent):
            waiter.event.futures.remove(self.future())


class HelpingEvent:
    """The `threading.Event` of a standard waiter, for workers.  A kernel adds how it is set and waited for."""

    def __init__(self, every: bool) -> None:
        self.every = every
        self.futures: list[Any] = []

    def awaited(self) -> Iterable[Any]:
        """What wait() or as_completed(), which has called `wait`, still waits for; its futures may be of other kinds
        too."""
        if self.every:
            return self.futures
        caller = sys._getframe(2).f_locals
        pending = caller.get("not_done", caller.get("pending"))
        return self.futures if pending is None else tuple(pending)
