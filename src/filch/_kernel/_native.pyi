"""The kernel contract.  `_native` (C) and `_pure` (Python) offer exactly these names, signatures and behaviours.

What crosses the border: callables and their arguments going in, futures and plain numbers coming out.  The worker loop,
the life of a future and every wait are the kernel's own, so that a native kernel runs no Python between two tasks.
`Engine` is made to be the base class of `filch.Pool`: its `submit` is then the pool's, with nothing in between.
"""

import concurrent.futures
import threading
from collections.abc import Callable, Generator, Sequence
from types import TracebackType
from typing import Any, Generic, ParamSpec, TypeVar, final

_T = TypeVar("_T")
_P = ParamSpec("_P")

implementation: str

class Future(concurrent.futures.Future[_T]):
    """Handle to the result of a task; task and future are one object.

    States, as in the standard library: PENDING -> RUNNING -> FINISHED, or PENDING -> CANCELLED_AND_NOTIFIED.  Exactly
    one caller moves a future out of each state.  A future made by hand (`Future()`) follows the standard library to
    the letter: cancelled, it stays CANCELLED until `set_running_or_notify_cancel()`.
    """

    def __init__(self) -> None: ...
    def interrupt(self) -> bool:
        """Cancel the task if it has not started, else ask it to stop; False when it has ended.

        A task with `force` gets an asynchronous exception, and another one every second until it ends.
        """
    def expire(self, error: BaseException) -> bool:
        """End the future now with `error`, and interrupt its task if it runs; False when it has ended."""
    def __await__(self) -> Generator[Any, None, _T]: ...

@final
class Bulk(Generic[_T]):
    """Calls of one function on many argument tuples, started in order, results kept by index."""

    def result(self, index: int, timeout: float | None = None) -> _T:
        """Wait for call `index`, hand its result over (once) or raise its error; TimeoutError after `timeout` s."""
    def cancel(self) -> None:
        """Start no further call, and expect nobody to ask for the results that are left."""

class Engine:
    """Workers, deques and injector of one pool.  Dropped, it finishes its queue and ends its threads.

    Names with an underscore are for `filch.pool`, which derives from this class.
    """

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
        """Make an engine without threads.

        start_thread: makes and starts a thread that runs its first argument; the second is the worker's number.
        prologue: run by each new worker; if it raises, the engine is broken (or, with `restart`, tries again).
        keep_alive: seconds that a worker above `max_workers` stays when idle.
        seed: of the random choice of victims.
        """
    def submit(self, fn: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs) -> Future[_T]: ...
    def _spawn(
        self,
        fn: Callable[..., _T],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
        *,
        priority: int = 0,
        context: bool = True,
        name: str | None = None,
        force: bool = False,
        alarm: Callable[[], Callable[[], None]] | None = None,
    ) -> Future[_T]:
        """Submit with a policy: see `Pool.options`.

        alarm: called in the worker when the task starts; what it returns is called when the task ends.
        """
    def _submit_bulk(
        self,
        fn: Callable[..., _T],
        items: Sequence[tuple[Any, ...]],
        *,
        priority: int = 0,
        context: bool = True,
        grain: int = 1,
    ) -> Bulk[_T]:
        """Call `fn(*item)` for every item, `grain` of them at a time."""
    def _broadcast(self, fn: Callable[..., _T], args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Future[_T]]:
        """One task for each processor, run by whoever holds it."""
    def _resize(self, max_workers: int, max_threads: int) -> None:
        """Add processors now, or take them away as their workers finish what they run."""
    def _close(self) -> None:
        """Refuse tasks from outside; when the last task has ended, workers end."""
    def _cancel_pending(self) -> int:
        """Close, refuse tasks from running tasks too, and cancel what has not started; how many were cancelled."""
    def wait_idle(self, timeout: float | None = None) -> bool:
        """Wait until no task is queued or running; False after `timeout` seconds."""
    def _unfinished(self) -> list[Future[Any]]:
        """Futures that have no end yet: running ones first, then queued ones."""
    def _live_threads(self) -> list[threading.Thread]: ...
    def _counters(self) -> dict[str, int]:
        """Numbers for `Pool.statistics()`."""
    @property
    def max_workers(self) -> int: ...
    @property
    def _closed(self) -> bool: ...
    @property
    def _breakage(self) -> BaseException | None:
        """The error of the prologue that broke the engine."""

class blocking:
    """Context manager: the processor is given away inside the block and taken back after it."""

    def __enter__(self) -> None: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None: ...

class isolate:
    """Context manager: waits inside the block run no other task on this stack."""

    def __enter__(self) -> None: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None: ...

class unlocked:
    """Context manager: inside the block this thread holds no lock of the kernel.

    For code that waits by other means than the kernel's, and may be called by a signal handler or a destructor.
    """

    def __enter__(self) -> None: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None: ...

def checkpoint() -> None:
    """Raise `Cancelled` in a task that was asked to stop; else, and outside a task, do nothing."""

def current_engine() -> Engine | None:
    """The engine whose worker this thread is."""

def current_future() -> Future[Any] | None:
    """The future of the task that this thread runs."""

def engines() -> list[Engine]:
    """The engines that are alive in this process."""

def report_lost() -> None:
    """Log the errors that nobody has asked for so far."""

def main_ended() -> None:
    """From now on the main thread's submissions are refused: the interpreter is on its way out."""

def before_fork() -> None: ...
def after_fork_in_parent() -> None: ...
def after_fork_in_child() -> None:
    """Forget the parent's threads; futures that were pending or running end with `ForkedError`."""
