"""What a benchmark scenario is: a piece of work with one case for each contender that can do it."""

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

# The contenders that are programs in other languages.
PROGRAMS = ("go", "java")
# Opens what a contender works with (a pool, a loop), warmed up, for a number of workers.
Open = Callable[[int], AbstractContextManager[Any]]
# Does about that many operations with the opened thing, and returns how many it really did.
Work = Callable[[Any, int], int]
# Does about that many operations with the opened thing, and returns the figure in the scenario's unit.
Measure = Callable[[Any, int], float]


@dataclass(frozen=True)
class Case:
    """How one contender does a scenario."""

    measure: Measure
    open: Open | None = None  # None: the contender's usual way


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """A piece of work.  Every contender has a case, or a reason why it has none.  Less is better in every figure."""

    name: str
    what: str
    operation: str  # what is counted
    size: int  # operations in a turn at scale 1
    cases: Mapping[str, Case]
    left_out: Mapping[str, str] = field(default_factory=dict)
    programs: bool = False  # whether the programs in other languages have it; see `programs`
    unit: str = "ns"  # "ns", "B" or "%"
    smallest: int = 1  # operations in a turn at any scale
    most_rounds: int | None = None  # for those that take long and vary little
    warm: bool = True  # whether a tenth of the work is done before the clock starts

    def reason_without(self, cases: str) -> str | None:
        """Return why those whose cases have this name do not take part, or None if they do."""
        if cases in PROGRAMS:
            return None if self.programs else "it is not written in this language"
        return self.left_out.get(cases)


def timed(work: Work) -> Case:
    """Return the case that measures nanoseconds an operation."""

    def measure(opened: Any, size: int) -> float:
        start = time.perf_counter_ns()
        done = work(opened, size)
        return (time.perf_counter_ns() - start) / done

    return Case(measure)


def require(got: object, expected: object) -> None:
    """Stop the run when a contender computed something else than it was asked for."""
    if got != expected:
        raise RuntimeError(f"a benchmark must compute {expected!r}, not {got!r}; its figures would mean nothing")
