"""The kernel in plain Python: the specification that the native kernel follows, and what runs where that is not built.

Here is what the contract, `_native.pyi`, names.  Futures and sleeping are in `_pure_future`, queues and workers in
`_pure_worker`, and who runs what and when in `_pure_core`.
"""

from __future__ import annotations

import contextvars
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from functools import partial
from typing import Any, final

from filch._kernel._common import fresh_copy
from filch._kernel._pure_core import FAIR, Core, MainThread, cores
from filch._kernel._pure_future import (
    FINISHED,
    PENDING,
    Extra,
    Failure,
    Future,
    Side,
    Unasked,
    _local,
    _lock,
    await_,
    call,
    failures,
    gate,
    name_of,
    report_overdue,
)
from filch._kernel._pure_future import unlocked as unlocked
from filch._kernel._pure_worker import Worker, insistence
from filch.exceptions import DeadlockError, ForkedError, PoolShutdown

implementation = "pure"

_UNSET = object()


class Engine:
    """See the contract, `_native.pyi`."""

    def __init__(
        self,
        max_workers: int,
        *,
        lifo: bool,
        max_threads: int,
        keep_alive: float,
        seed: int | None,
        start_thread: Callable[[Callable[[], None], int], threading.Thread],
        prologue: Callable[[], object] | None,
        restart: bool,
    ) -> None:
        self._core = Core(
            max_workers=max_workers,
            lifo=lifo,
            max_threads=max_threads,
            keep_alive=keep_alive,
            seed=seed,
            start_thread=start_thread,
            prologue=prologue,
            restart=restart,
        )
        self._core.engine = weakref.ref(self, partial(_engine_gone, weakref.ref(self._core)))

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future:
        if not callable(fn):
            raise TypeError(f"a task is a callable with its arguments, not {fn!r}; pass the function itself")
        context = contextvars.copy_context()
        task = Future(fn, args, Extra(kwargs, context) if kwargs or context else None)
        self._core.admit(task)
        return task

    def _spawn(
        self,
        fn: Callable[..., Any],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
        *,
        priority: int = 0,
        context: bool = True,
        name: str | None = None,
        force: bool = False,
        alarm: Callable[[], Callable[[], None]] | None = None,
    ) -> Future:
        if not callable(fn):
            raise TypeError(f"a task is a callable with its arguments, not {fn!r}; pass the function itself")
        own = contextvars.copy_context() if context else None
        task = Future(fn, args, Extra(kwargs or {}, own, name, force, alarm))
        self._core.admit(task, priority)
        return task

    def _submit_bulk(
        self,
        fn: Callable[..., Any],
        items: Sequence[tuple[Any, ...]],
        *,
        priority: int = 0,
        context: bool = True,
        grain: int = 1,
    ) -> Bulk:
        return Bulk(self._core, fn, items, priority, contextvars.copy_context() if context else None, grain)

    def _broadcast(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Future]:
        return self._core.broadcast(lambda: Future(fn, args, Extra(kwargs, contextvars.copy_context())))

    def _resize(self, max_workers: int, max_threads: int) -> None:
        self._core.resize(max_workers, max_threads)

    def _close(self) -> None:
        self._core.close(drain=True)

    def _cancel_pending(self) -> int:
        return self._core.cancel_pending()

    def wait_idle(self, timeout: float | None = None) -> bool:
        core = self._core
        if _local.worker is not None and _local.worker.core is core:
            raise DeadlockError(
                "wait_idle() waits for every task of its pool, so a task may not call it; wait for futures"
            )
        core.go_on()
        source = Side()
        source.sleepers = core.watchers

        def is_idle() -> bool:
            with _lock:
                return core.is_idle()

        return await_(source, (), True, is_idle, timeout)

    def _unfinished(self) -> list[Future]:
        return self._core.unfinished()

    def _live_threads(self) -> list[threading.Thread]:
        with _lock:
            return [worker.thread for worker in self._core.workers if worker.thread is not None]

    def _counters(self) -> dict[str, int]:
        core = self._core
        with _lock:
            return {
                "submitted": core.submitted,
                "steals": core.steals,
                "stolen": core.stolen,
                "spilled": core.spilled,
                "parks": core.parks,
                "wakes": core.wakes,
                "handoffs": core.handoffs,
                "threads_started": core.threads_started,
                "max_threads": core.max_threads,
                "threads": len(core.workers),
                "idle": len(core.sleepers),
                "searching": core.searching,
                "running": sum(worker.task is not None for worker in core.workers),
                "excess": len(core.excess),
                "injected": len(core.injector),
                "local": sum(
                    len(processor.queue) + len(processor.inbox) + len(processor.mail) for processor in core.processors
                ),
            }

    @property
    def max_workers(self) -> int:
        return self._core.max_workers

    @property
    def _closed(self) -> bool:
        return self._core.closed

    @property
    def _breakage(self) -> BaseException | None:
        return self._core.broken

    def __reduce__(self) -> str:
        raise TypeError("a pool belongs to its process and cannot be pickled or copied; make one where it is needed")


def _engine_gone(core: weakref.ref[Core], engine: object) -> None:
    """Not a `__del__`, whose place a subclass may take."""
    there = core()
    if there is not None and _lock is not None:
        there.abandon()


@final
class Bulk:
    """See the contract.  A runner is a task that makes one call after the other; while calls are left, one runner waits
    in a queue for whoever has nothing to do."""

    def __init__(
        self,
        core: Core,
        fn: Callable[..., Any],
        items: Sequence[tuple[Any, ...]],
        priority: int,
        context: contextvars.Context | None,
        grain: int,
    ) -> None:
        self.core = core
        self.fn = fn
        self.items: list[Any] = list(items)
        self.priority = priority
        self.extra = Extra({}, None) if context is None else Extra({}, context) if context else None
        self.grain = grain
        self.outcomes: list[Any] = [_UNSET] * len(self.items)
        self.cursor = 0
        self.spots: dict[int, Side] = {}  # who waits for which call
        self.generation = core.generation
        self.lost: BaseException | None = None  # why calls that have no outcome will have none
        self.abandoned = False
        self.runners: list[Future] = []  # the one that waits
        self.making: dict[int, Future | None] = {}  # which runner makes which call now
        if self.items:
            self._launch(owed=False)

    def _launch(self, owed: bool) -> None:
        runner = Future(self._work, (), Extra({}, None, name_of(self.fn)))
        runner.add_done_callback(self._lose)
        self.runners[:] = [runner]
        self.core.admit(runner, self.priority, owed)

    def _work(self) -> None:
        items = self.items
        if self.cursor + self.grain < len(items):
            try:
                self._launch(owed=True)
            except PoolShutdown:
                self._end(CancelledError())
                return
        index, stop, turn = -1, 0, 0
        outcome: Any = None
        while True:
            index, stop, turn = self._advance(index, stop, turn, outcome)
            outcome = None  # an error's traceback leads to this frame: no circle
            if index < 0:
                return
            extra = self.extra
            if extra is not None and extra.context is not None:
                extra = Extra({}, extra.context.copy())
            outcome = call(self.fn, items[index], extra)
            items[index] = None

    def _advance(self, index: int, stop: int, turn: int, outcome: Any) -> tuple[int, int, int]:
        """Write the outcome of call `index`, and choose the next one; -1 if there is none, or others have a claim."""
        if gate.inside > 0:
            gate.stand_back()
        gate.inside += gate.step
        try:
            with _lock:
                if index >= 0:
                    self._write(index, outcome)
                if self.lost is not None:
                    return -1, 0, turn
                if index + 1 < stop:
                    self.making[index + 1] = _local.worker.task
                    return index + 1, stop, turn
                if self.cursor >= len(self.items) or (turn and self._is_due(turn)):
                    return -1, 0, turn
                start = self.cursor
                self.cursor = stop = min(start + self.grain, len(self.items))
                self.making[start] = _local.worker.task
                return start, stop, turn + 1
        finally:
            gate.inside -= gate.step

    def _write(self, index: int, outcome: Any) -> None:
        if self.abandoned and isinstance(outcome, Failure):
            outcome.asked = True
        self.outcomes[index] = outcome
        self.making.pop(index, None)
        if self.spots and index in self.spots:
            for parker in self.spots.pop(index).sleepers:
                parker.unpark()

    def _is_due(self, turn: int) -> bool:
        """Has something in the injector a claim to this worker now?"""
        order = self.core.injector.order
        processor = _local.worker.processor
        if turn % FAIR == 0 and processor is not None and (order or processor.inbox):
            processor.tick = -1  # the next dispatch looks there first
            return True
        return bool(order) and order[-1] > max(self.priority, 0)

    def _lose(self, runner: Future) -> None:
        """A runner has ended; if it never ran, the calls that are left have no result."""
        if runner.cancelled() or runner.exception() is not None:
            self._end(CancelledError() if runner.cancelled() else runner.exception())

    def _end(self, error: BaseException | None) -> None:
        with _lock:
            self.lost = self.lost or error
            self.cursor = len(self.items)
            sleepers = [parker for spot in self.spots.values() for parker in spot.sleepers]
            for parker in sleepers:
                parker.unpark()

    def _is_over(self, index: int) -> bool:
        return self.outcomes[index] is not _UNSET or self.lost is not None

    def result(self, index: int, timeout: float | None = None) -> Any:
        if not self._is_over(index):
            if self.generation != self.core.generation:
                self.lost = ForkedError("these calls belong to the parent process; make them anew in the child")
            with _lock:
                spot = self.spots.setdefault(index, Side())
            if not await_(spot, _Makers(self, index), True, partial(self._is_over, index), timeout):
                raise TimeoutError
        outcome = self.outcomes[index]
        if outcome is _UNSET:
            outcome = Failure(fresh_copy(self.lost or CancelledError()), asked=True)
        else:
            self.outcomes[index] = None
        if not isinstance(outcome, Failure):
            return outcome
        outcome.asked = True
        try:
            raise outcome.error
        finally:
            del outcome, self  # the error's traceback leads to this frame: no circle

    def cancel(self) -> None:
        self.abandoned = True
        self._end(CancelledError())
        for runner in self.runners:
            runner.cancel()
        with _lock:
            for outcome in self.outcomes:
                if isinstance(outcome, Failure):
                    outcome.asked = True


class _Makers:
    """Whom somebody who waits for a call waits for: its runner; while it has none, the one that is still in a queue."""

    def __init__(self, bulk: Bulk, index: int) -> None:
        self.bulk = bulk
        self.index = index

    def __iter__(self) -> Iterator[Future]:
        maker = self.bulk.making.get(self.index)
        return iter((maker,) if maker is not None else [task for task in self.bulk.runners if task._state == PENDING])


class blocking:
    """See the contract."""

    def __init__(self) -> None:
        self._entered: list[tuple[Worker, bool]] = []  # who is inside, once for each time; did it give a processor up

    def __enter__(self) -> None:
        worker = _local.worker
        if worker is None:
            return
        worker.raise_shield()
        try:
            with _lock:
                gave, helper = worker.core.give_up(worker)
                self._entered.append((worker, gave))
            if helper is not None:
                worker.core.start(helper)
        finally:
            worker.lower_shield()

    def __exit__(self, *error: object) -> None:
        worker = _local.worker
        if worker is None:  # as in a forked child
            return
        with _lock:
            own = [at for at, entry in enumerate(self._entered) if entry[0] is worker]
            if own and self._entered.pop(own[-1])[1]:  # else it was entered in another thread
                worker.core.take_back(worker)


class isolate:
    """See the contract."""

    def __enter__(self) -> None:
        if _local.worker is not None:
            _local.worker.isolated += 1

    def __exit__(self, *error: object) -> None:
        if _local.worker is not None:
            _local.worker.isolated -= 1


def checkpoint() -> None:
    worker = _local.worker
    if worker is not None:
        worker.checkpoint()


def current_engine() -> Engine | None:
    worker = _local.worker
    return None if worker is None else worker.core.engine()


def current_future() -> Future | None:
    worker = _local.worker
    return None if worker is None else worker.task


def engines() -> list[Engine]:
    with _lock:
        return [engine for core in tuple(cores) if (engine := core.engine()) is not None]


def report_lost() -> None:
    report_overdue()
    with _lock:
        lost = [failure for there in failures if isinstance(failure := there(), Unasked)]
    for failure in lost:
        failure.report()


def main_ended() -> None:
    MainThread.ended = True
    for core in tuple(cores):
        core.refusing = True


def before_fork() -> None:
    _lock.acquire()


def after_fork_in_parent() -> None:
    _lock.release()


def after_fork_in_child() -> None:
    _lock._at_fork_reinit()  # type: ignore[attr-defined]
    gate.inside = 0
    insistence.forget()
    _local.worker = None
    for core in tuple(cores):
        orphans = core.unfinished()
        for worker in core.workers:
            worker.processor = worker.parker.worker = None
        core.generation += 1
        core.forget()
        for task in orphans:
            if task._side is not None:
                task._side.condition = None
                task._side.sleepers.clear()
            error = ForkedError("the task belongs to the parent process; submit it anew in the child")
            task._close(task._state, FINISHED, Failure(error, asked=True))
