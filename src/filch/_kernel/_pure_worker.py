"""The pure kernel's queues and workers.  Which of them a worker turns to, and when, is in `_pure`.

A processor is the right to run one task at a time, with its deque; a worker is a thread, and holds a processor while it
is active.  All of it is guarded by `_lock`; the rules at the head of `_pure_future` hold here too.
"""

from __future__ import annotations

import ctypes
import threading
from bisect import insort
from collections import deque
from collections.abc import Callable, Iterable
from time import monotonic
from typing import TYPE_CHECKING, Any

from filch._kernel._common import Insistence, circle
from filch._kernel._pure_future import (
    FINISHED,
    PENDING,
    RUNNING,
    Extra,
    Failure,
    Future,
    Parker,
    Side,
    _local,
    _lock,
    call,
    gate,
    overdue,
    report_overdue,
)
from filch._kernel._pure_future import name_of as name_of
from filch.exceptions import Cancelled, DeadlockError

if TYPE_CHECKING:
    from filch._kernel._pure_core import Core

_UNSET = object()


class Frame:
    """A running task as the ancestor of what it spawned: `above` leads to the frame that it was spawned in itself."""

    __slots__ = ("above", "core", "done")

    def __init__(self, core: Core, above: Frame | None) -> None:
        self.core = core
        self.above = above
        self.done = False

    def living(self) -> Frame:
        """The nearest ancestor, or itself, whose task still runs; ended ones are cut out, so chains stay short."""
        frame = self
        while frame.done and frame.above is not None:
            frame = frame.above
        return frame


class Processor:
    """The right to run one task at a time, with a deque: its owner's end is the right one, the thieves' the left."""

    __slots__ = ("inbox", "laden", "mail", "number", "queue", "tick")

    def __init__(self, number: int) -> None:
        self.number = number
        self.queue: deque[Future] = deque()
        self.inbox: deque[Future] = deque()  # a batch from the injector, run in order after the deque
        self.mail: deque[Future] = deque()  # broadcast tasks, for this processor alone
        self.laden = False  # it is in the engine's list of those that may have something in queue or inbox
        self.tick = 0


class Lane(deque[Future]):
    """Waiting tasks of one priority.

    Which lane's head has waited longest is known without a number in each task: what is pushed into one lane before
    another lane has its turn is a run, runs are numbered, and `marks` say with which push a run began here.
    """

    __slots__ = ("marks", "taken")

    def __init__(self) -> None:
        super().__init__()
        self.taken = 0
        self.marks: deque[tuple[int, int]] = deque()  # (number of the push, number of the run)

    def run_of_head(self) -> int:
        while len(self.marks) > 1 and self.marks[1][0] <= self.taken:
            self.marks.popleft()
        return self.marks[0][1] if self.marks else -1


class Injector:
    """The queue of the pool: lanes by priority, each first in first out."""

    __slots__ = ("lanes", "newest", "order", "runs", "takes")

    def __init__(self) -> None:
        self.lanes: dict[int, Lane] = {}
        self.order: list[int] = []  # the priorities of the lanes, ascending
        self.newest: Lane | None = None  # the lane of the last push
        self.runs = self.takes = 0

    def __len__(self) -> int:
        return sum(map(len, self.lanes.values()))

    def push(self, task: Future, priority: int = 0) -> None:
        lane = self.lanes.get(priority)
        if lane is None:
            lane = self.lanes.setdefault(priority, Lane())
        if lane is not self.newest:
            self.runs += 1
            lane.marks.append((lane.taken + len(lane), self.runs))
            self.newest = lane
        lane.append(task)
        order = self.order
        if not order or order[-1] != priority:
            self._enter(lane, priority)

    def _enter(self, lane: Lane, priority: int) -> None:
        """See to it that a lane that is not empty is known; a handler that waited may have had it dropped."""
        if self.lanes.get(priority) is not lane:
            while lane:
                self.push(lane.popleft(), priority)
        elif priority not in self.order:
            insort(self.order, priority)

    def take(self, oldest: bool = False) -> Future | None:
        """The head of the highest lane, or of the one whose head has waited longest."""
        order = self.order
        while order:
            at = -1
            if oldest and len(order) > 1:
                at = min(range(len(order)), key=self._run_at)
            lane = self.lanes.get(order[at])
            task = None
            if lane:
                task = lane.popleft()
                lane.taken += 1
            if not lane:
                priority = order[at]
                del order[at]
                if priority and lane is not None:  # priorities may be many, and never come again
                    del self.lanes[priority]
                    self.newest = None
            if task is not None:
                return task
        return None

    def sweep(self) -> None:
        """Drop what has ended from the heads of the lanes."""
        for priority in {*self.order, *self.lanes}:
            lane = self.lanes.get(priority)
            while lane and lane[0]._state != PENDING:
                lane.popleft()
                lane.taken += 1
            if lane:
                self._enter(lane, priority)
            while not lane and priority in self.order:
                self.order.remove(priority)

    def _run_at(self, at: int) -> int:
        lane = self.lanes.get(self.order[at])
        return lane.run_of_head() if lane else -1


class Worker:
    """A thread of an engine, and what runs on it: tasks lie on top of each other when one that waits runs others."""

    __slots__ = (
        "call", "called", "core", "entered", "forced", "frame", "home", "ident", "isolated", "number", "parker",
        "processor", "shielded", "sleeping", "stack", "task", "thread", "waiting",
    )  # fmt: skip

    def __init__(self, core: Core, number: int) -> None:
        self.core = core
        self.number = number
        self.parker = Parker()
        self.sleeping = False  # in a wait inside of a task, or about to
        self.called = True  # and on its way: counted in core.searching
        self.processor: Processor | None = None
        self.thread: threading.Thread | None = None
        self.entered = False  # in the engine's list of workers
        self.ident: int | None = None
        self.stack: list[tuple[Any, ...]] = []  # what is under the running task
        self.task: Future | None = None
        self.home: Any = None  # the frame in which the running task was spawned
        self.frame: Frame | None = None  # the running task's own, once it spawns
        self.call: tuple[Any, Any, Extra | None] | None = None  # of a task that was begun: function and arguments
        self.forced = False  # the running task is to be stopped with an asynchronous exception
        self.isolated = self.shielded = 0
        self.waiting: tuple[Iterable[Any], bool] | None = None  # futures; all of them or any

    def main(self) -> None:
        """The life of the thread."""
        core = self.core
        self.thread = threading.current_thread()
        with _lock:
            if self not in core.workers:
                return  # it was replaced, or a forked child has forgotten it
            self.ident = threading.get_ident()
        if core.begin_thread(self):
            _local.worker = self
            while core.next(self):
                self.run()

    def begin(self, task: Future, nested: bool = False) -> bool:
        """Claim a task, and lay it on the stack; `nested`, on top of what waits.  Under the lock."""
        if task._state != PENDING:
            return False
        task._state = RUNNING
        if nested:
            self.stack.append((self.task, self.home, self.frame, self.isolated, self.shielded, self.forced))
            self.frame = None
            self.isolated = 0
        extra = task._extra
        self.forced = extra is not None and extra.force
        self.shielded = int(self.forced)
        self.home = task._home
        self.call = task._fn, task._value, extra  # `expire` may end the future before this runs
        task._value = None
        task._home = self
        self.task = task
        return True

    def run(self) -> None:
        """Run the task that was begun last, on this thread."""
        task = self.task
        assert task is not None
        assert self.call is not None
        fn, args, extra = self.call
        self.call = None
        value = self._run_forced(fn, args, extra) if self.forced else call(fn, args, extra)
        del fn, args, extra
        if gate.inside > 0:
            gate.stand_back()
        gate.inside += gate.step
        try:
            with _lock:
                settled = task._side is None and task._state == RUNNING
                if settled:
                    task._value = value
                    task._state = FINISHED
                    task._fn = task._extra = task._home = None
        finally:
            gate.inside -= gate.step
        if not settled:
            self._settle(task, value)
        del value
        if self.frame is not None:
            self.frame.done = True
            self.frame.above = self.frame.above and self.frame.above.living()
            self.frame = None
        if self.forced:  # whoever interrupts looks at the task and at the shield, under the lock
            with _lock:
                self._leave()
        else:
            self._leave()
        if not settled:
            task._tell()
        if overdue:
            report_overdue()
        del task  # an error's traceback leads to this frame: no circle

    def _leave(self) -> None:
        """Take the running task off the stack."""
        self.task = None
        self.isolated = self.shielded = 0
        if self.stack:
            self.task, self.home, self.frame, self.isolated, self.shielded, self.forced = self.stack.pop()

    def _settle(self, task: Future, value: Any) -> None:
        failed = isinstance(value, Failure)
        if failed and task._side is not None and task._side.interrupted and isinstance(value.error, Cancelled):
            value.asked = True  # it was asked to stop, and did
        if not task._settle(RUNNING, FINISHED, value) and failed:
            value.asked = True  # its future ended before it

    def _run_forced(self, fn: Any, args: Any, extra: Any) -> Any:
        value: Any = _UNSET
        late: Cancelled | None = None
        while True:  # once more if the exception comes late, and with nothing but a store outside of the `try`
            try:
                if value is _UNSET and late is None:
                    self.lower_shield()
                    value = call(fn, args, extra)
                with _lock:
                    self.shielded = 1
                self._call_back()
                break
            except Cancelled as error:
                late = error
        try:
            return value if late is None or value is not _UNSET else Failure(late, name_of(fn, extra))
        finally:
            del value, late  # an error's traceback leads to this frame: no circle

    def raise_shield(self) -> None:
        """From here on nothing asynchronous is sent to this thread; what was sent before is raised here."""
        if not self.forced:
            self.shielded += 1
            return
        raised = False
        try:
            with _lock:
                self.shielded += 1
                raised = True
            if self.shielded == 1:
                self._call_back()
                self.checkpoint()
        except BaseException:
            self.shielded -= raised
            raise

    def lower_shield(self) -> None:
        """Look and step are one: who was asked before hears of it here, and who is asked later is sent it."""
        if not self.forced:
            self.shielded -= 1
            return
        with _lock:
            asked = self.shielded == 1 and self._is_asked()
            self.shielded -= 1
        if asked:
            raise Cancelled("the task was asked to stop")

    def _call_back(self) -> None:
        """Take back what was sent, if it has not been raised yet.

        The interpreter promises no moment for it: before 3.13 one flag says for all threads that an exception is due.
        """
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self.ident or 0), None)

    def interrupt(self, task: Future, side: Side) -> None:
        """Ask the task to stop.  Under the lock."""
        side.interrupted = True
        if self.task is task:
            self.parker.unpark()
            if self.forced and not self.shielded:
                ident = ctypes.c_ulong(self.ident or 0)
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ident, ctypes.py_object(Cancelled))

    def insist(self, task: Future, side: Side) -> None:
        """Ask a forced task again and again while it runs: a destructor may swallow what is sent to it."""
        if not self.forced:
            return

        def ask(again: bool) -> bool:
            with _lock:
                runs = self.task is task or any(under[0] is task for under in self.stack)
                if runs and again:
                    self.interrupt(task, side)
                return runs

        insistence.add(ask)

    def _is_asked(self) -> bool:
        task = self.task
        return task is not None and task._side is not None and task._side.interrupted

    def checkpoint(self) -> None:
        if self._is_asked():
            raise Cancelled("the task was asked to stop")

    def open_frame(self) -> Frame:
        """The frame of the running task, for what it spawns."""
        if self.frame is None:
            frame = Frame(self.core, self.home.living())
            if self.frame is None:
                self.frame = frame
        return self.frame

    def wait(
        self, source: Any, awaited: Iterable[Any], every: bool, done: Callable[[], bool], deadline: float | None
    ) -> bool:
        """Wait inside a task: run what is awaited, else a descendant, else give the processor away and sleep."""
        if done():
            return True
        bed = self.parker
        if self.called or self in self.core.sleepers:  # a destructor waits, in a worker that is about to sleep
            self.core.rouse(self)
            self.parker = Parker()
        self.raise_shield()
        try:
            while not done():
                with gate, _lock:
                    self.checkpoint()
                    task = self.core.help(self, awaited, deadline is not None or (not every and _are_many(awaited)))
                if task:
                    self.run()
                elif not self._sleep(source, awaited, every, done, deadline):
                    self.checkpoint()
                    return done()
            return True
        finally:
            del source, awaited, done  # the error of a task that ran here leads to this frame: no circle
            self.parker = bed
            self.lower_shield()

    def _sleep(
        self, source: Any, awaited: Iterable[Any], every: bool, done: Callable[[], bool], deadline: float | None
    ) -> bool:
        """Announce, look again, give the processor up, sleep.  False: the time is over.

        A destructor may come in here, and wait: it sleeps in a place of its own, and leaves the token of the one below.
        """
        core = self.core
        helper = None
        parker, below, claim, outer = self.parker, None, False, self.waiting
        try:
            with gate, _lock:
                if self.sleeping:
                    below, parker = parker, Parker()
                    claim, below.worker = below.worker is not None, None
                    self.parker = parker
                self.sleeping = True
                source.sleepers.append(parker)
                parker.arm()
                if done():
                    return True
                self.checkpoint()  # an interrupt that came before found nobody to wake
                if deadline is None:
                    self.waiting = awaited, every
                    _refuse_circle(self)
                gave, helper = core.give_up(self, awaited)
                parker.worker = self if gave else None
            if helper is not None and not core.start(helper):
                return True  # nobody takes over: help instead
            parker.park(None if deadline is None else deadline - monotonic())
            return deadline is None or monotonic() < deadline
        finally:
            with gate, _lock:
                self.waiting = outer
                parker.disarm()
                source.sleepers[:] = [other for other in source.sleepers if other is not parker]
                if parker.worker is not None:
                    parker.worker = None
                    core.take_back(self)
                self.sleeping = below is not None
                if below is not None:
                    self.parker = below
                    if claim and below.armed:
                        below.worker = self
                    elif claim:
                        core.take_back(self)
                    if self._is_asked():
                        below.unpark()


insistence = Insistence()


def _are_many(futures: Iterable[Any]) -> bool:
    """Is more than one of them not done?  Those of another kind, which have locks of their own, are not asked."""
    pending = (future for future in futures if not (isinstance(future, Future) and future.done()))
    return next(pending, None) is not None and next(pending, None) is not None


def _refuse_circle(worker: Worker) -> None:
    """Raise if `worker`, which is about to sleep, can only be woken by itself.  Under the lock."""
    trail: list[Future] = []
    if worker.task is not None and _is_stuck(worker, worker, {worker}, trail):
        names = [name_of(task._fn, task._extra) for task in [worker.task, *reversed(trail)]]
        raise DeadlockError(circle(names))


def _is_stuck(here: Worker, worker: Worker, seen: set[Worker], trail: list[Future]) -> bool:
    """Does what `here` waits for lead back to `worker`: one of the futures, if it waits for all, else each of them?

    `trail` are the futures on the way, the last one first.
    """
    futures, every = here.waiting or ((), True)
    stuck, way = False, None
    for future in futures:
        if isinstance(future, Future) and future.done():
            continue
        there = future._home if isinstance(future, Future) and future._state == RUNNING else None
        stuck = there is worker
        branch: list[Future] = []
        if isinstance(there, Worker) and there not in seen:
            seen.add(there)
            stuck = _is_stuck(there, worker, seen, branch)
        if stuck and way is None:
            way = [*branch, future]
        if stuck == every:
            break
    trail += way if stuck and way is not None else ()
    return stuck
