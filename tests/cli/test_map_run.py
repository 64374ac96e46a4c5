"""The run: order, look-ahead, attempts, time limits, and every way to end early.  Functions wait for events."""

import contextvars
import itertools
import json
import os
import signal
import sys
import threading

import pytest

from filch.cli import _run
from filch.cli._inputs import Input
from filch.cli._json import encode
from filch.cli._output import OutputClosed
from filch.cli._refusal import Refusal
from filch.cli._run import Policy, Run
from filch.cli._summary import Tally
from filch.pool import checkpoint

PATIENCE = 30
"""Seconds that a function waits for what must happen, before it fails and the test with it."""


class Sink:
    """Takes what a run writes, and tells who waits for it."""

    def __init__(self):
        self.records = []
        self._written = threading.Condition()

    def write(self, data):
        """Take whole records."""
        with self._written:
            self.records.extend(json.loads(line) for line in data.decode().splitlines())
            self._written.notify_all()

    def wait_for(self, *inputs):
        """Wait until there are records of these inputs."""
        with self._written:
            assert self._written.wait_for(lambda: {*inputs} <= {*self.inputs}, PATIENCE)

    @property
    def inputs(self):
        """The inputs that have a record, in its order."""
        return [record["input"] for record in self.records]

    @property
    def failed(self):
        """The inputs that have a bad record."""
        return [record["input"] for record in self.records if not record["ok"]]


def as_inputs(values):
    """Make inputs of JSON values."""
    return (Input(value, encode(value)) for value in values)


def perform(function, values, sink, **policy):
    """Run `function` over `values` and return the exit code and the tally."""
    tally = Tally()
    code = Run(function, as_inputs(values), Policy(**{"workers": 2, **policy}), sink.write, tally).go()
    return code, tally


@pytest.fixture
def sink():
    """Return an empty sink."""
    return Sink()


@pytest.fixture(autouse=True)
def _no_thread_stays():
    """Fail a test that leaves a worker or a reader behind."""
    yield
    for thread in threading.enumerate():
        if thread.name.startswith("filch-map"):
            thread.join(PATIENCE)
            assert not thread.is_alive(), thread


def test_records_come_in_input_order(sink):
    """Line 7 of the output would not be about line 7 of the input."""
    later = threading.Event()

    def function(value):
        if value == 0:
            assert later.wait(PATIENCE)
        if value == 90:
            later.set()
        return value

    code, tally = perform(function, range(100), sink)
    assert code == 0
    assert sink.inputs == list(range(100))
    assert (tally.ok, tally.failed, tally.unfinished) == (100, 0, 0)


def test_record_is_written_while_later_calls_run(sink):
    """Results would be kept in memory until the end, or until something else happens, and a kill would lose them."""

    def function(value):
        if value == 3:
            sink.wait_for(0, 1, 2)

    perform(function, range(4), sink)
    assert sink.failed == []
    assert sink.inputs == [0, 1, 2, 3]


def test_unordered_records_do_not_wait_for_a_slow_one(sink):
    """`--unordered` would hold what is done back until an earlier call has ended."""

    def function(value):
        if value == 0:
            sink.wait_for(*range(1, 50))

    perform(function, range(50), sink, ordered=False)
    assert sink.failed == []
    assert sink.inputs[-1] == 0
    assert sorted(sink.inputs) == list(range(50))


@pytest.mark.slow
@pytest.mark.parametrize("ordered", [True, False])
def test_source_is_read_no_further_ahead_than_the_window(sink, monkeypatch, ordered):
    """A million lines on standard input would fill the memory while the first call runs."""
    monkeypatch.setattr(_run, "WINDOW_AT_LEAST", 8)
    monkeypatch.setattr(_run, "WINDOW_PER_WORKER", 3)
    window = Policy(workers=2).window
    assert window == 8
    ahead = []
    pulled = itertools.count(1)
    others_done = threading.Event()
    ended = itertools.count(1)

    def source():
        for value in range(2000):
            ahead.append(next(pulled) - len(sink.records))
            yield value

    def function(value):
        if value == 0:
            if ordered:
                assert others_done.wait(PATIENCE)
                assert window // 2 < len(ahead) <= window
            else:
                sink.wait_for(*range(1, 1000))
        elif next(ended) == window // 2:
            others_done.set()

    perform(function, source(), sink, ordered=ordered)
    assert sink.failed == []
    assert len(sink.records) == 2000
    assert max(ahead) <= window


@pytest.mark.parametrize(("queue_seconds", "at_most"), [(0.0, 4), (1e9, 256)])
def test_slow_calls_do_not_pile_up_in_the_pool(sink, monkeypatch, queue_seconds, at_most):
    """One worker would take a long batch, and what the others do meanwhile would wait for it and be lost by a kill."""
    monkeypatch.setattr(_run, "QUEUE_SECONDS", queue_seconds)
    ahead = []
    pulled = itertools.count(1)
    ended = []

    def source():
        for value in range(1000):
            ahead.append(next(pulled) - len(ended))
            yield value

    def function(value):
        if value == 0:
            sink.wait_for()
        ended.append(value)

    perform(function, source(), sink)
    assert len(sink.records) == 1000
    # A call that has ended is counted here a moment before its record is written and the next input is pulled.
    assert max(ahead) <= at_most


def test_calls_run_at_once_but_no_more_than_the_workers(sink):
    """`--workers 3` would be another number of calls at once."""
    inside = []
    most = []
    all_three = threading.Barrier(3)

    def function(value):
        inside.append(value)
        most.append(len(inside))
        if value < 3:
            all_three.wait(PATIENCE)
        inside.remove(value)

    perform(function, range(300), sink, workers=3)
    assert sink.failed == []
    assert max(most) == 3


def test_failed_inputs_are_told_by_the_exit_code(sink):
    """A script would go on with half of the results."""
    code, tally = perform(lambda value: 1 // value, [1, 0, 2], sink)
    assert code == 1
    assert sink.failed == [0]
    assert (tally.ok, tally.failed) == (2, 1)


def test_calls_see_the_context_and_cannot_change_it(sink):
    """A context variable that a module sets when it is imported would be unset, or leak from call to call."""
    variable = contextvars.ContextVar("variable", default="default")
    token = variable.set("set")

    def function(value):
        seen = variable.get()
        variable.set("changed")
        return seen

    def slow_at_first(value):
        if not slow:
            slow.append(value)
            end.wait(PATIENCE)
        end.set()
        return variable.get()

    slow: list[int] = []
    end = threading.Event()
    perform(function, range(20), sink, workers=1)
    perform(slow_at_first, [0], sink, timeout=0.2, attempts=9)
    variable.reset(token)
    assert len(sink.records) == 21
    assert {record["result"] for record in sink.records} == {"set"}


@pytest.mark.slow
def test_time_limit_counts_for_each_attempt_from_its_start(sink):
    """A call would be given up while it waits for a worker, or not be tried again after a timeout."""
    attempts = []
    end = threading.Event()

    def function(value):
        attempts.append(value)
        if len(attempts) == 1:
            end.wait(PATIENCE)
            return "late"
        end.set()
        return "second attempt"

    code, _ = perform(function, ["a"], sink, workers=1, timeout=0.3, attempts=9)
    assert code == 0
    [record] = sink.records
    assert record["result"] == "second attempt"
    assert record["attempts"] >= 2
    assert record["seconds"] >= 0.2, "the time of the first attempt counts"


@pytest.mark.slow
def test_timeout_is_an_error_of_its_input(sink):
    """A call that takes too long would have no record, one without a reason, or fewer attempts than asked for."""

    def function(value):
        while value == "slow":
            checkpoint()

    code, tally = perform(function, ["slow", "quick"], sink, timeout=0.2, attempts=2)
    assert code == 1
    slow = sink.records[sink.inputs.index("slow")]
    assert slow["error"]["type"] == "TaskTimeout"
    assert "0.2 s" in slow["error"]["message"]
    assert slow["attempts"] == 2
    assert slow["seconds"] >= 0.3
    assert tally.left_running == 0, "it came to a checkpoint"


def test_call_that_heeds_its_timeout_at_once_has_timed_out(sink, monkeypatch):
    """A call that comes to its checkpoint before the clock has settled it would be "Cancelled", and not be retried."""
    returned = threading.Event()
    work, timed_out = Run._work, Run._timed_out

    def early_work(self, call):
        work(self, call)
        returned.set()

    def late_clock(self, call, future):
        assert returned.wait(PATIENCE)
        timed_out(self, call, future)

    def function(value):
        while True:
            checkpoint()

    monkeypatch.setattr(Run, "_work", early_work)
    monkeypatch.setattr(Run, "_timed_out", late_clock)
    code, tally = perform(function, ["a"], sink, workers=1, timeout=0.01, attempts=2)
    assert code == 1
    assert [record["error"]["type"] for record in sink.records] == ["TaskTimeout"]
    assert sink.records[0]["attempts"] == 2
    assert tally.left_running == 0


@pytest.mark.slow
def test_calls_that_hang_do_not_halt_the_run(sink, monkeypatch):
    """As many hanging calls as workers would stop the whole run, though each has its time limit."""
    monkeypatch.setattr(_run, "LEAVE_SECONDS", 0.05)
    end = threading.Event()

    def function(value):
        if value < 4:
            end.wait(PATIENCE)

    try:
        code, tally = perform(function, range(50), sink, workers=2, timeout=0.3)
    finally:
        end.set()
    assert code == 1
    assert set(sink.failed) >= {0, 1, 2, 3}
    assert len(sink.records) == 50
    assert len(sink.failed) < 50
    assert tally.left_running == 4


def test_fail_fast_stops_at_the_first_failure(sink):
    """`--fail-fast` would go on, lose the record of what failed, or cut off calls that run."""

    def function(value):
        if value == 3:
            raise ValueError(value)
        if value == 4:
            sink.wait_for(3)

    code, _ = perform(function, itertools.count(), sink, workers=1, fail_fast=True)
    assert code == 1
    assert sink.inputs in ([0, 1, 2, 3], [0, 1, 2, 3, 4])
    assert sink.failed == [3]


def test_fail_fast_spares_an_input_that_a_retry_saves(sink):
    """`--fail-fast` would stop before the retries are used up."""
    calls = []

    def function(value):
        calls.append(value)
        if calls.count(3) == 1 and value == 3:
            raise ValueError(value)

    code, _ = perform(function, range(10), sink, fail_fast=True, attempts=2)
    assert code == 0
    assert sink.inputs == list(range(10))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_stops_an_endless_run(sink, number):
    """Ctrl-C would not end the run, lose what is done, or leave the handler behind."""
    before = signal.getsignal(number)

    def function(value):
        if value == 500:
            os.kill(os.getpid(), number)
        return value

    code, tally = perform(function, itertools.count(), sink)
    assert code == 128 + number
    assert signal.getsignal(number) is before
    assert 500 in sink.inputs, "it was running, and may end"
    assert sink.inputs == sorted(sink.inputs)
    assert sink.failed == []
    assert len(sink.records) == tally.ok


def test_call_that_was_left_behind_writes_nothing_any_more(sink, monkeypatch, capsys):
    """A call that ends after the run would write into a file that is closed, or another one."""
    monkeypatch.setattr(_run, "LEAVE_SECONDS", 0.0)
    stopping = threading.Event()
    end = threading.Event()
    write = sys.stderr.write
    monkeypatch.setattr(sys.stderr, "write", lambda text: (write(text), stopping.set()))

    def function(value):
        os.kill(os.getpid(), signal.SIGINT)
        assert stopping.wait(PATIENCE)
        os.kill(os.getpid(), signal.SIGINT)
        assert end.wait(PATIENCE)

    try:
        code, tally = perform(function, itertools.count(), sink, workers=1)
    finally:
        end.set()
    for thread in threading.enumerate():
        if thread.name.startswith("filch-map"):
            thread.join(PATIENCE)
    assert code == 130
    assert tally.left_running == 1
    assert sink.records == []


def test_keyboard_interrupt_in_a_call_stops_the_run(sink):
    """A function that raises KeyboardInterrupt would be retried, or be an error like any other."""

    def function(value):
        if value == 5:
            raise KeyboardInterrupt

    code, _ = perform(function, itertools.count(), sink, workers=1, attempts=3)
    assert code == 130
    assert sink.inputs[:5] == [0, 1, 2, 3, 4]
    assert 5 not in sink.inputs


def test_keyboard_interrupt_in_the_last_call_stops_the_run():
    """A run whose last call raised KeyboardInterrupt would end with 0, though that input has no record."""

    def function(value):
        if value == 4:
            raise KeyboardInterrupt

    for _ in range(50):  # what matters is who is first: the reader's end, or the last call
        sink = Sink()
        code, tally = perform(function, range(5), sink, workers=1)
        assert code == 130
        assert tally.unfinished == 1
        assert sink.inputs == [0, 1, 2, 3]


def test_ctrl_c_while_the_last_call_is_settled(sink):
    """Ctrl-C would be forgotten if the last record is written before it is heeded."""

    def show():
        if len(sink.records) == 5:  # the main thread is held up until this returns, and then has two messages
            for thread in threading.enumerate():
                if thread.name == "filch-map-reader":
                    thread.join(PATIENCE)
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    code = Run(str, as_inputs(range(5)), Policy(workers=1), sink.write, Tally(), show).go()
    assert code == 130
    assert len(sink.records) == 5


def test_exit_code_0_means_that_every_input_has_a_record(sink, monkeypatch):
    """A script would take a run for whole in which some call came to no outcome, for whatever reason."""
    monkeypatch.setattr(_run.Call, "run", lambda *_: _run.NoOutcome.INTERRUPTED)
    code, tally = perform(str, range(5), sink)
    assert code == 1
    assert tally.unfinished == 5
    assert sink.records == []


def test_ignored_signal_stays_ignored(sink):
    """A job that the shell put into the background would die by a Ctrl-C that is meant for another."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        code, _ = perform(lambda value: os.kill(os.getpid(), signal.SIGINT), range(20), sink)
    finally:
        signal.signal(signal.SIGINT, before)
    assert code == 0
    assert len(sink.records) == 20


def test_reader_of_the_output_goes(sink):
    """`| head` would end in a traceback, or run on for nobody."""

    def write(data):
        sink.write(data)
        if 10 in sink.inputs:
            raise OutputClosed

    tally = Tally()
    code = Run(str, as_inputs(itertools.count()), Policy(workers=2), write, tally).go()
    assert code == 141


def test_calls_are_asked_to_stop_when_nothing_can_be_written(sink):
    """On a full disk the run would go on for hours, and lose what it does."""
    started = threading.Event()

    def function(value):
        if value == 1:
            started.set()
            while True:
                checkpoint()
        assert started.wait(PATIENCE)

    def write(data):
        raise Refusal("no space left")

    with pytest.raises(Refusal, match="no space left"):
        Run(function, as_inputs(itertools.count()), Policy(workers=2), write, Tally()).go()


def test_nothing_is_written_behind_a_write_that_failed(sink):
    """A line that was cut off by a full disk would be followed by others, and the file could not be resumed."""
    attempts = []
    failed = threading.Event()
    both = threading.Barrier(2)

    def write(data):
        attempts.append(data)
        if data:
            failed.set()
            raise Refusal("no space left")

    def function(value):
        if value < 2:
            both.wait(PATIENCE)
        if value == 1:
            assert failed.wait(PATIENCE)

    with pytest.raises(Refusal, match="no space left"):
        Run(function, as_inputs(range(2)), Policy(workers=2), write, Tally()).go()
    assert len(list(filter(None, attempts))) == 1


def test_bad_line_ends_the_input_but_not_the_calls_before_it(sink):
    """What was read before a bad line would be lost, or the bad line be passed over."""

    def source():
        yield from as_inputs(range(30))
        raise Refusal("line 31 is bad")

    run = Run(lambda value: value, source(), Policy(workers=2), sink.write, Tally())
    with pytest.raises(Refusal, match="line 31 is bad"):
        run.go()
    assert sink.inputs == list(range(30))


def test_fault_in_the_source_is_not_swallowed(sink):
    """A bug in reading inputs would look like the end of them."""

    def source():
        yield from as_inputs(range(30))
        raise ZeroDivisionError("a bug")

    with pytest.raises(ZeroDivisionError, match="a bug"):
        Run(lambda value: value, source(), Policy(workers=2), sink.write, Tally()).go()


def test_display_is_kept_up_to_date(sink):
    """The bar would stand still."""
    shown = []
    tally = Tally()
    Run(str, as_inputs(range(600)), Policy(workers=2), sink.write, tally, lambda: shown.append(tally.done)).go()
    assert shown == sorted(shown)
    assert shown[0] < shown[-1] == 600
