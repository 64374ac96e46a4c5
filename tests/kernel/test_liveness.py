"""Work that is there is done: nobody sleeps through a call, all processors are used, none too many, none lost.

A single lost call hangs these tests, so they go around often.  Not here: waits inside of tasks.
"""

import random
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import ModuleType
from typing import Any

import pytest

from filch.exceptions import PoolShutdown
from kernel.engines import PATIENCE, held, is_settled, results, running, spin_until

# Waking another thread takes ten times as long on a free-threaded Python.
SLOWER = 1 if getattr(sys, "_is_gil_enabled", lambda: True)() else 5


@pytest.mark.slow
@pytest.mark.parametrize(("size", "rounds"), [(1, 2000), (2, 10_000), (4, 1500), (32, 100)])
def test_a_barrier_for_all(make_engine: Any, lifo: bool, size: int, rounds: int) -> None:
    """A call is lost, so one of as many tasks as there are workers does not start."""
    engine = make_engine(size, lifo=lifo)
    barrier = threading.Barrier(size + 1)
    for _ in range(rounds // SLOWER):
        for _ in range(size):
            engine.submit(barrier.wait, PATIENCE)
        barrier.wait(PATIENCE)


@pytest.mark.slow
@pytest.mark.parametrize("size", [2, 4])
def test_a_barrier_from_inside(make_engine: Any, size: int) -> None:
    """A call is lost when a task spawns others, and its own worker cannot run them."""
    engine = make_engine(size)
    barrier = threading.Barrier(size)

    def meet(rounds: int) -> None:
        for _ in range(rounds):
            for _ in range(size - 1):
                engine.submit(barrier.wait, PATIENCE)
            barrier.wait(PATIENCE)

    for _ in range(10):
        engine.submit(meet, 100).result(PATIENCE)


@pytest.mark.slow
@pytest.mark.parametrize("where", ["inside", "outside"])
def test_one_spins_for_another(make_engine: Any, lifo: bool, where: str) -> None:
    """A task waits for ever beside a worker that has been busy awake, searching or falling asleep (JDK-8322732)."""
    engine = make_engine(2, lifo=lifo)
    flags = [False] * 1500

    def set_flag(number: int) -> None:
        flags[number] = True

    def spin(number: int) -> None:
        if where == "inside":
            engine.submit(set_flag, number)
        spin_until(lambda: flags[number])

    for number in range(len(flags)):
        spinning = engine.submit(spin, number)
        if where == "outside":
            engine.submit(set_flag, number)
        spinning.result(PATIENCE)


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 2])
def test_fresh_engines(kernel: ModuleType, together: Any, seed: int, size: int) -> None:
    """The first task, the first sleep and the end get into each other's way in an engine's first moments."""
    choose = random.Random(seed)

    def produce(engine: Any, count: int, futures: list[Any]) -> None:
        with suppress(PoolShutdown):
            futures.extend(engine.submit(int, number) for number in range(count))

    for _ in range(256):
        futures: list[Any] = []
        with running(kernel, size) as engine:
            end = choose.choice(
                [engine._close, engine._cancel_pending, lambda engine=engine: engine.wait_idle(PATIENCE)]
            )
            count = choose.randrange(6)
            together(lambda engine=engine, count=count, futures=futures: produce(engine, count, futures), end)
        for number, future in enumerate(futures):
            assert future.done()
            assert future.cancelled() or future.result(0) == number


@pytest.mark.slow
def test_fresh_engines_that_are_dropped(kernel: ModuleType, eventually: Callable[..., None]) -> None:
    """An engine that nobody keeps loses its last task, or leaves its threads behind."""
    ran: list[int] = []
    threads: list[threading.Thread] = []

    def start_thread(run: Callable[[], None], number: int) -> threading.Thread:
        threads.append(threading.Thread(target=run, daemon=True))
        threads[-1].start()
        return threads[-1]

    options = {"lifo": True, "max_threads": 8, "keep_alive": 10.0, "seed": None, "prologue": None, "restart": False}
    for number in range(256):
        engine = kernel.Engine(1, start_thread=start_thread, **options)
        engine.submit(ran.append, number)
    del engine
    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive()
    assert sorted(ran) == list(range(256))


@pytest.mark.slow
@pytest.mark.parametrize("size", [2, 4, 32])
@pytest.mark.parametrize("where", ["inside", "outside"])
def test_all_processors_at_once(make_engine: Any, size: int, where: str) -> None:
    """One processor is never used: tasks that hand a baton around need all of them at once."""
    engine = make_engine(size)
    hands = [0]  # how often the baton went on

    def hand_around(me: int) -> None:
        for _ in range(5):
            spin_until(lambda: hands[0] % size == me)
            hands[0] += 1

    def start() -> list[Any]:
        return [engine.submit(hand_around, me) for me in range(1, size)]

    first = engine.submit(hand_around, 0)
    results([first, *(start() if where == "outside" else engine.submit(start).result(PATIENCE))])
    assert hands == [5 * size]


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 2, 4])
def test_never_too_many_at_once(kernel: ModuleType, make_engine: Any, together: Any, seed: int, size: int) -> None:
    """More tasks run at once than there are processors, while others block, wait and come back."""
    engine = make_engine(size)
    lock = threading.Lock()
    active = worst = 0  # tasks that run and have never given their processor away

    def enter(change: int) -> None:
        nonlocal active, worst
        with lock:
            active += change
            worst = max(worst, active)

    def run(choose: random.Random, level: int) -> None:
        enter(1)
        how = choose.randrange(4)
        if how == 3 and level:
            inner = [engine.submit(run, random.Random(choose.random()), level - 1) for _ in range(2)]
            enter(-1)
            results(inner)
            return
        if how == 2:
            enter(-1)
            with kernel.blocking():
                time.sleep(0)
            return
        time.sleep(0)
        enter(-1)

    def produce(by: int) -> None:
        choose = random.Random(seed + by)
        results([engine.submit(run, random.Random(choose.random()), 2) for _ in range(300)])

    together(*[lambda by=by: produce(by) for by in range(2)])
    assert 1 <= worst <= size
    assert active == 0


class Mixture:
    """Tasks of all kinds, chosen at random: short, waiting, blocking, failing, cancelled, with a priority."""

    def __init__(self, kernel: ModuleType, engine: Any) -> None:
        self.kernel = kernel
        self.engine = engine

    def run(self, seed: float, level: int) -> None:
        choose = random.Random(seed)
        kinds = [self.block, self.fail, self.nest, self.cancel] if level else [self.block, self.fail]
        choose.choice([*kinds, lambda *_: None])(choose, level)

    def block(self, choose: random.Random, level: int) -> None:
        with self.kernel.blocking():
            time.sleep(0)

    def fail(self, choose: random.Random, level: int) -> None:
        raise LookupError

    def nest(self, choose: random.Random, level: int) -> None:
        futures = [self.engine.submit(self.run, choose.random(), level - 1) for _ in range(3)]
        for future in futures:
            future.exception(choose.choice([None, PATIENCE]))

    def cancel(self, choose: random.Random, level: int) -> None:
        future = self.engine._spawn(self.run, (choose.random(), level - 1), priority=choose.randrange(-1, 2))
        if not future.cancel():
            future.exception()

    def produce(self, seed: int) -> None:
        choose = random.Random(seed)
        for _ in range(25):
            futures = [self.engine.submit(self.run, choose.random(), 3) for _ in range(choose.randrange(12))]
            if choose.random() < 0.3:
                futures += self.engine._broadcast(self.run, (choose.random(), 1), {})
            for future in futures:
                future.exception(PATIENCE)


@pytest.mark.slow
def test_counters_do_not_drift(kernel: ModuleType, engine: Any, together: Any, eventually: Any, seed: int) -> None:
    """A count of threads, searchers or processors is off after errors, cancels, waits, blocks and broadcasts."""
    mixture = Mixture(kernel, engine)
    stop: list[bool] = []
    most = engine._counters()["max_threads"]

    def watch() -> list[dict[str, int]]:
        wrong = []
        while not stop:
            now = engine._counters()
            if min(now.values()) < 0 or max(now["threads"], now["searching"], now["excess"], now["idle"]) > most:
                wrong.append(now)
            time.sleep(0)
        return wrong

    def work() -> None:
        try:
            together(*[lambda by=by: mixture.produce(seed + by) for by in range(2)])
        finally:
            stop.append(True)

    assert together(watch, work)[0] == []
    assert engine.wait_idle(PATIENCE)
    eventually(lambda: is_settled(engine), "a count drifted away")
    # All processors are still there.
    with held(engine, engine.max_workers):
        assert engine._counters()["running"] == engine.max_workers
        assert engine._counters()["excess"] == 0


def test_a_submit_calls_one_worker(make_engine: Any, eventually: Any) -> None:
    """One task calls more than one sleeping worker, or a worker is called that has nothing to do."""
    engine = make_engine(4)
    with held(engine, 4):
        pass
    eventually(lambda: is_settled(engine), "the workers go to sleep")
    for _ in range(20):
        before = engine._counters()
        engine.submit(int).result(PATIENCE)
        assert engine.wait_idle(PATIENCE)
        eventually(lambda: is_settled(engine), "the workers go to sleep")
        after = engine._counters()
        assert after["wakes"] - before["wakes"] == 1
        assert after["parks"] - before["parks"] == 1
    assert after["threads_started"] == after["threads"] == 4


@pytest.mark.skipif(SLOWER > 1, reason="others may come in between on a free-threaded Python")
def test_nobody_is_called_while_another_is_on_its_way(make_engine: Any, eventually: Any) -> None:
    """Each of several submits calls a worker, although the first that was called has not even come."""
    engine = make_engine(4)
    with held(engine, 4):
        pass
    eventually(lambda: is_settled(engine), "the workers go to sleep")
    before = sys.getswitchinterval()
    sys.setswitchinterval(100)  # no other thread runs before this one sleeps
    try:
        wakes = engine._counters()["wakes"]
        futures = [engine.submit(int) for _ in range(10)]
        assert engine._counters()["wakes"] - wakes == 1
        assert engine._counters()["searching"] == 1
    finally:
        sys.setswitchinterval(before)
    assert results(futures) == [0] * 10


def test_one_task_needs_one_thread(make_engine: Any) -> None:
    """Threads are started for which there is no work."""
    engine = make_engine(32)
    assert engine._counters()["threads"] == 0
    for _ in range(50):
        engine.submit(int).result(PATIENCE)
        assert engine.wait_idle(PATIENCE)
    assert engine._counters()["threads_started"] <= 2


def test_the_newest_sleeper_is_called_first(make_engine: Any, eventually: Any) -> None:
    """Work goes round all threads, so that none ever stays idle long enough to retire, and caches are cold."""
    engine = make_engine(4)
    with held(engine, 4):
        pass
    eventually(lambda: is_settled(engine), "the workers go to sleep")
    idents = set()
    for _ in range(20):
        idents.add(engine.submit(threading.get_ident).result(PATIENCE))
        eventually(lambda: is_settled(engine), "the workers go to sleep")
    assert len(idents) == 1


@pytest.mark.slow
def test_idle_engines_use_no_cpu(script: Callable[..., str]) -> None:
    """Workers without work, and tasks that wait, wake up again and again."""
    out = script("""
import resource, time

def usage():
    now = resource.getrusage(resource.RUSAGE_SELF)
    return now.ru_utime + now.ru_stime, now.ru_nvcsw

engine = make_engine(4)
never = kernel.Future()
waiting = [engine.submit(never.result), engine.submit(never.result, 600)]
for future in [engine.submit(int) for _ in range(1000)]:
    future.result()
while engine._counters()["idle"] + 2 < engine._counters()["threads"]:
    time.sleep(0.001)
time.sleep(0.1)
before = usage()
time.sleep(2)
after = usage()
never.set_result(None)
for future in waiting:
    future.result()
print(after[0] - before[0], after[1] - before[1])
""")
    seconds, switches = map(float, out.split())
    assert seconds < 0.005 * 2
    assert switches <= 4  # of the main thread, around its own sleep


@pytest.mark.slow
def test_all_who_wait_for_idleness_are_told(make_engine: Any, together: Any, many_switches: None) -> None:
    """Of several threads that wait for idleness one is forgotten, or one is told while a task still runs."""
    engine = make_engine(2)
    for _ in range(200):
        gates = [threading.Event(), threading.Event()]
        futures = [engine.submit(gate.wait, PATIENCE) for gate in gates]

        def wait(futures: list[Any] = futures) -> list[bool]:
            return [engine.wait_idle(PATIENCE), *(future.done() for future in futures)]

        found = together(*[wait] * 3, *(gate.set for gate in gates))
        assert found[:3] == [[True] * 3] * 3
    assert engine.wait_idle(0) is True


def test_tasks_that_are_only_in_c(make_engine: Any) -> None:
    """A worker that runs no bytecode would keep the GIL until all its tasks have run; all others would stand still."""
    engine = make_engine(1)
    numbers = list(range(200_000))
    with held(engine):
        futures = [engine.submit(sum, numbers) for _ in range(600)]  # about a second
    futures[0].result(PATIENCE)
    assert not futures[-1].done()
    engine._cancel_pending()
