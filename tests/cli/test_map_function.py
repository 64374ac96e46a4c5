"""FUNCTION on the command line: what is found, and what is refused with which sentence."""

import sys
import types

import pytest

from filch.cli._function import load
from filch.cli._refusal import Refusal

MODULE = """\
import neighbour

LIMIT = 3

def measure(text):
    return neighbour.double(text)

async def fetch(text):
    return text

class Tool:
    @staticmethod
    def run(text):
        return text + "!"

    class Inner:
        run = staticmethod(len)

class Asynchronous:
    async def __call__(self, text):
        return text

asynchronous = Asynchronous()
"""


@pytest.fixture
def project(folder):
    """Write a module, its neighbour and a package into the current folder."""
    (folder / "work.py").write_text(MODULE)
    (folder / "neighbour.py").write_text("def double(text):\n    return text * 2\n")
    (folder / "package").mkdir()
    (folder / "package" / "inside.py").write_text("def shout(text):\n    return text.upper()\n")
    (folder / "deep").mkdir()
    (folder / "deep" / "script.py").write_text("import beside\nshout = beside.shout\n")
    (folder / "deep" / "beside.py").write_text("def shout(text):\n    return text.upper()\n")
    (folder / "no_end").write_text("def shout(text):\n    return text.upper()\n")
    return folder


@pytest.mark.parametrize(
    ("target", "result"),
    [
        ("work:measure", "abab"),
        ("work:Tool.run", "ab!"),
        ("work:Tool.Inner.run", 2),
        ("package.inside:shout", "AB"),
        ("work.py:measure", "abab"),
        ("./work.py:measure", "abab"),
        ("deep/script.py:shout", "AB"),
        ("./no_end:shout", "AB"),
        ("builtins:len", 2),
    ],
)
def test_found(project, target, result):
    """A way to name a function that the help promises would not work."""
    assert load(target)("ab") == result


def test_absolute_path(project):
    """A file outside the current folder could not be named."""
    assert load(f"{project / 'deep' / 'script.py'}:shout")("ab") == "AB"


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("work", "FUNCTION must be MODULE:NAME or FILE.py:NAME, not 'work'; for example json:loads"),
        ("work:", "FUNCTION must be MODULE:NAME or FILE.py:NAME, not 'work:'; for example json:loads"),
        (":measure", "FUNCTION must be MODULE:NAME or FILE.py:NAME, not ':measure'; for example json:loads"),
        ("wark:measure", "no module named 'wark' in the current folder or among the installed packages; check"),
        ("work.sub:measure", "no module named 'work.sub' in the current folder or among"),
        (".work:measure", "a module must have a dotted name such as package.module, not '.work'; a file must"),
        ("wark.py:measure", "no such file: 'wark.py'; check the path"),
        ("deep/beside:shout", "no such file: 'deep/beside'; did you mean 'deep/beside.py'"),
        ("work:mesure", "'work' has no 'mesure'; did you mean 'measure'"),
        ("work:Tool.rum", "'work:Tool' has no 'rum'; did you mean 'run'"),
        ("neighbour:zzz", "'neighbour' has no 'zzz'; what it has is double"),
        ("os:zzz", "'os' has no 'zzz'; name one of its functions"),
        ("work:LIMIT", "'work:LIMIT' must be callable, not an int; name a function of 'work'"),
        ("work:fetch", "'work:fetch' must be a plain function, not a coroutine function"),
        ("work:asynchronous", "'work:asynchronous' must be a plain function, not a coroutine function"),
    ],
)
def test_refused(project, target, said):
    """The user would not learn which word is wrong, and what to write instead."""
    with pytest.raises(Refusal) as caught:
        load(target)
    assert str(caught.value).startswith(said)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("x = 1\n1 / 0\n", "could not be imported: ZeroDivisionError: division by zero ({path}, line 2); "),
        ("def f(:\n", "could not be imported: SyntaxError: "),
        ("import nowhere_at_all\n", "could not be imported: ModuleNotFoundError: No module named 'nowhere_at_all' ("),
        ("import sys\nsys.exit('usage: …')\n", "ended the program while it was imported (sys.exit('usage: …')); put "),
    ],
)
@pytest.mark.parametrize("form", ["broken:f", "broken.py:f"])
def test_module_that_cannot_be_imported(folder, form, source, said):
    """A fault inside the module would look like a wrong name, or end the program without a word."""
    (folder / "broken.py").write_text(source)
    with pytest.raises(Refusal) as caught:
        load(form)
    assert str(caught.value).startswith(f"'{form[:-2]}' " + said.format(path=folder / "broken.py"))
    assert "broken" not in sys.modules


def test_refusal_names_a_command_that_shows_the_traceback(folder):
    """The user would see one line of an error inside his module, and no way to the rest."""
    (folder / "a b.py").write_text("1 / 0\n")
    with pytest.raises(Refusal, match=r"python 'a b\.py' shows the traceback$"):
        load("a b.py:f")
    (folder / "broken.py").write_text("1 / 0\n")
    with pytest.raises(Refusal, match=r"python -c 'import broken' shows the traceback$"):
        load("broken:f")


def test_file_does_not_hide_a_module_of_its_name(folder, monkeypatch):
    """A file called like a module that is loaded, or that the standard library has, would take that one's place."""
    import json

    (folder / "json.py").write_text("def mine(text):\n    return 'mine'\n")
    (folder / "sndhdr.py").write_text("def mine(text):\n    return 'mine'\n")
    assert load("./json.py:mine")("") == "mine"
    assert sys.modules["json"] is json
    monkeypatch.setattr(sys, "stdlib_module_names", sys.stdlib_module_names | {"sndhdr"})
    assert load("./sndhdr.py:mine")("") == "mine"
    assert "sndhdr" not in sys.modules


def test_module_of_a_file_can_be_looked_up(folder):
    """Dataclasses and pickle look a class's module up in sys.modules, and would fail in a file."""
    (folder / "shapes.py").write_text(
        "from __future__ import annotations\n"
        "from dataclasses import dataclass\n"
        "@dataclass\nclass Point:\n    x: int\n"
        "def make(text):\n    return Point(len(text))\n"
    )
    point = load("shapes.py:make")("abc")
    assert point.x == 3
    assert isinstance(sys.modules[type(point).__module__], types.ModuleType)
