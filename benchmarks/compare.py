"""Measures two commits beside each other: each in a worktree and a process of its own, turn by turn.

The scenarios are those of this tree; only filch comes from the commits.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from .catalogue import SCENARIOS
from .contenders import FILCHES
from .report import amount, git, header, three_digits

ROOT = Path(__file__).parents[1]
# Rounds within each process, of which the median counts: the start of a process is not repeated for each sample.
ROUNDS_INSIDE = 3


def compare(
    revisions: Sequence[str],
    scenarios: Sequence[str],
    *,
    kernel: str | None,
    workers: int,
    repeat: int,
    scale: float,
    json_file: Path | None,
    progress: Callable[[str], None],
) -> int:
    """Measure both revisions `repeat` times and show how many times the time of the first the second one takes."""
    options = ["--workers", str(workers), "--scale", str(scale), "--repeat", str(ROUNDS_INSIDE)]
    with ExitStack() as stack:
        try:
            commits = [git(Path.cwd(), "rev-parse", "--verify", f"{revision}^{{commit}}") for revision in revisions]
        except subprocess.CalledProcessError as error:
            print(
                f"revisions must be commits of the repository in this folder: {error.stderr.strip()}", file=sys.stderr
            )
            return 2
        trees = [stack.enter_context(checked_out(commit)) for commit in commits]
        kernels = [kernel or best_kernel(tree) for tree in trees]
        for tree, own in zip(trees, kernels, strict=True):
            if own == "native":
                progress("building the native kernel")
                build(tree)
        runs: list[list[dict[str, Any]]] = [[], []]
        for number in range(1, repeat + 1):
            for tree, revision, own, mine in zip(trees, revisions, kernels, runs, strict=True):
                progress(f"round {number} of {repeat}, {revision}")
                mine.append(measure_tree(tree, own, [*scenarios, *options]))
        progress("")
    show(revisions, commits, kernels, scenarios, runs, json_file)
    return 0


@contextmanager
def checked_out(commit: str) -> Iterator[Path]:
    """Check a commit out beside the repository in this folder, for a while."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder, "tree")
        git(Path.cwd(), "worktree", "add", "--quiet", "--detach", str(tree), commit)
        try:
            yield tree
        finally:
            git(Path.cwd(), "worktree", "remove", "--force", str(tree))


def best_kernel(tree: Path) -> str:
    """Return the kernel that a user of a commit has: the native one, if it has its sources."""
    return "native" if list(tree.glob("native/python/*.c")) else "pure"


def build(tree: Path) -> None:
    """Build the native kernel of a tree in its place."""
    command = [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace"]
    subprocess.run(command, cwd=tree, check=True, env={**os.environ, "FILCH_BUILD": "native"})


def measure_tree(tree: Path, kernel: str, arguments: list[str]) -> dict[str, Any]:
    """Run the scenarios with the filch of a tree and return what the process wrote as JSON."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tree / "src"), str(ROOT)])}
    where = "import filch; print(filch.__file__)"
    found = run_python(["-c", where], tree, environment).strip()
    if not Path(found).is_relative_to(tree):
        raise RuntimeError(f"filch must come from the commit, not from {found}; is it put before PYTHONPATH?")
    written = tree.parent / "figures.json"
    run_python(
        ["-m", "benchmarks", *arguments, "--contender", FILCHES[kernel], "--json", str(written)], ROOT, environment
    )
    figures: dict[str, Any] = json.loads(written.read_text())
    return figures


def run_python(arguments: list[str], folder: Path, environment: dict[str, str]) -> str:
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=folder, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout


def show(
    revisions: Sequence[str],
    commits: Sequence[str],
    kernels: Sequence[str],
    scenarios: Sequence[str],
    runs: list[list[dict[str, Any]]],
    json_file: Path | None,
) -> None:
    """Print the table, and write the JSON."""
    settings = {key: value for key, value in runs[0][0].items() if key != "scenarios"}
    settings |= {"repeat": len(runs[0]), "commit": " and ".join(commit[:12] for commit in commits)}
    settings["versions"] = runs[0][0]["versions"] | runs[1][0]["versions"]
    print(header(settings))
    print(f"\n{'':14}{revisions[0]:>14}{revisions[1]:>14}{'second : first':>17}{'least':>9}{'most':>9}")
    figures = {}
    for name in scenarios:
        first, second = (
            [run["scenarios"][name]["contenders"][FILCHES[kernel]]["median"] for run in mine]
            for kernel, mine in zip(kernels, runs, strict=True)
        )
        ratios = [after / before for before, after in zip(first, second, strict=True) if before]
        unit = SCENARIOS[name].unit
        row = f"{name:14}{amount(statistics.median(first), unit):>14}{amount(statistics.median(second), unit):>14}"
        if ratios:
            row += f"{three_digits(statistics.median(ratios)):>17}{min(ratios):>9.2f}{max(ratios):>9.2f}"
        print(row)
        figures[name] = {
            "unit": unit,
            "first": first,
            "second": second,
            "ratio": statistics.median(ratios) if ratios else None,
        }
    if json_file:
        json_file.write_text(
            json.dumps({**settings, "commits": commits, "kernels": kernels, "scenarios": figures}, indent=2) + "\n"
        )
