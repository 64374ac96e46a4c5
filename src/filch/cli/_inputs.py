"""The inputs of `filch map`, one after the other and only when asked: words, globs, lines, JSON lines, in this order.

Files are opened before the first call, so that one that is missing is refused at once, and read while calls run.  Not
here: how far ahead of the calls they are read (`_run.py`), and which are skipped (`_output.py`).
"""

import io
import os
import stat
import sys
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

from filch.cli._glob import walk
from filch.cli._json import NotJSON, decode, encode
from filch.cli._refusal import Refusal, reason_of, shortened


class Input(NamedTuple):
    """The argument of one call, and its JSON text."""

    value: object
    text: str


class Inputs:
    """All inputs of one run, in order.  Iterate over it once."""

    def __init__(self, words: list[str], globs: list[str], lines: list[str], jsonl: list[str]) -> None:
        if not (words or globs or lines or jsonl):
            raise Refusal("no input given; name inputs after FUNCTION, or use --glob, --lines or --jsonl")
        if (lines + jsonl).count("-") > 1:
            raise Refusal("standard input can be read only once; give '-' to one of --lines and --jsonl")
        self._words = words
        self._globs = globs
        self._lines = [_File(path) for path in lines]
        self._jsonl = [_File(path) for path in jsonl]
        self.notes: list[str] = []
        """What the user should know in the end, such as a pattern that matched nothing."""

    def __iter__(self) -> Iterator[Input]:
        for word in self._words:
            yield Input(word, encode(word))
        for pattern in self._globs:
            yield from self._matches(pattern)
        for file in self._lines:
            for _, line in file.read():
                text = line.decode("utf-8", "surrogateescape")
                yield Input(text, encode(text))
        for file in self._jsonl:
            for number, line in file.read():
                yield _from_json(file, number, line)

    def describe(self) -> str:
        """Return where the inputs should have come from, for the sentence that there are none."""
        patterns = [f"pattern {pattern!r}" for pattern in self._globs]
        return ", ".join(patterns + [file.name for file in self._lines + self._jsonl])

    def refuse_as_output(self, output: str | int) -> None:
        """Refuse an output, a path or a descriptor, that the inputs are read from: it would lose them, or never end."""
        try:
            there = os.stat(output)
        except OSError:
            return
        files = self._lines + self._jsonl
        for file in files:
            if stat.S_ISREG(there.st_mode) and os.path.samestat(there, file.stat):
                for opened in files:
                    opened.close()
                raise Refusal(f"output would go to {file.name}, which the inputs are read from; give another --output")

    def count(self) -> int | None:
        """Return how many inputs there will be, or None if only reading them tells.  Reads what can be read twice."""
        files = self._lines + self._jsonl
        if not all(file.again for file in files):
            return None
        total = len(self._words)
        for pattern in self._globs:
            total += sum(1 for _ in walk(pattern, lambda error: None))
        for file in files:
            try:
                with open(file.path, "rb") as stream:
                    total += sum(1 for line in stream if line.rstrip(b"\r\n"))
            except OSError:
                return None
        return total

    def _matches(self, pattern: str) -> Iterator[Input]:
        unreadable: list[OSError] = []
        matched = False
        for path in walk(pattern, unreadable.append):
            matched = True
            yield Input(path, encode(path))
        if not matched:
            self.notes.append(f"pattern {pattern!r} matched nothing")
        if unreadable:
            first = unreadable[0]
            more = f" and {len(unreadable) - 1} more" if len(unreadable) > 1 else ""
            self.notes.append(f"could not look into {first.filename!r}{more}: {reason_of(first)}")


class _File:
    """One file of lines, opened now and read later."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.name = "standard input" if path == "-" else f"file {path!r}"
        try:
            self._stream = _standard_input() if path == "-" else open(path, "rb")  # noqa: SIM115
            self.stat = os.fstat(self._stream.fileno())
        except OSError as error:
            raise Refusal(f"cannot read {self.name}: {reason_of(error)}; check the path") from None
        self.again = path != "-" and stat.S_ISREG(self.stat.st_mode)

    def close(self) -> None:
        self._stream.close()

    def read(self) -> Iterator[tuple[int, bytes]]:
        """Yield number and content of each line that is not empty, without its end."""
        with self._stream as stream:
            number = 0
            while True:
                try:
                    line = stream.readline()
                except OSError as error:
                    raise Refusal(f"cannot read {self.name} after line {number}: {reason_of(error)}") from None
                if not line:
                    return
                number += 1
                if number == 1 and line.startswith(b"\xef\xbb\xbf"):
                    line = line[3:]
                if line := line.removesuffix(b"\n").removesuffix(b"\r"):
                    yield number, line


def _standard_input() -> BinaryIO:
    """Open standard input anew: a thread that waits for it must not hold a lock that the interpreter's end needs."""
    if sys.stdin is None:
        raise Refusal("standard input is closed, so '-' cannot be read; redirect a file into it")
    try:
        return open(sys.stdin.fileno(), "rb", closefd=False)
    except io.UnsupportedOperation:
        raise Refusal("standard input is no file here, so '-' cannot be read; give a path") from None


def _from_json(file: _File, number: int, line: bytes) -> Input:
    try:
        value = decode(line)
        return Input(value, encode(value))
    except (ValueError, RecursionError, NotJSON) as error:
        raise Refusal(
            f"line {number} of {file.name} must be one JSON value, not {shortened(line.decode(errors='replace'))!r} "
            f"({error}); correct it, and with --output go on with --resume"
        ) from None
