"""Runs scenarios: the contenders take turns, round after round, so that what disturbs the machine disturbs them all."""

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .contenders import CALL, CONTENDERS, GO, THREAD_POOL_EXECUTOR
from .players import Players
from .scenario import Scenario


@dataclass(frozen=True)
class Figures:
    """What one contender did in one scenario: a sample a round, and its ratios within each round."""

    samples: list[float]
    faster_than_executor: float | None
    cost_of_call: float | None
    cost_of_go: float | None

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
    players: Players,
    *,
    workers: int,
    repeat: int,
    scale: float,
    progress: Callable[[str], None],
) -> Result:
    """Let those of the contenders that can do the scenario take turns in it, `repeat` rounds long."""
    size = max(scenario.smallest, round(scenario.size * scale))
    reasons = {name: scenario.reason_without(CONTENDERS[name].cases) or players.missing(name) for name in contenders}
    left_out = {name: reason for name, reason in reasons.items() if reason is not None}
    names = [name for name in contenders if name not in left_out]
    samples: dict[str, list[float]] = {name: [] for name in names}
    rounds = min(repeat, scenario.most_rounds or repeat)
    for number in range(1, rounds + 1):
        for name in names:
            progress(f"{scenario.name}: round {number} of {rounds}, {name}")
            samples[name].append(players.turn(name, scenario.name, size, workers))
    figures = {
        name: Figures(
            mine,
            median_ratio(samples.get(THREAD_POOL_EXECUTOR), mine),
            median_ratio(mine, samples.get(CALL)),
            median_ratio(mine, samples.get(GO)),
        )
        for name, mine in samples.items()
    }
    return Result(scenario, size, figures, left_out)


def median_ratio(above: list[float] | None, below: list[float] | None) -> float | None:
    """Return the median of the ratios within each round, or None where there is nothing to compare with."""
    if not above or not below or not all(below):
        return None
    return statistics.median([one / other for one, other in zip(above, below, strict=True)])
