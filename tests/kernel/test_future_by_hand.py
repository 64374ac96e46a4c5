"""A future made by hand does all that the standard library's own does, with that one beside it as the oracle.

Not here: futures of tasks.
"""

import asyncio
import concurrent.futures
import gc
import re
import threading
from collections.abc import Callable
from contextlib import suppress
from types import ModuleType
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from kernel.engines import PATIENCE

Oracle = concurrent.futures.Future
# What may be asked or done without further ado.
PLAIN = ("cancel", "done", "running", "cancelled", "set_running_or_notify_cancel")


class Pair(RuleBasedStateMachine):
    """One future of each kind; whatever is done to both must come to the same."""

    make: Callable[[], Any]
    log: Any

    def __init__(self) -> None:
        super().__init__()
        self.pair = (self.make(), Oracle())
        self.called: tuple[list[Any], list[Any]] = ([], [])
        self.callbacks = 0

    def both(self, act: Callable[[Any], Any]) -> None:
        """Do it to both, and compare what comes back or is raised; then all that can be seen of the futures."""
        outcomes = []
        for future in self.pair:
            try:
                outcomes.append(act(future))
            except (Exception, concurrent.futures.CancelledError) as error:
                # Messages name the future, and so differ.
                outcomes.append((type(error), str(error) if isinstance(error, LookupError) else None))
        assert outcomes[0] == outcomes[1]
        mine, oracle = self.pair
        assert mine._state == oracle._state
        assert (mine.done(), mine.running(), mine.cancelled()) == (oracle.done(), oracle.running(), oracle.cancelled())
        assert self.called[0] == self.called[1]
        assert re.sub(r"(<\w+ at )\w+", r"\1", repr(mine)) == re.sub(r"(<\w+ at )\w+", r"\1", repr(oracle))
        if oracle._state == "FINISHED":
            assert (mine._result, mine._exception) == (oracle._result, oracle._exception)

    @rule(name=st.sampled_from(PLAIN))
    def plain(self, name: str) -> None:
        self.both(lambda future: getattr(future, name)())

    @rule(result=st.integers(0, 9))
    def set_result(self, result: int) -> None:
        self.both(lambda future: future.set_result(result))

    @rule(kind=st.sampled_from([LookupError, KeyError, StopIteration]))
    def set_exception(self, kind: type[Exception]) -> None:
        error = kind("set")
        self.both(lambda future: future.set_exception(error))

    @rule()
    def add_done_callback(self) -> None:
        number = self.callbacks = self.callbacks + 1
        for future, called in zip(self.pair, self.called, strict=True):
            future.add_done_callback(lambda done, called=called: called.append((number, done._state)))
        self.both(lambda _: None)

    @rule()
    def add_bad_callback(self) -> None:
        def fail(_: Any) -> None:
            raise LookupError

        self.both(lambda future: future.add_done_callback(fail))

    @rule(name=st.sampled_from(["result", "exception"]), timeout=st.sampled_from([0, -1]))
    def ask(self, name: str, timeout: float) -> None:
        self.both(lambda future: getattr(future, name)(timeout=timeout))

    @rule(return_when=st.sampled_from(["ALL_COMPLETED", "FIRST_COMPLETED", "FIRST_EXCEPTION"]))
    def wait(self, return_when: str) -> None:
        def wait(future: Any) -> list[bool]:
            other = Oracle()
            other.set_result(None)
            done, not_done = concurrent.futures.wait([future, other], 0, return_when)
            return [future in done, future in not_done, other in done]

        self.both(wait)
        self.both(lambda future: len(list(concurrent.futures.as_completed([future], 0))))

    def teardown(self) -> None:
        # Both complain in the same words and equally often: of states that cannot be, and of bad callbacks.
        complaints = self.log.take("concurrent.futures")
        assert len(complaints) % 2 == 0


@pytest.mark.slow
def test_whatever_is_done_to_it(kernel: ModuleType, log: Any) -> None:
    """A future made by hand answers otherwise than the standard library's own."""
    machine = type("Pair", (Pair,), {"make": kernel.Future, "log": log})
    run_state_machine_as_test(machine, settings=settings(max_examples=150, stateful_step_count=12))


@pytest.mark.parametrize("first", ["cancel", "set_result", "set_exception", "start", "interrupt", "expire"])
@pytest.mark.parametrize("waiting", ["result", "exception", "wait", "as_completed"])
def test_whoever_waits_is_woken(kernel: ModuleType, eventually: Any, waiting: str, first: str) -> None:
    """A thread that waits for a future made by hand sleeps through its end."""
    future = kernel.Future()
    ends = []

    def wait() -> None:
        try:
            if waiting == "wait":
                concurrent.futures.wait([future], PATIENCE)
            elif waiting == "as_completed":
                list(concurrent.futures.as_completed([future], PATIENCE))
            else:
                getattr(future, waiting)(PATIENCE)
        except BaseException as error:
            ends.append(type(error))
        else:
            ends.append(None)

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    # Nothing shows that a thread has gone to sleep; the races around that are in test_completion.
    if first == "start":
        assert future.set_running_or_notify_cancel() is True
        future.set_result(1)
    elif first in ("cancel", "interrupt"):
        assert getattr(future, first)() is True
        assert future._state == "CANCELLED"
        assert future.set_running_or_notify_cancel() is False
    else:
        arguments = {"set_result": 1, "set_exception": LookupError(), "expire": LookupError()}
        getattr(future, first)(arguments[first])
    thread.join(PATIENCE)
    assert not thread.is_alive()
    if waiting in ("result", "exception") and first in ("cancel", "interrupt"):
        assert ends == [concurrent.futures.CancelledError]
    elif waiting == "result" and first in ("set_exception", "expire"):
        assert ends == [LookupError]
    else:
        assert ends == [None]
    if future._state == "FINISHED":
        future.exception()


def test_its_error_is_nobodys_business(kernel: ModuleType) -> None:
    """An error set by hand that nobody asks for is logged, which the standard library does not do."""
    kernel.Future().set_exception(LookupError())
    gc.collect()


def test_interrupt_while_it_runs(kernel: ModuleType) -> None:
    """A running future made by hand cannot be asked to stop, or pretends that it did."""
    future = kernel.Future()
    assert future.set_running_or_notify_cancel()
    assert future.interrupt() is True
    assert future.running()
    future.set_result(1)
    assert future.interrupt() is False
    assert future.result(0) == 1


@pytest.mark.parametrize("end", ["set_result", "set_exception", "cancel"])
def test_in_an_event_loop(kernel: ModuleType, end: str) -> None:
    """asyncio cannot await a future made by hand, or its end does not come through."""
    future = kernel.Future()

    async def wait(loop_future: Any) -> Any:
        with suppress(LookupError, asyncio.CancelledError):
            return await loop_future

    async def main() -> list[Any]:
        waiting = [asyncio.ensure_future(wait(future)), asyncio.ensure_future(wait(asyncio.wrap_future(future)))]
        await asyncio.sleep(0)
        assert not any(each.done() for each in waiting)
        thread = threading.Thread(target=finish)
        thread.start()
        found = await asyncio.wait_for(asyncio.gather(*waiting), PATIENCE)
        thread.join()
        return found

    def finish() -> None:
        if end == "cancel":
            assert future.cancel()
            future.set_running_or_notify_cancel()
        else:
            getattr(future, end)(LookupError() if end == "set_exception" else 7)

    assert asyncio.run(main()) == ([7, 7] if end == "set_result" else [None, None])


def test_cancelling_the_awaiting_coroutine_cancels_it(kernel: ModuleType) -> None:
    """A future goes on when the coroutine that awaits it is cancelled."""
    future = kernel.Future()

    async def main() -> None:
        waiting = asyncio.ensure_future(asyncio.wait_for(future, PATIENCE))
        await asyncio.sleep(0)
        waiting.cancel()
        with suppress(asyncio.CancelledError):
            await waiting

    asyncio.run(main())
    assert future.cancelled()


def test_exactly_one_of_many_ends_it(kernel: ModuleType, together: Any, many_switches: None) -> None:
    """Two threads both believe that they ended the same future."""
    for _ in range(200):
        future = kernel.Future()
        ends: list[Any] = []
        future.add_done_callback(ends.append)

        def by_cancel(future: Any = future) -> bool:
            return bool(future.cancel())

        def by_result(future: Any = future) -> bool:
            try:
                future.set_result(1)
            except concurrent.futures.InvalidStateError:
                return False
            return True

        def by_expiry(future: Any = future) -> bool:
            return bool(future.expire(KeyError()))

        assert sum(together(by_cancel, by_result, by_expiry)) == 1
        assert ends == [future]
        with suppress(concurrent.futures.CancelledError):
            future.exception(0)
