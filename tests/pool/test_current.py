"""What a task finds around it: the current pool, `spawn`, the default pool, `checkpoint`, `blocking`, `isolate`."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import filch
import filch.pool.default

Make = Callable[..., filch.Pool]
Occupy = Callable[..., list[filch.Future[Any]]]


@pytest.fixture
def default(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], filch.Pool]]:
    """Return `default_pool` as it is in a new process; what it made is shut down in the end."""
    monkeypatch.setattr(filch.pool.default, "_default", None)
    yield filch.default_pool
    made = filch.pool.default._default
    if made is not None:
        made.shutdown(cancel_futures=True)


# The current pool.


def test_the_current_pool_is_that_of_the_task(make_pool: Make) -> None:
    """A library that wants to go on where it is called would find another pool, or none."""
    first, second = make_pool(1), make_pool(1)
    assert filch.current_pool() is None
    assert first.submit(filch.current_pool).result(20) is first
    assert first.options(priority=1).submit(filch.current_pool).result(20) is first
    assert list(first.map(lambda _: filch.current_pool(), range(2))) == [first] * 2
    assert first.submit(lambda: second.submit(filch.current_pool).result()).result(20) is second
    assert first.submit(lambda: (second.submit(int).result(), filch.current_pool())[1]).result(20) is first
    assert filch.current_pool() is None


def test_a_threads_own_thread_has_no_current_pool(make_pool: Make) -> None:
    """A thread that a task starts would submit as if it were the task."""
    pool = make_pool(1)
    seen: list[Any] = []

    def task() -> None:
        thread = threading.Thread(target=lambda: seen.append(filch.current_pool()))
        thread.start()
        thread.join()

    pool.submit(task).result(20)
    assert seen == [None]


def test_a_done_callback_finds_the_pool(make_pool: Make, gate: threading.Event) -> None:
    """A callback that goes on with `spawn` would leave the pool of the task."""
    pool = make_pool(1)
    seen: list[Any] = []
    called = threading.Event()
    future = pool.submit(gate.wait, 20)
    future.add_done_callback(lambda _: (seen.append(filch.current_pool()), called.set()))
    gate.set()
    assert called.wait(20)
    assert seen == [pool]


# spawn and the default pool.


def test_spawn_goes_to_the_current_pool(make_pool: Make) -> None:
    """A task's tasks would go to another pool than its own."""
    pool = make_pool(2, "mine")
    name = pool.submit(lambda: filch.spawn(lambda: threading.current_thread().name).result()).result(20)
    assert name.startswith("mine_")


def test_spawn_outside_of_tasks_goes_to_the_default_pool(default: Callable[[], filch.Pool]) -> None:
    """A call outside of a pool would have nowhere to go."""
    assert filch.spawn(filch.current_pool).result(20) is default()
    assert filch.spawn(lambda: threading.current_thread().name).result(20).startswith("filch-default_")
    assert filch.spawn(divmod, 7, 2).result(20) == (3, 1)


def test_there_is_one_default_pool(
    default: Callable[[], filch.Pool], together: Callable[..., list[Any]], many_switches: None
) -> None:
    """Libraries that use it would each get threads of their own, and too many in all."""
    assert len({id(pool) for pool in together(*[default] * 8)}) == 1
    assert default() is default()


def test_a_default_pool_that_was_shut_down_is_made_anew(default: Callable[[], filch.Pool]) -> None:
    """One who shuts it down would take it from all others for good."""
    first = default()
    first.submit(int).result(20)
    first.shutdown()
    second = default()
    assert second is not first
    assert filch.spawn(abs, -1).result(20) == 1
    assert second.submit(filch.current_pool).result(20) is second


def test_the_default_pool_heeds_the_environment(
    default: Callable[[], filch.Pool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user could not say how many threads the libraries of his program start."""
    monkeypatch.setenv("FILCH_MAX_WORKERS", "7")
    assert default().max_workers == 7


def test_a_mistake_in_the_environment_is_not_for_good(
    default: Callable[[], filch.Pool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A default pool that could not be made would be half there."""
    monkeypatch.setenv("FILCH_MAX_WORKERS", "x")
    with pytest.raises(ValueError, match="FILCH_MAX_WORKERS"):
        default()
    monkeypatch.setenv("FILCH_MAX_WORKERS", "2")
    assert default().submit(abs, -1).result(20) == 1


def test_importing_makes_no_default_pool(run_script: Callable[..., str]) -> None:
    """Every program would pay for it; and a FILCH_MAX_WORKERS that is wrong would break the import."""
    source = "import filch, filch.pool.default; print(filch.pool.default._default)"
    assert run_script(source, environment={"FILCH_MAX_WORKERS": "x"}) == "None\n"


# checkpoint and interrupt.


def test_a_checkpoint_outside_of_tasks_does_nothing() -> None:
    """Code with checkpoints could not be called without a pool."""
    filch.checkpoint()


def test_a_checkpoint_in_an_innocent_task_does_nothing(make_pool: Make) -> None:
    """A task would be stopped that nobody asked to stop."""
    assert make_pool(1).submit(filch.checkpoint).result(20) is None


def test_a_checkpoint_raises_until_the_end(make_pool: Make, gate: threading.Event) -> None:
    """A task that goes on after the first checkpoint, by mistake, could not be stopped any more."""
    pool = make_pool(1)
    entered = threading.Event()
    caught: list[Any] = []

    def stubborn() -> int:
        entered.set()
        gate.wait(20)
        for _ in range(3):
            try:
                filch.checkpoint()
            except filch.Cancelled as error:
                caught.append(error)
        return len(caught)

    future = pool.submit(stubborn)
    assert entered.wait(20)
    assert future.interrupt()
    gate.set()
    assert future.result(20) == 3


def test_an_interrupt_is_for_one_task(make_pool: Make, gate: threading.Event) -> None:
    """The next task on the thread would be stopped in its place."""
    pool = make_pool(1)
    entered = threading.Event()

    def task() -> None:
        entered.set()
        gate.wait(20)

    first = pool.submit(task)
    assert entered.wait(20)
    second = pool.submit(filch.checkpoint)
    assert first.interrupt()
    gate.set()
    assert first.result(20) is None
    assert second.result(20) is None


def test_an_interrupt_does_not_stop_the_child_on_the_same_stack(make_pool: Make, gate: threading.Event) -> None:
    """A task that runs on the stack of its waiting parent would be stopped in the parent's place, or the parent not."""
    pool = make_pool(1)
    entered = threading.Event()
    ended: list[str] = []

    def child() -> None:
        entered.set()
        assert gate.wait(20)
        filch.checkpoint()
        ended.append("child")

    def parent() -> None:
        pool.submit(child).result()
        filch.checkpoint()
        ended.append("parent")

    future = pool.submit(parent)
    assert entered.wait(20)
    assert future.interrupt()
    gate.set()
    assert isinstance(future.exception(20), filch.Cancelled)
    assert pool.wait_idle(20)
    assert ended == ["child"]


# blocking.


def test_blocking_lets_another_task_run(make_pool: Make) -> None:
    """A task that waits for something outside of the pool would hold up all others."""
    pool = make_pool(1)
    event = threading.Event()

    def blocks() -> bool:
        with filch.blocking():
            return event.wait(20)

    future = pool.submit(blocks)
    pool.submit(event.set)
    assert future.result(20)


def test_blocking_nests_and_repeats(make_pool: Make) -> None:
    """A library that blocks inside of one that blocks would give away, or take back, twice."""
    pool = make_pool(1)
    block = filch.blocking()

    def step() -> int:
        return pool.submit(abs, -1).result(20)

    def blocks() -> int:
        total = 0
        for _ in range(3):
            with block:
                with filch.blocking():
                    total += step()
                total += step()
        return total

    assert pool.submit(blocks).result(20) == 6
    assert pool.wait_idle(20)
    assert pool.statistics().tasks_running == 0


def test_blocking_ends_with_an_error(make_pool: Make) -> None:
    """A block that raises would leave the task without its processor, or the pool with one too many."""
    pool = make_pool(1)

    def blocks() -> int:
        for _ in range(5):
            with contextlib.suppress(LookupError), filch.blocking():
                raise LookupError
        return pool.submit(abs, -1).result()

    assert pool.submit(blocks).result(20) == 1
    assert pool.wait_idle(20)


def test_blocking_outside_of_tasks_does_nothing(make_pool: Make) -> None:
    """Code that blocks could not be called without a pool."""
    with filch.blocking():
        assert make_pool(1).submit(abs, -1).result(20) == 1


def test_no_more_than_max_workers_run_after_a_block(make_pool: Make) -> None:
    """Tasks that come back from a block would stay above the limit: after they end, one more would run for ever."""
    pool = make_pool(2)
    barrier = threading.Barrier(8)

    def blocks() -> None:
        with filch.blocking():
            barrier.wait(20)  # all eight at once, on two processors

    for future in [pool.submit(blocks) for _ in range(8)]:
        future.result(20)
    assert pool.wait_idle(20)
    held, release = threading.Barrier(3), threading.Event()
    for _ in range(2):
        pool.submit(lambda: (held.wait(20), release.wait(20)))
    held.wait(20)
    third = pool.submit(int)
    assert pool.statistics().tasks_running == 2
    assert not third.done()
    release.set()
    assert third.result(20) == 0


def test_threads_that_stood_in_end(make_pool: Make, eventually: Any) -> None:
    """Every burst of blocking tasks would leave its threads behind for good."""
    pool = make_pool(1, keep_alive=0.01)
    barrier = threading.Barrier(6)

    def blocks() -> None:
        with filch.blocking():
            barrier.wait(20)

    for future in [pool.submit(blocks) for _ in range(6)]:
        future.result(20)
    eventually(lambda: pool.statistics().threads == 1, "the threads above max_workers end")
    assert pool.submit(abs, -1).result(20) == 1


# isolate.


def test_isolate_runs_nothing_on_the_waiting_stack(make_pool: Make) -> None:
    """A task that holds something its own children want as well would meet itself."""
    pool = make_pool(1)
    lock = threading.Lock()
    entered: list[int] = []

    def child() -> int:
        entered.append(threading.get_ident())
        with lock:
            return threading.get_ident()

    def parent() -> tuple[int, int]:
        future = pool.submit(child)
        with filch.isolate(), lock:
            with contextlib.suppress(TimeoutError):
                future.result(0.05)
            assert threading.get_ident() not in entered
        return threading.get_ident(), future.result()

    own, childs = pool.submit(parent).result(20)
    assert own != childs


def test_isolate_ends_with_its_block(make_pool: Make) -> None:
    """After an isolated part every wait would cost a thread; a task run elsewhere would inherit the isolation."""
    pool = make_pool(1)

    def parent() -> bool:
        with contextlib.suppress(LookupError), filch.isolate(), filch.isolate():
            raise LookupError
        return pool.submit(threading.get_ident).result() == threading.get_ident()

    assert pool.submit(parent).result(20)


def test_isolate_is_for_one_task(make_pool: Make) -> None:
    """A task that runs on another's stack, or after it on the same thread, would inherit its isolation."""
    pool = make_pool(1)

    def waits() -> bool:
        return pool.submit(threading.get_ident).result() == threading.get_ident()

    def forgets() -> None:
        filch.isolate().__enter__()

    pool.submit(forgets).result(20)
    assert pool.submit(waits).result(20)


def test_isolate_outside_of_tasks_does_nothing(make_pool: Make) -> None:
    """Code that isolates itself could not be called without a pool."""
    with filch.isolate():
        assert make_pool(1).submit(abs, -1).result(20) == 1
