"""The options of `filch map`: what each does from the command line, and which values are refused."""

import json
import time

import pytest

FUNCTIONS = """\
import itertools, threading
calls = itertools.count(1)
meeting = threading.Barrier(3)

def third_time(text):
    if next(calls) < 3:
        raise ValueError("not yet")
    return text

def meet(text):
    meeting.wait(20)
    return text

def fail(text):
    raise ValueError(f"no {text}")

def spin(text):
    from filch.pool import checkpoint
    while True:
        checkpoint()
"""


class Clock:
    """A clock that can be put forward."""

    def __init__(self):
        self.late = 0
        self._now = time.monotonic

    def __call__(self):
        """Return the time."""
        return self._now() + self.late


@pytest.fixture(autouse=True)
def _functions(folder):
    """Put functions into the current folder."""
    (folder / "work.py").write_text(FUNCTIONS)


def test_options_may_stand_anywhere(run):
    """Inputs after an option, or an option between inputs, would be refused or taken for something else."""
    ran = run("map", "--workers", 1, "builtins:len", "a", "--retries", 1, "bb", "--", "--ccc")
    assert [(record["input"], record["result"]) for record in ran.records] == [("a", 1), ("bb", 2), ("--ccc", 5)]


def test_retries(run):
    """`--retries 2` would make another number of attempts."""
    ran = run("map", "work:third_time", "a", "--retries", 2)
    assert [(record["ok"], record["attempts"]) for record in ran.records] == [(True, 3)]
    ran = run("map", "work:fail", "a", "--retries", 2)
    assert [(record["ok"], record["attempts"]) for record in ran.records] == [(False, 3)]


def test_workers(run):
    """`--workers 3` would run fewer than three calls at once."""
    assert run("map", "work:meet", "a", "b", "c", "--workers", 3).code == 0


def test_timeout(run):
    """`--timeout` would be taken for something else than seconds, or not at all."""
    ran = run("map", "work:spin", "a", "--timeout", "0.1", "--retries", 1)
    assert ran.code == 1
    [record] = ran.records
    assert record["error"]["type"] == "TaskTimeout"
    assert record["attempts"] == 2
    assert record["error"]["message"].startswith("spin ran longer than its timeout of 0.1 s")


def test_fail_fast(run):
    """`--fail-fast` would have no effect, or not fail."""
    ran = run("map", "work:fail", *range(1000), "--fail-fast", "--workers", 1)
    assert ran.code == 1
    assert 1 <= len(ran.records) < 1000


def test_unordered(run):
    """`--unordered` would not be known, or lose records."""
    ran = run("map", "builtins:len", *("x" * n for n in range(100)), "--unordered")
    assert sorted(record["result"] for record in ran.records) == list(range(100))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            ["--workers", "0"],
            "--workers: must be a whole number, at least 1, not '0'; leave it out for one worker a CPU",
        ),
        (["--workers", "two"], "--workers: must be a whole number, at least 1, not 'two'; leave it out for one"),
        (["--workers", "1.5"], "--workers: must be a whole number, at least 1, not '1.5'; leave it out for one"),
        (["--retries", "-1"], "--retries: must be a whole number, at least 0, not '-1'; 0 is a single attempt"),
        (["--timeout", "0"], "--timeout: must be a number of seconds above 0, not '0'; leave it out for no limit"),
        (["--timeout", "-3"], "--timeout: must be a number of seconds above 0, not '-3'; leave it out for no limit"),
        (["--timeout", "nan"], "--timeout: must be a number of seconds above 0, not 'nan'; leave it out for no"),
        (["--timeout", "inf"], "--timeout: must be a number of seconds above 0, not 'inf'; leave it out for no"),
        (["--retry", "3"], "unrecognized arguments: --retry"),
    ],
)
def test_refused(run, options, said):
    """A wrong number would be taken as it is, or the user not learn what a right one is."""
    ran = run("map", "builtins:len", "a", *options)
    assert ran.code == 2
    assert ran.out == ""
    assert ran.err.startswith(f"filch map: error: {said}")


def test_no_function(run):
    """`filch map` alone would end in a traceback."""
    ran = run("map")
    assert ran.code == 2
    assert ran.err == (
        "filch map: error: no FUNCTION given; name one as MODULE:NAME or FILE.py:NAME, for example json:loads\n"
    )


def test_jsonl_and_lines_together(run, folder):
    """Values from a file of JSON lines would arrive as their text."""
    (folder / "values").write_text('[1, 2]\n{"a": 1}\n')
    (folder / "lines").write_text("abc\n")
    ran = run("map", "builtins:len", "--jsonl", "values", "--lines", "lines")
    assert [(record["input"], record["result"]) for record in ran.records] == [("abc", 3), ([1, 2], 2), ({"a": 1}, 1)]


def test_bad_line_of_json(run, folder):
    """A bad line would be skipped, or what came before it be lost."""
    (folder / "values").write_text('"a"\n"bb"\noops\n"cc"\n')
    ran = run("map", "builtins:len", "--jsonl", "values", "--output", "out")
    assert ran.code == 2
    assert ran.err.splitlines()[-1].startswith("filch map: error: line 3 of file 'values' must be one JSON value, not")
    assert "filch map: 2 ok, 0 failed;" in ran.err
    assert [json.loads(line)["result"] for line in (folder / "out").read_text().splitlines()] == [1, 2]


def test_time_of_the_run_is_that_of_the_calls(run, folder, monkeypatch):
    """The rate would be wrong by the time that importing the function, or waiting for the first line, took."""
    clock = Clock()
    monkeypatch.setattr("time.monotonic", clock)
    (folder / "slow.py").write_text("import time\ntime.monotonic.late += 100\nf = len\n")
    ran = run("map", "slow:f", "a")
    assert clock.late == 100
    assert float(ran.err.split("; ")[1].split(" s")[0]) < 50


def test_summary(run):
    """After a long run nobody would know what failed, why, and what took so long."""
    ran = run("map", "json:loads", "1", "x", "y", "2", "{}", "--workers", 1)
    lines = ran.err.splitlines()
    assert lines[0].startswith("filch map: 3 ok, 2 failed; ")
    assert lines[0].endswith(", 1 worker")
    assert lines[1] == "filch map: slowest:"
    assert len([line for line in lines[2:7] if line.endswith(('s  "1"', 's  "x"', 's  "y"', 's  "2"', 's  "{}"'))]) == 5
    assert lines[7] == "filch map: errors:"
    assert lines[8].split() == ["filch", "map:", "2", "JSONDecodeError,", "first", '"x"']
