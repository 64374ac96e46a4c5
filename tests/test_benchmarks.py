"""The benchmarks run: every scenario, at a tiny scale, through their command line.  No figure is judged by its size."""

import itertools
import json
import os
import shutil
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

import filch

ROOT = Path(__file__).parents[1]
SOURCE = Path(filch.__file__).parents[1]
PROGRAMS = {"go", "java"}
CONTENDERS = {
    "call",
    "ThreadPoolExecutor",
    "ThreadPool",
    "joblib",
    "asyncio",
    "hypertile",
    "filch-pure",
    "filch-native",
}
CONTENDERS |= PROGRAMS
CANNOT_WAIT = {"ThreadPoolExecutor", "ThreadPool", "joblib", "hypertile"}
WITH_PROGRAMS = {"submit", "spawn", "spawnlocal", "chain", "fib"}
# A kernel in the native one's place, to see that both take part.
STAND_IN = "from filch._kernel._pure import *\nfrom filch._kernel._pure import __dict__ as _all\n"
STAND_IN += "globals().update({name: _all[name] for name in _all if not name.startswith('__')})\n"
STAND_IN += "implementation = 'native'\n"
MAY_BE_ZERO = {"idle", "memory"}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.skipif(not (ROOT / "benchmarks").is_dir(), reason="the benchmarks are only in the repository"),
]


def benchmarks(*arguments: str, folder: Path = ROOT, source: Path = SOURCE) -> subprocess.CompletedProcess[str]:
    """Run the command line with warnings as errors, and with the filch that these tests run with."""
    path = os.pathsep.join([str(ROOT), str(source)])
    environment = {**without_git(), "PYTHONPATH": path, "PYTHONWARNINGS": "error", "SEEN": str(folder / "seen")}
    command = [sys.executable, "-m", "benchmarks", *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def without_git() -> dict[str, str]:
    """Return the environment without what a git hook that runs these tests puts there."""
    return {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, Any]]:
    """Return the table and the JSON of one run of everything."""
    written = tmp_path_factory.mktemp("benchmarks") / "figures.json"
    done = benchmarks("--scale", "0.01", "--repeat", "2", "--json", str(written))
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout, json.loads(written.read_text())


def test_every_scenario_runs(run: tuple[str, dict[str, Any]]) -> None:
    """A scenario would be listed and then not run, or run and not be reported."""
    table, figures = run
    listed = [line.split()[0] for line in benchmarks("--list").stdout.splitlines()]
    assert len(listed) >= 21
    assert list(figures["scenarios"]) == listed
    for name in listed:
        assert f"\n{name}: " in table


def test_every_contender_is_accounted_for(run: tuple[str, dict[str, Any]]) -> None:
    """A contender would be missing from a comparison without a word, or one that can take part would be left out."""
    _, figures = run
    for name, scenario in figures["scenarios"].items():
        assert not scenario["contenders"].keys() & scenario["left_out"].keys(), name
        assert scenario["contenders"].keys() | scenario["left_out"].keys() == CONTENDERS, name
        assert "filch-pure" in scenario["contenders"], name
        assert all(scenario["left_out"].values()), name
    absent = CONTENDERS - figures["versions"].keys()
    tools = {"go": ["go"], "java": ["javac", "java"]}
    assert absent & PROGRAMS == {name for name in PROGRAMS if not all(map(shutil.which, tools[name]))}
    assert absent - PROGRAMS <= {"joblib", "hypertile", "filch-native"}
    for name, scenario in figures["scenarios"].items():
        left_out = scenario["left_out"].keys() - absent
        if name in ("map", "roundtrip", "feed", "idle"):
            assert left_out <= PROGRAMS, name
        elif name in ("fib", "nested", "pingpong", "skynet"):
            assert left_out - PROGRAMS == CANNOT_WAIT - absent, name
        assert bool(left_out & PROGRAMS) == bool(PROGRAMS - absent and name not in WITH_PROGRAMS), name


def test_the_table_says_who_is_left_out(run: tuple[str, dict[str, Any]]) -> None:
    """A reader of the table would not learn why a contender has no figure."""
    table, figures = run
    reasons = [reason for scenario in figures["scenarios"].values() for reason in scenario["left_out"].values()]
    assert reasons
    assert table.count("left out: ") == len(reasons)
    for reason in reasons:
        assert f"left out: {reason}\n" in table


def test_the_figures_are_sane(run: tuple[str, dict[str, Any]]) -> None:
    """A clock that is read wrongly, or an operation that is not counted, would give figures that cannot be."""
    _, figures = run
    for name, scenario in figures["scenarios"].items():
        assert scenario["size"] >= 1, name
        for contender, got in scenario["contenders"].items():
            assert len(got["samples"]) == 2, (name, contender)
            assert got["min"] == min(got["samples"]), (name, contender)
            assert got["median"] == statistics.median(got["samples"]), (name, contender)
            assert got["p90"] == max(got["samples"]), (name, contender)
            assert got["min"] > 0 or (name in MAY_BE_ZERO and got["min"] == 0), (name, contender)


def test_the_ratios_are_those_of_each_round(run: tuple[str, dict[str, Any]]) -> None:
    """The ratio would be upside down, or taken across rounds, where the noise of the machine does not cancel."""
    _, figures = run
    for name, scenario in figures["scenarios"].items():
        contenders = scenario["contenders"]
        for contender, got in contenders.items():
            for key, above, below in (
                ("times_faster_than_executor", "ThreadPoolExecutor", contender),
                ("times_the_cost_of_a_call", contender, "call"),
                ("times_the_cost_of_go", contender, "go"),
            ):
                if above not in contenders or below not in contenders or not all(contenders[below]["samples"]):
                    assert got[key] is None, (name, contender)
                    continue
                pairs = zip(contenders[above]["samples"], contenders[below]["samples"], strict=True)
                assert got[key] == pytest.approx(statistics.median([one / other for one, other in pairs]))


def test_the_surroundings_are_named(run: tuple[str, dict[str, Any]]) -> None:
    """A figure could not be quoted with what it was measured on."""
    table, figures = run
    assert figures["versions"]["filch-pure"] == f"filch {filch.__version__}, pure kernel"
    assert figures["gil"] is getattr(sys, "_is_gil_enabled", lambda: True)()
    assert sys.version.split()[0] in figures["python"]
    assert (figures["workers"], figures["repeat"], figures["scale"]) == (2, 2, 0.01)
    assert figures["cpus"] == os.cpu_count()
    for text in (figures["processor"], figures["python"], figures["versions"]["filch-pure"]):
        assert text
        assert text in table


def test_a_few_can_be_chosen(tmp_path: Path) -> None:
    """The options that choose scenarios, contenders, workers and kernel would be taken and not heeded."""
    written = tmp_path / "figures.json"
    options = ["--contender", "filch-pure", "--contender", "call", "--workers", "3"]
    done = benchmarks("fib", "submit", *options, "--scale", "0.001", "--repeat", "1", "--json", str(written))
    assert done.returncode == 0, done.stderr
    figures = json.loads(written.read_text())
    assert figures["workers"] == 3
    assert list(figures["scenarios"]) == ["fib", "submit"]
    for scenario in figures["scenarios"].values():
        assert scenario["contenders"].keys() == {"call", "filch-pure"}
        assert scenario["left_out"] == {}


@pytest.fixture
def both_kernels(tmp_path: Path) -> Path:
    """Return a folder with a filch that has a stand-in for the native kernel."""
    folder = tmp_path / "both"
    shutil.copytree(SOURCE / "filch", folder / "filch", ignore=shutil.ignore_patterns("__pycache__", "_native.*.so"))
    (folder / "filch" / "_kernel" / "_native.py").write_text(STAND_IN)
    return folder


@pytest.mark.parametrize(("kernel", "taking_part"), [(None, {"pure", "native"}), ("native", {"native"})])
def test_both_kernels_take_part_in_one_run(
    both_kernels: Path, tmp_path: Path, kernel: str | None, taking_part: set[str]
) -> None:
    """One kernel would be measured under both names, or a kernel that was not asked for would take time."""
    written = tmp_path / "figures.json"
    options = ["--scale", "0.001", "--repeat", "1", "--contender", "call", "--json", str(written)]
    options += [f"--contender=filch-{one}" for one in ("pure", "native")]
    options += ["--kernel", kernel] if kernel else []
    done = benchmarks("fib", *options, source=both_kernels)
    assert done.returncode == 0, done.stderr
    figures = json.loads(written.read_text())
    assert figures["scenarios"]["fib"]["contenders"].keys() == {"call"} | {f"filch-{one}" for one in taking_part}
    for one in taking_part:
        assert figures["versions"][f"filch-{one}"] == f"filch {filch.__version__}, {one} kernel"


def test_a_damaged_native_kernel_ends_the_run(both_kernels: Path) -> None:
    """A native kernel that does not load would be left out as if it had not been built."""
    (both_kernels / "filch" / "_kernel" / "_native.py").write_text("import no_such_module\n")
    done = benchmarks("fib", "--contender", "filch-native", "--scale", "0.001", source=both_kernels)
    assert done.returncode == 1
    assert "No module named 'no_such_module'" in done.stderr


def test_a_kernel_that_is_not_there_is_named(both_kernels: Path) -> None:
    """Whoever asks for the native kernel would get a table without it."""
    (both_kernels / "filch" / "_kernel" / "_native.py").unlink()
    for options in (["--kernel", "native"], ["--contender", "filch-native"]):
        done = benchmarks("fib", *options, source=both_kernels)
        assert done.returncode == 2
        assert "filch-native cannot take part: no native kernel was built" in done.stderr


def test_the_figures_are_drawn(tmp_path: Path) -> None:
    """The plot would be no SVG, or a contender or a scenario would be missing from it."""
    drawn = tmp_path / "figures.svg"
    options = ["--contender", "call", "--contender", "filch-pure", "--scale", "0.001", "--repeat", "1"]
    done = benchmarks("fib", "submit", "idle", *options, "--svg", str(drawn))
    assert done.returncode == 0, done.stderr
    root = ElementTree.parse(drawn).getroot()
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    texts = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"call", "filch-pure", "fib", "submit"} <= set(texts)
    assert "idle" not in texts  # a share of a core is no time
    # One shape for each contender in the legend and in each row.
    rectangles = [one for one in root.iter("{http://www.w3.org/2000/svg}rect") if one.get("stroke")]
    assert len(rectangles) == 2 * 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fibb"], "scenario must be one of submit, spawn,"),
        (["--repeat", "0"], "must be an integer of at least 1, not 0"),
        (["--workers", "1"], "must be an integer of at least 2, not 1"),
        (["--scale", "-1"], "must be a number above 0, not -1"),
        (["--scale", "big"], "must be a number above 0, not big"),
        (["compare", "HEAD"], "the following arguments are required"),
        (["compare", "HEAD", "no-such-revision", "fib"], "revisions must be commits of the repository in this folder"),
    ],
)
def test_a_mistake_is_named(arguments: list[str], message: str) -> None:
    """A typing error would run for minutes, or end in a traceback."""
    done = benchmarks(*arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Return a repository with two commits of filch, each of which writes down that it was imported."""
    folder = tmp_path / "repository"
    package = folder / "src" / "filch"
    shutil.copytree(SOURCE / "filch", package, ignore=shutil.ignore_patterns("__pycache__"))
    start = (package / "__init__.py").read_text()
    git(folder, "init", "--quiet")
    for name in ("first", "second"):
        mark = (
            f"import os, pathlib\nwith pathlib.Path(os.environ['SEEN']).open('a') as seen:\n    seen.write('{name} ')\n"
        )
        (package / "__init__.py").write_text(f"{start}\n{mark}")
        git(folder, "add", ".")
        git(folder, "commit", "--quiet", "--message", name)
        git(folder, "tag", name)
    return folder


def git(folder: Path, *arguments: str) -> str:
    """Run git as somebody, without the user's own configuration."""
    environment = {
        **without_git(),
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_SYSTEM": os.devnull,
        **{f"GIT_{who}_{what}": "x@y.example" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
    }
    command = ["git", *arguments]
    return subprocess.run(command, cwd=folder, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_two_commits_are_compared(repository: Path, tmp_path: Path) -> None:
    """The comparison would measure the installed filch twice, mix the commits up, or leave its worktrees behind."""
    written = tmp_path / "figures.json"
    options = ["--scale", "0.001", "--repeat", "2", "--json", str(written)]
    done = benchmarks("compare", "first", "second", "fib", "chain", *options, folder=repository)
    assert done.returncode == 0, done.stderr
    figures = json.loads(written.read_text())
    assert figures["commits"] == [git(repository, "rev-parse", name).strip() for name in ("first", "second")]
    assert list(figures["scenarios"]) == ["fib", "chain"]
    for scenario in figures["scenarios"].values():
        first, second = scenario["first"], scenario["second"]
        assert len(first) == len(second) == 2
        assert min(first + second) > 0
        assert scenario["ratio"] == pytest.approx(
            statistics.median([b / a for a, b in zip(first, second, strict=True)])
        )
    assert len(git(repository, "worktree", "list").splitlines()) == 1
    imported = [name for name, _ in itertools.groupby((repository / "seen").read_text().split())]
    assert imported == ["first", "second", "first", "second"]


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_a_commit_with_a_native_kernel_is_compared_with_it(repository: Path, tmp_path: Path) -> None:
    """A commit would be measured on its slow kernel, though its users have the other one."""
    (repository / "native" / "python").mkdir(parents=True)
    (repository / "native" / "python" / "module.c").touch()
    # A build that needs no compiler.
    build = "import os, pathlib, sys\n"
    build += "assert os.environ['FILCH_BUILD'] == 'native' and sys.argv[-2:] == ['build_ext', '--inplace']\n"
    build += f"pathlib.Path('src/filch/_kernel/_native.py').write_text({STAND_IN!r})\n"
    (repository / "setup.py").write_text(build)
    git(repository, "add", ".")
    git(repository, "commit", "--quiet", "--message", "third")
    git(repository, "tag", "third")
    written = tmp_path / "figures.json"
    options = ["--scale", "0.001", "--repeat", "1", "--json", str(written)]
    for arguments, kernels in (([], ["pure", "native"]), (["--kernel", "pure"], ["pure", "pure"])):
        done = benchmarks("compare", "second", "third", "fib", *arguments, *options, folder=repository)
        assert done.returncode == 0, done.stderr
        figures = json.loads(written.read_text())
        assert figures["kernels"] == kernels
        assert figures["versions"].keys() == {f"filch-{kernel}" for kernel in kernels}
        assert f"{kernels[1]} kernel" in done.stdout
