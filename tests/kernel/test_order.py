"""Which of the waiting tasks runs next: deques, injector, batches, thieves, priorities, and what keeps them fair.

Orders are told for one worker, where there is nothing left to chance, and compared with models made of lists.
Not here: that every task runs at all.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernel.engines import PATIENCE, elsewhere, held, results, running

RING = 256  # tasks in a local deque
STEAL = 32  # tasks that a thief takes at most
BATCH = 128  # tasks that a worker takes from the injector at most
FAIR = 61  # one in so many dispatches looks at the injector first; one in so many of its takes serves the oldest


@pytest.mark.parametrize("count", [1, 2, 127, 128, 129, 1000, 5000])
def test_from_outside_first_in_first_out(make_engine: Any, lifo: bool, count: int) -> None:
    """Tasks from outside run in another order than they were submitted in, whatever batches they are taken in."""
    engine = make_engine(lifo=lifo)
    order: list[int] = []
    with held(engine):
        futures = [engine.submit(order.append, number) for number in range(count)]
    results(futures)
    assert order == list(range(count))


@pytest.mark.parametrize("noise", [False, True], ids=["alone", "beside_spawns"])
def test_each_producer_in_its_order(make_engine: Any, together: Any, lifo: bool, noise: bool) -> None:
    """Tasks of one thread overtake each other while the worker runs, batches and every 61st dispatch included."""
    engine = make_engine(lifo=lifo)
    each, producers = 2000, 3
    order: list[tuple[int, int]] = []

    def run(producer: int, number: int) -> None:
        order.append((producer, number))
        if noise and number % 10 == 0:
            for _ in range(15):
                engine.submit(int)

    def produce(producer: int) -> None:
        for number in range(each):
            engine.submit(run, producer, number)

    together(*[lambda producer=producer: produce(producer) for producer in range(producers)])
    assert engine.wait_idle(PATIENCE)
    for producer in range(producers):
        assert [number for by, number in order if by == producer] == list(range(each))


@pytest.mark.parametrize("count", [2, 59])
def test_from_inside(make_engine: Any, lifo: bool, count: int) -> None:
    """Tasks spawned in a task run in another order than newest first, or oldest first with `lifo=False`."""
    engine = make_engine(lifo=lifo)
    order: list[int] = []

    def spawn() -> None:
        for number in range(count):
            engine.submit(order.append, number)

    engine.submit(spawn).result(PATIENCE)
    assert engine.wait_idle(PATIENCE)
    assert order == (list(range(count))[::-1] if lifo else list(range(count)))


def spilled_by(count: int) -> int:
    """How many of `count` tasks, pushed to an empty local deque, its oldest halves make in all."""
    inside = spilled = 0
    for _ in range(count):
        if inside == RING:
            inside -= RING // 2
            spilled += RING // 2
        inside += 1
    return spilled


@pytest.mark.parametrize("count", [255, 256, 257, 384, 385, 1000])
def test_the_ring_and_its_spilling(make_engine: Any, lifo: bool, count: int) -> None:
    """A full deque does not move its oldest half to the injector in one step, or the order is lost thereby."""
    engine = make_engine(lifo=lifo)
    order: list[int] = []
    seen: dict[str, int] = {}

    def spawn() -> None:
        for number in range(count):
            engine.submit(order.append, number)
        seen.update(engine._counters())

    engine.submit(spawn).result(PATIENCE)
    assert engine.wait_idle(PATIENCE)
    spilled = spilled_by(count)
    assert (seen["spilled"], seen["injected"], seen["local"]) == (spilled, spilled, count - spilled)
    orders = []
    for phase in range(FAIR):
        outside, own = list(range(spilled)), list(range(spilled, count))
        expected = []
        for dispatch in range(count):
            if outside and (not own or dispatch % FAIR == phase):
                expected.append(outside.pop(0))
            else:
                expected.append(own.pop(-1 if lifo else 0))
        orders.append(expected)
    assert order in orders


@pytest.mark.parametrize("width", [1, 200])
def test_every_61st_dispatch_looks_outside(make_engine: Any, lifo: bool, width: int) -> None:
    """A worker that always has tasks of its own leaves those from outside waiting, or takes them first."""
    engine = make_engine(lifo=lifo)
    waited: list[int] = []  # the dispatches between submit and run of each task from outside
    dispatches = 0

    def link() -> None:
        nonlocal dispatches
        dispatches += 1
        if dispatches > 6000:
            return
        if dispatches % 97 == 0:
            before = dispatches
            elsewhere(lambda: engine.submit(lambda: waited.append(dispatches - before)))
        engine.submit(link)

    def start() -> None:
        for _ in range(width):
            engine.submit(link)

    engine.submit(start).result(PATIENCE)
    assert engine.wait_idle(PATIENCE)
    assert len(waited) == 6000 // 97
    assert max(waited) == FAIR - 1
    assert min(waited) == 0


class Node(NamedTuple):
    """A task of a program: who spawns it, with which priority, and whether through a thread outside."""

    parent: int
    priority: int
    outside: bool


def programs(most: int) -> st.SearchStrategy[list[Node]]:
    """Programs of up to `most` tasks; the parent of each is an earlier one, or -1: submitted before all of them."""
    node = st.tuples(st.integers(0, 10**6), st.sampled_from([0, 0, 0, 0, 1, 2, 7, -1, -5]), st.booleans())
    return st.lists(node, min_size=1, max_size=most).map(
        lambda nodes: [Node(each[0] % (at + 1) - 1, *each[1:]) for at, each in enumerate(nodes)]
    )


def children_of(program: list[Node], parent: int) -> list[int]:
    """In the order in which they are submitted: those from inside first."""
    found = [at for at, node in enumerate(program) if node.parent == parent]
    return sorted(found, key=lambda at: program[at].outside)


def model_order(program: list[Node], lifo: bool) -> list[int]:
    """The order in which one worker runs a program that is too short for the rules with 61."""
    lanes: dict[int, list[int]] = {}
    own: list[int] = []
    order: list[int] = []
    running = -1
    while True:
        for at in children_of(program, running):
            node = program[at]
            local = node.priority == 0 and running >= 0 and not node.outside
            (own if local else lanes.setdefault(node.priority, [])).append(at)
        highest = max((priority for priority, lane in lanes.items() if lane), default=None)
        if own and not (highest or 0) > 0:
            running = own.pop(-1 if lifo else 0)
        elif highest is not None:
            running = lanes[highest].pop(0)
        else:
            return order
        order.append(running)


@pytest.mark.slow
def test_orders_are_those_of_the_model(kernel: ModuleType, lifo: bool) -> None:
    """One worker runs tasks in another order than: above 0 by priority, then its own, then from outside by priority."""

    @settings(max_examples=120)
    @given(programs(FAIR - 3))
    def check(program: list[Node]) -> None:
        order: list[int] = []

        def spawn_children(parent: int) -> None:
            children = children_of(program, parent)
            for outside in (False, True):
                chosen = [at for at in children if program[at].outside is outside]
                spawn = lambda chosen=chosen: [  # noqa: E731
                    engine._spawn(run, (at,), priority=program[at].priority) for at in chosen
                ]
                if chosen:
                    elsewhere(spawn) if outside and parent >= 0 else spawn()

        def run(at: int) -> None:
            order.append(at)
            spawn_children(at)

        with running(kernel, lifo=lifo) as engine:
            with held(engine):
                spawn_children(-1)
            assert engine.wait_idle(PATIENCE)
        assert order == model_order(program, lifo)

    check()


@pytest.mark.slow
def test_one_take_in_61_serves_the_lane_that_waited_longest(kernel: ModuleType) -> None:
    """Takes from the injector are by priority without exception, or the exception serves another lane."""

    def is_expected(order: list[int], priorities: list[int], phase: int) -> bool:
        waiting = list(enumerate(priorities))
        for take, found in enumerate(order):
            chosen = waiting[0] if take % FAIR == phase else max(waiting, key=lambda each: (each[1], -each[0]))
            if chosen[0] != found:
                return False
            waiting.remove(chosen)
        return not waiting

    @settings(max_examples=20)
    @given(st.lists(st.integers(1, 5), min_size=FAIR + 1, max_size=FAIR * 4))
    def check(priorities: list[int]) -> None:
        order: list[int] = []
        with running(kernel) as engine:
            with held(engine):
                for number, priority in enumerate(priorities):
                    engine._spawn(order.append, (number,), priority=priority)
            assert engine.wait_idle(PATIENCE)
        assert any(is_expected(order, priorities, phase) for phase in range(FAIR))

    check()


@pytest.mark.parametrize("place", ["below", "zero", "negative", "batch", "deque"])
def test_nothing_starves(make_engine: Any, lifo: bool, place: str) -> None:
    """Tasks of a high priority that make new ones without end keep others from running, wherever those wait."""
    engine = make_engine(lifo=lifo)
    others = 5
    ran: list[int] = []
    links = 0

    def link() -> None:
        nonlocal links
        links += 1
        if len(ran) < others and links < FAIR * 50:
            engine._spawn(link, priority=5)

    def start() -> None:
        if place == "deque":
            for number in range(others):
                engine.submit(ran.append, number)
        engine._spawn(link, priority=5)

    with held(engine):
        engine.submit(start)
        if place != "deque":
            priority = {"below": 1, "negative": -1}.get(place, 0)
            if place == "zero":  # none of these may be in the batch of the one that starts it
                engine._spawn(elsewhere, (lambda: [engine.submit(ran.append, number) for number in range(others)],))
            else:
                for number in range(others):
                    engine._spawn(ran.append, (number,), priority=priority)
    assert engine.wait_idle(PATIENCE)
    assert sorted(ran) == list(range(others))
    assert links <= FAIR * (others + 1)


@contextmanager
def one_held(engine: Any) -> Iterator[Callable[[], None]]:
    """Hold one of two processors; what is yielded lets it go on."""
    held, let_go = threading.Event(), threading.Event()

    def hold() -> None:
        held.set()
        assert let_go.wait(PATIENCE)

    future = engine.submit(hold)
    assert held.wait(PATIENCE)
    try:
        yield let_go.set
    finally:
        let_go.set()
    future.result(PATIENCE)


@pytest.mark.parametrize("count", [1, 2, 9, 10, 31, 63, 64, 65, 100])
def test_a_thief_takes_the_oldest_half(make_engine: Any, lifo: bool, count: int) -> None:
    """A thief takes the newest, less or more than half, or more than 32; or it leaves something behind."""
    engine = make_engine(2, lifo=lifo)
    order: list[int] = []
    filled = threading.Event()
    stolen = threading.Semaphore(0)

    def run(number: int) -> None:
        order.append(number)
        stolen.release()

    def fill() -> None:
        for number in range(count):
            engine.submit(run, number)
        filled.set()
        for _ in range(count):
            assert stolen.acquire(timeout=PATIENCE)

    with one_held(engine) as let_go:
        filling = engine.submit(fill)
        assert filled.wait(PATIENCE)
        let_go()
        filling.result(PATIENCE)
    left, steals, expected = count, 0, []
    while left:
        taken = min(STEAL, (left + 1) // 2)
        loot = list(range(count - left, count - left + taken))
        expected += loot[::-1] if lifo else loot
        left -= taken
        steals += 1
    assert order == expected
    assert engine.wait_idle(PATIENCE)
    counters = engine._counters()
    assert (counters["stolen"], counters["steals"]) == (count, steals)


@pytest.mark.parametrize("count", [1, 2, 3, 10, 99, 100, 251, 252, 253, 254, 255, 256, 257, 1000])
def test_a_batch_from_the_injector(make_engine: Any, count: int) -> None:
    """A worker takes another part of what waits in the injector than length / W + 1, at most 128 and all there is."""
    engine = make_engine(2)
    ran: list[int] = []
    first_started = threading.Event()
    rest = threading.Semaphore(0)
    seen: dict[str, int] = {}

    def first() -> None:
        seen.update(engine._counters())
        first_started.set()
        for _ in range(count - 1):
            assert rest.acquire(timeout=PATIENCE)

    def run(number: int) -> None:
        ran.append(number)
        rest.release()

    with one_held(engine) as let_other_go:
        with one_held(engine):
            futures = [engine.submit(first), *(engine.submit(run, number) for number in range(1, count))]
        assert first_started.wait(PATIENCE)
        let_other_go()
        results(futures)
    batch = min(count // 2 + 1, BATCH, count)
    assert (seen["injected"], seen["local"]) == (count - batch, batch - 1)
    # The other worker takes what was left in the injector in order, and then steals the rest of the batch.
    assert ran == [*range(batch, count), *range(1, batch)]


def test_seeds_choose_the_victims(make_engine: Any, seed: int) -> None:
    """The same seed does not lead to the same victims, or every seed does."""

    def victims(seed: int) -> list[int]:
        # Three of four workers have one task each in their deques; the fourth steals them one after the other.
        engine = make_engine(4, seed=seed)
        order: list[int] = []
        ran = [threading.Semaphore(0) for _ in range(3)]
        busy, filled = threading.Barrier(3), threading.Barrier(4)

        def fill(number: int) -> None:
            busy.wait(PATIENCE)
            engine.submit(run, number)
            filled.wait(PATIENCE)
            assert ran[number].acquire(timeout=PATIENCE)

        def run(number: int) -> None:
            order.append(number)
            if len(order) == 3:
                for semaphore in ran:
                    semaphore.release()

        with one_held(engine) as let_go:
            futures = [engine.submit(fill, number) for number in range(3)]
            filled.wait(PATIENCE)
            let_go()
            results(futures)
        return order

    orders = [victims(number) for number in range(seed, seed + 60)]
    assert len({order[0] for order in orders}) == 3
    assert victims(seed) == victims(seed)
