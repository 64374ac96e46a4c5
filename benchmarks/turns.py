"""The process of one contender: `python -m benchmarks.turns CONTENDER`.

It says "ready" and what it is, or "missing" and why; then it answers each line "SCENARIO SIZE WORKERS" with the figure.
The programs of other languages in `programs` do the same.
"""

import faulthandler
import gc
import importlib.metadata
import os
import platform
import sys

from .catalogue import SCENARIOS
from .contenders import CONTENDERS, FILCH, FILCHES
from .scenario import Scenario

# A turn that takes longer hangs: the stacks of all threads are shown, and the process ends.
HANG_SECONDS = 300


def main(contender: str) -> None:
    # What a scenario prints must not be taken for an answer.
    with os.fdopen(os.dup(1), "w") as answers:
        os.dup2(2, 1)
        reason = CONTENDERS[contender].missing()
        print(f"missing {reason}" if reason else f"ready {description(contender)}", file=answers, flush=True)
        if reason:
            return
        for line in sys.stdin:
            name, size, workers = line.split()
            print(take_turn(SCENARIOS[name], contender, int(workers), int(size)), file=answers, flush=True)


def description(contender: str) -> str:
    """Return what the figures of this process are of."""
    module = CONTENDERS[contender].module
    if module is None:
        return f"Python {platform.python_version()}"
    if module != FILCH:
        return f"{module} {importlib.metadata.version(module)}"
    import filch

    with filch.Pool(max_workers=1) as pool:
        kernel = pool.statistics().kernel
    if FILCHES[kernel] != contender:
        raise RuntimeError(f"{contender} must run on the kernel in its name, not on {kernel}")
    return f"filch {filch.__version__}, {kernel} kernel"


def take_turn(scenario: Scenario, contender: str, workers: int, size: int) -> float:
    """Measure once, with a pool or loop of its own."""
    case = scenario.cases[CONTENDERS[contender].cases]
    opening = case.open or CONTENDERS[contender].open
    assert opening is not None
    faulthandler.dump_traceback_later(HANG_SECONDS, exit=True)
    try:
        gc.collect()  # what was left behind; while the clock runs, the collector comes when it wants to, as in life
        with opening(workers) as opened:
            if scenario.warm:
                case.measure(opened, max(scenario.smallest, size // 10))
            return case.measure(opened, size)
    finally:
        faulthandler.cancel_dump_traceback_later()


if __name__ == "__main__":
    main(sys.argv[1])
