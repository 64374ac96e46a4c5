"""What all tests share: the kernels, the check for leaked threads, patience, threads that report, scripts of their own.

Not here: engines and pools, which each folder makes for itself.
"""

import faulthandler
import gc
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import filch

SOURCES = Path(filch.__file__).parent.parent
# Seconds until a test gives up on something that must come.  Not how long it takes: a loaded machine is slow.
PATIENCE = float(os.environ.get("FILCH_TEST_PATIENCE", "20"))
KERNEL = os.environ.get("FILCH_KERNEL", "auto")
# The beginnings of the names of threads that live as long as the process.
LASTING = ("filch-clock", "filch-default")


@pytest.fixture(params=["native", "pure"] if KERNEL == "auto" else [KERNEL], scope="session")
def kernel(request: pytest.FixtureRequest) -> ModuleType:
    """Each kernel in turn, or the one that FILCH_KERNEL names; the absence of that one fails instead of skipping."""
    try:
        return import_module(f"filch._kernel._{request.param}")
    except ModuleNotFoundError as missing:
        if KERNEL != "auto":
            raise
        pytest.skip(f"not built: {missing.name}")


@pytest.fixture(autouse=True)
def _no_leaked_threads() -> Iterator[None]:
    """Fail a test that leaves a thread behind; a thread that ends by itself within the time limit is none."""
    before = set(threading.enumerate())
    yield
    leaked = [thread for thread in threading.enumerate() if thread not in before]
    leaked = [thread for thread in leaked if not thread.name.startswith(LASTING)]
    if any(thread.is_alive() for thread in leaked):
        gc.collect()  # an engine in a cycle ends its threads when it is dropped
        deadline = time.monotonic() + PATIENCE
        for thread in leaked:
            thread.join(max(deadline - time.monotonic(), 0))
        leaked = [thread for thread in leaked if thread.is_alive()]
        if leaked:
            pytest.fail(f"left behind: {sorted(thread.name for thread in leaked)}\n{_stacks()}", pytrace=False)


def _stacks() -> str:
    """Return the stacks of all threads."""
    with tempfile.TemporaryFile("w+") as file:
        faulthandler.dump_traceback(file)
        file.seek(0)
        return file.read()


@pytest.fixture(scope="session")
def eventually() -> Callable[..., None]:
    """Return `eventually(condition, what)`, the only poll in the tests.  For what nothing but a look can observe."""

    def eventually(condition: Callable[[], Any], what: str, seconds: float = PATIENCE) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() >= deadline:
                pytest.fail(f"not within {seconds:g} s: {what}\n{_stacks()}", pytrace=False)
            time.sleep(0.001)

    return eventually


@pytest.fixture
def together() -> Callable[..., list[Any]]:
    """Return `together(*functions)`: call each in a thread of its own, all at once; what they return, in order.

    The first error that any of them raised is raised here.  One that does not end within the time limit is an error.
    """

    def together(*functions: Callable[[], Any], seconds: float = PATIENCE * 2) -> list[Any]:
        results: list[Any] = [None] * len(functions)
        errors: list[BaseException] = []
        start = threading.Barrier(len(functions))

        def run(index: int) -> None:
            try:
                start.wait(seconds)
                results[index] = functions[index]()
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=run, args=(index,), daemon=True) for index in range(len(functions))]
        for thread in threads:
            thread.start()
        deadline = time.monotonic() + seconds
        for thread in threads:
            thread.join(max(deadline - time.monotonic(), 0))
        if errors:
            raise errors[0]
        if any(thread.is_alive() for thread in threads):
            pytest.fail(f"still running after {seconds:g} s\n{_stacks()}", pytrace=False)
        return results

    return together


@pytest.fixture
def run_script() -> Callable[..., str]:
    """Return `run_script(source, *arguments)`: run Python source in a process of its own; what it printed.

    It fails, with all that was printed, if the process ends with another status than `status`, or not in time; then
    every thread's stack is in there too.  With `quiet`, also if it wrote to standard error.  Warnings are errors in it.
    """

    def run_script(
        source: str,
        *arguments: object,
        status: int = 0,
        seconds: float = 40.0,
        environment: dict[str, str] | None = None,
        quiet: bool = False,
    ) -> str:
        watch = f"import faulthandler; faulthandler.dump_traceback_later({seconds - 2}, exit=True)\n"
        process = subprocess.Popen(
            [sys.executable, "-W", "error", "-X", "faulthandler", "-c", watch + source, *map(str, arguments)],
            env={**os.environ, "PYTHONPATH": str(SOURCES), **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            out, err = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # its forked children too
            out, err = process.communicate()
        if process.returncode != status or (quiet and err):
            pytest.fail(f"ended with {process.returncode}, to be {status}\n{out}\n{err}", pytrace=False)
        return out

    return run_script
