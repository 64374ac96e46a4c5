"""`fork`: the child forgets its parent's threads, its futures of the parent end, and its engines work.

Each test is a script, whose children report by their exit status: 0 if all is well, 1 with a traceback, none in time.
"""

import os
from collections.abc import Callable

import pytest

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork"),
    pytest.mark.slow,
]

FORKING = """
import faulthandler, os, signal, time, traceback, warnings
import concurrent.futures
from filch.exceptions import ForkedError

# Newer Pythons warn of what is tested here.
warnings.filterwarnings("ignore", message=".*fork.*", category=DeprecationWarning)
os.register_at_fork(
    before=kernel.before_fork,
    after_in_parent=kernel.after_fork_in_parent,
    after_in_child=kernel.after_fork_in_child,
)

def limit_time(seconds):
    "End in so many seconds, with the stacks of all threads."
    faulthandler.register(signal.SIGALRM, chain=True)
    signal.alarm(seconds)

faulthandler.cancel_dump_traceback_later()  # its thread would be missing in a child, and be waited for
limit_time(36)

def fork(in_child):
    "Run a function in a child; a function that waits for the child and checks its status."
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            limit_time(15)
            in_child()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)

    def check():
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    return check

def is_forked(future):
    assert future.done() and not future.cancelled()
    try:
        future.result(0)
    except ForkedError:
        return True
    return False

def work(engine):
    assert engine.submit(int).result(10) == 0
    assert sorted(future.result(10) for future in [engine.submit(int, n) for n in range(100)]) == list(range(100))
    bulk = engine._submit_bulk(int, [(n,) for n in range(100)])
    assert [bulk.result(n, 10) for n in range(100)] == list(range(100))
    assert engine.wait_idle(10)
    counters = engine._counters()
    assert 1 <= counters["threads"] <= engine.max_workers, counters
    assert counters["excess"] == counters["running"] == counters["local"] == counters["injected"] == 0, counters

"""


@pytest.fixture
def forking(script: Callable[..., str]) -> Callable[..., str]:
    """Return `script` for sources that find `fork`, `is_forked` and `work` ready."""
    return lambda source: script(FORKING + source)


@pytest.mark.parametrize("used", [False, True], ids=["fresh", "used"])
@pytest.mark.parametrize("size", [1, 4])
def test_while_idle(forking: Callable[..., str], used: bool, size: int) -> None:
    """An engine without work does not work in a child, or not in the parent afterwards."""
    forking(f"""
engine = make_engine({size})
if {used}:
    work(engine)
for _ in range(5):
    fork(lambda: work(engine))()
    work(engine)
""")


def test_while_busy(forking: Callable[..., str]) -> None:
    """Futures of the parent's tasks have no end in the child, or lose theirs in the parent."""
    forking("""
engine = make_engine(2)
gate = threading.Event()
started = threading.Semaphore(0)
running = [engine.submit(lambda: (started.release(), gate.wait(15))[1]) for _ in range(2)]
for _ in running:
    started.acquire()
queued = [engine.submit(int) for _ in range(50)] + [engine._spawn(int, priority=n % 3 - 1) for n in range(50)]
bulk = engine._submit_bulk(int, [(n,) for n in range(50)])
mail = engine._broadcast(int, (), {})
done, failed, cancelled = (make_engine().submit(int, 7), make_engine().submit(divmod, 1, 0), engine.submit(int))
concurrent.futures.wait([done, failed])
cancelled.cancel()
called = []
queued[0].add_done_callback(called.append)

def in_child():
    assert all(is_forked(future) for future in [*running, *queued, *mail])
    assert concurrent.futures.wait([*running, *queued], 0).not_done == set()
    assert len({id(future.exception()) for future in queued}) == len(queued)
    assert done.result(0) == 7 and cancelled.cancelled()
    assert isinstance(failed.exception(0), ZeroDivisionError)
    for ask in (lambda: bulk.result(0, 1), lambda: bulk.result(49)):
        try:
            ask()
        except ForkedError:
            pass
        else:
            raise AssertionError("the bulk has a result")
    assert engine._unfinished() == []
    work(engine)
    assert queued[0].add_done_callback(called.append) is None and called[-1] is queued[0]

check = fork(in_child)
check()
gate.set()
assert [future.result(15) for future in running] == [True, True]
assert [future.result(15) for future in [*queued, *mail]] == [0] * 102
assert [bulk.result(n, 15) for n in range(50)] == list(range(50))
assert called == [queued[0]]
work(engine)
""")


def test_while_tasks_wait_and_block(forking: Callable[..., str]) -> None:
    """Processors that were given away when the process forked are missing in the child."""
    forking("""
engine = make_engine(2)
outside = kernel.Future()

def block():
    with kernel.blocking():
        outside.result()

waiting = [engine.submit(outside.result) for _ in range(3)] + [engine.submit(block) for _ in range(2)]
while engine._counters()["running"] < 5:
    time.sleep(0.001)

def in_child():
    assert all(is_forked(future) for future in waiting)
    assert not outside.done()
    work(engine)
    together = threading.Barrier(2)
    assert sorted(f.result(10) for f in [engine.submit(together.wait, 10) for _ in range(2)]) == [0, 1]
    outside.set_result("child")
    assert engine.submit(outside.result).result(10) == "child"

fork(in_child)()
outside.set_result("parent")
assert [future.result(15) for future in waiting] == ["parent"] * 3 + [None] * 2
""")


def test_while_others_wait_for_futures(forking: Callable[..., str]) -> None:
    """A lock or a condition that another thread held when the process forked is held for ever in the child."""
    forking("""
engine = make_engine(1)
gate = threading.Event()
futures = [engine.submit(gate.wait, 15), *(engine.submit(int) for _ in range(20))]
asks = [
    lambda: concurrent.futures.wait(futures),
    lambda: list(concurrent.futures.as_completed(futures)),
    lambda: [future.result() for future in futures],
    lambda: engine.wait_idle(),
]
threads = [threading.Thread(target=ask) for ask in asks]
for thread in threads:
    thread.start()

def hold():
    while not gate.is_set():
        for future in futures:
            with future._condition:
                pass

threads.append(threading.Thread(target=hold))
threads[-1].start()

def in_child():
    assert all(is_forked(future) for future in futures)
    assert len(list(concurrent.futures.as_completed(futures, 5))) == 21
    with futures[3]._condition:
        pass
    work(engine)

for _ in range(10):
    fork(in_child)()
gate.set()
for thread in threads:
    thread.join()
assert futures[-1].result() == 0
""")


def test_in_the_middle_of_submits(forking: Callable[..., str]) -> None:
    """The kernel's own lock, or a half-made change, is inherited by the child."""
    forking("""
sys.setswitchinterval(1e-6)
engine = make_engine(2)
stop = []

def submit():
    while not stop:
        futures = [engine.submit(int, n) for n in range(20)]
        assert [future.result(15) for future in futures] == list(range(20))

threads = [threading.Thread(target=submit) for _ in range(2)]
for thread in threads:
    thread.start()
try:
    for _ in range(40):
        fork(lambda: work(engine))()
finally:
    stop.append(True)
    for thread in threads:
        thread.join()
work(engine)
""")


def test_inside_of_a_task(forking: Callable[..., str]) -> None:
    """A child that was forked in a task takes itself for that task, or its engine waits for that task's processor."""
    forking("""
engine = make_engine(1)

def in_child(me, inner):
    assert kernel.current_future() is None and kernel.current_engine() is None
    kernel.checkpoint()
    assert is_forked(me)
    assert inner is None or is_forked(inner)
    work(engine)

def run():
    me = kernel.current_future()
    inner = engine.submit(int)
    fork(lambda: in_child(me, inner))()
    with kernel.blocking():
        fork(lambda: in_child(me, None))()
    return inner.result()

assert engine.submit(run).result(30) == 0
assert engine.submit(int).result(15) == 0
""")


def test_a_child_of_a_child(forking: Callable[..., str]) -> None:
    """A child's own engine does not survive its fork."""
    forking("""
engine = make_engine(2)
work(engine)

def in_child():
    gate = threading.Event()
    mine = engine.submit(gate.wait, 15)

    def in_grandchild():
        assert is_forked(mine)
        work(engine)

    fork(in_grandchild)()
    gate.set()
    assert mine.result(15) is True
    work(engine)

fork(in_child)()
""")


def test_engines_that_were_closed_or_dropped(forking: Callable[..., str]) -> None:
    """A child waits for a closed engine of its parent, or opens it again."""
    forking("""
from filch.exceptions import PoolShutdown
closed, dropped, broken = make_engine(2), make_engine(2), make_engine(2)
gate = threading.Event()
last = [closed.submit(gate.wait, 15), dropped.submit(gate.wait, 15)]
closed._close()

def in_child():
    global dropped
    assert all(is_forked(future) for future in last)
    assert closed.wait_idle(5) and closed._closed
    try:
        closed.submit(int)
    except PoolShutdown:
        pass
    else:
        raise AssertionError("a closed engine takes a task")
    del dropped

fork(in_child)()
gate.set()
assert [future.result(15) for future in last] == [True, True]
""")


def test_a_child_that_ends_as_usual(forking: Callable[..., str]) -> None:
    """A child that leaves by the interpreter's ordinary exit hangs there."""
    forking("""
engine = make_engine(2)
gate = threading.Event()
engine.submit(gate.wait, 15)
pid = os.fork()
if pid == 0:
    limit_time(15)
    work(engine)
    sys.exit(5)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 5
gate.set()
""")


def test_errors_of_the_parent_are_not_logged_twice(forking: Callable[..., str]) -> None:
    """The child logs an error that nobody asked for and that is its parent's."""
    forking("""
import gc, logging
seen = []
handler = logging.Handler(logging.WARNING)
handler.emit = seen.append
logging.getLogger("filch").addHandler(handler)
engine = make_engine(1)
gate = threading.Event()
running = engine.submit(gate.wait, 15)
queued = [engine.submit(divmod, 1, 0) for _ in range(3)]

def in_child():
    global running, queued
    del running, queued
    gc.collect()
    assert seen == [], seen

fork(in_child)()
gate.set()
assert [type(future.exception(15)) for future in queued] == [ZeroDivisionError] * 3
assert seen == []
""")
