"""The end of the interpreter, signals, forks and destructors, each in a process of its own."""

import sys
from typing import Any

import pytest

PENDING_TASKS = """
import filch, os
pool = filch.Pool(1)
for number in range(5):
    pool.submit(os.write, 1, b"ran %d\\n" % number)
os.write(1, b"main ends\\n")
"""

A_TASK_THAT_RUNS_ON = """
import filch, threading
pool = filch.Pool(1, {option})
started = threading.Event()
def run():
    started.set()
    threading.Event().wait(60)
pool.submit(run)
assert started.wait(20)
"""

A_THREAD_THAT_OUTLIVES_MAIN = """
import filch, threading
pool = filch.Pool(1)
def run():
    threading.main_thread().join()
    print(pool.submit(pow, 2, 5).result(20), flush=True)
threading.Thread(target=run).start()
"""

AN_ATEXIT_CALLBACK = """
import atexit, filch
pool = filch.Pool(1)
@atexit.register
def last():
    try:
        pool.submit(int)
    except RuntimeError as error:
        print(error, flush=True)
pool.submit(print, "ran", flush=True)
"""

CTRL_C = """
import filch, signal, threading, time, os
def interrupt():
    threading.Event().wait(0.3)
    os.kill(os.getpid(), signal.SIGINT)
signal.signal(signal.SIGINT, signal.default_int_handler)
gate = threading.Event()
began = time.monotonic()
threading.Thread(target=interrupt, daemon=True).start()
try:
    with filch.Pool(1, exit_timeout=0.1) as pool:
        running = pool.submit(gate.wait, 30)
        queued = [pool.submit(print, "never") for _ in range(100)]
        {wait}
except KeyboardInterrupt:
    print("interrupted", all(future.cancelled() for future in queued), time.monotonic() - began < 20)
gate.set()
"""

A_FORK = """
import filch, os, threading, warnings
warnings.simplefilter("ignore")
pool = filch.Pool(2)
gate = threading.Event()
running = pool.submit(gate.wait, 60)
assert pool.submit(abs, -1).result(20) == 1
queued = [pool.submit(abs, -2) for _ in range(1)]
child = os.fork()
if child == 0:
    try:
        running.result(10)
    except filch.ForkedError:
        assert pool.submit(abs, -3).result(20) == 3
        assert filch.default_pool().submit(abs, -4).result(20) == 4
        os._exit(0)
    os._exit(1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
gate.set()
assert running.result(20) is True
assert queued[0].result(20) == 2
print("fine")
"""

A_DESTRUCTOR = """
import filch, gc, sys
gc.set_threshold(1)
pool = filch.Pool(2)
count = []
class Late:
    def __init__(self):
        self.me = self
    def __del__(self):
        if not sys.is_finalizing():
            count.append(pool.submit(int))
for number in range(2000):
    Late()
    assert pool.submit(int, number).result(20) == number
gc.collect()
assert len(count) == 2000
for future in count:
    assert future.result(20) == 0
gc.set_threshold(700)
pool.shutdown()
print("fine")
"""


def test_what_is_queued_runs_before_the_exit(run_script: Any) -> None:
    """Tasks that are queued when the main thread ends are lost."""
    lines = run_script(PENDING_TASKS, quiet=True).splitlines()
    assert sorted(lines) == ["main ends", *(f"ran {number}" for number in range(5))]
    assert [line for line in lines if line != "main ends"] == [f"ran {number}" for number in range(5)]


@pytest.mark.parametrize("option", ["daemon=True", "exit_timeout=0.2"])
def test_an_exit_that_does_not_wait(run_script: Any, option: str) -> None:
    """The exit waits for a task that runs on, though the pool was told not to."""
    run_script(A_TASK_THAT_RUNS_ON.format(option=option), quiet=True)


@pytest.mark.skipif(
    (3, 12) <= sys.version_info < (3, 12, 3), reason="no thread can be started there after main's end (gh-113964)"
)
def test_other_threads_submit_until_they_end(run_script: Any) -> None:
    """A thread that goes on after the main thread has ended cannot submit (python/cpython#148280)."""
    assert run_script(A_THREAD_THAT_OUTLIVES_MAIN, quiet=True) == "32\n"


def test_main_cannot_submit_at_exit(run_script: Any) -> None:
    """A submit in an atexit callback is taken, and never run; or what was submitted before has not run by then."""
    ran, refused = run_script(AN_ATEXIT_CALLBACK, quiet=True).splitlines()
    assert ran == "ran"
    assert refused.startswith("cannot schedule new futures after")


@pytest.mark.parametrize(
    "wait",
    [
        "running.result()",
        "queued[0].result(30)",
        "__import__('concurrent.futures').futures.wait([running])",
        "list(pool.map(int, [1]))",
        "pool.wait_idle()",
        "pool.shutdown()",
        "pass",
    ],
)
def test_ctrl_c_ends_each_wait_at_once(run_script: Any, wait: str) -> None:
    """A Ctrl-C is not heard in a wait of the main thread, or the queue runs on after it (python/cpython#125886)."""
    script = CTRL_C.replace("{wait}", wait)
    if wait == "pass":  # it is the end of the block that waits
        script = script.replace(", exit_timeout=0.1", "")
    assert run_script(script) == "interrupted True True\n"


def test_a_fork(run_script: Any) -> None:
    """In a forked child the pool has no threads, or the parent's futures never end (more-executors#140)."""
    assert run_script(A_FORK) == "fine\n"


def test_submitting_from_destructors(run_script: Any) -> None:
    """A destructor that submits, run in the middle of submit(), locks up or loses a task (python/cpython#76757)."""
    assert run_script(A_DESTRUCTOR) == "fine\n"


A_REFUSED_POOL = """
import filch, os
for wrong in ({"max_workers": 0}, {"order": "any"}, {"seed": "x"}):
    try:
        filch.Pool(**wrong)
    except (TypeError, ValueError):
        pass
pool = filch.Pool(1)
for number in range(3):
    pool.submit(os.write, 1, b"ran\\n")
"""


def test_a_refused_pool_does_not_disturb_the_exit(run_script: Any) -> None:
    """A pool whose arguments were refused is asked for at the exit, and the others' tasks are lost."""
    assert run_script(A_REFUSED_POOL, quiet=True) == "ran\n" * 3
