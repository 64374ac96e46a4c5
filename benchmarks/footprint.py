"""Print the resident memory, in bytes, that a waiting task takes.

Usage: `python -m benchmarks.footprint CASES TASKS WORKERS`.  The scenario "memory" runs this in a fresh process.
The futures are not kept here: what is measured is what the pool keeps.
"""

import asyncio
import gc
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .contenders import ASYNCIO, CONTENDERS, HYPERTILE, THREAD_POOL, async_noop, noop


def resident_bytes() -> int:
    """Return the resident memory of this process (where there is no proc, the most it ever was, which grows alike)."""
    # Anonymous: what is mapped from files comes and goes as the system likes.  Counted when it is read, unlike statm,
    # which may be a quarter of a megabyte behind.
    rollup = Path("/proc/self/smaps_rollup")
    if rollup.exists():
        lines = rollup.read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Anonymous:"))
    import resource  # not on Windows

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def of_pool(submit: Callable[..., Any], tasks: int, workers: int) -> float:
    """Measure while all workers wait for a gate; they, and the tasks behind them, go on before this returns.

    As many tasks come before those that count, for memory that the process has and does not use.
    """
    gate = threading.Event()
    for _ in range(workers):
        submit(gate.wait)
    gc.collect()
    for _ in range(tasks):
        submit(noop)
    before = resident_bytes()
    for _ in range(tasks):
        submit(noop)
    after = resident_bytes()
    gate.set()
    return max(after - before, 0) / tasks  # of few tasks, the allocator may give more back than they take


async def of_loop(tasks: int) -> float:
    """Measure while the loop runs nothing but this."""
    gc.collect()
    first = [asyncio.create_task(async_noop()) for _ in range(tasks)]
    before = resident_bytes()
    others = [asyncio.create_task(async_noop()) for _ in range(tasks)]
    after = resident_bytes()
    await asyncio.gather(*first, *others)
    return max(after - before, 0) / tasks


def main(contender: str, tasks: int, workers: int) -> None:
    opening = next(one.open for one in CONTENDERS.values() if one.cases == contender)
    assert opening is not None
    with opening(workers) as opened:
        if contender == ASYNCIO:
            print(opened.run(of_loop(tasks)))
        else:
            submit = getattr(opened, {THREAD_POOL: "apply_async", HYPERTILE: "spawn"}.get(contender, "submit"))
            print(of_pool(submit, tasks, workers))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
