"""Prove that tasks run exactly once: a ledger with a byte for each of N tasks, 100 million by default.

    python tools/ledger.py                               the whole proof; hours on the pure kernel
    python tools/ledger.py --tasks 1e6 --workers 4       a shorter one
    python tools/ledger.py --sabotage twice --tasks 1e4  must end with status 1, or the ledger proves nothing

Several threads hand out blocks of tasks to one pool, each block in a way drawn at random: from outside and from inside
a worker, one by one, with priorities and in bulk (`map`), as a tree of tasks that wait for each other, blocking, and
with a part cancelled while it is on its way.  Meanwhile another thread changes the size of the pool.  Each task writes
into its own byte and counts in its thread; its result is compared.  In the end every byte must be 1, or 128 for a task
whose future was cancelled, and the threads must have counted as many runs as there are ones, which also shows two runs
at the same moment.  Status 0: nothing was lost and nothing ran twice.
"""

import argparse
import os
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import filch

BLOCK = 1_000
RAN, CANCELLED = 1, 128
# Seconds between two changes of the size, at most.
RESIZE_SECONDS = 0.02
# Seconds without a finished block after which the run counts as hung.
HANG_SECONDS = 300


class Ledger:
    """A byte for each task, and a count for each thread."""

    def __init__(self, tasks: int) -> None:
        self.cells = bytearray(tasks)
        self.local = threading.local()
        self.counts: list[list[int]] = []
        self.errors: list[str] = []

    def run(self, number: int) -> int:
        """Be the task: each cell is written by its own task alone."""
        self.cells[number] += RAN
        try:
            count = self.local.count
        except AttributeError:
            count = self.local.count = [0]
            self.counts.append(count)
        count[0] += 1
        return number

    def expect(self, got: Any, wanted: Any, what: str) -> None:
        if got != wanted:
            self.errors.append(f"{what}: {got!r:.100} instead of {wanted!r:.100}")

    def verdict(self) -> list[str]:
        """Return what is wrong."""
        tasks, ran, cancelled = len(self.cells), self.cells.count(RAN), self.cells.count(CANCELLED)
        wrong = list(self.errors)
        if ran + cancelled != tasks:
            lost = self.cells.count(0)
            wrong.append(
                f"{lost} tasks were lost, {tasks - ran - cancelled - lost} ran twice or after they were cancelled"
            )
        runs = sum(count[0] for count in self.counts)
        if runs != ran:
            wrong.append(f"{runs} runs were counted, and {ran} are in the ledger")
        return wrong


def one_by_one(pool: Any, ledger: Ledger, numbers: range, choose: random.Random) -> None:
    futures = [pool.submit(ledger.run, number) for number in numbers]
    ledger.expect([future.result() for future in futures], list(numbers), "results")


def inside(pool: Any, ledger: Ledger, numbers: range, choose: random.Random) -> None:
    pool.submit(one_by_one, pool, ledger, numbers, choose).result()


def with_priorities(pool: Any, ledger: Ledger, numbers: range, choose: random.Random) -> None:
    views = [pool.options(priority=priority) for priority in (-1, 1, 5)]
    futures = [choose.choice(views).submit(ledger.run, number) for number in numbers]
    ledger.expect([future.result() for future in futures], list(numbers), "results with priorities")


def in_bulk(pool: Any, ledger: Ledger, numbers: range, choose: random.Random) -> None:
    size = choose.choice([1, 3, 100])
    ledger.expect(list(pool.map(ledger.run, numbers, chunksize=size)), list(numbers), "results of map")


def in_bulk_inside(pool: Any, ledger: Ledger, numbers: range, choose: random.Random) -> None:
    pool.submit(in_bulk, pool, ledger, numbers, choose).result()


def fork_join(pool: Any, ledger: Ledger, numbers: range, choose: random.Random) -> None:
    """A tree in which each task has a number of its own, spawns its right half, does its left one, and waits."""

    def node(first: int, after: int) -> int:
        ledger.run(first)
        first += 1
        if first == after:
            return 1
        middle = (first + after) // 2
        right = pool.submit(node, middle, after)
        left = node(first, middle) if middle > first else 0
        return 1 + left + int(right.result())

    ledger.expect(pool.submit(node, numbers.start, numbers.stop).result(), len(numbers), "nodes of a tree")


def blocking(pool: Any, ledger: Ledger, numbers: range, choose: random.Random) -> None:
    def block(number: int) -> int:
        if number % 50 == 0:
            with filch.blocking():
                time.sleep(0)
        return ledger.run(number)

    futures = [pool.submit(block, number) for number in numbers]
    ledger.expect([future.result() for future in futures], list(numbers), "results of blocking tasks")


def cancelled(pool: Any, ledger: Ledger, numbers: range, choose: random.Random) -> None:
    futures = [pool.submit(ledger.run, number) for number in numbers]
    for number in choose.sample(numbers, len(numbers) // 3):
        futures[number - numbers.start].cancel()
    for number, future in zip(numbers, futures, strict=True):
        if future.cancelled():
            ledger.cells[number] += CANCELLED
        else:
            ledger.expect(future.result(), number, "result beside cancelled ones")


Way = Callable[[Any, Ledger, range, random.Random], None]
WAYS: tuple[Way, ...] = (
    one_by_one,
    inside,
    with_priorities,
    in_bulk,
    in_bulk_inside,
    fork_join,
    blocking,
    cancelled,
)


def main() -> int:
    parser = argparse.ArgumentParser(description="Prove that tasks run exactly once.")
    parser.add_argument("--tasks", type=lambda text: int(float(text)), default=10**8, help="default 1e8")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--submitters", type=int, default=4)
    parser.add_argument("--seed", type=int, default=random.randrange(2**32))
    parser.add_argument("--sabotage", choices=["lost", "twice"], help="spoil one task, which must be found")
    options = parser.parse_args()
    ledger = Ledger(options.tasks)
    start = time.monotonic()
    with filch.Pool(options.workers) as pool:
        print(
            f"kernel {pool.statistics().kernel}, Python {sys.version.split()[0]}, "
            f"GIL {getattr(sys, '_is_gil_enabled', lambda: True)()}, seed {options.seed}",
            flush=True,
        )
        done = submit_all(pool, ledger, options)
        if options.sabotage == "twice":
            pool.submit(ledger.run, 0).result()
    if options.sabotage == "lost":
        ledger.cells[-1] = 0
    wrong = ledger.verdict()
    for line in wrong:
        print(f"WRONG: {line}")
    ways = ", ".join(f"{name} {count}" for name, count in sorted(done.items()))
    print(
        f"{options.tasks} tasks in {time.monotonic() - start:.1f} s: {ledger.cells.count(RAN)} ran, "
        f"{ledger.cells.count(CANCELLED)} were cancelled, {len(wrong)} things wrong; blocks: {ways}"
    )
    return 1 if wrong else 0


def submit_all(pool: Any, ledger: Ledger, options: argparse.Namespace) -> Counter[str]:
    """Hand out all tasks; return how many blocks went each way."""
    blocks = iter(range(0, options.tasks, BLOCK))
    lock = threading.Lock()
    done = Counter({way.__name__: 0 for way in WAYS})  # all keys at once: it is read while it changes
    over = threading.Event()

    def submitter(number: int) -> None:
        choose = random.Random(options.seed + number)
        while True:
            with lock:
                first = next(blocks, None)
            if first is None or ledger.errors:
                return
            numbers = range(first, min(first + BLOCK, options.tasks))
            way = choose.choice(WAYS)
            try:
                way(pool, ledger, numbers, choose)
            except BaseException as error:
                ledger.errors.append(f"{way.__name__}: {error!r}")
                return
            with lock:
                done[way.__name__] += 1

    def resizer() -> None:
        choose = random.Random(options.seed - 1)
        while not over.wait(choose.uniform(0, RESIZE_SECONDS)):
            pool.resize(choose.randint(1, 2 * options.workers))

    threads = [threading.Thread(target=submitter, args=(number,), daemon=True) for number in range(options.submitters)]
    resizing = threading.Thread(target=resizer)
    for thread in [*threads, resizing]:
        thread.start()
    watch(threads, lambda: sum(done.values()), options.tasks)
    over.set()
    resizing.join()
    return done


def watch(threads: list[threading.Thread], progress: Callable[[], int], tasks: int) -> None:
    """Wait for the submitters; end the process when nothing moves any more."""
    seen, since, shown = -1, time.monotonic(), time.monotonic()
    while any(thread.is_alive() for thread in threads):
        for thread in threads:
            thread.join(0.5)
        now = time.monotonic()
        if progress() != seen:
            seen, since = progress(), now
        elif now - since > HANG_SECONDS:
            print(f"WRONG: hung after {seen} blocks", flush=True)
            import faulthandler

            faulthandler.dump_traceback()
            os._exit(1)
        if now - shown > 30:
            print(f"{seen * BLOCK} of {tasks}", flush=True)
            shown = now


if __name__ == "__main__":
    sys.exit(main())
