"""The moment in which a future ends, against whoever begins to wait for it, listens or ends it at that moment.

A future makes its condition and its list of waiters only when somebody asks for them, so each race here is also one
between their making and the end.
"""

import concurrent.futures
import random
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kernel.engines import PATIENCE, held, results, spin_until

ROUNDS = 500


def by_result(future: Any) -> Any:
    return future.result(PATIENCE)


def by_wait(future: Any) -> Any:
    done, not_done = concurrent.futures.wait([future], PATIENCE)
    assert (done, not_done) == ({future}, set())
    return future.result(0)


def by_as_completed(future: Any) -> Any:
    (done,) = concurrent.futures.as_completed([future], PATIENCE)
    assert done is future
    return future.result(0)


def by_callback(future: Any) -> Any:
    called = threading.Semaphore(0)
    future.add_done_callback(lambda _: called.release())
    assert called.acquire(timeout=PATIENCE)
    return future.result(0)


def by_condition(future: Any) -> Any:
    """As the standard library's `result` does it."""
    with future._condition:
        if future._state not in ("FINISHED", "CANCELLED_AND_NOTIFIED"):
            assert future._condition.wait(PATIENCE)
        return future._result


WAYS: list[Callable[[Any], Any]] = [by_result, by_wait, by_as_completed, by_callback, by_condition]


class Race:
    """Rounds of one task each, which ends at the very moment when all who are interested in it arrive."""

    def __init__(self, engine: Any, rounds: int, runners: int, seed: int) -> None:
        self.engine = engine
        self.rounds = rounds
        self.runners = runners
        self.missing = [runners + 1] * rounds  # the task itself is one
        self.futures: list[Any] = []
        self.random = random.Random(seed)
        self.lock = threading.Lock()

    def arrive(self, number: int) -> None:
        with self.lock:
            self.missing[number] -= 1
        spin_until(lambda: not self.missing[number])

    def run(self, number: int, delay: int) -> int:
        self.arrive(number)
        for _ in range(delay):
            pass
        return number

    def __iter__(self) -> Iterator[tuple[int, Any]]:
        """Yield each round's number and future, to everybody at about the same time."""
        for number in range(self.rounds):
            with self.lock:
                if len(self.futures) == number:
                    self.futures.append(self.engine.submit(self.run, number, self.random.randrange(60)))
            self.arrive(number)
            yield number, self.futures[number]

    def check(self) -> None:
        assert results(self.futures) == list(range(self.rounds))


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2, 4])
@pytest.mark.parametrize("way", WAYS)
def test_whoever_comes_while_it_ends(
    make_engine: Any, together: Any, many_switches: None, seed: int, way: Any, workers: int
) -> None:
    """Somebody who begins to wait at the moment of the end is not woken, or sees no result."""
    race = Race(make_engine(workers), ROUNDS, 2, seed)
    assert together(*[lambda: [way(future) for _, future in race]] * 2) == [list(range(ROUNDS))] * 2
    race.check()


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_a_task_comes_while_it_ends(make_engine: Any, together: Any, many_switches: None, seed: int, way: Any) -> None:
    """A task that begins to wait at the moment of the end is not woken, or sees no result."""
    race, others = Race(make_engine(2), ROUNDS, 2, seed), make_engine(2)
    futures = [others.submit(lambda: [way(future) for _, future in race]) for _ in range(2)]
    assert results(futures) == [list(range(ROUNDS))] * 2
    race.check()


@pytest.mark.slow
def test_all_ways_at_once(make_engine: Any, together: Any, many_switches: None, seed: int) -> None:
    """Two ways of waiting for one future keep each other from being woken."""
    race = Race(make_engine(2), ROUNDS, len(WAYS), seed)
    found = together(*[lambda way=way: [way(future) for _, future in race] for way in WAYS])
    assert found == [list(range(ROUNDS))] * len(WAYS)
    race.check()


@pytest.mark.slow
def test_ended_from_outside_while_it_runs(make_engine: Any, together: Any, many_switches: None, seed: int) -> None:
    """A task that is given up at the moment of its end ends twice, or in another way than somebody was told."""
    race = Race(make_engine(2), ROUNDS, 2, seed)
    error = KeyError()
    found, calls = together(
        lambda: [future.expire(error) for _, future in race],
        lambda: [future.exception(PATIENCE) is error for _, future in race],
    )
    assert found == calls
    assert [future.exception() is error for future in race.futures] == found
    assert [future.done() and not future.cancelled() for future in race.futures] == [True] * ROUNDS


@pytest.mark.slow
@pytest.mark.parametrize("end", ["cancel", "expire"])
def test_ended_from_outside_while_it_starts(
    make_engine: Any, together: Any, many_switches: None, seed: int, end: str
) -> None:
    """A task that is cancelled or given up as it starts ends twice, or runs although `cancel` said that it will not."""
    engine = make_engine(2)
    ran = [0] * ROUNDS * 4
    ended = [False] * len(ran)
    called = [0] * len(ran)
    futures: list[Any] = []

    def run(number: int) -> int:
        ran[number] += 1
        return number

    def produce() -> None:
        for number in range(len(ran)):
            future = engine.submit(run, number)
            future.add_done_callback(lambda _, number=number: called.__setitem__(number, called[number] + 1))
            futures.append(future)

    def finish() -> None:
        for number in range(len(ran)):
            spin_until(lambda number=number: len(futures) > number)
            future = futures[number]
            ended[number] = future.cancel() if end == "cancel" else future.expire(KeyError(number))

    together(produce, finish)
    assert engine.wait_idle(PATIENCE)
    assert called == [1] * len(ran)
    for number, future in enumerate(futures):
        if end == "cancel":
            assert future.cancelled() == ended[number] == (not ran[number])
        elif ended[number]:
            assert isinstance(future.exception(0), KeyError)
            assert ran[number] <= 1
        else:
            assert (future.result(0), ran[number]) == (number, 1)


@pytest.mark.slow
def test_callbacks_added_while_it_ends(make_engine: Any, together: Any, many_switches: None, seed: int) -> None:
    """A callback that is added at the moment of the end runs twice or never."""
    engine = make_engine(2)
    race = Race(engine, ROUNDS, 3, seed)
    calls = [[0] * ROUNDS for _ in range(3)]

    def add(mine: list[int]) -> None:
        for number, future in race:
            future.add_done_callback(lambda _, number=number: mine.__setitem__(number, mine[number] + 1))

    together(*(lambda mine=mine: add(mine) for mine in calls))
    race.check()
    assert engine.wait_idle(PATIENCE)
    assert calls == [[1] * ROUNDS] * 3


@pytest.mark.parametrize("return_when", ["FIRST_COMPLETED", "FIRST_EXCEPTION", "ALL_COMPLETED"])
def test_wait_for_some_of_many(make_engine: Any, return_when: str) -> None:
    """`wait()` comes back too early, too late or with the wrong futures."""
    engine = make_engine(3)
    gates = [threading.Event() for _ in range(3)]

    def run(gate: threading.Event) -> None:
        assert gate.wait(PATIENCE)
        if gate is gates[1]:
            raise LookupError

    futures = [engine.submit(run, gate) for gate in gates]
    assert concurrent.futures.wait(futures, 0.01, return_when).not_done == set(futures)
    ends = {"FIRST_COMPLETED": 1, "FIRST_EXCEPTION": 2, "ALL_COMPLETED": 3}[return_when]
    for number in range(ends):
        if number:
            assert concurrent.futures.wait(futures, 0.01, return_when).not_done >= set(futures[number:])
        gates[number].set()
        concurrent.futures.wait([futures[number]], PATIENCE)
    done, not_done = concurrent.futures.wait(futures, PATIENCE, return_when)
    assert (done, not_done) == (set(futures[:ends]), set(futures[ends:]))
    for gate in gates:
        gate.set()
    assert isinstance(futures[1].exception(PATIENCE), LookupError)


def test_as_completed_in_the_order_of_the_ends(make_engine: Any) -> None:
    """`as_completed()` yields in another order than the tasks ended in, or yields one twice."""
    engine = make_engine(4)
    gates = [threading.Event() for _ in range(4)]
    futures = [engine.submit(gate.wait, PATIENCE) for gate in gates]
    stream = concurrent.futures.as_completed(futures, PATIENCE)
    for number in (2, 0, 3, 1):
        gates[number].set()
        assert next(stream) is futures[number]
    assert list(stream) == []


def test_cancelling_wakes_wait_and_as_completed(make_engine: Any, together: Any) -> None:
    """Somebody waits for a cancelled task until the worker comes to it."""
    engine = make_engine()
    with held(engine):
        futures = [engine.submit(int) for _ in range(3)]
        found = together(
            lambda: concurrent.futures.wait(futures, PATIENCE).done,
            lambda: set(concurrent.futures.as_completed(futures, PATIENCE)),
            lambda: [future.cancel() for future in futures],
        )
    assert found == [set(futures), set(futures), [True] * 3]


def test_the_condition_stays_the_same(make_engine: Any) -> None:
    """Two who reach for the condition of a future get two conditions."""
    future = make_engine().submit(int)
    conditions = {id(future._condition) for _ in range(3)}
    assert len(conditions) == 1
    assert future.result(PATIENCE) == 0
    assert id(future._condition) in conditions


@pytest.mark.slow
def test_one_condition_for_all(kernel: Any, together: Any, many_switches: None) -> None:
    """Threads that reach for the condition of a future at the same time get different ones."""
    for _ in range(100):
        future = kernel.Future()
        found = together(*[lambda future=future: (future._condition, future._waiters)] * 3)
        assert len({id(condition) for condition, _ in found}) == 1
        assert len({id(waiters) for _, waiters in found}) == 1
