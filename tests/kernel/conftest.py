"""Fixtures of the kernel suite: engines of every shape, the seed, the log, and scripts over one kernel."""

import logging
import os
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from types import ModuleType
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from kernel.engines import running

settings.register_profile(
    "kernel", deadline=None, database=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
settings.load_profile("kernel")


@pytest.fixture
def seed() -> int:
    """Return a random number, which a failing test shows; FILCH_TEST_SEED sets it."""
    seed = int(os.environ.get("FILCH_TEST_SEED", random.randrange(2**32)))
    print(f"FILCH_TEST_SEED={seed}")
    return seed


@pytest.fixture
def make_engine(kernel: ModuleType, seed: int) -> Iterator[Callable[..., Any]]:
    """Return `make_engine(max_workers, **options)`; in the end each engine is closed, waited for and audited."""
    with ExitStack() as stack:
        made = 0

        def make_engine(max_workers: int = 1, **options: Any) -> Any:
            nonlocal made
            made += 1
            return stack.enter_context(running(kernel, max_workers, **{"seed": seed + made, **options}))

        yield make_engine


@pytest.fixture(params=[1, 2, 4, 32], ids="W{}".format)
def workers(request: pytest.FixtureRequest) -> int:
    """How many processors the engine has."""
    return int(request.param)


@pytest.fixture(params=[True, False], ids=["lifo", "fifo"])
def lifo(request: pytest.FixtureRequest) -> bool:
    """Do owners take their newest task first, or the oldest?"""
    return bool(request.param)


@pytest.fixture
def engine(make_engine: Callable[..., Any], workers: int, lifo: bool) -> Any:
    """An engine of every size and order in turn."""
    return make_engine(workers, lifo=lifo)


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

    def take(self, logger: str) -> list[str]:
        """Return the messages of one logger, which are then no surprise any more."""
        taken = [record for record in self.records if record.name == logger]
        self.records = [record for record in self.records if record.name != logger]
        return [record.getMessage() for record in taken]


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
def script(kernel: ModuleType, run_script: Callable[..., str]) -> Callable[..., str]:
    """Return `run_script` for sources that find `kernel` and `make_engine` ready."""
    prelude = f"""
import sys, threading
from filch._kernel import {kernel.__name__.rpartition(".")[2]} as kernel

def start_thread(run, number):
    thread = threading.Thread(target=run, name=f"worker_{{number}}", daemon=True)
    thread.start()
    return thread

def make_engine(max_workers=1, *, max_threads=None, **options):
    defaults = dict(lifo=True, keep_alive=10.0, seed=None, start_thread=start_thread, prologue=None, restart=False)
    if max_threads is None:
        max_threads = max(max_workers, min(512, 32 + 8 * max_workers))
    return kernel.Engine(max_workers, max_threads=max_threads, **{{**defaults, **options}})

"""
    return partial(_run_script, run_script, prelude, kernel.__name__.rpartition("_")[2])


def _run_script(
    run: Callable[..., str], prelude: str, kernel: str, source: str, *arguments: Any, **options: Any
) -> str:
    options["environment"] = {"FILCH_KERNEL": kernel, **options.get("environment", {})}
    return run(prelude + source, *arguments, **options)
