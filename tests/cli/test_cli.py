"""The command line as a whole: finding the command, help, version, and refusals."""

import os
import subprocess
import sys
from importlib.metadata import entry_points

import pytest

import filch.cli
from filch._kernel import implementation
from filch._version import __version__


def test_version_names_what_runs(run, monkeypatch):
    """A bug report would lack the kernel, the Python or the number of workers."""
    monkeypatch.setenv("FILCH_MAX_WORKERS", "7")
    ran = run("--version")
    assert ran.code == 0
    assert ran.err == ""
    first, *rest = ran.out.splitlines()
    assert first == f"filch {__version__}"
    said = dict(line.split(": ", 1) for line in rest)
    assert said["kernel"].split(" (the native kernel could not be built: ")[0] == implementation
    assert sys.version.split()[0] in said["python"]
    assert said["workers"] == "7 by default"


@pytest.mark.parametrize(
    ("switched_on", "free_threaded_build", "lock"),
    [
        (True, 0, "with the GIL"),
        (False, 1, "free-threaded"),
        (True, 1, "free-threaded, but with the GIL switched on"),
    ],
)
def test_version_tells_whether_threads_run_at_once(run, monkeypatch, switched_on, free_threaded_build, lock):
    """Someone would measure threads on a free-threaded Python whose GIL an extension has switched on, unaware."""
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: switched_on, raising=False)
    monkeypatch.setattr(filch.cli.sysconfig, "get_config_var", {"Py_GIL_DISABLED": free_threaded_build}.get)
    assert f", {lock}\n" in run("--version").out


@pytest.mark.parametrize("arguments", [("--help",), ("map", "--help")])
def test_help_has_an_example(run, arguments):
    """A user would have to guess how a command line is put together."""
    ran = run(*arguments)
    assert ran.code == 0
    assert "example:\n  filch map os.path:getsize --glob " in ran.out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "no command given; the commands are map, and filch --help shows an example"),
        (("mop",), "no command 'mop'; the commands are map"),
        (("--verison",), "unrecognized arguments: --verison; see filch --help"),
    ],
)
def test_no_such_command(run, arguments, said):
    """A slip in the command would end in a traceback, or in silence."""
    ran = run(*arguments)
    assert ran.code == 2
    assert ran.err == f"filch: error: {said}\n"


def test_bad_default_of_workers_is_refused(run, monkeypatch):
    """A wrong FILCH_MAX_WORKERS would end in a traceback."""
    monkeypatch.setenv("FILCH_MAX_WORKERS", "many")
    ran = run("map", "json:loads", "1")
    assert ran.code == 2
    assert ran.err.startswith("filch map: error: FILCH_MAX_WORKERS ")
    assert "'many'" in ran.err


def test_python_m_filch_is_the_command_line(start):
    """`python -m filch` would do something else than the script, or lose its exit code."""
    process = start("map", "json:loads", "{", "7")
    out, _ = process.communicate()
    assert process.returncode == 1
    assert '"result": 7' in out


def test_importing_the_command_line_stays_light():
    """`filch` would take rich's import time for every command that shows no bar."""
    loaded = subprocess.run(
        [sys.executable, "-c", "import sys, filch.cli; print('rich' in sys.modules)"],
        env={**os.environ, "PYTHONPATH": str(filch.cli.__path__[0]) + "/../.."},
        capture_output=True,
        text=True,
        check=True,
    )
    assert loaded.stdout == "False\n"


def test_script_is_declared():
    """`pip install` would give no command `filch`, or one that does not start."""
    found = [script for script in entry_points(group="console_scripts") if script.name == "filch"]
    if not found:
        pytest.skip("filch is imported from a checkout that is not installed")
    assert found[0].load() is filch.cli.main
