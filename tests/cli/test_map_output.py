"""Where records go: a file that may be resumed, repaired or replaced, and standard output that only records reach."""

import fcntl
import json
import os
import sys
import threading

import pytest

from filch.cli._output import Output

FUNCTIONS = """\
import os, pathlib, sys

def log(text):
    with open("calls.log", "a") as file:
        file.write(f"{text}\\n")
    if pathlib.Path(f"bad-{text}").exists():
        raise ValueError(text)
    return text

def keep(value):
    with open("calls.log", "a") as file:
        file.write("call\\n")
    return value

def noisy(text):
    print("printed by Python")
    sys.stdout.write("written by Python\\n")
    print("printed to the original stream", file=sys.__stdout__)
    os.system("echo printed by a child")
    os.write(1, b"written to the descriptor\\n")
    return text
"""


PRINTED = [
    "printed by Python",
    "written by Python",
    "printed to the original stream",
    "printed by a child",
    "written to the descriptor",
]


@pytest.fixture(autouse=True)
def _functions(folder):
    """Put functions into the current folder."""
    (folder / "work.py").write_text("print('printed on import')\n" + FUNCTIONS)


def calls(folder):
    """Return the inputs of the calls that were made, and forget them."""
    log = folder / "calls.log"
    made = log.read_text().split() if log.exists() else []
    log.unlink(missing_ok=True)
    return made


def test_prints_do_not_come_between_the_records(start):
    """One print in the function, in a child process or in C would break every reader of the records."""
    out, err = start("map", "work:noisy", "a", "b").communicate()
    assert [json.loads(line)["result"] for line in out.splitlines()] == ["a", "b"]
    for said in PRINTED:
        assert err.count(said) == 2
    assert err.count("printed on import\n") == 1


def test_standard_output_is_given_back(run):
    """A program that calls `main` could print nothing any more."""
    before = sys.stdout
    assert run("map", "work:log", "a").records[0]["ok"]
    assert sys.stdout is before
    assert run("--version").out.startswith("filch ")


def test_prints_go_where_they_always_go_if_records_go_to_a_file(start, records):
    """With --output, what functions print would be moved or lost."""
    out, err = start("map", "work:noisy", "a", "--output", "out").communicate()
    for said in PRINTED:
        assert out.count(said + "\n") == 1
        assert said not in err
    assert [record["result"] for record in records()] == ["a"]


def test_dash_is_standard_output(run, folder):
    """`--output -` would make a file of that name."""
    assert [record["input"] for record in run("map", "work:log", "a", "--output", "-").records] == ["a"]
    assert not (folder / "-").exists()


def test_existing_output_is_not_touched(run, folder):
    """The results of yesterday's run would be lost by repeating a command."""
    (folder / "out").write_text("precious\n")
    ran = run("map", "work:log", "a", "--output", "out")
    assert ran.code == 2
    assert ran.err == (
        "filch map: error: output file 'out' exists; go on with it by --resume, or replace it by --overwrite\n"
    )
    assert (folder / "out").read_text() == "precious\n"
    assert calls(folder) == []


def test_overwrite_replaces(run, folder, records):
    """Rests of a longer old file would stay behind the new records."""
    (folder / "out").write_text("old " * 1000)
    assert run("map", "work:log", "a", "--output", "out", "--overwrite").code == 0
    assert [record["input"] for record in records()] == ["a"]


@pytest.mark.parametrize("option", ["--lines", "--jsonl"])
@pytest.mark.parametrize("how", ["--overwrite", "--resume"])
@pytest.mark.parametrize("output", ["in", "./in", "link", "hard"])
def test_the_input_is_no_output(run, folder, option, how, output):
    """--overwrite would empty the inputs before they are read; --resume would add to them for ever."""
    (folder / "in").write_text('"a"\n"b"\n')
    (folder / "link").symlink_to("in")
    (folder / "hard").hardlink_to(folder / "in")
    ran = run("map", "work:log", option, "in", "--output", output, how)
    assert ran.code == 2
    assert ran.err == (
        "filch map: error: output would go to file 'in', which the inputs are read from; give another --output\n"
    )
    assert (folder / "in").read_text() == '"a"\n"b"\n'
    assert calls(folder) == []


@pytest.mark.parametrize("target", ["work:nothing", "nowhere:log", "os:sep"])
def test_overwrite_keeps_the_old_file_until_there_is_something_to_write(run, folder, target):
    """A slip in the function's name would empty the output file."""
    (folder / "out").write_text("old\n")
    assert run("map", target, "a", "--output", "out", "--overwrite").code == 2
    assert (folder / "out").read_text() == "old\n"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--resume"], "--resume needs the file that it is about; add --output FILE"),
        (["--resume", "--output", "-"], "--resume needs the file that it is about; add --output FILE"),
        (["--overwrite"], "--overwrite needs the file that it is about; add --output FILE"),
        (["--resume", "--overwrite", "--output", "x"], "--resume keeps what the output file holds and --overwrite"),
        (["--output", "no/x"], "cannot write to file 'no/x': no such file or directory; give another --output"),
        (["--output", "."], "cannot write to file '.': is a directory; give another --output"),
    ],
)
def test_refused(run, options, said):
    """Options that make no sense together, or a file that cannot be, would do something unexpected."""
    ran = run("map", "work:log", "a", *options)
    assert ran.code == 2
    assert f"filch map: error: {said}" in ran.err


def test_device_as_output(run):
    """`--output /dev/null` would be refused because it exists."""
    assert run("map", "work:log", "a", "b", "--output", "/dev/null").code == 0


def test_full_disk_is_told(run):
    """A full disk would end in a traceback, or look like success."""
    ran = run("map", "work:log", "a", "--output", "/dev/full")
    assert ran.code == 2
    assert "error: cannot write to file '/dev/full': no space left on device; make room, and go on" in ran.err


def test_pipe_that_takes_less_than_it_is_given():
    """A pipe that somebody made non-blocking would lose the rest of a record, or end the run."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    data = os.urandom(1_000_000)
    writer = threading.Thread(target=Output(writing, "a pipe").write, args=(data,))
    writer.start()
    with open(reading, "rb") as pipe:
        assert pipe.read(len(data)) == data
    writer.join()
    os.close(writing)


def test_second_run_on_one_file_is_refused(run, folder):
    """Two runs at once, started by a timer say, would mix their records and do everything twice."""
    with open(folder / "out", "w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        ran = run("map", "work:log", "a", "--output", "out", "--resume")
    assert ran.code == 2
    assert ran.err.endswith("error: output file 'out' is being written by another run; wait for its end\n")
    assert calls(folder) == []


def resume(run, *inputs, code=0):
    """Go on with the file `out`."""
    ran = run("map", "work:log", *inputs, "--output", "out", "--resume", "--workers", 1)
    assert ran.code == code, ran.err
    return ran


def test_resume_without_a_file_begins(run, folder, records):
    """A command with --resume, as a timer repeats it, would fail the first time."""
    resume(run, "a", "b")
    assert calls(folder) == ["a", "b"]
    ran = resume(run, "a", "b", "c")
    assert calls(folder) == ["c"]
    assert "1 ok, 0 failed, 2 skipped, ok in the output already;" in ran.err
    assert [record["input"] for record in records()] == ["a", "b", "c"]


def test_resume_with_nothing_left_to_do(run, folder):
    """A run that is complete could not be resumed, or would do something again."""
    resume(run, "a", "b")
    calls(folder)
    before = (folder / "out").read_bytes()
    resume(run, "b", "a")
    assert calls(folder) == []
    assert (folder / "out").read_bytes() == before


def test_resume_runs_failed_inputs_again(run, folder, records):
    """An input that failed would never be done, or the old record be lost."""
    (folder / "bad-b").touch()
    resume(run, "a", "b", "c", code=1)
    (folder / "bad-b").unlink()
    calls(folder)
    resume(run, "a", "b", "c")
    assert calls(folder) == ["b"]
    assert [(record["input"], record["ok"]) for record in records()] == [
        ("a", True),
        ("b", False),
        ("c", True),
        ("b", True),
    ]


def test_resume_counts_equal_inputs(run, folder):
    """An input that is given three times would be done once, or again and again."""
    resume(run, "a", "a")
    calls(folder)
    resume(run, "a", "a", "b", "a", "a")
    assert calls(folder) == ["b", "a", "a"]
    resume(run, "a", "a", "b", "a", "a")
    assert calls(folder) == []


def test_resume_compares_json_values(run, folder, records):
    """Inputs would be compared by spelling, or different ones taken for equal."""
    long, longer = "x" * 500, "x" * 501
    (folder / "first").write_text(f'{{"a": 1, "b": [1.0, "\\u00e9"]}}\n1\n"1"\n"{long}"\n')
    run("map", "work:keep", "--jsonl", "first", "--output", "out")
    assert len(calls(folder)) == 4
    (folder / "second").write_text(f'"{long}"\n{{"b": [1.0, "é"],   "a":1}}\n1\n1.0\n"{longer}"\n"1"\n')
    run("map", "work:keep", "--jsonl", "second", "--output", "out", "--resume")
    assert len(calls(folder)) == 2
    assert [record["input"] for record in records()][4:] == [1.0, longer]


def test_resume_after_a_cut_at_every_byte(run, folder, records):
    """A kill in the middle of a write would make the file useless, or lose or double an input."""
    resume(run, "a", "b\u20ac", "c")
    whole = (folder / "out").read_bytes()
    first = whole.index(b"\n") + 1
    for cut in range(first, len(whole) + 1):
        (folder / "out").write_bytes(whole[:cut])
        calls(folder)
        resume(run, "a", "b\u20ac", "c")
        assert [record["input"] for record in records()] == ["a", "b\u20ac", "c"]
        made = calls(folder)
        # A record that lacks its end of line only is complete.
        assert made == ["b\u20ac", "c"][whole[:cut].count(b"\n") - 1 + whole[:cut].endswith(b"}") :]


@pytest.mark.parametrize("tail", [b"\0" * 100, b'{"input": "b", "ok": tr' + b"\0" * 50, b"{"])
def test_resume_after_a_power_cut(run, folder, tail, records):
    """Zeros that a file system leaves at the end of a file after a power cut would make it useless."""
    resume(run, "a")
    with open(folder / "out", "ab") as file:
        file.write(tail)
    resume(run, "a", "b")
    assert [record["input"] for record in records()] == ["a", "b"]


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"a shopping list", 1),
        (b'{"name": "b"}\n', 1),
        (b'{"input": 1, "ok": true, "result": 1}\n{"input": 2, "ok": tru\n', 2),
        (b'{"input": 1, "ok": true, "result": 1}\n\n', 2),
        (b'{"input": 1, "ok": 1, "result": 1}\n', 1),
        (b'{"input": 1, "ok": true, "result": NaN}\n', 1),
        (b"[1]\n", 1),
        (b"\xff\xfe\n", 1),
    ],
)
def test_resume_refuses_a_file_that_is_not_its_own(run, folder, content, line):
    """A wrong name after --output would cut a file of somebody else's, or add records to it."""
    (folder / "out").write_bytes(content)
    ran = resume(run, "a", code=2)
    assert f"error: line {line} of output file 'out' must be a record of filch map, not " in ran.err
    assert (folder / "out").read_bytes() == content
    assert calls(folder) == []


def test_records_are_utf_8(run, folder):
    """Names in other scripts would be escapes that nobody can read or search for."""
    run("map", "work:keep", "日本", "bad\udcff", "--output", "out")
    text = (folder / "out").read_text("utf-8")
    assert '"result": "日本"' in text
    assert json.loads(text.splitlines()[1])["result"] == "bad\udcff"
