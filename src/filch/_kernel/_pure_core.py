"""The pure kernel's engine without its face: who runs what and when.

Everything is guarded by `_lock`, so a search for work is one step, and `searching` counts the workers that have been
called and have not come yet.  Steps and races: native/README.md; the rules for this code: head of `_pure_future`.
"""

from __future__ import annotations

import random
import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import _base
from contextlib import suppress
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any

from filch._kernel._common import broken_error, no_thread, warn_of_threads
from filch._kernel._pure_future import (
    PENDING,
    Failure,
    Future,
    Parker,
    _local,
    _lock,
    gate,
    overdue,
    report_overdue,
)
from filch._kernel._pure_worker import Frame, Injector, Processor, Worker
from filch.exceptions import PoolShutdown

if TYPE_CHECKING:
    from filch._kernel._pure import Engine

RING = 256  # tasks in a local deque; with one more, its oldest half moves to the injector
STEAL = 32  # tasks taken from a victim at most
BATCH = 128  # tasks taken from the injector at most
FAIR = 61  # every so many dispatches look at the injector first; every so many of its takes serve the oldest task
HELP_DEPTH = 64  # tasks that may lie on top of each other on one stack
RESERVE = 60  # frames that a task needs that is run on top of another one, until its own code and after it
RESTARTS = 3  # tries in a row to run a prologue that fails, with `restart`

cores: weakref.WeakSet[Core] = weakref.WeakSet()


class MainThread:
    """Has the main thread come to its end?  Then the interpreter is on its way out."""

    ended = False


class Core:
    """An engine without its face: what the workers hold on to."""

    def __init__(self, **options: Any) -> None:
        self.lifo: bool = options["lifo"]
        self.max_threads: int = options["max_threads"]
        self.keep_alive: float = options["keep_alive"]
        self.start_thread: Callable[[Callable[[], None], int], threading.Thread] = options["start_thread"]
        self.prologue: Callable[[], object] | None = options["prologue"]
        self.restart: bool = options["restart"]
        self.random = random.Random(options["seed"])
        self.engine: Callable[[], Engine | None] = lambda: None
        self.root = Frame(self, None)
        self.closed = self.draining = self.warned = False
        self.barren = False  # the last attempt to start a thread failed
        self.broken: BaseException | None = None
        self.refusing = MainThread.ended
        self.max_workers: int = options["max_workers"]
        self.submitted = self.steals = self.stolen = self.spilled = 0
        self.parks = self.wakes = self.handoffs = self.threads_started = 0
        self.generation = 0
        self.forget()
        with _lock:
            cores.add(self)

    def forget(self) -> None:
        """Be as new, without threads and tasks."""
        self.injector = Injector()
        self.processors = [Processor(number) for number in range(self.max_workers)]
        self.free = list(self.processors[::-1])  # processors that no worker holds
        self.laden: list[Processor] = []  # may have something in queue or inbox; nobody else has
        self.posted = False  # one of them may have mail
        self.surplus = 0  # processors to take away
        self.workers: list[Worker] = []
        self.sleepers: list[Worker] = []  # without work; the last has slept shortest
        self.excess: list[Worker] = []  # run a task without a processor, back from a block
        self.searching = 0
        self.coming: list[Worker] = []  # recruited, and to be started by whoever gets round to it
        self.watchers: list[Parker] = []  # wait until the engine is idle
        self.ended = False

    # Submitting.

    def admit(self, task: Future, priority: int = 0, owed: bool = False) -> None:
        """Queue a task.  One that is `owed` carries on with what was submitted earlier, so shutdown lets it in."""
        worker = _local.worker
        helper = None
        if gate.inside > 0:
            gate.stand_back()
        try:
            gate.inside += gate.step
            try:
                with _lock:
                    if self.refusing and not (owed and self.draining):
                        self._refuse(worker)
                    self.submitted += 1
                    if worker is None or worker.core is not self or worker.task is None:
                        task._home = self.root
                        self.injector.push(task, priority)
                    else:
                        task._home = worker.open_frame()
                        self._push(worker.processor, task, priority)
                    if self.free:
                        helper = self.recruit()
                    if self.ended:  # a signal handler has shut it down since the first look
                        self._refuse(None)
            finally:
                gate.inside -= gate.step
            if helper is not None:
                self.start(helper)
        except BaseException as error:
            if self._take_out(task, error):
                raise

    def _take_out(self, task: Future, error: BaseException) -> bool:
        """Leave nothing half done, whatever came in between; True if the task will not run and `error` says why."""
        if task._home is None:
            return True  # it was refused
        out = task.cancel() or task.done() or not isinstance(error, Exception)
        self.go_on()
        return out

    def go_on(self) -> None:
        """Clear away what has ended, and call somebody for what has not: an exception may have come in between."""
        with _lock:
            self._sweep()
            helper = self.recruit() if self.coming or (self.free and self.visible()) else None
            self._ends(None)
        if helper is not None:
            self.start(helper)

    def _push(self, processor: Processor | None, task: Future, priority: int) -> None:
        if processor is None or priority:
            self.injector.push(task, priority)
            return
        queue = processor.queue
        if len(queue) >= RING:
            for _ in range(RING // 2):
                if queue:  # a destructor that waits may have come in
                    self.injector.push(queue.popleft())
            self.spilled += RING // 2
        queue.append(task)
        if not processor.laden:
            self._load(processor)

    def _load(self, processor: Processor) -> None:
        """After something was put into its queue or inbox, so that a search walks no processor in vain."""
        if not processor.laden:
            processor.laden = True
            self.laden.append(processor)

    def _refuse(self, worker: Worker | None) -> None:
        if self.broken is not None:
            raise broken_error(self.broken)
        if self.closed and not (self.draining and self._may_still_spawn(worker)):
            raise PoolShutdown("cannot schedule new futures after shutdown; keep the pool open until its last submit")
        if MainThread.ended and threading.current_thread() is threading.main_thread():
            raise PoolShutdown("cannot schedule new futures after interpreter shutdown; submit before the program ends")

    def _may_still_spawn(self, worker: Worker | None) -> bool:
        """After shutdown, fork-join goes on: a task may spawn if it came from outside or a task above it still runs.

        A task that is its own successor may not, so the end comes.
        """
        if worker is None or worker.core is not self or worker.task is None:
            return False
        return worker.home is self.root or worker.home.living() is not self.root

    # Calling workers and putting them to sleep.

    def visible(self) -> bool:
        """Is there work that any worker with a processor may take?"""
        if self.injector.order:
            return True
        return self._is_laden() or (self.posted and self._has_post())

    def _is_laden(self) -> bool:
        laden = self.laden
        while laden:
            processor = laden[-1]
            if processor.queue or processor.inbox:
                return True
            processor.laden = False  # first: a handler that comes before the next step enters it anew
            laden.pop()
        return False

    def _has_post(self) -> bool:
        """Is there mail for a processor that nobody holds?"""
        self.posted = False  # first: a handler may come with mail
        if any(processor.mail for processor in self.processors):
            self.posted = True
        return self.posted and any(processor.mail for processor in self.free)

    def recruit(self, every: bool = False) -> Worker | None:
        """Call one worker for work that became visible; if a new thread is to come, it is returned for `start`.

        Nobody is called while another is on its way, unless `every`; new threads come while more tasks wait than that.
        """
        if self.coming and not every:
            return self.coming[-1]
        if self.searching >= len(self.free):
            return None
        if self.sleepers:
            if every or not self.searching:
                self._wake()
            return None
        queued = len(self.injector) + (self._is_laden() or (self.posted and any(p.mail for p in self.processors)))
        if (self.searching and self.searching >= queued and not every) or len(self.workers) >= self.max_threads:
            return None
        taken = {worker.number for worker in self.workers}
        worker = Worker(self, next(number for number in range(len(taken) + 1) if number not in taken))
        _local.starting.append(worker)
        self.threads_started += 1
        self.searching += 1
        self.coming.append(worker)
        self._enter(worker)  # a handler may have come in between, and have started it
        return worker

    def _enter(self, worker: Worker) -> None:
        """Once in its life."""
        if not worker.entered:
            worker.entered = True
            self.workers.append(worker)

    def _recruit_all(self, number: int) -> list[Worker]:
        for _ in range(number):
            self.recruit(every=True)
        return list(self.coming)

    def _wake(self) -> None:
        if self.sleepers:
            worker = self.sleepers[-1]
            parker = worker.parker
            token = parker.armed  # else it is awake, and about to look whether it was called
            self.wakes += 1
            self.searching += 1
            worker.called = True
            parker.armed = False
            del self.sleepers[-1]
            if token:
                try:  # as in `Parker.unpark`
                    parker.lock.release()
                except RuntimeError:
                    pass

    def start(self, worker: Worker) -> bool:
        """Start the thread of a worker that `recruit` gave, if nobody else has done it; False if none is to be had.

        Raises what the start raised if there is no other thread to go on with.
        """
        mine = False
        try:
            with _lock:
                self._enter(worker)
                if worker not in self.coming:
                    return True
                mine = True
                self.coming.remove(worker)
            worker.thread = self.start_thread(worker.main, worker.number)
            self.barren = False
            return True
        except BaseException as error:
            with _lock:
                if worker.ident is not None or not mine or worker not in self.workers:
                    raise  # it did start, or another thread is at it, or it has been replaced
                self._forsake(worker)
                alone, warned, self.warned, self.barren = not self.workers, self.warned, True, True
            if alone or not isinstance(error, RuntimeError | OSError | MemoryError):
                if isinstance(error, Exception):
                    self._end_queued(partial(no_thread, error))
                raise
            if not warned:
                warn_of_threads(error, len(self.workers))
            return False
        finally:
            if worker in _local.starting:
                _local.starting.remove(worker)

    def replace(self, worker: Worker) -> None:
        """The thread that is to start a worker, or is in the middle of it, is about to wait, maybe for that worker."""
        with _lock:
            halfway = worker not in self.coming
            if worker.ident is not None or (halfway and worker not in self.workers):
                return
            if halfway:
                self._forsake(worker)  # its thread, if it still comes, ends at once
        with suppress(Exception):  # if there is no thread to be had, what is queued has ended with the error
            if halfway:
                self.go_on()
            else:
                self.start(worker)

    def _forsake(self, worker: Worker) -> None:
        """A recruit that could not be started does not come.  Under the lock."""
        if worker in self.coming:
            self.coming.remove(worker)
        if worker in self.workers:
            self.searching -= 1
            self.threads_started -= 1
            self.workers.remove(worker)
        if self.sleepers and not self.searching and self.visible():
            self._wake()
        self._ends(None)

    def begin_thread(self, worker: Worker) -> bool:
        """Run the prologue; if it fails, end with error what is queued, and False."""
        for attempt in range(1, RESTARTS + 1):
            try:
                if self.prologue is not None:
                    self.prologue()
                return True
            except BaseException as error:
                _base.LOGGER.critical("Exception in initializer:", exc_info=True)
                if not self.restart or attempt == RESTARTS:
                    self._give_way(worker, error)
                    break
        return False

    def _give_way(self, worker: Worker, error: BaseException) -> None:
        with _lock:
            doomed = self.queued()
            if not self.restart:
                self.broken = error
                self.refusing = self.closed = True
        self._end_queued(partial(broken_error, error), doomed)
        with _lock:
            self._leave(worker)
            helper = self.recruit() if self.visible() else None
        self._start_all([helper])

    def _end_queued(self, error: Callable[[], Exception], doomed: Sequence[Future] | None = None) -> None:
        """End what is queued, and nobody can run, each task with an error of its own."""
        if doomed is None:
            with _lock:
                doomed = self.queued()
        for task in doomed:
            task._finish(Failure(error(), asked=True))
        with _lock:
            self._sweep()

    def next(self, worker: Worker) -> bool:
        """Begin the next task of a worker that has none; sleeps until there is one.  False: the thread is to end."""
        while True:
            helper = None
            if gate.inside > 0:
                gate.stand_back()
            gate.inside += gate.step
            try:
                with _lock:
                    if worker.processor is None:
                        if worker not in self.workers:
                            return False  # a forked child has forgotten it
                        self._arrive(worker)
                    found = self.find(worker)
                    if not found:
                        patience = self._rest(worker)
                    elif self.free and not self.searching and self.visible():
                        helper = self.recruit()
            finally:
                gate.inside -= gate.step
            if found:
                if helper is not None:
                    self.start(helper)
                return True
            if patience is None:
                return False
            if patience >= 0 and not self._doze(worker, patience):
                return False

    def _doze(self, worker: Worker, patience: float) -> bool:
        """Sleep until called.  False: its patience is over, and its thread is to end."""
        if overdue:
            report_overdue()
        worker.parker.park(None if patience == inf else patience)
        return patience == inf or not self._retires(worker)

    def _rest(self, worker: Worker) -> float | None:
        """Announce that a worker sleeps: for how many seconds at most, less than 0 to look again, None to end."""
        self.parks += 1
        gate.inside = max(gate.inside, 0)  # advice that has drifted is lost here, at the latest
        self._release(worker)
        worker.parker.arm()
        self.sleepers.append(worker)
        if self.free and not self.searching and self.visible():
            return -1.0
        if self._ends(worker):
            return None
        if not worker.parker.armed or worker not in self.sleepers:
            return -1.0  # a destructor that waits has come in between
        return self.keep_alive if len(self.workers) > self.max_workers else inf

    def _arrive(self, worker: Worker) -> None:
        if worker.called:
            worker.called = False
            self.searching -= 1
        elif worker in self.sleepers:
            self.sleepers.remove(worker)
            worker.parker.disarm()

    def rouse(self, worker: Worker) -> None:
        """It has to wait for something before it sleeps: another one is called, if it was; its sleep ends at once."""
        with _lock:
            self._arrive(worker)
            worker.parker.arm()
            worker.parker.unpark()
        self.go_on()

    def _leave(self, worker: Worker) -> None:
        self._release(worker)
        self._arrive(worker)
        self.workers.remove(worker)
        self._ends(None)

    def _retires(self, worker: Worker) -> bool:
        with _lock:
            retires = worker in self.sleepers and len(self.workers) > self.max_workers
            if retires:
                self._leave(worker)
            return retires

    def _ends(self, worker: Worker | None) -> bool:
        """Tell who waits for it if the engine is idle; True if it is over, and `worker` has been taken off."""
        if not self.ended and self.is_idle():
            for parker in self.watchers:
                parker.unpark()
            self.ended = self.closed
        if self.ended and worker is not None:
            self._arrive(worker)
            self.workers.remove(worker)
        while self.ended and self.sleepers:
            self._wake()
        return self.ended

    # Finding work.

    def find(self, worker: Worker) -> bool:
        """Begin a task: one that is due first, else the worker's own, else from the injector, else a stolen one."""
        processor = worker.processor
        if processor is None or self.excess or self.surplus:
            processor = self._processor_for(worker)
            if processor is None:
                return False
        processor.tick += 1
        queue, inbox, order = processor.queue, processor.inbox, self.injector.order
        if processor.mail or (order and order[-1] > 0):
            if self._find_urgent(worker, processor):
                return True
        elif processor.tick % FAIR == 0 and self._find_outside(worker, processor):
            return True
        while queue or inbox:
            task = (queue.pop() if self.lifo else queue.popleft()) if queue else inbox.popleft()
            if worker.begin(task):
                return True
        if order and self._find_outside(worker, processor):
            return True
        if len(self.processors) == 1 or not self.visible():
            return False
        return self._steal(worker, processor) or self._find_posted(worker)

    def _processor_for(self, worker: Worker) -> Processor | None:
        """The processor with which a worker without a task goes on, or None if it has to make room."""
        if worker.processor is None:
            if worker in self.excess:
                self.excess.remove(worker)
            if not self.free:
                return None
            with_mail = [at for at, other in enumerate(self.free) if other.mail] if self.posted else ()
            worker.processor = self.free.pop(with_mail[-1] if with_mail else -1)
        processor = worker.processor
        if self.excess:  # one task too many is running: its worker gets this processor
            self.excess[0].processor = processor
            worker.processor = None
            del self.excess[0]
            return None
        if self.surplus:
            self._release(worker)
            return None
        return processor

    def _find_urgent(self, worker: Worker, processor: Processor) -> bool:
        while processor.mail:
            if worker.begin(processor.mail.popleft()):
                return True
        order = self.injector.order
        while order and order[-1] > 0:
            neglected = (processor.inbox or processor.queue) if processor.tick % FAIR == 0 else None
            if worker.begin(neglected.popleft()) if neglected else self._find_injected(worker):
                return True
        return False

    def _find_injected(self, worker: Worker) -> bool:
        injector = self.injector
        injector.takes += 1
        task = injector.take(oldest=injector.takes % FAIR == 0)
        return task is not None and worker.begin(task)

    def _find_outside(self, worker: Worker, processor: Processor) -> bool:
        """The next task of the batch at hand; after its last one, take the next batch.

        Only priority 0 comes in batches of more than one: what is in the inbox is overtaken by what is above 0 alone.
        """
        injector, inbox = self.injector, processor.inbox
        while inbox or injector.order:
            if inbox:
                found = worker.begin(inbox.popleft())
            else:
                lane = injector.lanes.get(0)
                share = min(BATCH - 1, len(lane) // len(self.processors)) if lane else 0
                found = self._find_injected(worker)
                if lane and injector.order[-1] == 0:
                    share = min(share, len(lane))
                    inbox.extend(task for _ in range(share) if (task := injector.take()) is not None)
                    self._load(processor)
            if found:
                return True
        return False

    def _steal(self, worker: Worker, processor: Processor) -> bool:
        """Take the oldest half of what a victim has, and run the newest of it."""
        size = len(self.processors)
        start = self.random.randrange(size)
        for victim in sorted(self.laden, key=lambda other: (other.number - start) % size):
            for queue, mine in ((victim.queue, processor.queue), (victim.inbox, processor.inbox)):
                while queue and victim is not processor:
                    loot = [queue.popleft() for _ in range(min(STEAL, (len(queue) + 1) // 2)) if queue]
                    self.steals += 1
                    self.stolen += len(loot)
                    mine.extend(loot)
                    self._load(processor)
                    while mine:
                        task = mine.pop() if mine is processor.queue and self.lifo else mine.popleft()
                        if worker.begin(task):
                            return True
        return False

    def _find_posted(self, worker: Worker) -> bool:
        """Nothing is left but mail for a processor that nobody holds and nobody is on the way to: change over to it."""
        if self.posted and not self.searching and self._has_post():
            self._release(worker)
            return self.find(worker)
        return False

    # Waiting and blocking.

    def help(self, worker: Worker, awaited: Iterable[Any], prompt: bool) -> bool:
        """Begin what a waiting worker runs meanwhile: a task that it awaits, else a descendant of its own task.

        prompt: it is to come back as soon as something is so, and must not lie under a task that takes long.
        """
        if worker.isolated:
            return False
        others = prompt or worker.processor is None or len(worker.stack) >= HELP_DEPTH or _is_deep()
        if others and self._has_relief():
            return False
        if _is_deep(RESERVE):
            raise RecursionError("no room on the stack for the task that is waited for; wait for it less deep")
        for future in awaited:
            if self._is_waiting_here(future) and worker.begin(future, nested=True):
                self._trim(worker)
                return True
        return worker.frame is not None and self._find_descendant(worker)

    def _is_waiting_here(self, future: Any) -> bool:
        """Is it a task of this engine that has not started?"""
        return (
            isinstance(future, Future)
            and future._state == PENDING
            and type(future._home) is Frame
            and future._home.core is self
        )

    def _has_relief(self) -> bool:
        """Is there a thread, or may there be one, to take over the processor of one that sleeps?"""
        return bool(self.sleepers) or (len(self.workers) < self.max_threads and not self.barren)

    def _find_descendant(self, worker: Worker) -> bool:
        own = [] if worker.processor is None else [worker.processor]
        queues = [queue for processor in own + self.laden for queue in (processor.queue, processor.inbox)]
        if not self._has_relief():
            queues += self.injector.lanes.values()  # it may be long, and is searched only when nobody can take over
        for queue in queues:
            for task in reversed(list(queue)):
                frame = task._home if task._state == PENDING else None
                while frame is not None and frame is not worker.frame:
                    frame = frame.above
                if frame is not None and worker.begin(task, nested=True):
                    self._trim(worker)
                    return True
        return False

    def _trim(self, worker: Worker) -> None:
        """Drop what was begun elsewhere from the end of the own deque."""
        queue = worker.processor.queue if worker.processor is not None else ()
        while queue and queue[-1]._state != PENDING:
            queue.pop()

    def give_up(self, worker: Worker, awaited: Iterable[Any] = ()) -> tuple[bool, Worker | None]:
        """Let go of the processor before a block: (is there something to take back, a worker to start).

        Who takes it over runs what is awaited first: a stranger might want a lock that the waiting one holds.
        """
        if worker.processor is None:
            if worker not in self.excess:
                return False, None
            self.excess.remove(worker)
            return True, None
        mail = worker.processor.mail
        there = set(map(id, list(mail)))
        mail.extend(future for future in awaited if self._is_waiting_here(future) and id(future) not in there)
        self.posted = self.posted or bool(mail)
        self._release(worker)
        self.handoffs += 1
        return True, self.recruit() if self.visible() else None

    def take_back(self, worker: Worker) -> None:
        """After a block: a processor if one is free, else run in excess until another worker stands down.

        It may have one: a block may be left in another task than it was entered in.
        """
        if worker.processor is not None or worker in self.excess:
            return
        if self.free:
            worker.processor = self.free.pop()
        else:
            self.excess.append(worker)

    def _release(self, worker: Worker) -> None:
        processor = worker.processor
        if processor is None:
            return
        worker.processor = None
        if self.surplus:
            self.surplus -= 1
            self._dismiss(processor)
        else:
            self.free.append(processor)

    # Size and end.

    def resize(self, max_workers: int, max_threads: int) -> None:
        with _lock:
            self.max_threads = max_threads
            change = max_workers - len(self.processors)
            self.max_workers = max_workers
            self.surplus = max(-change, 0)
            for _ in range(change):
                self.processors.append(Processor(len(self.processors)))
                self.free.append(self.processors[-1])
            while self.surplus and self.free:
                self.surplus -= 1
                self._dismiss(self.free.pop())
            helpers = self._recruit_all(change) if self.visible() else []
            for _ in self.sleepers[max_workers - len(self.workers) :] if len(self.workers) > max_workers else ():
                self._wake()  # to learn that its patience has a limit now
        self._start_all(helpers)

    def _dismiss(self, processor: Processor) -> None:
        self.processors.remove(processor)
        for task in (*processor.mail, *processor.inbox, *processor.queue):
            self.injector.push(task)
        processor.inbox.clear()
        processor.queue.clear()

    def _start_all(self, workers: Sequence[Worker | None]) -> None:
        for worker in workers:
            if worker is not None:
                self.start(worker)

    def broadcast(self, make: Callable[[], Future]) -> list[Future]:
        with _lock:
            if self.refusing:
                self._refuse(_local.worker)
            tasks = [make() for _ in self.processors]
            self.submitted += len(tasks)
            for task, processor in zip(tasks, self.processors, strict=True):
                task._home = self.root
                processor.mail.append(task)
                self.posted = True
            helpers = self._recruit_all(len(self.free))
        self._start_all(helpers)
        return tasks

    def close(self, drain: bool) -> None:
        """Refuse tasks from outside and, without `drain`, from inside; end when the last one has ended."""
        with _lock:
            helper = self._close(drain)
        self._start_all([helper])

    def _close(self, drain: bool) -> Worker | None:
        self.draining = drain and (self.draining or not self.closed)
        self.closed = self.refusing = True
        helper = self.recruit() if self.visible() or self.coming else None
        self._ends(None)
        return helper

    def abandon(self) -> None:
        """Close, called by a destructor: it may run anywhere, so it starts no thread and does not wait for ever."""
        if not self.closed and _lock.acquire(timeout=1):
            try:
                self._close(drain=True)
            finally:
                _lock.release()

    def cancel_pending(self) -> int:
        """All are cancelled before the first callback runs, which might let a worker on to the next of them.

        They are cancelled where they lie, so that none is lost if a signal handler raises on the way.
        """
        self.close(drain=False)
        with _lock:
            queued = self.queued()
        cancelled: list[Future] = []
        try:
            cancelled.extend(task for task in queued if task._drop())
        finally:
            errors: list[BaseException] = []
            for task in cancelled:
                try:
                    task._tell()
                except BaseException as error:  # a callback's
                    errors.append(error)
            with _lock:
                self._sweep()
                self._ends(None)
            if errors:
                raise errors[0]
        return len(cancelled)

    def _sweep(self) -> None:
        """Drop what has ended from the heads of the queues, so that what is visible is work."""
        self.injector.sweep()
        for queue in (queue for p in self.processors for queue in (p.mail, p.inbox, p.queue)):
            while queue and queue[0]._state != PENDING:
                queue.popleft()

    def queued(self) -> list[Future]:
        """The tasks that have not started.  Under the lock."""
        lanes = list(self.injector.lanes.values())
        queues = [*lanes, *(queue for p in self.processors for queue in (p.mail, p.inbox, p.queue))]
        return [task for queue in queues for task in list(queue) if task._state == PENDING]

    def unfinished(self) -> list[Future]:
        with _lock:
            running = [task for worker in self.workers for task in (*(under[0] for under in worker.stack), worker.task)]
            return [task for task in running if task is not None and not task.done()] + self.queued()

    def is_idle(self) -> bool:
        return self.ended or (len(self.sleepers) == len(self.workers) and not self.coming and not self.visible())


def _is_deep(reserve: int | None = None) -> bool:
    """Are more than two thirds of the recursion limit, or all frames but `reserve`, in use on this thread?"""
    limit = sys.getrecursionlimit()
    try:
        sys._getframe(limit * 2 // 3 if reserve is None else max(limit - reserve, 0))
    except ValueError:
        return False
    return True
