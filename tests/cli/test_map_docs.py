"""`docs/map.md`: its examples run, and show what they do show."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import filch

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs" / "map.md").read_text("utf-8")
CONSOLE = re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL)
FILES = re.findall(r"```python\n# (\S+)\n.*?```", PAGE, re.DOTALL)


def shape(text):
    """Return the records and errors in an output, without what differs from run to run: numbers and folders."""
    lines = [line for line in text.splitlines() if line and not re.match("filch map: (?!error: )", line)]
    lines = [re.sub(r"/\S*/(?=\w+\.py\\)", "", line) for line in lines]
    return [re.sub(r"\d+(\.\d+)?", "N", line) for line in lines if not line.startswith('{"input": "src/')]


@pytest.fixture
def project(folder):
    """Make a folder with the files that the page shows, the example, and some sources to measure."""
    for name, text in re.findall(r"```python\n(?=# (\S+)\n)(.*?)```", PAGE, re.DOTALL):
        (folder / name).write_text(text)
    (folder / "examples").mkdir()
    shutil.copy(ROOT / "examples" / "pyfiles.py", folder / "examples")
    shutil.copytree(filch.__path__[0], folder / "src" / "filch", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "tests" / "cli", folder / "tests", ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def test_examples_of_the_page(project):
    """A user would copy a command that does not work, or expect another output than comes."""
    assert FILES == ["work.py", "days.py", "fetch.py"]
    environment = {**os.environ, "PYTHONPATH": str(Path(filch.__file__).parent.parent)}
    prelude = f'filch() {{ "{sys.executable}" -m filch "$@"; }}\n'
    shown, came = [], []
    for block in CONSOLE:
        for command, output in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block, re.MULTILINE):
            if command.startswith("jq") and shutil.which("jq") is None:
                continue
            ran = subprocess.run(
                ["bash", "-c", prelude + command], env=environment, capture_output=True, text=True, timeout=50
            )
            shown += [f"$ {command}", *shape(output)]
            came += [f"$ {command}", *shape(ran.stdout + ran.stderr)]
    assert came == shown
    assert len([line for line in shown if line.startswith("$ ")]) >= 7


def test_every_option_is_on_the_page(run):
    """An option would be known to `--help` alone."""
    help_text = run("map", "--help").out
    for option in sorted(set(re.findall(r"--[a-z-]+[a-z]", help_text)) - {"--help"}):
        assert f"`{option}" in PAGE or f" {option}" in PAGE, option
