"""How the tests run the command line: inside this process where that will do, else as a process of its own."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import filch.cli

SOURCES = Path(filch.cli.__file__).parent.parent.parent


@dataclass
class Ran:
    """What came of one command."""

    code: int
    out: str
    err: str

    @property
    def records(self) -> list[dict[str, Any]]:
        """The records that were written to standard output."""
        return [json.loads(line) for line in self.out.splitlines()]


@pytest.fixture(autouse=True)
def _ctrl_c_is_not_ignored() -> Iterator[None]:
    """Undo what a shell does to jobs in the background, for this process and those that it starts."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Be in an empty folder, and forget afterwards what was imported from it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", None)).startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.fixture
def run(folder: Path, capfd: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    """Return a function that runs `filch` with these arguments in this process."""

    def run(*arguments: object) -> Ran:
        capfd.readouterr()
        code = filch.cli.main([str(argument) for argument in arguments])
        return Ran(code, *capfd.readouterr())

    return run


@pytest.fixture
def start(folder: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Return a function that starts `python -m filch` with these arguments; what still runs in the end is killed."""
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: object, warnings: str = "", **options: Any) -> subprocess.Popen[str]:
        environment = {**os.environ, "PYTHONPATH": str(SOURCES), "PYTHONWARNINGS": warnings}
        environment.pop("PYTHONUNBUFFERED", None)  # what is printed is to stay in the buffer as long as it may
        for stream in ("stdin", "stdout", "stderr"):
            options.setdefault(stream, subprocess.PIPE)
        process = subprocess.Popen(
            [sys.executable, "-m", "filch", *map(str, arguments)], env=environment, text=True, **options
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                stream.close()


@pytest.fixture
def records(folder: Path) -> Callable[[], list[dict[str, Any]]]:
    """Return a function that reads the records of the output file `out`."""
    return lambda: [json.loads(line) for line in (folder / "out").read_text("utf-8").splitlines()]
