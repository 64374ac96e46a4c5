"""`filch map` as a process: signals, kills, pipes, and what another process sees of it.

The functions meet the test at named pipes: opening one waits for the other side, so nothing here sleeps to be right.
"""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter

import pytest

FUNCTIONS = """\
import contextlib, fcntl, os, sys
from filch.pool import checkpoint

def log(text):
    with open("calls.log", "a") as file:
        file.write(f"{text}\\n")

def meet(text):
    log(text)
    if text.startswith("pipe"):
        with open(text) as pipe:  # waits for the test to open it, and then for the test to close it
            pipe.read()
    return text

def spin(text):
    log(text)
    if text.startswith("pipe"):
        with open(text) as pipe:
            pipe.read(1)
        while True:
            checkpoint()
    return text

def deaf(text):
    if text.startswith("pipe"):
        with open(text) as pipe:
            pipe.read(1)
        while text == "pipe-a":
            with contextlib.suppress(BaseException):
                checkpoint()
    return text

def fork(text):
    log(text)
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print("child", text)
    if text == "raise":
        raise ValueError("in the child")
    if text == "exit":
        sys.exit(7)
    if text == "say":
        sys.exit("said by the child")
"""

PATIENCE = 40
"""Seconds for what must happen; only a test that fails takes so long."""


@pytest.fixture(autouse=True)
def _functions(folder):
    """Put functions and pipes into the current folder."""
    (folder / "work.py").write_text(FUNCTIONS)
    os.mkfifo("pipe-a")
    os.mkfifo("pipe-b")
    os.mkfifo("pipe-c")


def calls():
    """Return the inputs of the calls that were made so far."""
    with open("calls.log") as log:
        return log.read().split()


def lines(path):
    """Return how many whole lines an output file has."""
    with open(path, "rb") as file:
        return file.read().count(b"\n")


def written(path):
    """Return the inputs of the whole lines in an output file."""
    with open(path, "rb") as file:
        return [json.loads(line)["input"] for line in file if line.endswith(b"\n")]


def wait_until(condition):
    """Wait until `condition()` is true; what is waited for comes from another process, which cannot tell."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.002)


def fill(pipe):
    """Write lines until the pipe is full, and return the number of bytes."""
    fed = 0
    with contextlib.suppress(BlockingIOError):
        while fed < 10_000_000:
            fed += os.write(pipe, b"0123456789" * 10 + b"\n")
    return fed


STOPPING = "filch map: stopping when 2 calls have ended; Ctrl-C again interrupts them\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_first_signal_lets_running_calls_end(start, number):
    """Ctrl-C would cut calls off in their middle, start more of them, or lose what is done."""
    process = start("map", "work:meet", "a", "pipe-a", "pipe-b", *range(300), "--workers", 2)
    with open("pipe-a", "w"), open("pipe-b", "w"):
        process.send_signal(number)
        assert process.stderr.readline() == STOPPING
        begun = calls()
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 128 + number
    assert {"pipe-a", "pipe-b"} <= {*begun}
    assert calls() == begun
    inputs = ["a", "pipe-a", "pipe-b", *map(str, range(300))]
    assert [json.loads(line)["input"] for line in out.splitlines()] == sorted(begun, key=inputs.index)
    assert err.startswith(f"filch map: {len(begun)} ok, 0 failed")


def test_second_signal_interrupts_running_calls(start):
    """A second Ctrl-C would wait as the first does, or write a call down as failed that it has cut short."""
    process = start("map", "work:spin", "pipe-a", "pipe-b", *range(300), "--workers", 2, "--retries", 3)
    with open("pipe-a", "w") as a, open("pipe-b", "w") as b:
        a.write("go")
        b.write("go")
    process.send_signal(signal.SIGINT)
    assert process.stderr.readline() == STOPPING
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    records = [json.loads(line) for line in out.splitlines()]
    assert all(record["ok"] for record in records)
    # Some may have run before the second pipe's turn came; what was cut short has no record, and was not tried again.
    assert sorted(calls()) == sorted(["pipe-a", "pipe-b", *(record["input"] for record in records)])
    assert "left behind" not in err


def test_second_signal_leaves_calls_that_do_not_listen(start):
    """A call that hangs in C code, or swallows every exception, could only be ended by kill -9."""
    process = start("map", "work:deaf", "pipe-a", "pipe-c", "pipe-b", *range(300), "--workers", 3)
    with open("pipe-a", "w") as a, open("pipe-b", "w"), open("pipe-c", "w") as c:
        a.write("go")
        a.close()
        c.close()  # this call ends; the one in pipe-b stays in a read that nothing ends
        process.send_signal(signal.SIGINT)
        assert process.stderr.readline().startswith("filch map: stopping when ")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    inputs = [json.loads(line)["input"] for line in out.splitlines()]
    assert "pipe-c" in inputs, "what is done is written, though an earlier input has no record"
    assert not {"pipe-a", "pipe-b"} & {*inputs}
    assert "filch map: 2 calls were still running and left behind;" in err


def test_ctrl_c_while_the_module_is_imported(start, folder):
    """Ctrl-C before the first call would print a traceback."""
    (folder / "slow.py").write_text("open('pipe-a').read()\n")
    process = start("map", "slow:f", "a")
    with open("pipe-a", "w"):
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert err == "filch map: interrupted\n"


def test_ctrl_c_while_waiting_for_the_first_line(start):
    """Ctrl-C would not end a run that waits for its input."""
    process = start("map", "work:meet", "pipe-a", "--lines", "-", "--workers", 1)
    with open("pipe-a", "w"):
        process.send_signal(signal.SIGINT)
        assert "1 call has ended" in process.stderr.readline().replace("when 1 call have", "when 1 call has")
    process.wait(PATIENCE)
    assert process.returncode == 130


def test_prints_are_seen_while_the_function_runs(start, folder):
    """What functions print would come when the run is over, so nobody could follow it."""
    (folder / "talk.py").write_text("def f(text):\n    print('hello', text)\n    open('pipe-a').read()\n")
    process = start("map", "talk:f", "you")
    with open("pipe-a", "w"):
        assert process.stderr.readline() == "hello you\n"
    out, _ = process.communicate(timeout=PATIENCE)
    assert json.loads(out)["ok"]


def test_call_that_was_left_behind_cannot_print_among_the_records(start, folder):
    """The last lines of the output would be noise of a call that was given up."""
    (folder / "noise.py").write_text(
        "import atexit, os, threading\n"
        "printed = threading.Semaphore(0)\n"
        "def f(text):\n"
        "    while text == 'loud':\n"
        "        os.write(1, b'noise\\n')\n"
        "        printed.release()\n"
        "@atexit.register\n"
        "def stay_until_more_is_printed():\n"
        "    while printed.acquire(blocking=False): pass\n"
        "    for _ in range(10): printed.acquire(timeout=20)\n"
    )
    process = start("map", "noise:f", "loud", "quiet", "--timeout", "0.1", stderr=subprocess.DEVNULL)
    out, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1
    assert [json.loads(line)["ok"] for line in out.splitlines()] == [False, True]


def test_kill_and_resume(start):
    """After a kill -9 results would be lost that were done, or inputs be left out or done twice."""
    inputs = [*map(str, range(20)), "pipe-a", "x", "y"]
    arguments = ["map", "work:meet", *inputs, "--workers", "1", "--output", "out"]
    process = start(*arguments)
    with open("pipe-a", "w"):
        wait_until(lambda: len(written("out")) == 20)  # though the run goes on, they are in the file
        process.kill()
        process.wait(PATIENCE)
    assert written("out") == inputs[:20]
    again = start(*arguments, "--resume")
    with open("pipe-a", "w"):
        pass
    _, err = again.communicate(timeout=PATIENCE)
    assert again.returncode == 0
    assert written("out") == inputs
    assert err.startswith("filch map: 3 ok, 0 failed, 20 skipped, ok in the output already;")
    assert calls() == [*inputs[:20], "pipe-a", "pipe-a", "x", "y"], "only the call in flight is made again"


@pytest.mark.slow
@pytest.mark.parametrize("order", ["--unordered", "--no-progress"])
def test_kills_at_random(start, folder, order):
    """Some moment of a kill would leave a file that cannot be resumed, or that lacks or doubles an input."""
    seed = random.randrange(10**6)
    print("seed", seed)
    moments = random.Random(seed)
    inputs = [f"input {number % 700}" for number in range(3000)]  # most of them several times
    (folder / "list").write_text("\n".join(inputs))
    arguments = ["map", "work:meet", "--lines", "list", "--output", "out", "--resume", "--workers", 3, order]
    kills = 6
    for sixth in range(kills):
        process = start(*arguments, stderr=subprocess.DEVNULL)
        enough = 500 * sixth + moments.randrange(500)
        # Lines are only counted: a run that resumes may be cutting a torn one off and adding others meanwhile.
        wait_until(lambda enough=enough: (folder / "out").exists() and lines("out") >= enough)
        process.kill()
        process.wait(PATIENCE)
    process = start(*arguments)
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, err
    assert Counter(written("out")) == Counter(inputs)
    made = len((folder / "calls.log").read_text().splitlines())
    print("calls made again", made - len(inputs))
    at_most = 3 if order == "--unordered" else 256  # the calls that ran, or the window
    assert 0 <= made - len(inputs) <= kills * at_most


def test_forked_child_is_no_worker(start, records):
    """A child process that comes out of the function would write records, try again, or go on with other inputs."""
    inputs = ["return", "raise", "exit", "say"]
    process = start("map", "work:fork", *inputs, "--output", "out", "--retries", 2, "--workers", 1)
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0
    assert [(record["input"], record["result"]) for record in records()] == [*zip(inputs, [0, 1, 7, 1], strict=True)]
    assert calls() == inputs
    assert out == "".join(f"child {text}\n" for text in inputs), "what it printed is not lost"
    assert "ValueError: in the child\n" in err
    assert "said by the child\n" in err


def test_closed_pipe_ends_quietly(start):
    """`filch map … | head` would end in a traceback, or go on for nobody."""
    process = start("map", "work:meet", "--lines", "-", "--unordered", stdin=subprocess.PIPE)
    feed = f"{'x' * 50}\n" * 40
    process.stdin.write(feed)
    process.stdin.flush()
    assert process.stdout.readline().startswith('{"input": "xxx')
    process.stdout.close()
    with contextlib.suppress(BrokenPipeError):
        while process.poll() is None:
            process.stdin.write(feed)
            process.stdin.flush()
    assert process.wait(PATIENCE) == 141
    assert process.stderr.read() == ""
    with contextlib.suppress(BrokenPipeError):
        process.stdin.close()
    process.stdin = None


def test_head_of_a_pipeline(start, folder):
    """The shell would show noise behind `| head -1`, or wait for calls whose results nobody reads."""
    script = f"{sys.executable} -m filch map builtins:len --glob '/usr/**' 2>err | head -n 1"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ran = subprocess.run(["bash", "-c", script], env=environment, capture_output=True, text=True, timeout=PATIENCE)
    assert json.loads(ran.stdout)["ok"]
    assert (folder / "err").read_text() == ""


def test_record_comes_before_the_next_line_is_there(start):
    """A program that writes a line and waits for its record would wait for ever."""
    process = start("map", "work:meet", "--lines", "-", stdin=subprocess.PIPE)
    for word in ("one", "two", "three"):
        process.stdin.write(word + "\n")
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["result"] == word
    process.stdin.close()
    process.stdin = None
    assert process.wait(PATIENCE) == 0


def test_standard_input_is_not_swallowed(start):
    """A million lines on standard input would fill the memory while one call is slow."""
    reading, writing = os.pipe()
    process = start("map", "work:meet", "pipe-a", "--lines", "-", stdin=reading)
    os.close(reading)
    os.set_blocking(writing, False)
    with open("pipe-a", "w"):
        # Calls behind the one that waits are made, but not many, however long the test feeds.
        fed = [fill(writing)]
        wait_until(lambda: fed.append(fill(writing)) or len(calls()) > 128)
        for _ in range(100):
            time.sleep(0.001)  # a chance to do wrong
            fed.append(fill(writing))
        assert len(calls()) <= 256
    assert sum(fed) < 256 * 1024, "what the calls, the pipe and one buffer hold"
    os.close(writing)
    process.communicate(timeout=PATIENCE)


def test_exit_does_not_wait_for_a_call_that_was_given_up(start):
    """A run whose last call hangs would never end, though the call has a time limit."""
    process = start("map", "work:meet", "x", "pipe-a", "--timeout", "0.2")
    with open("pipe-a", "w"):  # never closed before the process has ended
        out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1
    assert [json.loads(line)["ok"] for line in out.splitlines()] == [True, False]
    assert "filch map: 1 call was still running and left behind;" in err


@pytest.mark.parametrize(
    ("closed", "code", "said"),
    [
        ("2>&-", 0, ""),
        (">&-", 2, "filch map: error: standard output is closed, so records cannot go to it; add --output FILE\n"),
        ("<&-", 0, None),
    ],
)
def test_closed_streams(start, closed, code, said):
    """A service that starts the command with closed streams would get a traceback, or records in the wrong place."""
    script = f"{sys.executable} -m filch map builtins:len abc {closed}"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ran = subprocess.run(["bash", "-c", script], env=environment, capture_output=True, text=True, timeout=PATIENCE)
    assert ran.returncode == code
    assert [json.loads(line)["result"] for line in ran.stdout.splitlines()] == ([3] if code == 0 else [])
    assert said is None or ran.stderr == said


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["builtins:len", "a"], 0),
        (["json:loads", "1", "x"], 1),
        (["json:lods", "1"], 2),
        (["json:loads"], 2),
        (["json:loads", "1", "--workers", "none"], 2),
    ],
)
def test_exit_codes(start, arguments, code):
    """A script could not tell success from failure, or from a slip."""
    process = start("map", *arguments)
    process.communicate(timeout=PATIENCE)
    assert process.returncode == code
