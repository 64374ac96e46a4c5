"""Test the kernel suite: take one line of a kernel away, and some test must fail.

    python tools/mutate.py              all mutants; the table, and how many survived as the exit status
    python tools/mutate.py -j 2 wake    those whose description has that word, two at a time
    python tools/mutate.py --kernel native

Each mutant is a copy of the package with one replacement of tools/mutants.txt, and has the tests that are to see it.
One whose text is not in the file counts as a survivor: a change of the kernel changes its mutants.  The last table is
in tests/kernel/MUTANTS.md.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
LIMIT = 240  # seconds for the tests of one mutant; one that hangs longer is dead, too
PATIENCE = "4"  # seconds that a test waits for what must come; see tests/conftest.py


class Mutant(NamedTuple):
    """What is taken away, in which file, and which tests see it: a file, and words for pytest's -k."""

    what: str
    file: str
    old: str
    new: str
    tests: str
    words: str = ""


def read_mutants(text: str) -> list[Mutant]:
    mutants = []
    for block in re.split(r"^@ ", text, flags=re.MULTILINE)[1:]:
        head, tests, *lines = block.rstrip("\n").split("\n")
        file, what = head.split(": ", 1)
        files, words = tests.removeprefix("= ").split(" -k ")
        old, new = ([line[1:] for line in lines if line.startswith(sign)] for sign in "-+")
        mutants.append(Mutant(what, file, "\n".join(old) + "\n" * (not new), "\n".join(new), files, words))
    return mutants


MUTANTS = read_mutants(Path(__file__).with_name("mutants.txt").read_text("utf-8"))


def file_of(tree: Path, name: str) -> Path:
    """Return the file of a mutant: `core` is `_pure_core.py`, and `c/core` is `native/python/core.c`."""
    if name.startswith("c/"):
        return tree / "native" / "python" / f"{name[2:]}.c"
    return tree / "src" / "filch" / "_kernel" / {"pure": "_pure.py"}.get(name, f"_pure_{name}.py")


def kernel_of(mutant: Mutant) -> str:
    return "native" if mutant.file.startswith("c/") else "pure"


def build(tree: Path) -> None:
    """Build the native kernel inside of the tree."""
    subprocess.run(
        [sys.executable, "setup.py", "-q", "build_ext", "--inplace"],
        cwd=tree, env={**os.environ, "FILCH_BUILD": "native"}, capture_output=True, check=True,
    )  # fmt: skip


def run_tests(sources: Path, mutant: Mutant) -> tuple[bool, str]:
    """Did the tests pass, and the name of the first that did not."""
    files = [str(ROOT / "tests" / "kernel" / f"test_{name}.py") for name in mutant.tests.split()]
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--timeout=40", "--tb=no", "-rfE"]
    kernel = kernel_of(mutant)
    words = f"{kernel} and ({mutant.words})" if mutant.words else kernel
    environment = {**os.environ, "PYTHONPATH": str(sources), "FILCH_TEST_PATIENCE": PATIENCE, "FILCH_KERNEL": kernel}
    try:
        done = subprocess.run(
            [*command, "-k", words, *files],
            cwd=ROOT, env=environment, capture_output=True, text=True, timeout=LIMIT, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return False, "hangs"
    if done.returncode not in (0, 1):
        return False, f"pytest ended with {done.returncode}"
    found = re.search(r"^(?:FAILED|ERROR) \S*::(\S+)", done.stdout, re.MULTILINE)
    return done.returncode == 0, found[1] if found else ""


def attempt(mutant: Mutant, rounds: int) -> tuple[Mutant, bool, str]:
    """Is the mutant dead, and who killed it."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder)
        ignored = shutil.ignore_patterns("__pycache__", "_native*.so")
        shutil.copytree(ROOT / "src", tree / "src", ignore=ignored)
        shutil.copytree(ROOT / "native", tree / "native")
        for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
            shutil.copy(ROOT / name, tree)
        path = file_of(tree, mutant.file)
        text = path.read_text("utf-8")
        if text.count(mutant.old) != 1:
            return mutant, False, f"its text is {text.count(mutant.old)} times in {path.name}"
        path.write_text(text.replace(mutant.old, mutant.new), "utf-8")
        if kernel_of(mutant) == "native":
            build(tree)
        for _ in range(rounds):  # a race may be met in a later round
            passed, killer = run_tests(tree / "src", mutant)
            if not passed:
                return mutant, True, killer
    return mutant, False, ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("words", nargs="*", help="only mutants whose description has one of these")
    parser.add_argument("-j", "--jobs", type=int, default=1)
    parser.add_argument("-r", "--rounds", type=int, default=3, help="times that the tests of a mutant are run")
    parser.add_argument("--baseline", action="store_true", help="only run the tests of the mutants on what is there")
    parser.add_argument("--kernel", choices=["pure", "native"], default="pure")
    arguments = parser.parse_args()
    chosen = [
        each
        for each in MUTANTS
        if kernel_of(each) == arguments.kernel
        and (not arguments.words or any(word in each.what for word in arguments.words))
    ]
    if arguments.baseline:
        for mutant in chosen:
            passed, first = run_tests(ROOT / "src", mutant)
            print("ok" if passed else f"FAILED {first}", mutant.what, sep=" | ", flush=True)
        return 0
    survivors = 0
    print("| mutant | file | killed by |\n|---|---|---|")
    with ThreadPoolExecutor(arguments.jobs) as pool:
        for mutant, dead, killer in pool.map(lambda each: attempt(each, arguments.rounds), chosen):
            survivors += not dead
            verdict = f"`{killer}`" if dead else f"**survived** {killer}"
            print(f"| {mutant.what} | {mutant.file} | {verdict} |", flush=True)
    print(f"\n{len(chosen) - survivors} killed, {survivors} survived")
    return survivors


if __name__ == "__main__":
    sys.exit(min(main(), 100))
