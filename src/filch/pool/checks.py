"""Arguments are checked where they are given: each error has the rule, the value and the way out."""

from __future__ import annotations

import operator
from math import inf
from threading import TIMEOUT_MAX
from typing import Any


def whole(name: str, value: Any, rule: str = "an integer") -> int:
    if isinstance(value, bool):
        raise TypeError(f"{name} must be {rule}, not {value!r}")
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be {rule}, not {value!r}") from None


def count(name: str, value: Any, way_out: str) -> int:
    """An integer of at least 1."""
    number = whole(name, value, "an integer greater than 0")
    if number < 1:
        raise ValueError(f"{name} must be greater than 0, not {number}; {way_out}")
    return number


def count_of_workers(value: Any) -> int:
    number = count("max_workers", value, "leave it out for one a usable CPU")
    if number > MOST_WORKERS:
        raise ValueError(f"max_workers must be at most {MOST_WORKERS}, not {number}; each may have a thread of its own")
    return number


MOST_WORKERS = 100_000
MOST = 2**31  # what is larger is as good as no limit


def seconds(name: str, value: Any, *, zero: bool = True) -> float | None:
    """A duration in seconds, or None for no limit, which infinity is too."""
    if value is None:
        return None
    rule = "0 or more" if zero else "more than 0"
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} must be a number of seconds, {rule}, or None for no limit, not {value!r}")
    if not (value >= 0 if zero else value > 0):
        raise ValueError(f"{name} must be {rule} seconds, or None for no limit, not {value!r}")
    return None if value == inf else float(min(value, TIMEOUT_MAX))


def seconds_left(name: str, value: Any) -> float | None:
    """As `seconds`, for a wait: what has run out on the way counts as 0."""
    late = isinstance(value, int | float) and value < 0
    return seconds(name, 0 if late else value)


def flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be True or False, not {value!r}")
    return value


def text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a string, not {value!r}")
    return value


def one_of(name: str, value: Any, first: str, second: str) -> str:
    if value not in (first, second):
        raise ValueError(f"{name} must be {first!r} or {second!r}, not {value!r}")
    return str(value)
