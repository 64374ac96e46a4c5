"""The pool: the kernel's engine with the face of `concurrent.futures.ThreadPoolExecutor`."""

from __future__ import annotations

import asyncio
import operator
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from itertools import islice
from time import monotonic
from types import TracebackType
from typing import Any, TypeVar

from filch._kernel import Bulk, Engine, implementation
from filch.pool.cpus import default_workers
from filch.pool.crew import Crew
from filch.pool.mapping import bulk_results, check_map_arguments, future_results, submit_all
from filch.pool.options import Options, View, options_of, plain
from filch.pool.statistics import PoolStatistics

_T = TypeVar("_T")


def _at_least_one(name: str, value: Any, way_out: str) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be an integer, not {value!r}; {way_out}") from None
    if number < 1:
        raise ValueError(f"{name} must be greater than 0, not {number}; {way_out}")
    return number


def _seconds(name: str, value: Any) -> Any:
    if value is not None and not (isinstance(value, int | float) and value >= 0):
        raise ValueError(f"{name} must be seconds, 0 or more, not {value!r}; leave it out for no limit")
    return value


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
        way_out = "leave it out for one a usable CPU"
        workers = default_workers() if max_workers is None else _at_least_one("max_workers", max_workers, way_out)
        self._own_max_threads = max_threads is not None
        threads = _default_threads(workers)
        if max_threads is not None:
            threads = _at_least_one("max_threads", max_threads, "leave it out for min(512, 32 + 8 * max_workers)")
            if threads < workers:
                raise ValueError(f"max_threads must be at least max_workers, which is {workers}, not {threads}")
        if initializer is not None and not callable(initializer):
            raise TypeError(f"initializer must be a callable, not {initializer!r}")
        if order not in ("lifo", "fifo"):
            raise ValueError(f"order must be 'lifo' or 'fifo', not {order!r}")
        if on_broken not in ("raise", "restart"):
            raise ValueError(f"on_broken must be 'raise' or 'restart', not {on_broken!r}")
        if keep_alive is None:
            raise ValueError("keep_alive must be seconds, 0 or more, not None")
        self._thread_name_prefix = thread_name_prefix or "filch"
        self._exit_timeout = _seconds("exit_timeout", exit_timeout)
        self._crew = Crew(self, self._thread_name_prefix, daemon, exit_timeout)
        super().__init__(
            workers,
            lifo=order == "lifo",
            max_threads=threads,
            keep_alive=_seconds("keep_alive", keep_alive),
            seed=seed,
            start_thread=self._crew.start_thread,
            prologue=None if initializer is None else _Prologue(initializer, initargs),
            restart=on_broken == "restart",
        )

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
        deadline = None if timeout is None else monotonic() + timeout
        arguments = zip(*iterables, strict=False)
        options = options_of(through)
        if buffersize is not None:
            futures = submit_all(through, fn, islice(arguments, buffersize))
            return future_results(futures, deadline, lambda: submit_all(through, fn, islice(arguments, 1)))
        if not plain(options) or _submits_its_own_way(self) or _submits_its_own_way(through):
            return future_results(submit_all(through, fn, arguments), deadline)
        items = list(arguments)
        bulk: Bulk[_T] = self._submit_bulk(
            fn, items, priority=options.priority, context=options.context, grain=chunksize or 1
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
        workers = _at_least_one("max_workers", max_workers, "shut the pool down to end its threads")
        self._resize(
            workers, max(self._max_threads_now(), workers) if self._own_max_threads else _default_threads(workers)
        )

    def _max_threads_now(self) -> int:
        return self._counters()["max_threads"]

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
        _seconds("timeout", timeout)
        if cancel_futures:
            self._cancel_pending()
        else:
            self._close()
        if wait and threading.current_thread() not in self._crew.threads:
            self._crew.join(timeout)
        return list(self._unfinished())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self.shutdown(cancel_futures=kind is not None, timeout=self._exit_timeout)
        except KeyboardInterrupt:
            self.shutdown(cancel_futures=True, timeout=self._exit_timeout)
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
        await asyncio.wrap_future(ended)

    def __repr__(self) -> str:
        state = "broken" if self._breakage is not None else "shut down" if self._closed else "open"
        return f"<filch.Pool {self._thread_name_prefix!r} {state}, max_workers={self.max_workers}>"


class _Prologue:
    """An initializer with its arguments."""

    def __init__(self, initializer: Callable[..., object], initargs: tuple[Any, ...]) -> None:
        self.initializer = initializer
        self.initargs = initargs

    def __call__(self) -> None:
        self.initializer(*self.initargs)


def _submits_its_own_way(executor: Executor) -> bool:
    """Has somebody replaced `submit`, on the instance or in a subclass?  Then they want to see every call."""
    own = View.submit if isinstance(executor, View) else Pool.submit
    return "submit" in vars(executor) or getattr(type(executor), "submit", None) is not own
