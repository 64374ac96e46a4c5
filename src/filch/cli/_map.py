"""`filch map`: its options, what they mean together, and the order in which a run is prepared and wound up.

Whatever can be refused is refused before the output file is touched.  Not here: the run itself (`_run.py`).
"""

import argparse
import contextlib
import itertools
import math
import sys
import threading
from collections.abc import Callable, Iterator

from filch.cli._function import load
from filch.cli._inputs import Input, Inputs
from filch.cli._options import Parser
from filch.cli._output import Output, StandardOutput, check, file_output
from filch.cli._progress import Progress, start_progress
from filch.cli._refusal import Refusal
from filch.cli._run import EXIT_BROKEN_PIPE, Policy, Run
from filch.cli._summary import Tally
from filch.pool import default_workers

SUMMARY = "call a function once for each input, on a pool of threads"

_DESCRIPTION = """\
Call FUNCTION once for each input, on a pool of threads, and write one JSON line for each call:

  {"input": …, "ok": true, "result": …, "seconds": 0.01, "attempts": 1}
  {"input": …, "ok": false, "error": {"type": …, "message": …, "traceback": …}, "seconds": …, "attempts": …}

Inputs are taken in this order: words, --glob, --lines, --jsonl; each only when a worker will soon need it."""

_EPILOG = """\
example:
  filch map os.path:getsize --glob '/usr/lib/python3*/*.py' --output sizes.jsonl

exit code: 0 all calls returned, 1 some failed, 2 the command cannot start or go on, 130 ended by Ctrl-C (143 by
SIGTERM): the first lets running calls end, the second interrupts them. What is cut short goes on with --resume."""


def main(arguments: list[str]) -> int:
    """Run `filch map` with these arguments and return the exit code."""
    options = _parser().parse_intermixed_args(arguments)
    if options.function is None:
        raise Refusal("no FUNCTION given; name one as MODULE:NAME or FILE.py:NAME, for example json:loads")
    output: str | None = None if options.output == "-" else options.output
    check(output, resume=options.resume, overwrite=options.overwrite)
    policy = Policy(
        workers=options.workers or workers_by_default(),
        attempts=options.retries + 1,
        timeout=options.timeout,
        ordered=not options.unordered,
        fail_fast=options.fail_fast,
    )
    inputs = Inputs(options.inputs, options.glob, options.lines, options.jsonl)
    inputs.refuse_as_output(1 if output is None else output)
    if output is not None:
        function = load(options.function)
        waiting = _first(inputs)
        with file_output(output, resume=options.resume, overwrite=options.overwrite) as file:
            return _run(function, inputs, waiting, policy, file, Tally(), start_progress(options.progress))
    standard = StandardOutput()
    tally = Tally()
    try:
        function = load(options.function)
        waiting = _first(inputs)
        # On a terminal the records themselves show how far the run is, and a bar would run into them.
        hidden = options.progress is None and standard.on_terminal
        progress = start_progress(False if hidden else options.progress)
        return _run(function, inputs, waiting, policy, standard.output, tally, progress)
    finally:
        if not tally.left_running:
            standard.give_back()


def _run(
    function: Callable[[object], object],
    inputs: Inputs,
    waiting: Iterator[Input],
    policy: Policy,
    output: Output,
    tally: Tally,
    progress: Progress,
) -> int:
    total: list[int | None] = [None]

    def missing() -> Iterator[Input]:
        for given in waiting:
            if output.lacks(given):
                yield given
            else:
                tally.skipped += 1

    def count() -> None:
        total[0] = inputs.count()

    if progress.counts:
        threading.Thread(target=count, name="filch-map-counter", daemon=True).start()
    run = Run(function, missing(), policy, output.write, tally, lambda: progress.update(tally, total[0]))
    refusal = None
    code = 0
    try:
        with contextlib.closing(progress):
            code = run.go()
    except Refusal as raised:
        refusal = raised
    if code != EXIT_BROKEN_PIPE:
        for said in tally.lines(policy.workers) + inputs.notes:
            sys.stderr.write(f"filch map: {said}\n")
    if refusal is not None:
        raise refusal
    return code


def _first(inputs: Inputs) -> Iterator[Input]:
    """Return the inputs once it is known that there is one at least, so that nothing is touched if there is none."""
    rest = iter(inputs)
    first = next(rest, None)
    if first is None:
        raise Refusal(f"no input matched: {inputs.describe()} gave none; check it from the current folder")
    return itertools.chain([first], rest)


def workers_by_default() -> int:
    """Return how many calls run at once if nobody says."""
    try:
        return default_workers()
    except ValueError as error:
        raise Refusal(str(error)) from None


def _parser() -> Parser:
    parser = Parser("filch map", _DESCRIPTION, _EPILOG)
    add = parser.add_argument
    add(
        "function",
        metavar="FUNCTION",
        nargs="?",
        help="package.module:name or path/to/file.py:name, taking one argument",
    )
    add("inputs", metavar="INPUT", nargs="*", help="a string to call FUNCTION with")
    source = parser.add_argument_group("inputs from elsewhere, each option as often as you like")
    source.add_argument(
        "--glob",
        metavar="PATTERN",
        action="append",
        default=[],
        help="the paths that match, in order; ** stands for any number of folders",
    )
    source.add_argument(
        "--lines",
        metavar="FILE",
        action="append",
        default=[],
        help="each line that is not empty, as a string; - is standard input",
    )
    source.add_argument(
        "--jsonl", metavar="FILE", action="append", default=[], help="the JSON value on each line; - is standard input"
    )
    calls = parser.add_argument_group("calls")
    calls.add_argument(
        "--workers",
        metavar="N",
        type=_workers,
        help="calls that run at once (default: FILCH_MAX_WORKERS, or the CPUs this process may use)",
    )
    calls.add_argument(
        "--retries", metavar="K", type=_retries, default=0, help="up to K more attempts after an error (default: 0)"
    )
    calls.add_argument(
        "--timeout", metavar="S", type=_timeout, help="seconds that one attempt may run; then it has failed"
    )
    calls.add_argument("--fail-fast", action="store_true", help="stop at the first input that failed")
    records = parser.add_argument_group("records")
    records.add_argument("--output", metavar="FILE", help="write to FILE instead of standard output")
    records.add_argument("--overwrite", action="store_true", help="replace FILE if it exists")
    records.add_argument(
        "--resume",
        action="store_true",
        help="go on with FILE: skip inputs that it has a good record of, and append the others",
    )
    records.add_argument("--unordered", action="store_true", help="write each record at once, not in input order")
    parser.add_argument(
        "--progress",
        action=argparse.BooleanOptionalAction,
        help="show how far the run is, on standard error (default: if that is a terminal)",
    )
    return parser


def _workers(text: str) -> int:
    return _whole(text, 1, "leave it out for one worker a CPU")


def _retries(text: str) -> int:
    return _whole(text, 0, "0 is a single attempt")


def _whole(text: str, least: int, way_out: str) -> int:
    with contextlib.suppress(ValueError):
        if (number := int(text)) >= least:
            return number
    raise argparse.ArgumentTypeError(f"must be a whole number, at least {least}, not {text!r}; {way_out}")


def _timeout(text: str) -> float:
    with contextlib.suppress(ValueError):
        if 0 < (seconds := float(text)) < math.inf:
            return seconds
    raise argparse.ArgumentTypeError(f"must be a number of seconds above 0, not {text!r}; leave it out for no limit")
