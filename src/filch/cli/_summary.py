"""The count that a run keeps, and what it says of it in the end: numbers, slowest inputs, kinds of error."""

import heapq
import time
from collections import Counter

from filch.cli._records import Outcome
from filch.cli._refusal import shortened

SLOWEST = 5
"""How many of the slowest inputs, and how many kinds of error, are named."""


class Tally:
    """Counts of one run.  Written by the main thread only, except `skipped`, which the reader of inputs writes."""

    def __init__(self) -> None:
        self.ok = 0
        self.failed = 0
        self.skipped = 0
        self.unfinished = 0
        """Calls that were started or lined up and have no record, because the run was stopped."""
        self.left_running = 0
        """Calls that timed out, or were given up, and had not returned when the run ended."""
        self._started = time.monotonic()
        self._kinds: Counter[str] = Counter()
        self._first_of_kind: dict[str, str] = {}
        self._slowest: list[tuple[float, int, str]] = []

    def start(self) -> None:
        """Measure time from now on."""
        self._started = time.monotonic()

    @property
    def done(self) -> int:
        """How many inputs have a record now, good or bad."""
        return self.ok + self.failed

    @property
    def seconds(self) -> float:
        """How long the run has lasted."""
        return time.monotonic() - self._started

    @property
    def rate(self) -> float:
        """Records per second since the start."""
        return self.done / max(self.seconds, 1e-6)

    def add(self, input_text: str, outcome: Outcome) -> None:
        """Count one record."""
        if outcome.error is None:
            self.ok += 1
        else:
            self.failed += 1
            self._kinds[outcome.error] += 1
            if outcome.error not in self._first_of_kind:
                self._first_of_kind[outcome.error] = shortened(input_text)
        if len(self._slowest) < SLOWEST:
            heapq.heappush(self._slowest, (outcome.seconds, -self.done, shortened(input_text)))
        elif outcome.seconds > self._slowest[0][0]:
            heapq.heapreplace(self._slowest, (outcome.seconds, -self.done, shortened(input_text)))

    def lines(self, workers: int) -> list[str]:
        """Return the closing summary, a line at a time."""
        counts = [f"{self.ok} ok", f"{self.failed} failed"]
        if self.skipped:
            counts.append(f"{self.skipped} skipped, ok in the output already")
        if self.unfinished:
            counts.append(f"{self.unfinished} not finished")
        count = "1 worker" if workers == 1 else f"{workers} workers"
        said = [f"{', '.join(counts)}; {self.seconds:.2f} s, {self.rate:,.1f}/s, {count}"]
        if self.done > 1:
            said.append("slowest:")
            said.extend(f"  {_duration(took):>9}  {text}" for took, _, text in self._by_time())
        if self._kinds:
            named = self._kinds.most_common(SLOWEST)
            more = len(self._kinds) - len(named)
            said.append(f"errors, {more} more kinds not shown:" if more else "errors:")
            said.extend(f"  {count:>9}  {kind}, first {self._first_of_kind[kind]}" for kind, count in named)
        if self.left_running:
            calls = "1 call was" if self.left_running == 1 else f"{self.left_running} calls were"
            said.append(f"{calls} still running and left behind; filch.checkpoint() in the function lets it be stopped")
        return said

    def _by_time(self) -> list[tuple[float, int, str]]:
        return sorted(self._slowest, reverse=True)


def _duration(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1000:.2f} ms"
