"""What becomes an input: from words, globs, lines and JSON lines, in which order, and what is refused."""

import os

import pytest

from filch.cli._inputs import Inputs
from filch.cli._refusal import Refusal


def inputs(words=(), globs=(), lines=(), jsonl=()):
    """Make the inputs of a command line with these."""
    return Inputs(list(words), list(globs), list(lines), list(jsonl))


def values(*arguments, **options):
    """Return the arguments of all calls."""
    return [given.value for given in inputs(*arguments, **options)]


def test_order_of_sources(folder):
    """Records would come in an order that nobody can foresee."""
    (folder / "b.txt").write_text("line b\n")
    (folder / "a.txt").write_text("line a\n")
    (folder / "values.jsonl").write_text('{"x": 1}\n[2]\n')
    found = values(["z", "y"], ["b.*", "a.*"], ["b.txt", "a.txt"], ["values.jsonl"])
    assert found == ["z", "y", "b.txt", "a.txt", "line b", "line a", {"x": 1}, [2]]


def test_lines_are_taken_as_they_are(folder):
    """Ends of lines, blanks, a byte order mark or a name that is no UTF-8 would change what the function gets."""
    (folder / "list").write_bytes(b"\xef\xbb\xbfone\r\n\n  two \n\r\nthree\xff\na\rb\n\xe2\x82\xac")
    found = values(lines=["list"])
    assert found == ["one", "  two ", "three\udcff", "a\rb", "€"]
    assert os.fsencode(found[2]) == b"three\xff"


def test_json_lines(folder):
    """JSON values would arrive as text, or blank lines would be errors."""
    (folder / "values").write_bytes(b'\xef\xbb\xbf1\r\n\n"a"\nnull\n{"b": [true, 1.5]}\n   7  ')
    assert values(jsonl=["values"]) == [1, "a", None, {"b": [True, 1.5]}, 7]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"{'a': 1}", "not \"{'a': 1}\" (expecting property name enclosed in double quotes at column 2)"),
        (b"1 2", "not '1 2' (extra data at column 3)"),
        (b"NaN", "not 'NaN' (NaN is not JSON)"),
        (b"[-Infinity]", "not '[-Infinity]' (-Infinity is not JSON)"),
        (b"1e999", "not '1e999' (1e999 is too large for a float)"),
        (b'"\xff"', "not '\"\ufffd\"' ("),
        (b"[" * 100_000, "not '[[[["),
    ],
)
def test_bad_json_is_refused_where_it_is(folder, line, said):
    """The user would not learn which line of a long file is wrong, or get lines before it thrown away."""
    (folder / "values").write_bytes(b"1\n\n" + line + b"\n4\n")
    found = iter(inputs(jsonl=["values"]))
    assert next(found).value == 1
    with pytest.raises(Refusal) as caught:
        next(found)
    assert str(caught.value).startswith("line 3 of file 'values' must be one JSON value, " + said)
    assert str(caught.value).endswith("); correct it, and with --output go on with --resume")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({}, "no input given; name inputs after FUNCTION, or use --glob, --lines or --jsonl"),
        ({"lines": ["nowhere"]}, "cannot read file 'nowhere': no such file or directory; check the path"),
        ({"jsonl": ["nowhere"]}, "cannot read file 'nowhere': no such file or directory; check the path"),
        ({"lines": ["."]}, "cannot read file '.': is a directory; check the path"),
        ({"lines": ["-"], "jsonl": ["-"]}, "standard input can be read only once; give '-' to one of --lines and"),
    ],
)
def test_refused(folder, arguments, said):
    """A wrong source would be found after hours, when its turn comes."""
    with pytest.raises(Refusal) as caught:
        inputs(**arguments)
    assert str(caught.value).startswith(said)


def test_closed_standard_input_is_refused(monkeypatch):
    """A service without standard input would end in a traceback."""
    monkeypatch.setattr("sys.stdin", None)
    with pytest.raises(Refusal, match=r"^standard input is closed, so '-' cannot be read; redirect a file into it$"):
        inputs(lines=["-"])


def test_no_input_matched(run):
    """A wrong pattern would look like a run in which all went well, and empty the output file."""
    ran = run("map", "builtins:len", "--glob", "*.nothing", "--lines", os.devnull, "--output", "out", "--overwrite")
    assert ran.code == 2
    assert ran.err == (
        "filch map: error: no input matched: pattern '*.nothing', file '/dev/null' gave none; "
        "check it from the current folder\n"
    )
    assert not os.path.exists("out")


def test_one_of_several_patterns_matches_nothing(run):
    """A slip in one of two patterns would go unseen."""
    ran = run("map", "builtins:len", "word", "--glob", "*.nothing")
    assert ran.code == 0
    assert "filch map: pattern '*.nothing' matched nothing\n" in ran.err


def test_unreadable_folder_is_told(run, folder, monkeypatch):
    """Files below a folder without permission would be left out, and nobody would know."""
    scandir = os.scandir

    def refuse(path):
        if path in ("closed", "shut"):
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    for name in ("closed", "open", "shut"):
        (folder / name).mkdir()
        (folder / name / "x.py").write_text("")
    monkeypatch.setattr(os, "scandir", refuse)
    ran = run("map", "builtins:len", "--glob", "**/*.py")
    assert [record["input"] for record in ran.records] == ["open/x.py"]
    assert "filch map: could not look into 'closed' and 1 more: permission denied\n" in ran.err


def test_count_is_what_will_come(folder):
    """The bar would promise a wrong end."""
    for name in ("a.py", "b.py", "c.txt"):
        (folder / name).write_text("one\n\ntwo\r\n\r\nthree")
    (folder / "values").write_text("1\n\n2\n")
    found = inputs(["word"], ["*.py"], ["c.txt"], ["values"])
    assert found.count() == 1 + 2 + 3 + 2
    assert len(list(found)) == found.count()


def test_count_of_a_pipe_is_unknown(folder):
    """Counting would eat what a pipe brings."""
    os.mkfifo("pipe")
    reading = os.open("pipe", os.O_RDONLY | os.O_NONBLOCK)
    writing = os.open("pipe", os.O_WRONLY)
    os.write(writing, b"one\ntwo\n")
    found = inputs(lines=["pipe"])
    os.close(writing)
    assert found.count() is None
    assert [given.value for given in found] == ["one", "two"]
    os.close(reading)
