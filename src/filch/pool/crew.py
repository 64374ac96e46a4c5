"""The threads of the pools: how they are made, and what becomes of them at interpreter exit and in a forked child.

Worker threads are daemon threads to the `threading` module, because that one would join them before the program's own
threads have ended, which may still submit.  They are waited for all the same: when the main thread has ended, until the
pools are idle (so what is submitted has run before any `atexit` callback), and at the end of `atexit`, until they are
gone.  The main thread cannot submit after that first point; other threads can until they end.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import weakref
from collections.abc import Callable
from time import monotonic, sleep
from typing import TYPE_CHECKING

from filch._kernel import after_fork_in_child, after_fork_in_parent, before_fork, main_ended, report_lost, unlocked

if TYPE_CHECKING:
    from filch.pool.pool import Pool

_lock = threading.RLock()
_crews: weakref.WeakSet[Crew] = weakref.WeakSet()  # its members are kept by their threads


class _Thread(threading.Thread):
    starter: int  # the thread that starts it
    ran = False  # to its end.  `ident` is set before `is_alive`: in between, a thread seems to be over

    def run(self) -> None:
        try:
            super().run()
        finally:
            self.ran = True


class Crew:
    """The threads of one pool.  They keep it alive, also when the pool itself is gone and its queue is not empty."""

    def __init__(self, pool: Pool, prefix: str, daemon: bool, exit_timeout: float | None) -> None:
        self.pool = weakref.ref(pool)
        self.prefix = prefix
        self.daemon = daemon
        self.exit_timeout = exit_timeout
        self.threads: tuple[_Thread, ...] = ()  # started or about to be; replaced under `_lock`

    def enlist(self) -> None:
        """From now on the interpreter's exit asks for it; its pool is complete."""
        with _lock:
            _crews.add(self)

    def start_thread(self, run: Callable[[], None], number: int) -> threading.Thread:
        thread = _Thread(target=run, name=f"{self.prefix}_{number}", daemon=True)
        thread.starter = threading.get_ident()
        handled = sys.exception()
        try:
            with _lock:
                self.threads = (*self._living(), thread)
            thread.start()
        except RuntimeError as error:
            # What a signal handler raises inside of Thread.start may come out as a complaint of the lock in there.
            if error.__context__ is not None and error.__context__ is not handled:
                raise error.__context__ from None
            raise
        finally:
            if thread.ident is None:
                with _lock:
                    self.threads = tuple(other for other in self.threads if other is not thread)
        return thread

    def _living(self) -> list[_Thread]:
        return [thread for thread in self.threads if thread.is_alive() or not thread.ran]

    def join(self, timeout: float | None) -> None:
        """Wait until the threads have ended, new ones too, or `timeout` seconds are over."""
        deadline = None if timeout is None else monotonic() + timeout
        here = threading.get_ident()  # a handler may have come in while this very thread is starting one
        while living := [thread for thread in self._living() if thread.is_alive() or thread.starter != here]:
            patience = None if deadline is None else max(deadline - monotonic(), 0)
            if patience == 0:
                return
            started = [thread for thread in living if thread.is_alive()]
            with unlocked():
                if started:
                    started[0].join(patience)
                else:
                    sleep(0.001)  # another thread is just starting one

    def settle(self) -> None:
        """Wait until what was submitted has run."""
        pool = self.pool()
        if pool is None or pool._closed:
            self.join(self.exit_timeout)
        else:
            pool.wait_idle(self.exit_timeout)


def _each_at_exit(step: Callable[[Crew], None]) -> None:
    with _lock:
        crews = [crew for crew in _crews if not crew.daemon]
    try:
        for crew in crews:
            step(crew)
    except KeyboardInterrupt:
        for crew in crews:
            crew.daemon = True
            if (pool := crew.pool()) is not None:
                pool._cancel_pending()
        raise


def _when_main_has_ended() -> None:
    main_ended()
    _each_at_exit(Crew.settle)


def _at_exit() -> None:
    def end(crew: Crew) -> None:
        if (pool := crew.pool()) is not None:
            pool._close()
        crew.join(crew.exit_timeout)
        report_lost()

    main_ended()
    _each_at_exit(end)


atexit.register(_at_exit)
try:
    threading._register_atexit(_when_main_has_ended)  # type: ignore[attr-defined]
except RuntimeError:  # imported when the interpreter is already ending
    main_ended()


def _forget_the_parent() -> None:
    _lock._at_fork_reinit()  # type: ignore[attr-defined]
    for crew in tuple(_crews):
        crew.threads = ()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_the_parent)
    os.register_at_fork(
        before=before_fork,
        after_in_parent=after_fork_in_parent,
        after_in_child=after_fork_in_child,
    )
