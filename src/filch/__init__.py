"""filch: a work-stealing task runtime.  `Pool` is a `concurrent.futures.Executor` that cannot deadlock on itself."""

from filch._version import __version__
from filch.exceptions import (
    Cancelled,
    DeadlockError,
    FilchError,
    ForkedError,
    InternalError,
    PoolShutdown,
    TaskTimeout,
)
from filch.pool import (
    Future,
    Pool,
    blocking,
    checkpoint,
    current_pool,
    default_pool,
    isolate,
    spawn,
)

__all__ = [
    "Cancelled",
    "DeadlockError",
    "FilchError",
    "ForkedError",
    "Future",
    "InternalError",
    "Pool",
    "PoolShutdown",
    "TaskTimeout",
    "__version__",
    "blocking",
    "checkpoint",
    "current_pool",
    "default_pool",
    "isolate",
    "spawn",
]
