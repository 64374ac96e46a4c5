"""The policy of tasks, and the view of a pool that submits with it."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor
from dataclasses import dataclass, fields, replace
from math import isfinite
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from filch._kernel import Future
from filch.pool.deadline import run_timed

if TYPE_CHECKING:
    from filch.pool.pool import Pool

_T = TypeVar("_T")
_P = ParamSpec("_P")


def _name(fn: Callable[..., object]) -> str:
    return getattr(fn, "__qualname__", None) or type(fn).__qualname__


@dataclass(frozen=True, slots=True)
class Options:
    """See `Pool.options`."""

    priority: int = 0
    timeout: float | None = None
    name: str | None = None
    context: bool = True
    force: bool = False

    def changed(self, changes: dict[str, Any]) -> Options:
        """With some of them changed and checked; `context=None` counts as off."""
        known = [field.name for field in fields(self)]
        for option in changes:
            if option not in known:
                raise TypeError(f"options are {', '.join(known)}, not {option!r}")
        if changes.get("context", True) not in (None, False, True):
            raise TypeError(
                f"context must be True or None, not {changes['context']!r}; run a context in the task instead"
            )
        if "context" in changes:
            changes["context"] = bool(changes["context"])
        new = replace(self, **changes)
        try:
            operator.index(new.priority)
        except TypeError:
            raise TypeError(f"priority must be an integer, larger runs sooner, not {new.priority!r}") from None
        if new.timeout is not None and not (isfinite(new.timeout) and new.timeout > 0):
            raise ValueError(f"timeout must be more than 0 seconds, not {new.timeout!r}; leave it out for no limit")
        if new.name is not None and not isinstance(new.name, str):
            raise TypeError(f"name must be a string, not {new.name!r}")
        return new


class View(Executor):
    """A pool seen through some options: an executor whose tasks have them.  Made by `Pool.options`."""

    def __init__(self, pool: Pool, options: Options) -> None:
        self._pool = pool
        self._options = options

    @property
    def _max_workers(self) -> int:
        return self._pool.max_workers

    def options(self, **changes: Any) -> View:
        """The same view with some options changed."""
        return View(self._pool, self._options.changed(changes))

    def submit(self, fn: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs) -> Future[_T]:
        """Submit `fn(*args, **kwargs)` with these options."""
        o = self._options
        call: Callable[..., _T] = fn
        given: tuple[Any, ...] = args
        name = o.name
        if o.timeout is not None and callable(fn):
            call, given, name = run_timed, (o.timeout, fn, *args), name or _name(fn)
        return self._pool._spawn(call, given, kwargs, priority=o.priority, context=o.context, name=name, force=o.force)

    def map(
        self,
        fn: Callable[..., _T],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int | None = None,
        buffersize: int | None = None,
    ) -> Iterator[_T]:
        """As `Pool.map`, with these options for every call."""
        return self._pool._map(self, fn, iterables, timeout, chunksize, buffersize)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Shut down the pool behind the view."""
        self._pool.shutdown(wait, cancel_futures=cancel_futures)

    def __repr__(self) -> str:
        options = ", ".join(f"{field.name}={getattr(self._options, field.name)!r}" for field in fields(self._options))
        return f"{self._pool!r}.options({options})"


def plain(options: Options) -> bool:
    """May calls with these options be made in bulk?"""
    return options.timeout is None and options.name is None and not options.force


def options_of(executor: Executor) -> Options:
    return executor._options if isinstance(executor, View) else Options()
