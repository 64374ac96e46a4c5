"""Making a pool: every argument is checked at once, and the number of workers comes from the right place."""

import concurrent.futures
import math
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

import filch
from filch.pool.cpus import usable_cpus

NOT_AN_INTEGER = [1.0, 1.5, "2", b"2", [], math.nan, True, False, object()]
NOT_POSITIVE = [0, -1, -(10**30)]
NOT_A_NUMBER = ["1", b"1", [], True, object(), 1j]
NEGATIVE = [-1, -0.001, math.nan, -math.inf]

BAD = [
    *[("max_workers", value, TypeError) for value in NOT_AN_INTEGER],
    *[("max_workers", value, ValueError) for value in NOT_POSITIVE],
    *[("max_threads", value, TypeError) for value in NOT_AN_INTEGER],
    *[("max_threads", value, ValueError) for value in [*NOT_POSITIVE, 2]],
    *[("keep_alive", value, TypeError) for value in [*NOT_A_NUMBER, None]],
    *[("keep_alive", value, ValueError) for value in NEGATIVE],
    *[("exit_timeout", value, TypeError) for value in NOT_A_NUMBER],
    *[("exit_timeout", value, ValueError) for value in NEGATIVE],
    *[("order", value, ValueError) for value in ["LIFO", "", "random", None, 1, []]],
    *[("on_broken", value, ValueError) for value in ["Restart", "", None, True, []]],
    *[("initializer", value, TypeError) for value in [1, "print", [], ()]],
    *[("initargs", value, TypeError) for value in [1, None, "ab", {1}]],
    *[("thread_name_prefix", value, TypeError) for value in [1, None, b"x"]],
    *[("daemon", value, TypeError) for value in [1, 0, None, "no"]],
    *[("seed", value, TypeError) for value in [1.0, "text", []]],
]


@pytest.mark.parametrize(("name", "value", "error"), BAD, ids=lambda value: repr(value)[:30])
def test_a_bad_argument_is_refused(name: str, value: Any, error: type[Exception]) -> None:
    """A mistake would show later, in a thread of the pool, or never."""
    with pytest.raises((TypeError, ValueError)) as refused:
        filch.Pool(**{"max_workers": 3, name: value})
    message = str(refused.value)
    assert isinstance(refused.value, error)
    assert message.startswith(f"{name} must be ")
    assert f"not {value!r}" in message or f"not {int(value)}" in message
    assert not message.endswith(".")


def test_an_unknown_argument_is_refused() -> None:
    """A misspelt option would be ignored."""
    with pytest.raises(TypeError, match="exit_timeuot"):
        filch.Pool(exit_timeuot=1)  # type: ignore[call-arg]


def test_options_are_by_name_only() -> None:
    """What stands fifth would change its meaning from version to version."""
    with pytest.raises(TypeError, match="positional"):
        filch.Pool(1, "x", None, (), "fifo")  # type: ignore[misc]


def test_fewer_threads_than_workers_are_refused() -> None:
    """A pool would be made that can never have as many workers as it says."""
    with pytest.raises(ValueError, match=r"max_threads must be at least max_workers, which is 4, not 3"):
        filch.Pool(4, max_threads=3)


@pytest.mark.parametrize(
    "options",
    [
        {"max_workers": 1, "max_threads": 1},
        {"keep_alive": 0},
        {"keep_alive": math.inf},
        {"exit_timeout": 0},
        {"exit_timeout": None},
        {"exit_timeout": math.inf},
        {"exit_timeout": 1e30},
        {"keep_alive": 1e30},
        {"order": "fifo"},
        {"on_broken": "restart"},
        {"seed": 0},
        {"seed": -1},
        {"initializer": None, "initargs": (1, 2)},
        {"initializer": int, "initargs": []},
        {"thread_name_prefix": ""},
    ],
    ids=str,
)
def test_what_is_at_the_edge_is_taken(options: dict[str, Any]) -> None:
    """A value that is still right would be refused, or break the pool."""
    with filch.Pool(**options) as pool:
        assert pool.submit(abs, -1).result() == 1


def test_an_integer_of_any_kind_is_taken() -> None:
    """The integers of numpy and the like would be refused as a number of workers."""

    class Three:
        def __index__(self) -> int:
            return 3

    with filch.Pool(Three()) as pool:  # type: ignore[arg-type]
        assert pool._max_workers == 3
        assert type(pool.max_workers) is int


def test_a_pool_that_was_not_made_leaves_nothing() -> None:
    """A constructor that raises would leave threads behind, or a half-made object that complains when it goes."""
    before = set(threading.enumerate())
    for name, value, _ in BAD:
        with pytest.raises((TypeError, ValueError)):
            filch.Pool(**{"max_workers": 3, name: value})
    assert set(threading.enumerate()) <= before


def test_positional_arguments_are_those_of_the_standard_library() -> None:
    """A program that makes a ThreadPoolExecutor with positional arguments would not run with a filch.Pool."""
    seen: list[int] = []
    with filch.Pool(1, "mine", seen.append, (7,)) as pool:
        assert pool.submit(threading.current_thread).result().name == "mine_0"
    assert seen == [7]


def test_it_is_an_executor_of_the_standard_library() -> None:
    """Libraries that look for an Executor or a ThreadPoolExecutor, or into one, would refuse the pool."""
    with filch.Pool(3) as pool:
        assert isinstance(pool, concurrent.futures.Executor)
        assert isinstance(pool, concurrent.futures.ThreadPoolExecutor)
        assert pool._max_workers == 3
        assert pool._broken is False
        assert pool._shutdown is False
        assert len(pool._threads) == 0
        ident = pool.submit(threading.get_ident).result()
        assert {thread.ident for thread in pool._threads} == {ident}
        assert all(isinstance(thread, threading.Thread) for thread in pool._threads)
    assert pool._shutdown is True
    assert len(pool._threads) == 0


def test_no_thread_starts_before_the_first_task() -> None:
    """A pool that is made and not used would cost threads."""
    before = set(threading.enumerate())
    with filch.Pool(8) as pool:
        pool.statistics()
        assert pool.wait_idle(0)
        assert set(threading.enumerate()) == before


def test_an_argument_goes_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """FILCH_MAX_WORKERS would overrule what the program says, or a mistake in it break a pool without need."""
    monkeypatch.setenv("FILCH_MAX_WORKERS", "5")
    with filch.Pool(2) as pool:
        assert pool.max_workers == 2
    monkeypatch.setenv("FILCH_MAX_WORKERS", "many")
    with filch.Pool(2) as pool:
        assert pool.max_workers == 2


def test_the_environment_goes_before_the_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """FILCH_MAX_WORKERS would be ignored, or only change what the pool says of itself."""
    workers = usable_cpus() + 3
    monkeypatch.setenv("FILCH_MAX_WORKERS", str(workers))
    with filch.Pool() as pool:
        assert pool.max_workers == workers
        barrier = threading.Barrier(workers)
        assert sorted(future.result() for future in [pool.submit(barrier.wait, 20) for _ in range(workers)]) == list(
            range(workers)
        )


@pytest.mark.parametrize("text", ["many", "0", "-1", "1.5", "2 workers"])
def test_a_bad_environment_is_refused(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mistake in FILCH_MAX_WORKERS would end in a pool of some size."""
    monkeypatch.setenv("FILCH_MAX_WORKERS", text)
    with pytest.raises(ValueError, match=f"FILCH_MAX_WORKERS must be an integer of at least 1, not {text!r}"):
        filch.Pool()


@pytest.mark.parametrize("text", [None, ""])
def test_without_environment_the_cpus_count(text: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pool would have another size than the CPUs that the process may use."""
    monkeypatch.delenv("FILCH_MAX_WORKERS", raising=False)
    if text is not None:
        monkeypatch.setenv("FILCH_MAX_WORKERS", text)
    with filch.Pool() as pool:
        assert pool.max_workers == usable_cpus()


@pytest.mark.skipif(not hasattr(__import__("os"), "sched_setaffinity"), reason="there is no affinity here")
def test_the_affinity_counts(run_script: Callable[..., str]) -> None:
    """A process that may use one CPU only would get a worker for every CPU of the machine."""
    source = """
import os, filch
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
print(filch.Pool().max_workers, filch.Pool()._max_workers)
"""
    assert run_script(source, environment={"FILCH_MAX_WORKERS": ""}).split() == ["1", "1"]


def test_importing_starts_no_thread_and_warns_of_nothing() -> None:
    """Importing filch would cost every program a thread, or print."""
    source = "import threading, filch; print(threading.active_count(), sorted(filch.__all__) == filch.__all__)"
    done = subprocess.run([sys.executable, "-W", "error", "-c", source], capture_output=True, text=True, check=True)
    assert (done.stdout.split(), done.stderr) == (["1", "True"], "")


def test_repr_says_what_state_it_is_in() -> None:
    """Somebody who prints a pool would not learn whether it still takes tasks."""
    with filch.Pool(3, "mine") as pool:
        assert repr(pool) == "<filch.Pool 'mine' open, max_workers=3>"
    assert repr(pool) == "<filch.Pool 'mine' shut down, max_workers=3>"
