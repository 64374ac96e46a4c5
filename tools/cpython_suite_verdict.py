"""Judge a run of CPython's executor tests by the list of expected failures.

    python tools/cpython_suite_verdict.py RESULTS.json EXPECTED.txt [subset]

A line of the list is `test-id-substring | pythons | reason`; pythons are names such as 3.11 or 3.13t, or `all`.  A
listed test that passes, and a line that names no test, are stale and count as failures.  Expected failures are counted
as skipped.  Run it with the interpreter that ran the tests; say `subset` when that were not all.
"""

import json
import sys
import sysconfig
from collections import Counter
from pathlib import Path
from typing import NamedTuple

PYTHON = (
    f"{sys.version_info.major}.{sys.version_info.minor}{'t' if sysconfig.get_config_var('Py_GIL_DISABLED') else ''}"
)


class Expectation(NamedTuple):
    """A line of the list."""

    part: str
    pythons: set[str]
    reason: str


def read_expectations(path: Path) -> list[Expectation]:
    """Return those lines of the list that speak of this interpreter."""
    expectations = []
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        fields = [field.strip() for field in line.split("|", 2)]
        if len(fields) != 3 or not all(fields):
            raise SystemExit(f"{path.name}, line {number}: not of the form 'test-id-substring | pythons | reason'")
        expectation = Expectation(fields[0], set(fields[1].replace(",", " ").split()), fields[2])
        if expectation.pythons & {PYTHON, "all"}:
            expectations.append(expectation)
    return expectations


def main(results_path: str, expected_path: str, extent: str = "all") -> int:
    """Print what is out of order and the closing line; return the exit status."""
    text = Path(results_path).read_text("utf-8")
    results = json.loads(text)["results"] if text else []
    expectations = read_expectations(Path(expected_path))
    counts: Counter[str] = Counter()
    used = set()
    for result in results:
        mine = [expectation for expectation in expectations if expectation.part in result["id"]]
        used.update(expectation.part for expectation in mine)
        bad = result["status"] in {"fail", "timeout"}
        if bad and mine:
            print(f"expected to fail: {result['id']} ({mine[0].reason})")
            counts["expected"] += 1
        elif bad:
            print(f"{result['status'].upper()}: {result['id']}\n{result['out']}")
            counts["failed"] += 1
        elif mine and result["status"] == "pass":
            print(f"stale: {result['id']} passes although it is listed: {mine[0].part} | {mine[0].reason}")
            counts["failed"] += 1
        else:
            counts[result["status"]] += 1
    for expectation in expectations:
        if expectation.part not in used and extent == "all":
            print(f"stale: no test has a name with {expectation.part} in it")
            counts["failed"] += 1
    if not results:
        print("the runner left no results")
        counts["failed"] += 1
    print(f"{counts['expected']} expected failures are among the skipped")
    print(f"{counts['pass']} passed, {counts['failed']} failed, {counts['skip'] + counts['expected']} skipped")
    return int(counts["failed"] > 0)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
