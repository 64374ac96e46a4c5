"""The pool: the kernel's engine with the face of `concurrent.futures.ThreadPoolExecutor`."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from functools import partial
from itertools import islice
from time import monotonic
from types import TracebackType
from typing import Any, TypeVar

from filch._kernel import Bulk, Engine, implementation
from filch.pool import checks
from filch.pool.cpus import default_workers
from filch.pool.crew import Crew
from filch.pool.mapping import bulk_results, check_map_arguments, future_results, submit_all
from filch.pool.options import Options, View, options_of, plain
from filch.pool.statistics import PoolStatistics

_T = TypeVar("_T")


def _default_threads(max_workers: int) -> int:
    return max(min(512, 32 + 8 * max_workers), max_workers)


class Pool(Engine, ThreadPoolExecutor):
    """A work-stealing thread pool; everywhere a `concurrent.futures.ThreadPoolExecutor` goes, it goes.

    A task may wait for tasks of its own pool: the wait runs them, or lends its place to another thread.

    max_workers: tasks that run at once; default FILCH_MAX_WORKERS, else the CPUs this process may use
    thread_name_prefix: threads are called `PREFIX_N`
    initializer, initargs: called by each thread before its first task; see `on_broken`
    order: of the tasks that a task submits: "lifo", newest first, or "fifo"
    max_threads: threads there may be while some of them wait inside a task; default min(512, 32 + 8 * max_workers)
    keep_alive: seconds that a thread above `max_workers` stays when it has nothing to do
    daemon: at interpreter exit, do not wait for what is queued or running
    on_broken: when an initializer raises: "raise", refuse tasks from then on, or "restart", try again
    exit_timeout: seconds that leaving `with` and interpreter exit wait at most; default for ever
    seed: of the random choice of whom to steal from

    Raises ValueError or TypeError for an argument that is out of range.
    """

    def __init__(
        self,
        max_workers: int | None = None,
        thread_name_prefix: str = "filch",
        initializer: Callable[..., object] | None = None,
        initargs: tuple[Any, ...] = (),
        *,
        order: str = "lifo",
        max_threads: int | None = None,
        keep_alive: float = 10.0,
        daemon: bool = False,
        on_broken: str = "raise",
        exit_timeout: float | None = None,
        seed: int | None = None,
    ) -> None:
        workers = default_workers() if max_workers is None else checks.count_of_workers(max_workers)
        threads = _default_threads(workers)
        self._own_max_threads = max_threads is not None
        if max_threads is not None:
            threads = checks.count("max_threads", max_threads, "leave it out for min(512, 32 + 8 * max_workers)")
            threads = min(threads, checks.MOST)
            if threads < workers:
                raise ValueError(f"max_threads must be at least max_workers, which is {workers}, not {threads}")
        if initializer is not None and not callable(initializer):
            raise TypeError(f"initializer must be a callable, not {initializer!r}")
        if not isinstance(initargs, tuple | list):
            raise TypeError(f"initargs must be a tuple of the initializer's arguments, not {initargs!r}")
        if keep_alive is None:
            raise TypeError("keep_alive must be a number of seconds, 0 or more, not None")
        patience = checks.seconds("keep_alive", keep_alive)
        self._thread_name_prefix = checks.text("thread_name_prefix", thread_name_prefix) or "filch"
        self._exit_timeout = checks.seconds("exit_timeout", exit_timeout)
        self._crew = Crew(self, self._thread_name_prefix, checks.flag("daemon", daemon), self._exit_timeout)
        super().__init__(
            workers,
            lifo=checks.one_of("order", order, "lifo", "fifo") == "lifo",
            max_threads=threads,
            keep_alive=threading.TIMEOUT_MAX if patience is None else patience,
            seed=None if seed is None else checks.whole("seed", seed),
            start_thread=self._crew.start_thread,
            prologue=None if initializer is None else partial(initializer, *initargs),
            restart=checks.one_of("on_broken", on_broken, "raise", "restart") == "restart",
        )
        self._crew.enlist()

    # What others read of a ThreadPoolExecutor.

    @property
    def _max_workers(self) -> int:  # type: ignore[override]
        return self.max_workers

    @property
    def _threads(self) -> set[threading.Thread]:  # type: ignore[override]
        return set(self._live_threads())

    @property
    def _broken(self) -> bool | str:  # type: ignore[override]
        return False if self._breakage is None else f"the initializer raised {self._breakage!r}"

    @property
    def _shutdown(self) -> bool:  # type: ignore[override]
        return self._closed

    # Submitting; `submit` is the kernel's.

    def options(self, **changes: Any) -> View:
        """A view of this pool, an executor too, whose tasks have the given options.

        priority: an int, larger runs sooner, default 0; first in, first out among equals
        timeout: seconds that a task may run; then its future ends with `TaskTimeout` and it is interrupted
        name: what the task is called in messages; default its function's name
        context: None to run without a copy of the submitter's context variables
        force: interrupt with an exception raised in the running code, not only at `filch.checkpoint()`

        Raises TypeError or ValueError for an option that does not exist or is out of range.
        """
        return View(self, Options().changed(changes))

    def map(
        self,
        fn: Callable[..., _T],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int | None = None,
        buffersize: int | None = None,
    ) -> Iterator[_T]:
        """The results of `fn` on the items of the iterables, in their order.

        timeout: seconds from now after which asking for a result raises TimeoutError and cancels the rest
        chunksize: calls that a worker takes at a time; default one, which shares out best
        buffersize: take no more than so many items that are not yet handed over; default all, at once

        The first error is raised in its place and cancels what has not started.
        Raises ValueError or TypeError for an argument that is out of range.
        """
        return self._map(self, fn, iterables, timeout, chunksize, buffersize)

    def _map(
        self,
        through: Executor,
        fn: Callable[..., _T],
        iterables: Sequence[Iterable[Any]],
        timeout: float | None,
        chunksize: int | None,
        buffersize: int | None,
    ) -> Iterator[_T]:
        check_map_arguments(fn, chunksize, buffersize)
        limit = checks.seconds_left("timeout", timeout)
        deadline = None if limit is None else monotonic() + limit
        arguments = zip(*iterables, strict=False)
        options = options_of(through)
        if buffersize is not None:
            futures = submit_all(through, fn, islice(arguments, min(buffersize, checks.MOST)))
            return future_results(futures, deadline, lambda: submit_all(through, fn, islice(arguments, 1)))
        if not plain(options) or _submits_its_own_way(self) or _submits_its_own_way(through):
            return future_results(submit_all(through, fn, arguments), deadline)
        items = list(arguments)
        bulk: Bulk[_T] = self._submit_bulk(
            fn, items, priority=options.priority, context=options.context, grain=min(chunksize or 1, checks.MOST)
        )
        return bulk_results(bulk, len(items), deadline)

    def broadcast(self, fn: Callable[..., _T], /, *args: Any, **kwargs: Any) -> list[Future[_T]]:
        """Call `fn(*args, **kwargs)` once on each of the `max_workers` workers; a future for each."""
        if not callable(fn):
            raise TypeError(f"broadcast() calls a function on every worker, and {fn!r} is not callable")
        return list(self._broadcast(fn, args, kwargs))

    # Size, state and end.

    def resize(self, max_workers: int) -> None:
        """Change how many tasks run at once; tasks that run go on."""
        workers = checks.count_of_workers(max_workers)
        kept = self._counters()["max_threads"] if self._own_max_threads else _default_threads(workers)
        self._resize(workers, max(kept, workers))

    def wait_idle(self, timeout: float | None = None) -> bool:
        """Wait until no task is queued or running; False when `timeout` seconds were not enough.

        Raises DeadlockError in a task of this pool, which would wait for itself.
        """
        return super().wait_idle(checks.seconds_left("timeout", timeout))

    def statistics(self) -> PoolStatistics:
        """A snapshot of what the pool does and has done."""
        c = self._counters()
        return PoolStatistics(
            kernel=implementation,
            max_workers=self.max_workers,
            threads=c["threads"],
            threads_idle=c["idle"],
            tasks_submitted=c["submitted"],
            tasks_running=c["running"],
            tasks_queued=c["injected"] + c["local"],
            tasks_spilled=c["spilled"],
            steals=c["steals"],
            tasks_stolen=c["stolen"],
            parks=c["parks"],
            wakes=c["wakes"],
            handoffs=c["handoffs"],
            threads_started=c["threads_started"],
        )

    def shutdown(  # type: ignore[override]
        self, wait: bool = True, *, cancel_futures: bool = False, timeout: float | None = None
    ) -> list[Future[Any]]:
        """Take no more tasks; the futures that have no end yet are returned.

        wait: until all tasks, those that running tasks still submit too, have ended, and the threads with them;
            a task or callback of this pool that shuts it down does not wait
        cancel_futures: cancel what has not started, and let running tasks submit no more
        timeout: seconds to wait at most
        """
        limit = checks.seconds_left("timeout", timeout)
        if cancel_futures:
            self._cancel_pending()
        else:
            self._close()
        if wait and threading.current_thread() not in self._crew.threads:
            deadline = None if limit is None else monotonic() + limit
            if self.wait_idle(limit):
                self._crew.join(None if deadline is None else max(deadline - monotonic(), 0))
        return list(self._unfinished())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self.shutdown(cancel_futures=kind is not None, timeout=self._exit_timeout)
        except KeyboardInterrupt:
            self._cancel_pending()
            raise

    async def __aenter__(self) -> Pool:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is not None:
            self._cancel_pending()
        ended: Future[None] = Future()

        def end() -> None:
            try:
                self.shutdown(timeout=self._exit_timeout)
            finally:
                ended.set_result(None)

        threading.Thread(target=end, name=f"{self._thread_name_prefix}-exit", daemon=True).start()
        try:
            await asyncio.shield(asyncio.wrap_future(ended))
        except asyncio.CancelledError:
            self._cancel_pending()
            raise

    def __repr__(self) -> str:
        state = "broken" if self._breakage is not None else "shut down" if self._closed else "open"
        return f"<filch.Pool {self._thread_name_prefix!r} {state}, max_workers={self.max_workers}>"


def _submits_its_own_way(executor: Executor) -> bool:
    """Has somebody replaced `submit`, on the instance or in a subclass?  Then they want to see every call."""
    return "submit" in vars(executor) or getattr(type(executor), "submit", None) not in _OWN_SUBMITS


_OWN_SUBMITS = (Engine.submit, View.submit)
