"""The layer contract of the package: who may import whom.

Every import counts, also one inside a function, under `TYPE_CHECKING`, written relatively, or asked for by name with
`import_module`.  Not here: what the rooms do.
"""

import ast
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "src" / "filch"

# From the top down.  A room imports rooms of lower lines only; rooms on one line do not know each other.
LINES = """
cli
dashboard | testing
observe | scheduler
stores | parallel | aio
pool | processes | distributed
_kernel
abc
job | events | _clock
exceptions | _version
"""
HEIGHT = {room: -line for line, rooms in enumerate(LINES.split("\n")) for room in rooms.replace("|", " ").split()}
ENTRANCES = {"__init__", "__main__"}  # the package's own, which may import any room
# The names of a kernel's files begin so.  They know each other; of all others only the chooser knows a kernel.
KERNELS = ("_native", "_pure")
NOT_DEPENDENCIES = sys.stdlib_module_names | {"_typeshed"}


def imports(tree: ast.Module, package: tuple[str, ...]) -> Iterator[tuple[int, tuple[str, ...], tuple[str, ...]]]:
    """Yield each import as its line, the module it is from, and the imported thing, names split at the dots."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, tuple(alias.name.split(".")), tuple(alias.name.split("."))
        elif isinstance(node, ast.ImportFrom):
            start = package[: len(package) - node.level + 1] if node.level else ()
            module = start + tuple(node.module.split(".") if node.module else ())
            yield from ((node.lineno, module, (*module, alias.name)) for alias in node.names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] in {"import_module", "__import__"}:
            match node.args:
                case [ast.Constant(value=str(name)), *_] if not name.startswith("."):
                    yield node.lineno, tuple(name.split(".")), tuple(name.split("."))


def kernel(name: tuple[str, ...]) -> str | None:
    """Return the kernel that a file, or a thing in it, belongs to; None when that is not one of the kernels."""
    return next((kernel for kernel in KERNELS if name[0] == "_kernel" and "".join(name[1:2]).startswith(kernel)), None)


def broken_rule(importer: tuple[str, ...], module: tuple[str, ...], thing: tuple[str, ...]) -> str | None:
    """Say which rule is broken when the file `importer` takes `thing` from `module`, a module of the package."""
    if len(module) == 1:
        return "comes from the package itself: name the room"
    if module[1] not in HEIGHT:
        return "comes from a room that is on no line"
    if kernel(thing[1:]) not in {None, kernel(importer)} and importer != ("_kernel", "__init__"):
        return "names a kernel, which only _kernel/__init__.py does"
    room = importer[0]
    if room in ENTRANCES or room == module[1] or HEIGHT[room] > HEIGHT[module[1]]:
        return None
    return "comes from a room on the same line" if HEIGHT[room] == HEIGHT[module[1]] else "comes from a room above"


def violations(package: Path) -> list[str]:
    """Return a sentence for each breach of the contract inside the package folder."""
    found = []
    users = defaultdict(set)
    for path in sorted(package.rglob("*.py*")):
        if path.suffix not in {".py", ".pyi"}:
            continue
        importer = path.relative_to(package).with_suffix("").parts
        if importer[0] not in HEIGHT and not (len(importer) == 1 and importer[0] in ENTRANCES):
            found.append(f"{'/'.join(importer)}: the room {importer[0]} is on no line")
            continue
        for line, module, thing in imports(ast.parse(path.read_text("utf-8")), ("filch", *importer[:-1])):
            if module[0] == "filch":
                if reason := broken_rule(importer, module, thing):
                    found.append(f"{'/'.join(importer)}:{line}: {'.'.join(thing)} {reason}")
            elif module[0] not in NOT_DEPENDENCIES:
                users[module[0]].add("/".join(importer))
    for name, files in users.items():
        if len(files) > 1:
            found.append(f"{name} is imported by more than one file: {', '.join(sorted(files))}")
    return found


CLEAN = {
    "__init__.py": "from filch._version import __version__\nfrom filch.pool import Pool\n",
    "__main__.py": "from filch.cli import main\n",
    "_version.py": "__version__ = '1'\n",
    "exceptions.py": "import queue\n",
    "_kernel/__init__.py": "from filch._kernel import _native\nfrom . import _pure\n",
    "_kernel/_native.pyi": "import typing\n",
    "_kernel/_pure.py": "from filch.exceptions import FilchError\nfrom ..exceptions import FilchError\n",
    "_kernel/_pure_core.py": "from filch._kernel._pure import Future\n",
    "pool/__init__.py": "from .views import View\nfrom . import views\nimport filch.pool.views\n",
    "pool/views.py": "from .._kernel import Future\ndef late():\n    import psutil.tests\n    import psutil\n",
    "cli/__init__.py": "from filch.pool import Pool\nimport os.path\nfrom filch.observe import metrics\n",
    "observe/metrics.py": "from filch.events import Event\n",
}

PLANTED = [
    ("up", {"exceptions.py": "from filch.pool import Pool\n"}, "exceptions:1: filch.pool.Pool comes from a room above"),
    ("up_import", {"abc.py": "import filch.cli.main\n"}, "abc:1: filch.cli.main comes from a room above"),
    ("up_relative", {"_kernel/a.py": "from ..pool import Pool\n"}, "filch.pool.Pool comes from a room above"),
    (
        "up_in_function",
        {"events.py": "def f():\n    from .abc import X\n"},
        "events:2: filch.abc.X comes from a room above",
    ),
    (
        "up_for_types",
        {"abc.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from filch.aio import run\n"},
        "abc:3: filch.aio.run comes from a room above",
    ),
    (
        "up_by_name",
        {"abc.py": "import importlib\nimportlib.import_module('filch.aio')\n"},
        "abc:2: filch.aio comes from a room above",
    ),
    ("up_in_stub", {"_kernel/_native.pyi": "from filch.pool import Pool\n"}, "comes from a room above"),
    ("sideways", {"pool/a.py": "from filch.processes import P\n"}, "comes from a room on the same line"),
    ("sideways_relative", {"parallel/a/b.py": "from ...aio import run\n"}, "comes from a room on the same line"),
    ("new_module", {"helpers.py": ""}, "helpers: the room helpers is on no line"),
    ("new_room", {"helpers/deep/file.py": ""}, "helpers/deep/file: the room helpers is on no line"),
    ("entrance_is_no_room", {"__main__/file.py": ""}, "the room __main__ is on no line"),
    (
        "unknown_target",
        {"pool/a.py": "from filch.gone import x\n"},
        "filch.gone.x comes from a room that is on no line",
    ),
    ("root", {"cli.py": "import filch\n"}, "cli:1: filch comes from the package itself"),
    ("root_from", {"cli.py": "from filch import Pool\n"}, "cli:1: filch.Pool comes from the package itself"),
    ("root_room", {"cli.py": "from filch import pool\n"}, "cli:1: filch.pool comes from the package itself"),
    ("root_relative", {"cli/a.py": "from .. import pool\n"}, "cli/a:1: filch.pool comes from the package itself"),
    (
        "root_in_entrance",
        {"__init__.py": "from . import pool\n"},
        "__init__:1: filch.pool comes from the package itself",
    ),
    ("kernel", {"pool/a.py": "from filch._kernel import _native\n"}, "filch._kernel._native names a kernel"),
    ("kernel_module", {"pool/a.py": "import filch._kernel._pure\n"}, "filch._kernel._pure names a kernel"),
    (
        "kernel_inside",
        {"pool/a.py": "from filch._kernel._pure import Pool\n"},
        "filch._kernel._pure.Pool names a kernel",
    ),
    ("kernel_part", {"pool/a.py": "from filch._kernel._pure_core import Core\n"}, "_pure_core.Core names a kernel"),
    ("kernel_from_kernel", {"_kernel/_native.pyi": "from filch._kernel import _pure\n"}, "_pure names a kernel"),
    ("kernel_in_entrance", {"__init__.py": "from filch._kernel._pure import Pool\n"}, "names a kernel"),
    (
        "kernel_in_its_room",
        {"_kernel/a.py": "from . import _pure\n"},
        "_kernel/a:1: filch._kernel._pure names a kernel",
    ),
    (
        "dependency_twice",
        {"pool/a.py": "import psutil\n", "cli.py": "def f():\n    from psutil.x import y\n"},
        "psutil is imported by more than one file: cli, pool/a",
    ),
    (
        "dependency_by_name",
        {
            "pool/a.py": "import rich\n",
            "cli.py": "from importlib import import_module\nimport_module('rich')\n",
        },
        "rich is imported by more than one file: cli, pool/a",
    ),
]


def plant(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / "filch" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    return folder / "filch"


def test_the_package_keeps_the_contract():
    """Broken: a room knows something that it must not know."""
    assert violations(PACKAGE) == []


def test_the_contract_lets_a_clean_package_pass(tmp_path):
    """Broken: the contract forbids what the design allows."""
    assert violations(plant(tmp_path, CLEAN)) == []


@pytest.mark.parametrize(("files", "sentence"), [case[1:] for case in PLANTED], ids=[case[0] for case in PLANTED])
def test_the_contract_finds_a_planted_breach(tmp_path, files, sentence):
    """Broken: the contract has stopped looking."""
    found = violations(plant(tmp_path, files))
    assert len(found) == 1
    assert sentence in found[0]
