"""The run itself: inputs into the pool, outcomes into records, and an orderly end.

Three kinds of thread meet here, and nothing polls.

- The reader (one daemon thread) pulls inputs and submits calls, one for each permit that it is granted: never more than
  `window` ahead of the records, and never more into the pool than its workers do in `QUEUE_SECONDS`.
- A worker runs a call and then settles it: it writes the record, and every record that was waiting for this one, before
  it turns to its next call.  So a kill loses the calls that run, and of those that have ended only records that wait
  for an earlier input's.
- The main thread sleeps until there is a message: a signal, the end of the inputs, an error, or, once no more inputs
  come, that a call was settled.

Two locks.  `_books` is held to settle a call: each call is settled once, whether it returned or timed out first.
`_gate` is held to submit one; closed, it lets nobody in, neither the reader nor a retry nor a call that has not begun.
Whoever needs both takes `_books` first.

A run that is stopped closes the gate, cancels what has not started, and goes on until the running calls have ended.  A
run that is left asks these to stop as well, and bounds the wait for them.

A call that timed out has its record at once, but its thread is busy until it comes to a checkpoint.  Until then it is
`left`, and the pool has one worker more in its place, so that calls that hang do not bring the run to a halt.
"""

import contextlib
import contextvars
import enum
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from queue import Empty, SimpleQueue

from filch._kernel import current_future
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
"""Inputs that may be pulled without having their record written: enough that one slow call does not soon idle the
others, whose records must wait for its own; few enough that their results fit into memory."""

QUEUE_SECONDS = 0.02
"""Work that may wait in the pool for each worker.  Cheap calls need a long queue to keep workers busy; with slow ones
it would only let workers, who take calls in batches, run far ahead of one another and of the records."""

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
class _Ended:
    """The reader has come to the end of the inputs, or to an error."""

    error: BaseException | None


class _Note(enum.Enum):
    """What a worker has to tell the main thread."""

    SETTLED = "look whether this was the last call"
    FAILED = "an input has failed, and the run was to end at the first"


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
        self._pool = Pool(policy.workers, thread_name_prefix="filch-map", daemon=True)
        name = getattr(function, "__qualname__", type(function).__qualname__)
        timed = policy.timeout is not None
        self._submitter = self._pool.options(timeout=policy.timeout, name=name) if timed else self._pool
        # A task makes all attempts, unless each attempt has a time limit, which is the limit of a task.
        self._attempts_per_task = policy.attempts if policy.timeout is None else 1
        # Calls see the context variables that the function's module set when it was imported here.
        self._context = contextvars.copy_context()
        self._messages: SimpleQueue[object] = SimpleQueue()
        self._permits: SimpleQueue[int] = SimpleQueue()

        self._gate = threading.Lock()
        self._closed = False  # written under the gate; read anywhere, late at worst
        self._taken = 0  # under the gate

        self._books = threading.Lock()  # for all that follows, except that calls are added to `_open` under the gate
        self._open: set[Call] = set()
        self._settled = 0
        self._tally = tally
        self._show = show
        self._write: Callable[[bytes], None] | None = write  # None once nothing more is to be written
        self._broken: OutputClosed | Refusal | None = None  # why not
        self._held: dict[int, str] = {}  # lines by the number of their input; empty for a call without a record
        self._next = 0  # the number of the first line that is not written
        self._granted = 0  # permits
        self._mean_seconds = QUEUE_SECONDS  # of the last calls
        self._left: set[Call] = set()
        self._draining = False  # no more calls come, and main is told of each that is settled

        # Main's own; workers read `_leaving`.
        self._leaving = False
        self._signals = 0
        self._deadline: float | None = None
        self._exit: int | None = None
        self._error: BaseException | None = None

    def go(self) -> int:
        """Make all calls, write all records, and return the exit code."""
        self._tally.start()
        self._grant()
        target = self._context.copy().run
        reader = threading.Thread(target=target, args=(self._read,), name="filch-map-reader", daemon=True)
        with stop_signals(self._messages.put):
            try:
                reader.start()
                self._attend()
            except KeyboardInterrupt:
                self._exit = 128 + signal.SIGINT
            finally:
                self._end()
        if isinstance(self._broken, OutputClosed):
            return EXIT_BROKEN_PIPE
        if error := self._broken or self._error:
            raise error
        if self._exit is not None:
            return self._exit
        return EXIT_FAILED if self._tally.failed or self._tally.unfinished else EXIT_OK

    # The reader's side.

    def _read(self) -> None:
        error = None
        try:
            self._pull()
        except BaseException as raised:
            error = raised
        self._messages.put(_Ended(error))

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
            if given is None or not self._submit(Call(number, given, self._attempts_per_task)):
                return
            number += 1
            permits -= 1

    def _submit(self, call: Call) -> bool:
        """Submit `call` unless the gate is closed."""
        with self._gate:
            if self._closed:
                return False
            self._open.add(call)
            if call.before is None:
                call.future = self._submitter.submit(self._work, call)
                self._taken += 1
            else:  # this is the thread of a worker, or of the clock
                call.future = self._context.copy().run(self._submitter.submit, self._work, call)
            future = call.future
        if self._policy.timeout is not None:
            future.add_done_callback(partial(self._timed_out, call))
        return True

    # The workers' side.

    def _work(self, call: Call) -> None:
        try:
            outcome: Outcome | NoOutcome = NoOutcome.NOT_BEGUN
            if not self._closed:
                outcome = call.run(self._function, self._is_closed, self._is_leaving)
            task = current_future()
            if self._policy.timeout is not None and task is not None and task.done():
                self._return_late(call)  # its time was up: `_timed_out` settles it, or has done so
            else:
                self._settle(call, outcome)
        except BaseException as fault:  # of ours; main must not wait for this call
            self._messages.put(_Ended(fault))

    def _timed_out(self, call: Call, future: Future[None]) -> None:
        if not future.cancelled() and isinstance(error := future.exception(), TaskTimeout):
            outcome = call.outcome(error_text(error.with_traceback(None)), type(error).__name__, 1, True)
            self._settle(call, outcome, left=True)

    def _is_closed(self) -> bool:
        return self._closed

    def _is_leaving(self) -> bool:
        return self._leaving

    def _settle(self, call: Call, outcome: Outcome | NoOutcome, *, left: bool = False) -> None:
        """Settle `call`, unless it was settled when it timed out; `left` if it may be running still."""
        with self._books:
            if call not in self._open:
                self._set_left(call, False)
                return
            self._open.remove(call)
            if left and not call.returned:
                self._set_left(call, True)
            retry = isinstance(outcome, Outcome) and outcome.retry and outcome.attempts < self._policy.attempts
            if not retry:
                self._enter(call, outcome)
        if isinstance(outcome, Outcome) and retry and not self._submit(call.again(outcome)):
            with self._books:
                self._enter(call, outcome)

    def _return_late(self, call: Call) -> None:
        with self._books:
            call.returned = True
            self._set_left(call, False)

    def _set_left(self, call: Call, left: bool) -> None:
        """Enter or strike `call` among those that timed out and still run.  Under the books."""
        if left == (call in self._left):
            return
        if left:
            self._left.add(call)
        else:
            self._left.remove(call)
        if self._draining:
            self._messages.put(_Note.SETTLED)
        if not self._closed:
            self._pool.resize(self._policy.workers + len(self._left))

    def _enter(self, call: Call, outcome: Outcome | NoOutcome) -> None:
        """Count `call`, and write what may be written now.  Under the books."""
        text = ""
        if isinstance(outcome, Outcome):
            text = line(call.given.text, outcome)
            self._mean_seconds += (outcome.seconds - self._mean_seconds) / 16
            self._tally.add(call.given.text, outcome)
            if outcome.error is not None and self._policy.fail_fast:
                self._close()
                self._messages.put(_Note.FAILED)
        elif outcome is NoOutcome.END_OF_RUN:
            self._close()
            self._messages.put(int(signal.SIGINT))
        if not self._policy.ordered:
            self._put([text])
        elif call.number != self._next:
            self._held[call.number] = text
        else:
            lines = [text]
            self._next += 1
            while self._next in self._held:
                lines.append(self._held.pop(self._next))
                self._next += 1
            self._put(lines)
        self._settled += 1
        self._grant()
        if self._draining:
            self._messages.put(_Note.SETTLED)
        self._show()

    def _put(self, lines: list[str]) -> None:
        """Write lines.  Under the books."""
        if self._write is not None:
            try:
                self._write("".join(lines).encode())
            except (OutputClosed, Refusal) as error:
                self._write = None
                self._broken = error
                self._messages.put(error)

    def _grant(self) -> None:
        """Let the reader go on as far as it may now, but do not wake it for single inputs.  Under the books."""
        window = self._policy.window
        each = 2 + int(QUEUE_SECONDS / max(self._mean_seconds, 1e-6))
        depth = min(self._policy.workers * each, window)
        written = self._next if self._policy.ordered else self._settled
        more = min(written + window, self._settled + depth) - self._granted
        if more > 0 and 4 * more >= depth:
            self._permits.put(more)
            self._granted += more

    # The main thread's side.

    def _attend(self) -> None:
        """Heed messages until every call is settled and has returned, or the wait for that is up.

        Then heed those that came together with the last settlement: they may say that the run was stopped.
        """
        while not self._over():
            patience = None if self._deadline is None else max(0.0, self._deadline - time.monotonic())
            try:
                self._heed(self._messages.get(timeout=patience))
            except Empty:
                return
        with contextlib.suppress(Empty):
            while True:
                self._heed(self._messages.get_nowait())

    def _over(self) -> bool:
        with self._books:
            if not self._draining or self._settled < self._taken:
                return False
            if self._left and self._deadline is None:
                self._deadline = time.monotonic() + LEAVE_SECONDS
            return not self._left

    def _heed(self, message: object) -> None:
        match message:
            case int():
                self._signalled(message)
            case _Note.FAILED:
                self._stop(EXIT_FAILED)
            case _Ended():
                with self._books:
                    self._draining = True
                self._error = self._error or message.error
                if message.error is not None and not isinstance(message.error, Refusal):
                    self._stop(EXIT_REFUSED)
                    self._leave()
            case OutputClosed() | Refusal():  # nothing more can be written
                self._stop(EXIT_REFUSED)
                self._leave()

    def _signalled(self, number: int) -> None:
        self._signals += 1
        if self._signals > 1:
            self._leave()
            return
        self._stop(128 + number)
        with self._books:
            running = len(self._open)
        if running:
            calls = "1 call has" if running == 1 else f"{running} calls have"
            sys.stderr.write(f"filch map: stopping when {calls} ended; Ctrl-C again interrupts them\n")

    def _close(self) -> None:
        """Close the gate: from now on nothing is submitted, and no call begins."""
        with self._gate:
            self._closed = True
        self._permits.put(1)  # the reader may be waiting for one

    def _stop(self, exit_code: int) -> None:
        """Take no more input, cancel what has not begun, and let what runs end."""
        if self._exit is None:
            self._exit = exit_code
        self._close()
        self._pool.shutdown(wait=False, cancel_futures=True)
        with self._books:
            self._draining = True
            for call in [call for call in self._open if call.future is not None and call.future.cancelled()]:
                self._open.remove(call)
                self._enter(call, NoOutcome.NOT_BEGUN)

    def _leave(self) -> None:
        """Ask the running calls to stop, and set the end of the wait for them."""
        if self._leaving:
            return
        self._leaving = True
        self._deadline = time.monotonic() + LEAVE_SECONDS
        with self._books:
            running = [call.future for call in self._open if call.future is not None]
        for future in running:
            future.interrupt()

    def _end(self) -> None:
        """Write what is done behind calls that have no record, and close the books."""
        self._close()
        with self._books:
            self._put([self._held[number] for number in sorted(self._held)])
            self._write = None
            self._tally.unfinished = self._taken - self._tally.done
            self._tally.left_running = running = len(self._open) + len(self._left)
        self._pool.shutdown(wait=not running, cancel_futures=True)
