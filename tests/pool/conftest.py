"""What the tests of the pool share: pools that end with the test, gates that open with it, and the log."""

import logging
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import filch


@pytest.fixture
def make_pool() -> Iterator[Callable[..., filch.Pool]]:
    """Return `make_pool(...)`, which makes a `filch.Pool`; when the test has ended, all of them are shut down."""
    pools: list[filch.Pool] = []

    def make_pool(*arguments: Any, **options: Any) -> filch.Pool:
        pools.append(filch.Pool(*arguments, **options))
        return pools[-1]

    yield make_pool
    for pool in pools:
        pool.shutdown(cancel_futures=True, timeout=20)


@pytest.fixture
def gate(make_pool: Callable[..., filch.Pool]) -> Iterator[threading.Event]:
    """Return an event for tasks to wait for; when the test has ended it is set, before the pools are shut down."""
    gate = threading.Event()
    yield gate
    gate.set()


@pytest.fixture
def occupy(gate: threading.Event) -> Callable[..., list[filch.Future[Any]]]:
    """Return `occupy(pool, count)`: that many tasks run, and go on until `gate` is set; their futures."""

    def occupy(pool: filch.Pool, count: int = 1) -> list[filch.Future[Any]]:
        running = threading.Barrier(count + 1)

        def hold() -> bool:
            running.wait(20)
            return gate.wait(40)

        futures = [pool.submit(hold) for _ in range(count)]
        running.wait(20)
        return futures

    return occupy


@pytest.fixture
def many_switches() -> Iterator[None]:
    """Let the interpreter change threads as often as it can, so that races are met."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


class Log(logging.Handler):
    """What was logged with a level from WARNING up, and no test has taken yet."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    def take(self, logger: str = "filch") -> list[logging.LogRecord]:
        """Return the records of one logger, which are then no surprise any more."""
        taken = [record for record in self.records if record.name == logger]
        self.records = [record for record in self.records if record.name != logger]
        return taken


@pytest.fixture(autouse=True)
def log() -> Iterator[Log]:
    """Collect the log of filch and of concurrent.futures; what the test has not taken from it fails the test."""
    log = Log()
    loggers = [logging.getLogger(name) for name in ("filch", "concurrent.futures")]
    for logger in loggers:
        logger.addHandler(log)
    yield log
    for logger in loggers:
        logger.removeHandler(log)
    surprises = [f"{record.name}: {record.getMessage()}" for record in log.records]
    log.records.clear()
    assert surprises == []


@pytest.fixture
def ways_in() -> Callable[[filch.Pool], list[Callable[[], Any]]]:
    """Return a function that gives every way to hand a call to a pool."""
    return lambda pool: [
        lambda: pool.submit(int),
        lambda: pool.options(priority=1).submit(int),
        lambda: pool.options(timeout=60).submit(int),
        lambda: pool.map(int, [1]),
        lambda: pool.map(int, [1], buffersize=1),
        lambda: pool.broadcast(int),
    ]
