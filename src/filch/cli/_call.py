"""One call of the user's function inside a worker: attempts, what counts as an error, and what came of it.

Not here: when calls start and what is done with their outcomes (`_run.py`).
"""

from __future__ import annotations

import enum
import time
from collections.abc import Callable

from filch.cli._forked import OneProcess
from filch.cli._inputs import Input
from filch.cli._json import NotJSON
from filch.cli._records import Outcome, error_text, result_text
from filch.exceptions import Cancelled
from filch.pool import Future

Function = Callable[[object], object]


class NoOutcome(enum.Enum):
    """Why a call has nothing to say about its input."""

    NOT_BEGUN = "the run was stopped before"
    INTERRUPTED = "the run is being left, and the call heeded it"
    END_OF_RUN = "the function asked for the end of the whole run, by a KeyboardInterrupt"


class Call:
    """One input on its way through the pool, as one submitted task: up to `limit` attempts in a row.

    Where each attempt has a time limit, each is a task of its own, and `before` is the outcome of those before it.
    """

    __slots__ = ("_began", "_limit", "before", "future", "given", "number", "returned")

    def __init__(self, number: int, given: Input, limit: int, before: Outcome | None = None) -> None:
        self.number = number
        self.given = given
        self.before = before
        self.future: Future[None] | None = None
        self.returned = False
        self._limit = limit
        self._began = time.perf_counter()

    def again(self, outcome: Outcome) -> Call:
        """Return the call for another attempt after `outcome`."""
        return Call(self.number, self.given, self._limit, outcome)

    def outcome(self, text: str, error: str | None, attempts: int, retry: bool) -> Outcome:
        """Return an outcome with the time and the attempts of earlier tasks added, for a function that ends now."""
        seconds = time.perf_counter() - self._began
        if self.before is not None:
            seconds += self.before.seconds
            attempts += self.before.attempts
        return Outcome(text, error, seconds, attempts, retry)

    def run(self, function: Function, stopping: Callable[[], bool], leaving: Callable[[], bool]) -> Outcome | NoOutcome:
        """Call `function` until it returns, the attempts are used up, or the run is `stopping`."""
        self._began = time.perf_counter()
        attempt = 0
        while True:
            attempt += 1
            try:
                with OneProcess():
                    result = function(self.given.value)
                return self.outcome(result_text(result), None, attempt, False)
            except NotJSON as problem:
                # The function did its work; another call would return the same kind of thing.
                return self.outcome(error_text(problem.with_traceback(None)), "NotJSON", attempt, False)
            except KeyboardInterrupt:
                return NoOutcome.END_OF_RUN
            except BaseException as error:
                if isinstance(error, Cancelled) and leaving():
                    return NoOutcome.INTERRUPTED
                # SystemExit and its like are an error of this input alone; they ask for an end, so no more attempts.
                retry = isinstance(error, Exception) and not isinstance(error, Cancelled)
                if not retry or attempt >= self._limit or stopping():
                    return self.outcome(error_text(error, frames_to_skip=1), type(error).__name__, attempt, retry)
