"""Circles of tasks that wait for each other are refused to the one that closes them, and nothing else is."""

import concurrent.futures
import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from filch.exceptions import DeadlockError
from kernel.engines import PATIENCE, results, spin_until


def ask_by(how: str, future: Any) -> Any:
    if how == "wait":
        concurrent.futures.wait([future])
    elif how == "as_completed":
        list(concurrent.futures.as_completed([future]))
    return future.exception() if how == "exception" else future.result()


@pytest.mark.parametrize("how", ["result", "exception", "wait", "as_completed"])
def test_a_task_that_waits_for_itself(kernel: ModuleType, make_engine: Any, how: str) -> None:
    """A task that waits for its own end waits for ever."""
    engine = make_engine()

    def narcissus() -> None:
        ask_by(how, kernel.current_future())

    future = engine.submit(narcissus)
    with pytest.raises(DeadlockError, match=r"narcissus.* waits for .*narcissus"):
        future.result(PATIENCE)
    assert engine.submit(int).result(PATIENCE) == 0
    assert engine._counters()["excess"] == 0


@pytest.mark.parametrize("how", ["result", "wait", "as_completed"])
@pytest.mark.parametrize("length", [2, 3, 5])
@pytest.mark.parametrize("spare", [True, False])
def test_a_circle_across_threads(make_engine: Any, length: int, spare: bool, how: str) -> None:
    """Tasks on threads of their own wait for each other for ever, or another one than the last is refused."""
    engine = make_engine(length, **{} if spare else {"max_threads": length})
    started = threading.Barrier(length)
    futures: list[Any] = []
    ready = threading.Event()

    def link(number: int) -> str:
        started.wait(PATIENCE)
        assert ready.wait(PATIENCE)
        # One after the other goes to sleep, and the last closes the circle.
        spin_until(lambda: engine._counters()["handoffs"] == number)
        try:
            return str(ask_by(how, futures[(number + 1) % length]))
        except DeadlockError as error:
            return str(error)

    futures += [engine._spawn(link, (number,), name=f"link {number}") for number in range(length)]
    ready.set()
    found = results(futures)
    assert len(set(found)) == 1  # the last one's, handed on
    places = [found[0].index(f"'link {number}'") for number in (length - 1, *range(length - 1))]
    assert places == sorted(places)
    assert found[0].count(f"'link {length - 1}'") == 2
    assert engine._counters()["excess"] == 0


def test_a_circle_on_one_stack(kernel: ModuleType, make_engine: Any) -> None:
    """A task that runs on top of another one waits for that for ever."""
    engine = make_engine()

    def upper(under: Any) -> str:
        with pytest.raises(DeadlockError, match=r"upper.* waits for .*lower"):
            under.result()
        return "upper"

    def lower() -> str:
        return str(engine.submit(upper, kernel.current_future()).result())

    assert engine.submit(lower).result(PATIENCE) == "upper"
    assert engine._counters()["threads_started"] == 1


def test_a_circle_through_a_stack(make_engine: Any) -> None:
    """A circle is not seen when one of its tasks lies under another one that waits."""
    engine = make_engine(2)
    futures: dict[str, Any] = {}
    ready, begun = threading.Event(), threading.Event()

    def upper() -> str:
        return str(futures["other"].result())

    def lower() -> str:
        assert ready.wait(PATIENCE)
        return str(engine.submit(upper).result())

    def other() -> str:
        begun.set()
        assert ready.wait(PATIENCE)
        spin_until(lambda: engine._counters()["handoffs"] == 1)
        with pytest.raises(DeadlockError):
            futures["lower"].result()
        return "other"

    futures["lower"], futures["other"] = engine.submit(lower), engine.submit(other)
    assert begun.wait(PATIENCE)  # else it may run on top of the others, and nobody gives a processor away
    ready.set()
    assert futures["lower"].result(PATIENCE) == "other"


def test_a_circle_across_engines(make_engine: Any) -> None:
    """Tasks of two engines wait for each other for ever."""
    engines = [make_engine(), make_engine()]
    futures: list[Any] = []
    ready = threading.Event()

    def link(number: int) -> str:
        assert ready.wait(PATIENCE)
        if number == 1:
            spin_until(lambda: engines[0]._counters()["handoffs"] == 1)
        try:
            return str(futures[1 - number].result())
        except DeadlockError:
            return f"refused to {number}"

    futures += [engine.submit(link, number) for number, engine in enumerate(engines)]
    ready.set()
    assert results(futures) == ["refused to 1"] * 2


@pytest.mark.parametrize("how", ["all", "each"])
def test_a_circle_with_one_of_several(kernel: ModuleType, make_engine: Any, how: str) -> None:
    """A wait for several tasks is not refused although one of them can never end."""
    engine = make_engine()

    def run() -> None:
        futures = [engine.submit(int), kernel.current_future()]
        if how == "all":
            concurrent.futures.wait(futures)
        else:
            list(concurrent.futures.as_completed(futures))

    with pytest.raises(DeadlockError):
        engine.submit(run).result(PATIENCE)


def test_a_wait_for_any_of_several_is_no_circle(kernel: ModuleType, make_engine: Any) -> None:
    """A wait for any of several tasks is refused because one of them cannot end."""
    engine = make_engine()

    def run() -> int:
        me, other = kernel.current_future(), kernel.Future()
        engine.submit(other.set_result, None)
        return len(concurrent.futures.wait([me, other], return_when="FIRST_COMPLETED").done)

    assert engine.submit(run).result(PATIENCE) == 1


@pytest.mark.parametrize("how", ["result", "wait", "as_completed"])
def test_timed_waits_time_out_instead(kernel: ModuleType, make_engine: Any, how: str) -> None:
    """A wait with a timeout, which ends anyway, is refused, or does not end."""
    engine = make_engine()

    def run() -> str:
        me = kernel.current_future()
        if how == "result":
            with pytest.raises(TimeoutError):
                me.result(0.02)
        elif how == "wait":
            assert concurrent.futures.wait([me], 0.02).not_done == {me}
        else:
            with pytest.raises(TimeoutError):
                list(concurrent.futures.as_completed([me], 0.02))
        return "timed out"

    assert engine.submit(run).result(PATIENCE) == "timed out"


def test_a_timed_wait_breaks_the_circle(make_engine: Any) -> None:
    """A circle in which one wait has a timeout is refused, although it ends by itself."""
    engine = make_engine(2)
    futures: list[Any] = []
    ready = threading.Event()

    def timed() -> str:
        assert ready.wait(PATIENCE)
        try:
            return str(futures[1].result(0.2))
        except TimeoutError:
            return "timed out"

    def untimed() -> str:
        assert ready.wait(PATIENCE)
        spin_until(lambda: engine._counters()["handoffs"] == 1)
        return str(futures[0].result())

    futures += [engine.submit(timed), engine.submit(untimed)]
    ready.set()
    assert results(futures) == ["timed out"] * 2


def test_what_ends_by_other_hands_is_no_circle(kernel: ModuleType, make_engine: Any) -> None:
    """A wait for a future made by hand, or for many that wait for the same one, is taken for a circle."""
    engine = make_engine(2)
    outside = kernel.Future()
    first = [engine.submit(outside.result) for _ in range(3)]
    second = [engine.submit(lambda: [future.result() for future in first]) for _ in range(3)]
    third = engine.submit(lambda: [future.result() for future in second])
    engine.submit(outside.set_result, 1).result(PATIENCE)
    assert third.result(PATIENCE) == [[1] * 3] * 3


@pytest.mark.slow
def test_no_false_alarm_under_load(make_engine: Any, together: Any) -> None:
    """Fork-join at the limit of threads, where waits are many and short, is taken for a circle."""
    engine = make_engine(4, max_threads=6)

    def fib(n: int) -> int:
        if n < 2:
            return n
        futures = [engine.submit(fib, n - 1), engine.submit(fib, n - 2)]
        return sum(future.result() for future in futures)

    spawn: Callable[[], int] = lambda: engine.submit(fib, 12).result(PATIENCE)  # noqa: E731
    assert together(*[spawn] * 3) == [144] * 3
