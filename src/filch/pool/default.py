"""The pool one has without making it."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import ParamSpec, TypeVar, cast

from filch._kernel import Future, current_engine
from filch.pool.pool import Pool

_T = TypeVar("_T")
_P = ParamSpec("_P")

_lock = threading.RLock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_lock._at_fork_reinit)  # type: ignore[attr-defined]
_default: Pool | None = None


def default_pool() -> Pool:
    """The pool of this process, made at the first call; after a shutdown, a new one."""
    global _default
    pool = _default
    if pool is None or pool._closed:
        with _lock:
            if _default is None or _default._closed:
                _default = Pool(thread_name_prefix="filch-default")
            pool = _default
    return pool


def current_pool() -> Pool | None:
    """The pool whose task runs here, or None outside a task."""
    return cast("Pool | None", current_engine())


def spawn(fn: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs) -> Future[_T]:
    """Submit to the current pool inside a task, else to the default pool."""
    return (current_pool() or default_pool()).submit(fn, *args, **kwargs)
