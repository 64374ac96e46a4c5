"""Command line: `python -m benchmarks [SCENARIO…]` and `python -m benchmarks compare REV1 REV2 [SCENARIO…]`."""

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from . import report
from .catalogue import SCENARIOS
from .compare import compare
from .contenders import CONTENDERS, FILCHES
from .measuring import measure
from .players import Players
from .plot import plot

EXAMPLES = """examples:
  python -m benchmarks                                   everything, a few minutes
  python -m benchmarks submit map --repeat 15            two scenarios, more rounds
  python -m benchmarks fib --contender filch-native --contender go --json fib.json
  python -m benchmarks compare HEAD~1 HEAD submit map    is the last commit faster or slower
"""


def main(arguments: Sequence[str]) -> int:
    if arguments[:1] == ["compare"]:
        return main_compare(arguments[1:])
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measure filch beside what a program would use instead.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_shared_options(parser, repeat=7)
    parser.add_argument(
        "--contender",
        action="append",
        choices=list(CONTENDERS),
        help="who takes part (again for more; default: all that are installed)",
    )
    parser.add_argument("--svg", type=Path, metavar="FILE", help="draw the figures there")
    parser.add_argument("--list", action="store_true", help="show the scenarios and end")
    options = parser.parse_args(arguments)
    scenarios = chosen_scenarios(parser, options.scenarios)
    if options.list:
        for name in scenarios:
            print(f"{name:12}{SCENARIOS[name].what}")
        return 0
    contenders = [name for name in CONTENDERS if name in (options.contender or CONTENDERS)]
    if options.kernel:
        contenders = [name for name in contenders if name not in FILCHES.values() or name == FILCHES[options.kernel]]
    with tempfile.TemporaryDirectory() as folder, Players(Path(folder)) as players:
        for name in contenders:
            show_progress(f"starting {name}")
            reason = players.missing(name)
            if reason and (name in (options.contender or []) or name == FILCHES.get(options.kernel)):
                show_progress("")
                parser.error(f"{name} cannot take part: {reason}; install it or leave it out")
        show_progress("")
        figures = run(options, scenarios, contenders, players)
    if options.json:
        options.json.write_text(json.dumps(figures, indent=2) + "\n")
    if options.svg:
        options.svg.write_text(plot(figures))
    return 0


def run(options: argparse.Namespace, scenarios: list[str], contenders: list[str], players: Players) -> dict[str, Any]:
    """Measure, show a table of each scenario, and return all figures."""
    settings = {
        **report.surroundings(),
        "versions": players.descriptions(),
        "workers": options.workers,
        "repeat": options.repeat,
        "scale": options.scale,
    }
    print(report.header(settings), flush=True)
    results = {}
    for name in scenarios:
        result = measure(
            SCENARIOS[name],
            contenders,
            players,
            workers=options.workers,
            repeat=options.repeat,
            scale=options.scale,
            progress=show_progress,
        )
        show_progress("")
        print("\n" + report.table(result), flush=True)
        results[name] = report.as_json(result)
    return {**settings, "scenarios": results}


def main_compare(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks compare",
        description="Measure two commits of the repository in this folder beside each other.",
        epilog="example:\n  python -m benchmarks compare HEAD~1 HEAD submit map\n",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("revisions", nargs=2, metavar="REV", help="a commit, branch or tag")
    add_shared_options(parser, repeat=5)
    options = parser.parse_args(arguments)
    return compare(
        options.revisions,
        chosen_scenarios(parser, options.scenarios),
        kernel=options.kernel,
        workers=options.workers,
        repeat=options.repeat,
        scale=options.scale,
        json_file=options.json,
        progress=show_progress,
    )


def add_shared_options(parser: argparse.ArgumentParser, *, repeat: int) -> None:
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", help="what to measure (default: everything)")
    parser.add_argument(
        "--kernel", choices=["pure", "native"], help="the only kernel of filch to measure (default: all there are)"
    )
    parser.add_argument("--workers", type=at_least(2), default=2, metavar="N", help="workers of each pool (default 2)")
    parser.add_argument(
        "--repeat", type=at_least(1), default=repeat, metavar="N", help=f"rounds, at most (default {repeat})"
    )
    parser.add_argument("--scale", type=positive, default=1.0, metavar="F", help="times as much work (default 1)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there too")


def chosen_scenarios(parser: argparse.ArgumentParser, names: list[str]) -> list[str]:
    for name in names:
        if name not in SCENARIOS:
            parser.error(f"scenario must be one of {', '.join(SCENARIOS)}, not {name!r}; --list says what each is")
    return list(dict.fromkeys(names)) or list(SCENARIOS)


def at_least(least: int) -> Callable[[str], int]:
    """Return the type of an option that is an integer with a lower bound."""

    def convert(text: str) -> int:
        value = int(text) if text.isdecimal() else least - 1
        if value < least:
            raise argparse.ArgumentTypeError(f"must be an integer of at least {least}, not {text}")
        return value

    return convert


def positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"must be a number above 0, not {text}")
    return value


def show_progress(text: str) -> None:
    """Show on the terminal's last line what is being done."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
