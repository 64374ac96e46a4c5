"""Timeouts of tasks: one thread a process that ends futures whose task runs too long.

It sleeps until the nearest deadline, and is started by the first task that has one.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import os
import threading
import weakref
from collections.abc import Callable
from time import monotonic
from typing import Any

from filch._kernel import Future, current_future
from filch.exceptions import TaskTimeout


class _Alarm:
    """The future of a running task, and how many seconds it has."""

    __slots__ = ("future", "name", "seconds")

    def __init__(self, future: Future[Any], seconds: float, name: str) -> None:
        self.future: weakref.ref[Future[Any]] | None = weakref.ref(future)
        self.seconds = seconds
        self.name = name

    def call_off(self) -> None:
        self.future = None
        _clock.called_off += 1

    def ring(self) -> None:
        reference = self.future
        future = reference() if reference is not None else None
        if future is None:
            return
        try:
            future.expire(
                TaskTimeout(f"{self.name} ran longer than its timeout of {self.seconds:g} s and was given up")
            )
        except BaseException:  # a callback raised it; the clock goes on for the others
            logging.getLogger("filch").exception("exception calling a callback of %s", self.name)


class _Clock:
    """Alarms by deadline."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.changed = threading.Condition(threading.RLock())
        self.alarms: list[tuple[float, int, _Alarm]] = []
        self.number = itertools.count()
        self.called_off = 0  # about how many of the alarms
        self.thread: threading.Thread | None = None

    def set(self, alarm: _Alarm) -> None:
        deadline = monotonic() + alarm.seconds
        with self.changed:
            if self.called_off > max(MANY, len(self.alarms) // 2):
                self.called_off = 0
                self.alarms = [entry for entry in self.alarms if entry[2].future is not None]
                heapq.heapify(self.alarms)
            heapq.heappush(self.alarms, (deadline, next(self.number), alarm))
            if self.thread is None:
                thread = threading.Thread(target=self._run, name="filch-clock", daemon=True)
                thread.start()
                self.thread = thread  # only now: if it could not be started, the next task tries again
            elif self.alarms[0][2] is alarm:
                self.changed.notify()

    def _run(self) -> None:
        while True:
            with self.changed:
                while self.alarms and self.alarms[0][2].future is None:
                    heapq.heappop(self.alarms)
                patience = self.alarms[0][0] - monotonic() if self.alarms else None
                if patience is None or patience > 0:
                    self.changed.wait(None if patience is None else min(patience, threading.TIMEOUT_MAX))
                    continue
                alarm = heapq.heappop(self.alarms)[2]
            alarm.ring()
            del alarm


MANY = 256  # alarms that are called off are cleared away when they are more, and more than half
_clock = _Clock()


def set_alarm(seconds: float, name: str) -> Callable[[], None]:
    """Give the task that is about to start here `seconds` seconds; to be called off when it ends.

    When they are over its future ends with `TaskTimeout`, the task is interrupted, and what it returns is dropped.
    """
    global _clock
    if _clock.pid != os.getpid():  # a forked child has no thread
        _clock = _Clock()
    future = current_future()
    assert future is not None
    alarm = _Alarm(future, seconds, name)
    _clock.set(alarm)
    return alarm.call_off
