"""All scenarios, by name, in the order in which they run."""

from .contenders import CONTENDERS
from .load import CPU, FEED, IDLE, MEMORY, STORM
from .scenario import PROGRAMS, Scenario
from .spawning import CHAINED, FAN_OUT, MAP, SUBMIT, SUBMIT_FROM_MANY, YIELD
from .starting import SPAWN, SPAWN_BUSY, SPAWN_LOCAL, STEAL, STEAL_99
from .waiting import FIB, NESTED, PING_PONG, ROUND_TRIP, SKYNET

SCENARIOS: dict[str, Scenario] = {
    scenario.name: scenario
    for scenario in (
        SUBMIT,
        SPAWN,
        FAN_OUT,
        SPAWN_LOCAL,
        SPAWN_BUSY,
        SUBMIT_FROM_MANY,
        CHAINED,
        YIELD,
        MAP,
        ROUND_TRIP,
        STEAL,
        STEAL_99,
        FIB,
        NESTED,
        PING_PONG,
        SKYNET,
        FEED,
        STORM,
        CPU,
        MEMORY,
        IDLE,
    )
}

_expected = sorted({contender.cases for contender in CONTENDERS.values()} - {*PROGRAMS})
for _scenario in SCENARIOS.values():
    _accounted = [*_scenario.cases, *_scenario.left_out]
    if sorted(_accounted) != _expected:
        raise RuntimeError(f"scenario {_scenario.name} must name every contender once, not {_accounted}; add a reason")
