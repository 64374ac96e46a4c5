"""The run itself: inputs into the pool, outcomes out of it, records in order, and an orderly end.

Three kinds of thread meet here.  The reader (one daemon thread) pulls inputs and submits calls; it holds a permit for
each input that it pulls, and there are `window` permits, so the source is never read further ahead than that.  Workers
run calls; each future that ends is put into one queue, by its callback.  The main thread sleeps on that queue, writes
records and gives their permits back; signals and the end of the inputs reach it through the same queue.  Nothing polls.

How a run ends early: `_stop` closes the gate (under its lock, so that no call slips in after it) and cancels what has
not started; the main thread goes on until the running calls have ended.  `_leave` asks those to stop as well and bounds
the wait for them.

A call that timed out has its record at once, but its thread is busy until it comes to a checkpoint.  Until then it is
`left`, and the pool has one worker more in its place, so that calls that hang do not bring the run to a halt.
"""

import contextlib
import contextvars
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from queue import Empty, SimpleQueue

from filch.cli._call import Call, Function, NoOutcome
from filch.cli._inputs import Input
from filch.cli._output import OutputClosed
from filch.cli._records import Outcome, error_text, line
from filch.cli._refusal import Refusal
from filch.cli._signals import stop_signals
from filch.cli._summary import Tally
from filch.exceptions import TaskTimeout
from filch.pool import Future, Pool

LEAVE_SECONDS = 1.0
"""How long calls that were asked to stop may take to end before the run leaves them behind."""

WINDOW_AT_LEAST, WINDOW_PER_WORKER = 256, 64
"""Inputs that may be pulled without having their record written: enough that cheap calls come in batches, and that one
slow call at the head does not idle the others at once; few enough that little is done again after a kill."""

WRITE_AT_MOST = 256
"""How many messages are taken from the queue before records are written: a bound on how long one may wait for that."""

EXIT_OK, EXIT_FAILED, EXIT_REFUSED = 0, 1, 2
EXIT_BROKEN_PIPE = 128 + 13
"""What a shell shows for a program that ended by SIGPIPE."""


@dataclass(frozen=True, slots=True)
class Policy:
    """How calls are made and in which order records are written."""

    workers: int
    attempts: int = 1
    timeout: float | None = None
    ordered: bool = True
    fail_fast: bool = False

    @property
    def window(self) -> int:
        """How many inputs may be pulled without having their record written yet."""
        return max(WINDOW_AT_LEAST, WINDOW_PER_WORKER * self.workers)


@dataclass(frozen=True, slots=True)
class _ReaderEnded:
    error: BaseException | None


@dataclass(frozen=True, slots=True)
class _Returned:
    call: Call


class Run:
    """One run of `function` over `inputs`.  Use it once, from the main thread."""

    def __init__(
        self,
        function: Function,
        inputs: Iterable[Input],
        policy: Policy,
        write: Callable[[bytes], None],
        tally: Tally,
        show: Callable[[], None] = lambda: None,
    ) -> None:
        self._function = function
        self._inputs = inputs
        self._policy = policy
        self._write_bytes = write
        self._tally = tally
        self._show = show
        self._pool = Pool(policy.workers, thread_name_prefix="filch-map", daemon=True)
        self._submitter = self._pool if policy.timeout is None else self._pool.options(timeout=policy.timeout)
        # A task makes all attempts, unless each attempt has a time limit, which is the limit of a task.
        self._attempts_per_task = policy.attempts if policy.timeout is None else 1
        self._messages: SimpleQueue[object] = SimpleQueue()
        self._permits: SimpleQueue[int] = SimpleQueue()
        self._gate = threading.Lock()
        self._closed = False  # written by main under the gate; racy reads by workers only end retries
        self._taken = 0  # written by the reader under the gate
        self._pending: dict[int, Future[Outcome | NoOutcome]] = {}  # added to under the gate, removed from by main
        self._left: set[Call] = set()  # under the gate
        # From here on only main reads and writes, except that workers read _leaving.
        self._settled = 0
        self._reader_ended = False
        self._refusal: Refusal | None = None
        self._signals = 0
        self._leaving = False
        self._deadline: float | None = None
        self._exit: int | None = None
        self._held: dict[int, str] = {}
        self._next = 0
        self._lines: list[str] = []

    def go(self) -> int:
        """Make all calls, write all records, and return the exit code."""
        self._permits.put(self._policy.window)
        # Calls see the context variables that the function's module set when it was imported here.
        context = contextvars.copy_context()
        threading.Thread(target=context.run, args=(self._read,), name="filch-map-reader", daemon=True).start()
        with stop_signals(self._messages.put):
            try:
                self._serve()
            except KeyboardInterrupt:
                self._exit = 128 + signal.SIGINT
            except OutputClosed:
                self._give_up(EXIT_BROKEN_PIPE)
                self._exit = EXIT_BROKEN_PIPE
            except BaseException:
                self._give_up(EXIT_REFUSED)
                raise
            finally:
                self._end()
        if self._refusal is not None:
            raise self._refusal
        if self._exit is not None:
            return self._exit
        return EXIT_FAILED if self._tally.failed else EXIT_OK

    # The reader's side.

    def _read(self) -> None:
        error = None
        try:
            self._pull()
        except BaseException as raised:
            error = raised
        self._messages.put(_ReaderEnded(error))

    def _pull(self) -> None:
        inputs = iter(self._inputs)
        permits = 0
        number = 0
        while True:
            if not permits:
                permits = self._permits.get()
                if self._closed:
                    return
            given = next(inputs, None)
            if given is None:
                return
            if not self._submit(Call(number, given.value, given.text, self._attempts_per_task), first=True):
                return
            number += 1
            permits -= 1

    def _submit(self, call: Call, *, first: bool) -> bool:
        """Submit `call` unless the gate is closed; `first` if it is not another attempt."""
        with self._gate:
            if self._closed:
                return False
            future = self._submitter.submit(self._work, call)
            self._pending[call.number] = future
            self._taken += first
        future.add_done_callback(partial(self._tell, call))
        return True

    # The workers' side.

    def _work(self, call: Call) -> Outcome | NoOutcome:
        try:
            return call.run(self._function, self._is_closed, self._is_leaving)
        finally:
            if self._policy.timeout is not None:
                with self._gate:
                    call.returned = True
                    if call in self._left:
                        self._messages.put(_Returned(call))

    def _tell(self, call: Call, future: Future[Outcome | NoOutcome]) -> None:
        self._messages.put((call, future))

    def _is_closed(self) -> bool:
        return self._closed

    def _is_leaving(self) -> bool:
        return self._leaving

    # The main thread's side.

    def _serve(self) -> None:
        """Handle messages and write records until every call that was taken is settled, or the wait is up."""
        while not self._over():
            try:
                self._handle(self._messages.get(timeout=self._patience()))
                for _ in range(WRITE_AT_MOST):
                    self._handle(self._messages.get_nowait())
            except Empty:
                if self._deadline is not None and time.monotonic() >= self._deadline:
                    break
            self._write()
        for number in sorted(self._held):  # what is done behind calls that have no record
            self._lines.append(self._held[number])
        self._held.clear()
        self._write()

    def _over(self) -> bool:
        if not (self._reader_ended or self._closed) or self._settled < self._taken:
            return False
        if self._left and self._deadline is None:
            self._deadline = time.monotonic() + LEAVE_SECONDS
        return not self._left

    def _patience(self) -> float | None:
        return None if self._deadline is None else max(0.0, self._deadline - time.monotonic())

    def _handle(self, message: object) -> None:
        match message:
            case (Call() as call, Future() as future):
                self._finished(call, future)
            case int():
                self._signalled(message)
            case _Returned():
                self._set_left(message.call, False)
            case _ReaderEnded():
                self._reader_ended = True
                if isinstance(message.error, Refusal):
                    self._refusal = message.error
                elif message.error is not None:
                    raise message.error

    def _finished(self, call: Call, future: Future[Outcome | NoOutcome]) -> None:
        del self._pending[call.number]
        outcome = self._outcome(call, future)
        if outcome is None or outcome is NoOutcome.INTERRUPTED:
            self._settle(call, "")
        elif outcome is NoOutcome.END_OF_RUN:
            self._settle(call, "")
            self._signalled(signal.SIGINT)
        elif not self._retried(call, outcome):
            self._tally.add(call.text, outcome)
            self._settle(call, line(call.text, outcome))
            if outcome.error is not None and self._policy.fail_fast:
                self._stop(EXIT_FAILED)

    def _outcome(self, call: Call, future: Future[Outcome | NoOutcome]) -> Outcome | NoOutcome | None:
        if future.cancelled():
            return None
        error = future.exception()
        if error is None:
            return future.result()
        timed_out = isinstance(error, TaskTimeout)
        if timed_out:
            self._set_left(call, True)
        return call.outcome(error_text(error.with_traceback(None)), type(error).__name__, 1, timed_out)

    def _retried(self, call: Call, outcome: Outcome) -> bool:
        if not outcome.retry or outcome.attempts >= self._policy.attempts:
            return False
        return self._submit(Call(call.number, call.value, call.text, 1, outcome), first=False)

    def _set_left(self, call: Call, left: bool) -> None:
        with self._gate:
            if left and not call.returned:
                self._left.add(call)
            else:
                self._left.discard(call)
            if not self._closed:
                self._pool.resize(self._policy.workers + len(self._left))

    def _settle(self, call: Call, text: str) -> None:
        self._settled += 1
        if self._policy.ordered:
            self._held[call.number] = text
        else:
            self._lines.append(text)

    def _write(self) -> None:
        """Write the records that may be written by now, in one piece, and give their permits back."""
        while self._policy.ordered and self._next in self._held:
            self._lines.append(self._held.pop(self._next))
            self._next += 1
        if self._lines:
            lines, self._lines = self._lines, []
            self._write_bytes("".join(lines).encode())
            self._permits.put(len(lines))
        self._show()

    # How a run ends early.

    def _signalled(self, number: int) -> None:
        self._signals += 1
        if self._signals > 1:
            self._leave()
            return
        self._stop(128 + number)
        if running := self._running():
            calls = "1 call" if running == 1 else f"{running} calls"
            sys.stderr.write(f"filch map: stopping when {calls} have ended; Ctrl-C again interrupts them\n")

    def _running(self) -> int:
        return sum(not future.done() for future in self._pending.values())

    def _stop(self, exit_code: int) -> None:
        """Take no more input, cancel what has not started, and let what runs end."""
        if self._close():
            self._exit = exit_code
            self._pool.shutdown(wait=False, cancel_futures=True)

    def _close(self) -> bool:
        """Close the gate: from now on nothing is submitted.  Return whether it was open."""
        with self._gate:
            was_open, self._closed = not self._closed, True
        self._permits.put(1)  # the reader may be waiting for one
        return was_open

    def _leave(self) -> None:
        """Ask the running calls to stop, and set the end of the wait for them."""
        if self._leaving:
            return
        self._leaving = True
        self._deadline = time.monotonic() + LEAVE_SECONDS
        for future in list(self._pending.values()):
            future.interrupt()

    def _give_up(self, exit_code: int) -> None:
        """End the calls when no record can be written any more."""
        self._stop(exit_code)
        self._leave()
        self._write_bytes = lambda data: None
        with contextlib.suppress(KeyboardInterrupt):
            self._serve()

    def _end(self) -> None:
        self._close()
        self._tally.unfinished = self._taken - self._tally.done
        self._tally.left_running = self._running() + len(self._left)
        self._pool.shutdown(wait=not self._tally.left_running, cancel_futures=True)
