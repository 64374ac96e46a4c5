"""The example `examples/pyfiles.py`: what it measures, what it bears, and that `filch map` runs it."""

import ast
import asyncio
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

import filch

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "pyfiles.py"


@pytest.fixture(scope="module")
def pyfiles():
    """Return the example as a module."""
    spec = importlib.util.spec_from_file_location("pyfiles_example", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("source", "lines", "functions", "classes", "nesting"),
    [
        ("", 0, 0, 0, 0),
        ("x = 1\n\n# end", 3, 0, 0, 0),
        ("class A:\n    def f(self):\n        async def g():\n            pass\n", 4, 2, 1, 3),
        ("if a:\n    pass\nelif b:\n    pass\nelif c:\n    pass\nelse:\n    pass\n", 8, 0, 0, 1),
        ("if a:\n    pass\nelse:\n    if b:\n        pass\n", 5, 0, 0, 2),
        ("try:\n    pass\nexcept E:\n    for x in y:\n        pass\n", 5, 0, 0, 2),
        ("try:\n    pass\nfinally:\n    while z:\n        with w: pass\n", 5, 0, 0, 3),
        ("match x:\n    case 1:\n        if y:\n            def f(): pass\n", 4, 1, 0, 3),
        ("for x in y:\n    pass\nelse:\n    class A: pass\n", 4, 0, 1, 2),
        ("f = lambda: [x for x in y if x]\n", 1, 0, 0, 0),
    ],
)
def test_measure(pyfiles, folder, source, lines, functions, classes, nesting):
    """The numbers that the README's first command shows would be wrong."""
    (folder / "file.py").write_text(source)
    found = pyfiles.measure("file.py")
    assert found == {"lines": lines, "functions": functions, "classes": classes, "nesting": nesting}


def test_counts_agree_with_ast_walk(pyfiles):
    """A statement that blocks can hold would be overlooked."""
    for path in sorted(Path(asyncio.__path__[0]).glob("*.py")):
        nodes = list(ast.walk(ast.parse(path.read_text("utf-8"))))
        found = pyfiles.measure(str(path))
        assert found["functions"] == sum(isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) for node in nodes)
        assert found["classes"] == sum(isinstance(node, ast.ClassDef) for node in nodes)


def test_declared_encoding(pyfiles, folder):
    """Old files in other encodings would be errors."""
    (folder / "latin.py").write_bytes("# -*- coding: latin-1 -*-\nname = 'é'\n".encode("latin-1"))
    (folder / "bom.py").write_bytes(b"\xef\xbb\xbfx = 1\n")
    assert pyfiles.measure("latin.py")["lines"] == 2
    assert pyfiles.measure("bom.py")["lines"] == 1


def test_syntax_error_names_the_file(pyfiles, folder):
    """A file that is not Python would pass, or the error not say which it is."""
    (folder / "bad.py").write_text("def f(:\n")
    with pytest.raises(SyntaxError, match=r"\(bad\.py, line 1\)") as caught:
        pyfiles.measure("bad.py")
    assert caught.value.filename == "bad.py"


def test_warnings_of_the_parser_are_not_its_business(start, folder):
    """Every run over the standard library would begin with a page of warnings, or fail where they are errors."""
    (folder / "old.py").write_text('name = "\\d"\nif 1 is 1: pass\n')
    process = start("map", f"{EXAMPLE}:measure", "old.py", warnings="error")
    out, err = process.communicate(timeout=30)
    assert process.returncode == 0, err
    assert "Warning" not in out + err


def test_table(folder):
    """The example would not run as a program."""
    (folder / "bad.py").write_text("def f(:\n")
    (folder / "good.py").write_text("def f(): pass\n")
    command = [sys.executable, "-W", "error", str(EXAMPLE)]
    environment = {**os.environ, "PYTHONPATH": str(Path(filch.__file__).parent.parent)}
    ran = subprocess.run([*command, "."], env=environment, capture_output=True, text=True, timeout=30)
    assert ran.returncode == 1
    assert ran.stdout.splitlines()[0].split() == ["lines", "functions", "classes", "nesting", "file"]
    assert ran.stdout.splitlines()[1].split() == ["1", "1", "0", "1", "good.py"]
    assert ran.stdout.splitlines()[2].split() == ["1", "1", "0", "all", "1", "files"]
    assert ran.stderr.startswith("bad.py: ")
    assert subprocess.run(command, env=environment, capture_output=True, timeout=30).returncode == 0
