"""Where the records of `filch map` go: standard output or a file, and what a file from an earlier run already holds.

Bytes go to the descriptor at once, unbuffered, so that what was written survives a `kill -9`.  Not here: what a record
looks like inside (`_records.py`).
"""

import contextlib
import hashlib
import io
import os
import select
import stat
import sys
from collections import Counter
from collections.abc import Iterator

from filch.cli._inputs import Input
from filch.cli._json import canonical, decode
from filch.cli._records import RECORD_START
from filch.cli._refusal import Refusal, reason_of, shortened

if sys.platform != "win32":
    import fcntl


class OutputClosed(Exception):
    """Whoever read the output has gone, as `head` does when it has enough."""


class Output:
    """A descriptor that whole lines are written to, and the inputs that it already holds a good record of."""

    def __init__(self, descriptor: int, name: str, done: Counter[str | bytes] | None = None) -> None:
        self._descriptor = descriptor
        self._name = name
        self._done = done

    def write(self, data: bytes) -> None:
        """Write all of `data`; raise OutputClosed if nobody reads any more, and Refusal if it cannot be written."""
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[os.write(self._descriptor, rest) :]
            except BlockingIOError:  # somebody made the pipe that we share with him non-blocking
                select.select([], [self._descriptor], [])
            except BrokenPipeError:
                raise OutputClosed from None
            except OSError as error:
                raise Refusal(
                    f"cannot write to {self._name}: {reason_of(error)}; make room, and go on with --resume"
                ) from None

    def lacks(self, given: Input) -> bool:
        """Tell whether `given` is still to be done.  A good record answers for one input, not for all that equal it."""
        if not self._done:
            return True
        key = _key(given.value)
        left = self._done.get(key, 0)
        if left > 1:
            self._done[key] = left - 1
        elif left:
            del self._done[key]
        return not left


def check(path: str | None, *, resume: bool, overwrite: bool) -> None:
    """Refuse options that do not go together, and a file that would be lost, before anything is imported or read."""
    for option, given in (("--resume", resume), ("--overwrite", overwrite)):
        if given and path is None:
            raise Refusal(f"{option} needs the file that it is about; add --output FILE")
    if resume and overwrite:
        raise Refusal("--resume keeps what the output file holds and --overwrite drops it; give one of them")
    if path is not None and os.path.isfile(path) and not resume and not overwrite:
        raise Refusal(f"output file {path!r} exists; go on with it by --resume, or replace it by --overwrite")


@contextlib.contextmanager
def file_output(path: str, *, resume: bool, overwrite: bool) -> Iterator[Output]:
    """Open `path` for one run: new, emptied by `overwrite`, or repaired and read by `resume`."""
    keep = resume or overwrite
    flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0)
    if os.path.exists(path) and not os.path.isfile(path):
        flags, keep = os.O_WRONLY, False  # a device or a named pipe holds nothing that could be lost
    elif not keep:
        flags |= os.O_EXCL
    try:
        descriptor = os.open(path, flags, 0o666)
    except FileExistsError:
        raise Refusal(f"output file {path!r} exists; go on with it by --resume, or replace it by --overwrite") from None
    except OSError as error:
        raise Refusal(f"cannot write to file {path!r}: {reason_of(error)}; give another --output") from None
    try:
        try:
            done = _prepare(descriptor, path, resume=resume, overwrite=overwrite)
        except OSError as error:
            raise Refusal(f"cannot use file {path!r}: {reason_of(error)}; give another --output") from None
        yield Output(descriptor, f"file {path!r}", done)
    finally:
        os.close(descriptor)


class StandardOutput:
    """Standard output kept for records: while this is open, what functions print goes to standard error.

    On the level of the descriptor too, so that it holds for C code and for child processes.
    """

    def __init__(self) -> None:
        if sys.stdout is None:
            raise Refusal("standard output is closed, so records cannot go to it; add --output FILE")
        self._printed_to = sys.stdout
        self._printed_to.flush()
        try:
            number = sys.stdout.fileno()
        except (OSError, ValueError, io.UnsupportedOperation):
            raise Refusal("standard output is no file here, so records cannot go to it; add --output FILE") from None
        self.on_terminal = os.isatty(number)
        self._number = number
        self._descriptor = os.dup(number)
        self.output = Output(self._descriptor, "standard output")
        os.dup2(sys.stderr.fileno(), number)
        sys.stdout = sys.stderr

    def give_back(self) -> None:
        """Let functions print to standard output again.  Not called while one that was given up may still print."""
        sys.stdout = self._printed_to
        sys.stdout.flush()
        os.dup2(self._descriptor, self._number)
        os.close(self._descriptor)


def _prepare(descriptor: int, path: str, *, resume: bool, overwrite: bool) -> Counter[str | bytes] | None:
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        return None
    _lock(descriptor, path)
    if overwrite:
        os.ftruncate(descriptor, 0)
    return _read_back(descriptor, path) if resume else None


def _lock(descriptor: int, path: str) -> None:
    """Keep a second run away from the same file, where the file system can."""
    if sys.platform != "win32":
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Refusal(f"output file {path!r} is being written by another run; wait for its end") from None
        except OSError:
            pass


def _read_back(descriptor: int, path: str) -> Counter[str | bytes]:
    """Count the good records by input, and leave the file ready for more: a last line that was cut off is removed."""
    done: Counter[str | bytes] = Counter()
    record: dict[str, object] | None = None
    whole = True
    end = 0
    with open(descriptor, "rb", closefd=False) as stream:
        for number, line in enumerate(stream, 1):
            whole = line.endswith(b"\n")
            record = _record(line)
            if record is None:
                if whole or not _cut_off(line):
                    raise Refusal(
                        f"line {number} of output file {path!r} must be a record of filch map, "
                        f"not {shortened(line.decode(errors='replace'), 40)!r}; give another --output"
                    )
                break
            if record["ok"] is True:
                done[_key(record["input"])] += 1
            end += len(line)
    os.ftruncate(descriptor, end)
    os.lseek(descriptor, end, os.SEEK_SET)
    if end and not whole and record is not None:
        os.write(descriptor, b"\n")
    return done


def _record(line: bytes) -> dict[str, object] | None:
    try:
        record = decode(line)
    except (ValueError, RecursionError):
        return None
    if isinstance(record, dict) and "input" in record and isinstance(record.get("ok"), bool):
        return record
    return None


def _cut_off(line: bytes) -> bool:
    """Tell whether a line without an end is the beginning of a record, so that removing it loses nothing else.

    After a power cut the end may be zeros, where the file had grown and its content had not come to the disk.
    """
    line = line.rstrip(b"\0")
    return line.startswith(RECORD_START) or RECORD_START.startswith(line)


def _key(value: object) -> str | bytes:
    """Return what stands for `value` in the count: its canonical text, or a digest of that where it is long."""
    text = canonical(value)
    return text if len(text) <= 64 else hashlib.blake2b(text.encode(), digest_size=16).digest()
