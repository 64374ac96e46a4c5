"""What the native kernel leaves to Python, besides what both kernels have: it calls these names."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import weakref
from concurrent.futures import _base
from typing import Any

import filch._kernel._native as _public
from filch._kernel._common import (
    ConditionLock,
    HelpingEvent,
    Insistence,
    Waiters,
    report_lost_error,
)
from filch._kernel._common import broken_error as broken_error
from filch._kernel._common import circle as circle
from filch._kernel._common import for_coroutines as for_coroutines
from filch._kernel._common import fresh_copy as fresh_copy
from filch._kernel._common import no_thread as no_thread
from filch._kernel._common import report_unexpected_state as report_unexpected_state
from filch._kernel._common import warn_of_threads as warn_of_threads

_native: Any = _public  # with what the contract does not name
_insistence = Insistence()


def breathe() -> None:
    """Called between tasks, for what the interpreter does when a Python function is called."""


def watch_limits() -> tuple[int, int]:
    """How many nanoseconds a thread watches for what it waits for before it sleeps, and how many do so at a time.

    FILCH_SPIN is in microseconds; with one CPU nobody watches, as nothing could come about meanwhile.
    """
    try:
        cpus = len(os.sched_getaffinity(0))
    except AttributeError:
        cpus = os.cpu_count() or 1
    text = os.environ.get("FILCH_SPIN", "20")
    if not (text.isdecimal() and int(text) <= 1000):
        raise ImportError(f"FILCH_SPIN must be a whole number of microseconds from 0 to 1000, or unset, not {text!r}")
    return (int(text) * 1000, cpus) if cpus > 1 else (0, 0)


def current_thread() -> threading.Thread:
    return threading.current_thread()


def is_on_main() -> bool:
    return threading.current_thread() is threading.main_thread()


def report(name: str | None, error: BaseException) -> None:
    if not sys.is_finalizing():
        report_lost_error(name, error)


def callback_failed(future: Any, error: BaseException) -> None:
    _base.LOGGER.error("exception calling callback for %r", future, exc_info=(type(error), error, error.__traceback__))


def initializer_failed(error: BaseException) -> None:
    _base.LOGGER.critical("Exception in initializer:", exc_info=(type(error), error, error.__traceback__))


def awaited(future: Any) -> Any:
    return asyncio.wrap_future(future).__await__()


def insist(worker: Any, task: Any) -> None:
    _insistence.add(lambda again: worker.insist(task, again))


def after_fork_in_child() -> None:
    _insistence.forget()


def _helping() -> type[_HelpingEvent] | None:
    return _HelpingEvent if _native._in_worker() else None


class _HelpingEvent(HelpingEvent, _native._Event):  # type: ignore[misc]
    def wait(self, timeout: float | None = None) -> bool:
        return bool(self.wait_for(tuple(self.awaited()), self.every, timeout))


def condition_for(future: Any) -> tuple[threading.Condition, Waiters]:
    return threading.Condition(ConditionLock(_native._shield)), Waiters(weakref.ref(future), _helping)  # type: ignore[arg-type]
