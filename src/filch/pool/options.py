"""The policy of tasks, and the view of a pool that submits with it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from filch._kernel import Future
from filch.pool import checks
from filch.pool.deadline import set_alarm

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
        given = changes.get("context", True)
        if given is not None and not isinstance(given, bool):
            raise TypeError(f"context must be True or None, not {given!r}; to choose one, run it in the task")
        new = replace(self, **changes)
        return Options(
            priority=checks.whole("priority", new.priority, "an integer, larger runs sooner"),
            timeout=checks.seconds("timeout", new.timeout, zero=False),
            name=None if new.name is None else checks.text("name", new.name),
            context=bool(new.context),
            force=checks.flag("force", new.force),
        )


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
        alarm = None if o.timeout is None else partial(set_alarm, o.timeout, o.name or _name(fn))
        return self._pool._spawn(
            fn, args, kwargs, priority=o.priority, context=o.context, name=o.name, force=o.force, alarm=alarm
        )

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
