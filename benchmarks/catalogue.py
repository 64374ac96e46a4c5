"""All scenarios, by name, in the order in which they run."""

from .contenders import CONTENDERS
from .load import CPU, FEED, IDLE, MEMORY, STORM
from .scenario import Scenario
from .spawning import CHAINED, FAN_OUT, MAP, SUBMIT, SUBMIT_FROM_MANY, YIELD
from .waiting import FIB, NESTED, PING_PONG, ROUND_TRIP, SKYNET

SCENARIOS: dict[str, Scenario] = {
    scenario.name: scenario
    for scenario in (
        SUBMIT,
        FAN_OUT,
        SUBMIT_FROM_MANY,
        CHAINED,
        YIELD,
        MAP,
        ROUND_TRIP,
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

for _scenario in SCENARIOS.values():
    _accounted = [*_scenario.cases, *_scenario.left_out]
    if sorted(_accounted) != sorted(CONTENDERS):
        raise RuntimeError(f"scenario {_scenario.name} must name every contender once, not {_accounted}; add a reason")
