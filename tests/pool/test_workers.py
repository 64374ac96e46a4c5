"""The workers of a pool: `broadcast`, `resize`, `wait_idle`, `statistics`."""

import dataclasses
import threading
from collections.abc import Callable
from typing import Any

import pytest

import filch

Make = Callable[..., filch.Pool]
Occupy = Callable[..., list[filch.Future[Any]]]


class Ceiling:
    """How many tasks run at once, and the most there were."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.now = self.peak = 0

    def __enter__(self) -> None:
        with self.lock:
            self.now += 1
            self.peak = max(self.peak, self.now)

    def __exit__(self, *error: object) -> None:
        with self.lock:
            self.now -= 1


def meet(pool: filch.Pool, count: int) -> None:
    """Return when so many tasks have run at the same time."""
    barrier = threading.Barrier(count)
    for future in [pool.submit(barrier.wait, 20) for _ in range(count)]:
        future.result(20)


# broadcast.


@pytest.mark.parametrize("workers", [1, 3, 8])
def test_broadcast_runs_once_on_each_worker(make_pool: Make, workers: int) -> None:
    """A worker would be left out, or run the function twice, when caches are to be filled on all of them."""
    pool = make_pool(workers)
    for _ in range(5):
        futures = pool.broadcast(threading.get_ident)
        assert len(futures) == workers
        assert len({future.result(20) for future in futures} & {thread.ident for thread in pool._threads}) > 0
    barrier = threading.Barrier(workers)
    assert sorted(future.result(20) for future in pool.broadcast(barrier.wait, 20)) == list(range(workers))


def test_broadcast_waits_for_workers_that_are_busy(make_pool: Make, occupy: Occupy, gate: threading.Event) -> None:
    """A busy worker would be left out: another would run the function in its place."""
    pool = make_pool(3)
    occupy(pool, 2)
    idents: list[int] = []
    futures = pool.broadcast(lambda: idents.append(threading.get_ident()))
    while not any(future.done() for future in futures):
        pass
    assert sum(future.done() for future in futures) == 1
    gate.set()
    for future in futures:
        future.result(20)
    assert len(idents) == 3


def test_broadcast_overtakes_what_is_queued(make_pool: Make, occupy: Occupy, gate: threading.Event) -> None:
    """A message to all workers would wait behind the whole queue."""
    pool = make_pool(1)
    seen: list[str] = []
    occupy(pool)
    for _ in range(10):
        pool.submit(seen.append, "queued")
    pool.broadcast(seen.append, "broadcast")
    gate.set()
    assert pool.wait_idle(20)
    assert seen == ["broadcast"] + ["queued"] * 10


def test_an_error_in_a_broadcast_is_in_its_future(make_pool: Make) -> None:
    """One worker's failure would be that of all, or of none."""
    pool = make_pool(2)
    number = iter([1, 0])
    lock = threading.Lock()
    barrier = threading.Barrier(2)

    def divide() -> float:
        barrier.wait(20)
        with lock:
            return 1 / next(number)

    errors = [future.exception(20) for future in pool.broadcast(divide)]
    assert sorted(type(error).__name__ for error in errors) == ["NoneType", "ZeroDivisionError"]


def test_broadcast_can_be_cancelled(make_pool: Make, occupy: Occupy, gate: threading.Event) -> None:
    """What waits for a busy worker could not be taken back."""
    pool = make_pool(1)
    seen: list[int] = []
    occupy(pool)
    (future,) = pool.broadcast(seen.append, 1)
    assert future.cancel()
    gate.set()
    assert pool.wait_idle(20)
    assert seen == []


@pytest.mark.parametrize("busy", [True, False])
def test_shutdown_lets_a_broadcast_finish(make_pool: Make, occupy: Occupy, gate: threading.Event, busy: bool) -> None:
    """A message that was taken would never be delivered."""
    pool = make_pool(2)
    if busy:
        occupy(pool, 2)
    futures = pool.broadcast(abs, -1)
    pool.shutdown(wait=False)
    gate.set()
    pool.shutdown()
    assert [future.result(0) for future in futures] == [1, 1]


def test_cancel_futures_cancels_a_broadcast(make_pool: Make, occupy: Occupy, gate: threading.Event) -> None:
    """A future of a broadcast would never end."""
    pool = make_pool(2)
    occupy(pool, 2)
    futures = pool.broadcast(abs, -1)
    pool.shutdown(wait=False, cancel_futures=True)
    assert all(future.cancelled() for future in futures)
    gate.set()


def test_broadcast_after_shutdown_is_refused(make_pool: Make) -> None:
    """A message would be taken that no worker is there to get."""
    pool = make_pool(2)
    pool.shutdown()
    with pytest.raises(filch.PoolShutdown):
        pool.broadcast(abs, -1)


def test_broadcast_inside_a_task(make_pool: Make) -> None:
    """A task that broadcasts and waits would wait for its own worker for ever."""
    pool = make_pool(1)
    assert pool.submit(lambda: [future.result() for future in pool.broadcast(abs, -1)]).result(20) == [1]


# resize.


def test_resize_adds_workers_for_what_is_queued(make_pool: Make) -> None:
    """A pool that was made larger would go on with the old number of workers until something new is submitted."""
    pool = make_pool(1)
    barrier = threading.Barrier(4)
    futures = [pool.submit(barrier.wait, 20) for _ in range(4)]
    pool.resize(4)
    assert sorted(future.result(20) for future in futures) == [0, 1, 2, 3]
    assert pool.max_workers == pool._max_workers == 4


def test_resize_takes_workers_away_when_their_task_ends(make_pool: Make, occupy: Occupy, gate: threading.Event) -> None:
    """A pool that was made smaller would go on with as many tasks at once as before, or end tasks that run."""
    pool = make_pool(4)
    running = occupy(pool, 4)
    pool.resize(1)
    assert pool.max_workers == 1
    assert pool.statistics().tasks_running == 4
    ceiling = Ceiling()

    def count() -> None:
        with ceiling:
            pool.statistics()

    futures = [pool.submit(count) for _ in range(200)]
    gate.set()
    for future in [*running, *futures]:
        future.result(20)
    assert ceiling.peak == 1


@pytest.mark.parametrize("sizes", [[2, 4], [2, 1], [1, 3], [3, 8], [1, 4, 1, 2], [2, 3, 2]], ids=str)
def test_resizes_add_up_while_the_pool_is_busy(
    make_pool: Make, occupy: Occupy, gate: threading.Event, sizes: list[int]
) -> None:
    """Workers that were about to go would not count, and the pool would run more tasks at once than it says."""
    pool = make_pool(4)
    running = occupy(pool, 4)
    for size in sizes:
        pool.resize(size)
    assert pool.max_workers == sizes[-1]
    gate.set()
    for future in running:
        future.result(20)
    assert pool.wait_idle(20)
    held = occupy_again(pool, sizes[-1])
    late = pool.submit(int)
    assert pool.statistics().tasks_running == sizes[-1]
    assert pool.statistics().tasks_queued == 1
    held.set()
    assert late.result(20) == 0


def occupy_again(pool: filch.Pool, count: int) -> threading.Event:
    """Return an event; so many tasks run until it is set."""
    event, running = threading.Event(), threading.Barrier(count + 1)
    for _ in range(count):
        pool.submit(lambda: (running.wait(20), event.wait(20)))
    running.wait(20)
    return event


def test_threads_that_are_too_many_end(make_pool: Make, eventually: Any) -> None:
    """A pool that was made smaller would keep its threads for ever."""
    pool = make_pool(4, keep_alive=0.01)
    meet(pool, 4)
    assert pool.wait_idle(20)
    pool.resize(1)
    eventually(lambda: pool.statistics().threads <= 1, "the threads above the new size end")
    assert pool.submit(abs, -1).result(20) == 1


def test_a_resized_pool_ends(make_pool: Make) -> None:
    """Threads would be left behind by a pool that was resized."""
    for size in (1, 8):
        pool = make_pool(3)
        meet(pool, 3)
        pool.resize(size)
        meet(pool, size)
        pool.shutdown()
        assert pool.statistics().threads == 0


def test_nothing_is_lost_while_the_pool_is_resized(make_pool: Make, together: Callable[..., list[Any]]) -> None:
    """Tasks in the deque of a worker that is taken away would be lost, or run twice."""
    pool = make_pool(4)
    ran: list[int] = []
    over = threading.Event()

    def parent(number: int) -> None:
        for child in range(20):
            pool.submit(ran.append, number * 20 + child)

    def submit() -> None:
        try:
            for future in [pool.submit(parent, number) for number in range(200)]:
                future.result(30)
            assert pool.wait_idle(30)
        finally:
            over.set()

    def resize() -> None:
        while not over.is_set():
            for workers in (1, 5, 2, 7):
                pool.resize(workers)

    together(submit, resize)
    assert sorted(ran) == list(range(4000))


@pytest.mark.parametrize(("value", "error"), [(0, ValueError), (-1, ValueError), (1.5, TypeError), ("2", TypeError)])
def test_a_bad_size_is_refused(make_pool: Make, value: Any, error: type[Exception]) -> None:
    """A mistake would leave the pool without workers."""
    pool = make_pool(2)
    with pytest.raises(error, match=f"max_workers must be .*not {value!r}"):
        pool.resize(value)
    assert pool.max_workers == 2


# wait_idle.


def test_wait_idle_waits_for_all(make_pool: Make, occupy: Occupy, gate: threading.Event) -> None:
    """It would return while tasks are queued or running, or not wait for the tasks of tasks."""
    pool = make_pool(2)
    ran: list[int] = []

    def tree(depth: int) -> None:
        ran.append(depth)
        if depth:
            pool.submit(tree, depth - 1)
            pool.submit(tree, depth - 1)

    occupy(pool)
    pool.submit(tree, 6)
    assert not pool.wait_idle(0)
    assert not pool.wait_idle(0.01)
    gate.set()
    assert pool.wait_idle(20)
    assert pool.wait_idle()
    assert len(ran) == 2**7 - 1
    assert pool.statistics().tasks_running == 0


def test_wait_idle_of_an_unused_pool(make_pool: Make) -> None:
    """It would wait for something that is not to come."""
    pool = make_pool(2)
    assert pool.wait_idle()
    pool.shutdown()
    assert pool.wait_idle()


def test_wait_idle_looks_past_what_was_cancelled(make_pool: Make, occupy: Occupy, gate: threading.Event) -> None:
    """A cancelled task in the queue would keep the pool from being idle."""
    pool = make_pool(1)
    occupy(pool)
    for future in [pool.submit(int) for _ in range(10)]:
        assert future.cancel()
    gate.set()
    assert pool.wait_idle(20)


def test_several_wait_until_idle(
    make_pool: Make, occupy: Occupy, gate: threading.Event, together: Callable[..., list[Any]]
) -> None:
    """Only one of those who wait would be woken."""
    pool = make_pool(1)
    occupy(pool)
    assert together(*[pool.wait_idle] * 4, lambda: gate.set()) == [True] * 4 + [None]


def test_wait_idle_inside_another_pools_task(make_pool: Make) -> None:
    """A task that waits for another pool would keep its worker from what that pool waits for."""
    first, second = make_pool(1), make_pool(1)

    def task() -> bool:
        second.submit(lambda: first.submit(abs, -1).result())
        return second.wait_idle(20)

    assert first.submit(task).result(20)


def test_wait_idle_inside_its_own_task_is_refused(make_pool: Make) -> None:
    """A task that waits until its own pool has nothing to do would wait for itself for ever."""
    pool = make_pool(1)
    with pytest.raises(filch.DeadlockError):
        pool.submit(pool.wait_idle).result(20)


@pytest.mark.parametrize("value", ["1", True, [], float("nan")], ids=repr)
def test_a_bad_timeout_is_refused(make_pool: Make, value: Any) -> None:
    """A mistake would show only when there is something to wait for, or wait for ever."""
    pool = make_pool(1)
    with pytest.raises((TypeError, ValueError), match="timeout must be "):
        pool.wait_idle(value)


# statistics.


def test_statistics_count(make_pool: Make, occupy: Occupy, gate: threading.Event) -> None:
    """A number on a dashboard would be wrong."""
    pool = make_pool(2)
    assert dataclasses.asdict(pool.statistics()) == {
        "kernel": pool.statistics().kernel,
        "max_workers": 2,
        **dict.fromkeys(
            ["threads", "threads_idle", "tasks_submitted", "tasks_running", "tasks_queued", "tasks_spilled", "steals",
             "tasks_stolen", "parks", "wakes", "handoffs", "threads_started"],
            0,
        ),
    }  # fmt: skip
    occupy(pool, 2)
    queued = [pool.submit(int) for _ in range(5)]
    got = pool.statistics()
    assert (got.tasks_submitted, got.tasks_running, got.tasks_queued) == (7, 2, 5)
    assert (got.threads, got.threads_idle, got.threads_started) == (2, 0, 2)
    gate.set()
    for future in queued:
        future.result(20)
    assert pool.wait_idle(20)
    got = pool.statistics()
    assert (got.tasks_submitted, got.tasks_running, got.tasks_queued) == (7, 0, 0)
    assert (got.threads, got.threads_idle, got.threads_started) == (2, 2, 2)
    assert got.parks >= 2
    pool.shutdown()
    got = pool.statistics()
    assert (got.threads, got.threads_idle, got.threads_started) == (0, 0, 2)


def test_statistics_count_what_moves(make_pool: Make, gate: threading.Event) -> None:
    """Steals, spills and hand-offs would not show, and nobody could tell why a pool is slow."""
    pool = make_pool(2)
    stolen = threading.Event()

    def parent() -> None:
        pool.submit(stolen.set)
        assert stolen.wait(20)  # by the other worker

    pool.submit(parent).result(20)
    got = pool.statistics()
    assert got.steals >= 1
    assert got.tasks_stolen >= 1

    alone = make_pool(1)
    alone.submit(lambda: [alone.submit(int) for _ in range(257)] and None).result(20)
    assert alone.statistics().tasks_spilled == 128

    def give() -> None:
        with filch.blocking():
            assert alone.submit(abs, -1).result(20) == 1

    alone.submit(give).result(20)
    assert alone.statistics().handoffs >= 1
    assert alone.wait_idle(20)
    before = alone.statistics().wakes
    alone.submit(int).result(20)
    assert alone.statistics().wakes == before + 1


def test_statistics_are_a_snapshot(make_pool: Make) -> None:
    """A number would change under the reader, or be changed by him."""
    pool = make_pool(1)
    before = pool.statistics()
    pool.submit(int).result(20)
    assert before.tasks_submitted == 0
    with pytest.raises(dataclasses.FrozenInstanceError):
        before.tasks_submitted = 5  # type: ignore[misc]


def test_statistics_name_the_kernel(make_pool: Make) -> None:
    """Nobody could tell whether the fast kernel is in use."""
    import filch._kernel

    assert make_pool(1).statistics().kernel == filch._kernel.implementation


@pytest.mark.parametrize("value", [100_001, 2**40, 2**70])
def test_more_workers_than_any_machine_has(value: int) -> None:
    """A slip in a number would take all memory, or end the process."""
    with pytest.raises(ValueError, match=f"max_workers must be at most 100000, not {value}; each may"):
        filch.Pool(value)


def test_numbers_beyond_all_bounds_are_no_bounds(make_pool: Callable[..., filch.Pool]) -> None:
    """A number that C cannot hold would raise an error about C."""
    pool = make_pool(1, max_threads=2**70)
    assert list(pool.map(abs, [-1], chunksize=2**70)) == [1]
    assert list(pool.map(abs, [-1], buffersize=2**70)) == [1]
