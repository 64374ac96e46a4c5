"""What FILCH_BUILD asks for is built; what could not be built is said; a binary that is there is used, or it raises.

A small stand-in takes the place of the kernel's C files, so that a build takes a second.  No network is used.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

import filch

ROOT = Path(__file__).parents[2]
PACKAGE = Path("src", "filch", "_kernel")
WHY = "filch/_kernel/not_built.txt"
NOISE = "native kernel was NOT built"
STAND_IN = """
#include <Python.h>
#include "core.h"
static PyModuleDef definition = {PyModuleDef_HEAD_INIT, .m_name = "_native", .m_size = 0};
PyMODINIT_FUNC PyInit__native(void) { return number() == 7 ? PyModule_Create(&definition) : NULL; }
"""
COMPILER = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()[0]

pytest.importorskip("setuptools", minversion="77")
pytest.importorskip("pip")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(180),
    pytest.mark.skipif(not (ROOT / "setup.py").exists(), reason="setup.py is only in the repository"),
]
needs_compiler = pytest.mark.skipif(
    sys.implementation.name != "cpython" or os.name == "nt" or shutil.which(COMPILER) is None,
    reason="no native kernel can be built here",
)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Return a copy of the repository without binaries, whose C files are the stand-in."""
    tree = tmp_path / "tree"
    ignored = shutil.ignore_patterns("__pycache__", "_native*.so", "not_built.txt", "*.egg-info")
    shutil.copytree(Path(filch.__file__).parent, tree / "src" / "filch", ignore=ignored)
    for name in ("setup.py", "pyproject.toml", "MANIFEST.in", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree)
    for folder, name, text in (
        ("core", "core.c", '#include "core.h"\nint number(void) { return 7; }\n'),
        ("core", "core.h", "int number(void);\n"),
        ("python", "module.c", STAND_IN),
    ):
        (tree / "native" / folder).mkdir(parents=True, exist_ok=True)
        (tree / "native" / folder / name).write_text(text)
    return tree


def python(tree: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run Python in the tree with nothing set that decides about the kernel, but for `variables`."""
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("FILCH_", "PYTHONPATH", "CFLAGS"))
    }
    environment = {**kept, "PIP_NO_INDEX": "1", "PIP_NO_CACHE_DIR": "1", "PYTHONWARNINGS": "default", **variables}
    command = [sys.executable, *arguments]
    return subprocess.run(
        command, cwd=tree, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )


def wheel(tree: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Build a wheel of the tree, in the folder `wheels`."""
    return python(
        tree, "-m", "pip", "wheel", "-v", "--no-build-isolation", "--no-deps", "-w", "wheels", ".", **variables
    )


def in_place(tree: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    return python(tree, "setup.py", "build_ext", "--inplace", **variables)


def only_wheel(tree: Path) -> tuple[str, list[str]]:
    """Return the name of the wheel and of the files in it."""
    (path,) = (tree / "wheels").iterdir()
    with zipfile.ZipFile(path) as opened:
        return path.name, opened.namelist()


def binaries(names: list[str]) -> list[str]:
    return [name for name in names if "_native" in name and name.endswith((".so", ".pyd", ".dylib"))]


@needs_compiler
@pytest.mark.parametrize("asked", ["", "native"])
def test_a_wheel_holds_the_binary_and_no_source(tree: Path, asked: str) -> None:
    """A user would get no native kernel, or C files that nobody reads."""
    built = wheel(tree, FILCH_BUILD=asked)
    assert built.returncode == 0, built.stdout
    name, names = only_wheel(tree)
    assert NOISE not in built.stdout
    assert not name.endswith("-none-any.whl")
    assert len(binaries(names)) == 1
    assert [name for name in names if name.endswith((".c", ".h", ".o")) or "native/" in name] == []
    assert WHY not in names
    assert "filch/_kernel/_native.pyi" in names
    assert "filch/py.typed" in names


@needs_compiler
@pytest.mark.parametrize(
    ("compiler", "reason"),
    [
        ("false", "command 'false' failed with exit "),
        ("/no/such/compiler", "[Errno 2] No such file or directory: '/no/such/compiler'"),
    ],
)
def test_unset_falls_back_loudly(tree: Path, compiler: str, reason: str) -> None:
    """Without a compiler filch could not be installed, or its user would never learn why it is slow."""
    built = wheel(tree, CC=compiler)
    assert built.returncode == 0, built.stdout
    assert NOISE in built.stdout
    assert f"The reason: {reason}" in built.stdout
    _, names = only_wheel(tree)
    assert binaries(names) == []
    assert WHY in names
    with zipfile.ZipFile(next((tree / "wheels").iterdir())) as opened:
        opened.extractall(tree / "installed")
    said = python(tree, "-m", "filch", "--version", PYTHONPATH=str(tree / "installed")).stdout
    assert f"\nkernel: pure (the native kernel could not be built: {reason}" in said


@needs_compiler
def test_native_fails_loudly(tree: Path) -> None:
    """Whoever insists on the native kernel would get the pure one."""
    built = wheel(tree, CC="false", FILCH_BUILD="native")
    assert built.returncode != 0
    assert "FILCH_BUILD=native asks for the native kernel, which could not be built: command 'false' failed" in (
        built.stdout
    )
    assert not (tree / "wheels").exists() or not list((tree / "wheels").iterdir())


@needs_compiler
def test_code_that_does_not_compile_is_told(tree: Path) -> None:
    """A mistake in the C code would look as if there were no compiler."""
    (tree / "native" / "core" / "core.c").write_text("int number(void) { return missing; }\n")
    built = in_place(tree)
    assert built.returncode == 0
    assert "missing" in built.stdout
    assert NOISE in built.stdout


@needs_compiler
@pytest.mark.parametrize(("asked", "status"), [("", 0), ("native", 1)])
def test_a_missing_header_is_named(tree: Path, asked: str, status: int) -> None:
    """Whoever lacks the headers of Python would have to find out from a compiler's message."""
    run = (
        "import runpy, sys, sysconfig; from distutils.command.build_ext import build_ext; sys.argv[:] = ['setup.py', "
        "'build_ext', '--inplace']; sysconfig.get_path = lambda *_, **__: '/nowhere'; "
        "finish = build_ext.finalize_options; "
        "build_ext.finalize_options = lambda self: (finish(self), setattr(self, 'include_dirs', [])); "
        "runpy.run_path('setup.py', run_name='__main__')"
    )
    built = python(tree, "-c", f"import setuptools; {run}", FILCH_BUILD=asked)
    assert built.returncode == status, built.stdout
    assert "Python.h was not found" in built.stdout


@needs_compiler
def test_warnings_can_be_errors(tree: Path) -> None:
    """The check that no compiler warns would pass whatever the compiler says."""
    (tree / "native" / "core" / "core.c").write_text("int number(void) { int unused; return 7; }\n")
    assert in_place(tree, FILCH_BUILD="native").returncode == 0
    (tree / "native" / "core" / "core.c").write_text("int number(void) { int unused = 3; return 7; }\n")
    assert in_place(tree, FILCH_BUILD="native", CFLAGS="-Werror").returncode != 0


@pytest.mark.parametrize("sources", [True, False])
def test_pure_is_pure(tree: Path, sources: bool) -> None:
    """Who asks for the pure kernel, or has no C sources, would be warned, or get a wheel for one platform only."""
    if not sources:
        shutil.rmtree(tree / "native" / "python")
    built = wheel(tree, FILCH_BUILD="pure" if sources else "", CC="false")
    assert built.returncode == 0, built.stdout
    name, names = only_wheel(tree)
    assert NOISE not in built.stdout
    assert name.endswith("-py3-none-any.whl")
    assert binaries(names) == []
    assert WHY not in names


@pytest.mark.parametrize(
    ("system", "reason"),
    [
        ("import shutil; shutil.rmtree('native/python')", "which this version does not have"),
        ("sys.implementation.name = 'pypy'", "which only CPython has"),
        ("sys.platform = 'win32'", "which Windows does not have"),
    ],
)
def test_where_there_is_no_native_kernel(tree: Path, system: str, reason: str) -> None:
    """PyPy or Windows would try to build what cannot work, or whoever insists on it would get something else."""
    run = (
        f"import runpy, setuptools, sys, sysconfig; sysconfig.get_config_vars(); {system}; "
        "sys.argv[:] = ['', '--name']; runpy.run_path('setup.py')"
    )
    insisting = python(tree, "-c", run, FILCH_BUILD="native")
    assert insisting.returncode == 1
    assert f"FILCH_BUILD=native asks for the native kernel, {reason}; unset it" in insisting.stdout
    (tree / "native" / "python").mkdir(exist_ok=True)
    (tree / "native" / "python" / "module.c").touch()
    unset = python(tree, "-c", run)
    assert unset.returncode == 0, unset.stdout
    assert NOISE not in unset.stdout


def test_a_slip_is_named(tree: Path) -> None:
    """A slip in FILCH_BUILD would decide for the user."""
    built = python(tree, "setup.py", "--name", FILCH_BUILD="naitve")
    assert built.returncode == 1
    assert "FILCH_BUILD must be native or pure, or unset, not 'naitve'" in built.stdout


@needs_compiler
def test_no_old_binary_is_left(tree: Path) -> None:
    """A build that fell back would leave the binary of an earlier one, which would be used, or go into a wheel."""
    kernel = tree / PACKAGE
    assert in_place(tree).returncode == 0
    assert len(list(kernel.glob("_native*.so"))) == 1
    assert NOISE in in_place(tree, CC="false").stdout
    assert list(kernel.glob("_native*.so")) == []
    assert (kernel / "not_built.txt").exists()
    assert in_place(tree).returncode == 0
    assert not (kernel / "not_built.txt").exists()

    assert wheel(tree).returncode == 0
    shutil.rmtree(tree / "wheels")
    assert NOISE in wheel(tree, CC="false").stdout
    assert binaries(only_wheel(tree)[1]) == []


@needs_compiler
def test_pure_in_place_leaves_no_binary(tree: Path) -> None:
    """An editable install that asks for the pure kernel would go on with the native one of an earlier install."""
    assert in_place(tree).returncode == 0
    editable = ("-m", "pip", "install", "--no-build-isolation", "--no-deps", "--target", "target", "-e", ".")
    built = python(tree, *editable, FILCH_BUILD="pure")
    assert built.returncode == 0, built.stdout
    assert list((tree / PACKAGE).glob("_native*.so")) == []


def test_the_sdist_holds_the_sources(tree: Path) -> None:
    """From an sdist nobody could build the native kernel, whatever it was packed with."""
    made = python(tree, "setup.py", "-q", "sdist", FILCH_BUILD="pure")
    assert made.returncode == 0, made.stdout
    (path,) = (tree / "dist").iterdir()
    with tarfile.open(path) as opened:
        names = {name.partition("/")[2] for name in opened.getnames()}
    assert names >= {"setup.py", "native/core/core.c", "native/core/core.h", "native/python/module.c"}
    assert not [name for name in names if name.endswith(".so")]


@pytest.mark.parametrize("damage", ["garbage", "cut short", "of another version"])
@needs_compiler
def test_a_binary_that_does_not_load_raises(tree: Path, damage: str) -> None:
    """A damaged or stale binary would be passed over in silence, and the pure kernel be taken for the native one."""
    binary = tree / PACKAGE / f"_native{sysconfig.get_config_var('EXT_SUFFIX')}"
    if damage == "garbage":
        binary.write_bytes(b"this is no binary")
    else:
        assert in_place(tree, FILCH_BUILD="native").returncode == 0
        if damage == "cut short":
            content = binary.read_bytes()
            binary.unlink()
            binary.write_bytes(content[:40])
        # The stand-in itself is one of another version: it lacks every name.
    for wanted in ({}, {"FILCH_KERNEL": "native"}):
        loaded = python(tree, "-c", "import filch", PYTHONPATH=str(tree / "src"), **wanted)
        assert loaded.returncode == 1
        assert "ImportError: " in loaded.stdout
        assert "_native" in loaded.stdout
    pure = python(tree, "-c", "import filch", PYTHONPATH=str(tree / "src"), FILCH_KERNEL="pure")
    assert pure.returncode == 0, pure.stdout
