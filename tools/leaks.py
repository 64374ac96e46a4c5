"""Prove that finished tasks leave nothing: no reference, no block of memory, no growth of the process.

    python tools/leaks.py                     a million tasks of every kind, one kind after the other
    python tools/leaks.py --tasks 2e4 cancel  fewer, of one kind
    python tools/leaks.py --sabotage block    must end with status 1, or the proof proves nothing

Each kind is run in rounds after some for warming up.  Between rounds nothing is left to do and the garbage is
collected; then counted are: references to an object that every task gets and returns, objects that the collector
knows, blocks of the allocator, and anonymous memory.  What grows once is the interpreter's own (a larger table, a new
thread): a kind leaks if references are left after the last round, if objects or blocks grew in every round, or if the
memory grew by more than 16 bytes a task in every round (for errors: besides twice what the same does with
ThreadPoolExecutor).  Status 0: no kind leaks.
"""

import argparse
import concurrent.futures
import contextvars
import gc
import logging
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import filch

ROUNDS = 5
# Of a round: a leak of one object a task gives thousands.
MOST_BLOCKS = 100
MOST_BYTES_A_TASK = 16
# Kinds in which the interpreter itself may lose memory, so that ThreadPoolExecutor is measured beside: free-threaded
# 3.13 does where an exception is raised in one thread and dropped in another.
OF_THE_INTERPRETER = ("errors",)
VARIABLE: contextvars.ContextVar[Any] = contextvars.ContextVar("VARIABLE")


class Thing:
    """What each task gets and gives back; its references are counted."""


THING = Thing()


def same(thing: Any) -> Any:
    return thing


def fail(thing: Any) -> Any:
    raise LookupError(thing)


def results(pool: Any, count: int) -> None:
    for future in [pool.submit(same, THING) for _ in range(count)]:
        future.result()


def keywords(pool: Any, count: int) -> None:
    for future in [pool.submit(dict, thing=THING, other=None) for _ in range(count)]:
        future.result()


def errors(pool: Any, count: int) -> None:
    for future in [pool.submit(fail, THING) for _ in range(count)]:
        future.exception()


def unasked(pool: Any, count: int) -> None:
    for _ in range(count):
        pool.submit(same, THING)


def inside(pool: Any, count: int) -> None:
    pool.submit(results, pool, count).result()


def nested(pool: Any, count: int) -> None:
    def descend(depth: int, thing: Any) -> Any:
        return pool.submit(descend, depth - 1, thing).result() if depth else thing

    for _ in range(count // 20):
        pool.submit(descend, 19, THING).result()


def policies(pool: Any, count: int) -> None:
    views = [pool.options(priority=2), pool.options(priority=-1, name="n"), pool.options(context=None)]
    for future in [views[n % len(views)].submit(same, THING) for n in range(count)]:
        future.result()


def contexts(pool: Any, count: int) -> None:
    token = VARIABLE.set(THING)
    for future in [pool.submit(VARIABLE.get) for _ in range(count)]:
        future.result()
    VARIABLE.reset(token)


def bulk(pool: Any, count: int) -> None:
    for _ in pool.map(same, [THING] * count):
        pass


def bulk_left(pool: Any, count: int) -> None:
    """Take half of the results, and drop the rest."""
    taken = pool.map(same, [THING] * count)
    for _ in range(count // 2):
        next(taken)
    taken.close()


def callbacks(pool: Any, count: int) -> None:
    futures = [pool.submit(same, THING) for _ in range(count)]
    for future in futures:
        future.add_done_callback(lambda done, thing=THING: None)
    concurrent.futures.wait(futures)
    for _ in concurrent.futures.as_completed(futures):
        pass


def cancel(pool: Any, count: int) -> None:
    for number, future in enumerate([pool.submit(same, THING) for _ in range(count)]):
        (future.cancel, future.interrupt)[number % 2]()


def timeouts(pool: Any, count: int) -> None:
    view = pool.options(timeout=100)
    for future in [view.submit(same, THING) for _ in range(count)]:
        future.result()


def blocking(pool: Any, count: int) -> None:
    def block(thing: Any) -> Any:
        with filch.blocking():
            return thing

    for future in [pool.submit(block, THING) for _ in range(count)]:
        future.result()


def broadcasts(pool: Any, count: int) -> None:
    for _ in range(count // 2):
        for future in pool.broadcast(same, THING):
            future.result()


def pools(pool: Any, count: int) -> None:
    """A pool of its own for each hundred."""
    for _ in range(max(1, count // 100)):
        with filch.Pool(1) as other:
            results(other, 100)


KINDS: dict[str, Callable[[Any, int], None]] = {
    kind.__name__: kind
    for kind in (
        results,
        keywords,
        errors,
        unasked,
        inside,
        nested,
        policies,
        contexts,
        bulk,
        bulk_left,
        callbacks,
        cancel,
        timeouts,
        blocking,
        broadcasts,
        pools,
    )
}


def anonymous_bytes() -> int:
    """Return the memory of this process that is no file's; 0 where there is no proc."""
    rollup = Path("/proc/self/smaps_rollup")
    if not rollup.exists():
        return 0
    return next(
        int(line.split()[1]) * 1024 for line in rollup.read_text().splitlines() if line.startswith("Anonymous:")
    )


def count_all(pool: Any) -> tuple[int, int, int, int]:
    """Return references, objects, blocks and bytes, once nothing is left to do."""
    if isinstance(pool, filch.Pool):
        pool.wait_idle()
    references = sys.getrefcount(THING)
    for _ in range(200):  # a worker may still hold the task that it has just ended
        gc.collect()
        now = sys.getrefcount(THING)
        if now == references and now <= BASE_REFERENCES:
            break
        references = now
        time.sleep(0.01)
    return sys.getrefcount(THING), len(gc.get_objects()), sys.getallocatedblocks(), anonymous_bytes()


BASE_REFERENCES = sys.getrefcount(THING)


def grow(pool: Any, work: Callable[[Any, int], None], each: int) -> tuple[int, list[list[int]]]:
    """Run a kind in rounds; return the references that are left, and how much objects, blocks and bytes grew by."""
    for _ in range(2):
        work(pool, each)
        before = count_all(pool)
    grown = []
    for _ in range(ROUNDS):
        work(pool, each)
        after = count_all(pool)
        grown.append([new - old for new, old in zip(after, before, strict=True)])
        before = after
    return before[0] - BASE_REFERENCES, [sorted(column) for column in list(zip(*grown, strict=True))[1:]]


def examine(name: str, work: Callable[[Any, int], None], each: int) -> bool:
    """Say what grew, and return whether this kind leaks."""
    allowed, note = MOST_BYTES_A_TASK * each, ""
    if name in OF_THE_INTERPRETER:
        # First, so that it finds no memory that filch has left free; its worst round, for the same reason.
        with concurrent.futures.ThreadPoolExecutor(2) as executor:
            yardstick = max(0, grow(executor, work, each)[1][2][-1])
        allowed, note = allowed + 2 * yardstick, f" (ThreadPoolExecutor, worst round: {yardstick:+})"
    with filch.Pool(2) as pool:
        references, columns = grow(pool, work, each)
    objects, blocks, size = (column[0] for column in columns)
    leaks = references > 0 or objects > MOST_BLOCKS or blocks > MOST_BLOCKS or size > allowed
    print(
        f"{'LEAKS' if leaks else 'ok':6}{name:12} {ROUNDS} x {each} tasks: references {references:+}, in the best "
        f"round objects {objects:+}, blocks {blocks:+}, bytes {size:+}{note}",
        flush=True,
    )
    return leaks


def sabotage(what: str) -> Callable[[Any, int], None]:
    kept: list[Any] = []

    def work(pool: Any, count: int) -> None:
        for number, future in enumerate([pool.submit(same, THING) for _ in range(count)]):
            future.result()
            if what == "reference":
                kept.append(THING)
            else:
                kept.append(float(number))

    return work


def main() -> int:
    parser = argparse.ArgumentParser(description="Prove that finished tasks leave nothing.")
    parser.add_argument("kinds", nargs="*", choices=[*KINDS, []], metavar="KIND", help=", ".join(KINDS))
    parser.add_argument("--tasks", type=lambda text: int(float(text)), default=10**6, help="of each kind, default 1e6")
    parser.add_argument("--sabotage", choices=["reference", "block"], help="leak on purpose, which must be found")
    options = parser.parse_args()
    logging.getLogger("filch").disabled = True  # errors that nobody asks for are not the matter here
    each = max(200, options.tasks // (ROUNDS + 2))
    with filch.Pool(1) as pool:
        print(f"kernel {pool.statistics().kernel}, Python {sys.version.split()[0]}")
    if options.sabotage:
        return examine("sabotage", sabotage(options.sabotage), each)
    leaking = [name for name in options.kinds or KINDS if examine(name, KINDS[name], each)]
    print(f"leaking: {', '.join(leaking)}" if leaking else "nothing leaks")
    return 1 if leaking else 0


if __name__ == "__main__":
    sys.exit(main())
