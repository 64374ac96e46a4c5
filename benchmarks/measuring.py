"""Runs scenarios: the contenders take turns, round after round, so that what disturbs the machine disturbs them all."""

import faulthandler
import gc
import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .contenders import CALL, CONTENDERS, THREAD_POOL_EXECUTOR, missing
from .scenario import Scenario

# A turn that takes longer hangs: the stacks of all threads are shown, and the run ends.
HANG_SECONDS = 300


@dataclass(frozen=True)
class Figures:
    """What one contender did in one scenario: a sample a round, and its ratios within each round."""

    samples: list[float]
    faster_than_executor: float | None
    cost_of_call: float | None

    @property
    def median(self) -> float:
        return statistics.median(self.samples)

    @property
    def minimum(self) -> float:
        return min(self.samples)

    @property
    def p90(self) -> float:
        """The smallest sample that nine in ten do not exceed."""
        return sorted(self.samples)[math.ceil(0.9 * len(self.samples)) - 1]


@dataclass(frozen=True)
class Result:
    """What one scenario gave."""

    scenario: Scenario
    size: int
    figures: dict[str, Figures]
    left_out: dict[str, str]


def measure(
    scenario: Scenario,
    contenders: Sequence[str],
    *,
    workers: int,
    repeat: int,
    scale: float,
    progress: Callable[[str], None],
) -> Result:
    """Let those of the contenders that can do the scenario take turns in it, `repeat` rounds long."""
    size = max(scenario.smallest, round(scenario.size * scale))
    reasons = {name: scenario.left_out.get(name) or missing(name) for name in contenders}
    left_out = {name: reason for name, reason in reasons.items() if reason is not None}
    names = [name for name in contenders if name not in left_out]
    samples: dict[str, list[float]] = {name: [] for name in names}
    rounds = min(repeat, scenario.most_rounds or repeat)
    for number in range(1, rounds + 1):
        for name in names:
            progress(f"{scenario.name}: round {number} of {rounds}, {name}")
            samples[name].append(take_turn(scenario, name, workers, size))
    figures = {
        name: Figures(
            mine,
            median_ratio(samples.get(THREAD_POOL_EXECUTOR), mine),
            median_ratio(mine, samples.get(CALL)),
        )
        for name, mine in samples.items()
    }
    return Result(scenario, size, figures, left_out)


def take_turn(scenario: Scenario, contender: str, workers: int, size: int) -> float:
    """Measure once, with a pool or loop of its own, so that no other contender's threads are there."""
    case = scenario.cases[contender]
    faulthandler.dump_traceback_later(HANG_SECONDS, exit=True)
    try:
        gc.collect()  # what others left behind; while the clock runs, the collector comes when it wants to, as in life
        with (case.open or CONTENDERS[contender])(workers) as opened:
            if scenario.warm:
                case.measure(opened, max(scenario.smallest, size // 10))
            return case.measure(opened, size)
    finally:
        faulthandler.cancel_dump_traceback_later()


def median_ratio(above: list[float] | None, below: list[float] | None) -> float | None:
    """Return the median of the ratios within each round, or None where there is nothing to compare with."""
    if not above or not below or not all(below):
        return None
    return statistics.median([one / other for one, other in zip(above, below, strict=True)])
