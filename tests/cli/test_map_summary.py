"""The closing summary: which inputs it names, and how it counts."""

import random

import pytest

from filch.cli._records import Outcome
from filch.cli._refusal import shortened
from filch.cli._summary import SLOWEST, Tally


def test_slowest_inputs_are_named_slowest_first():
    """The summary would send the user after the wrong inputs."""
    tally = Tally()
    numbers = list(range(200))
    random.Random(7).shuffle(numbers)
    for number in numbers:
        tally.add(f'"{number}"', Outcome("null", None, number / 50, 1))
    _, title, *lines = tally.lines(2)
    assert title == "slowest:"
    assert [line.split()[-1] for line in lines] == [f'"{number}"' for number in range(199, 199 - SLOWEST, -1)]
    assert lines[0].split()[:2] == ["3.98", "s"]


def test_kinds_of_error_are_counted_most_frequent_first():
    """The one error that matters would be lost among rare ones."""
    tally = Tally()
    for kind in range(1, 9):
        for number in range(kind):
            tally.add(f'"{kind}.{number}"', Outcome("{}", f"Error{kind}", 0, 1))
    lines = tally.lines(1)
    start = lines.index("errors, 3 more kinds not shown:")
    assert [line.split() for line in lines[start + 1 :]] == [
        [str(kind), f"Error{kind},", "first", f'"{kind}.0"'] for kind in range(8, 3, -1)
    ]


@pytest.mark.parametrize(
    ("skipped", "unfinished", "left", "first", "last"),
    [
        (0, 0, 0, "1 ok, 0 failed; ", None),
        (3, 0, 0, "1 ok, 0 failed, 3 skipped, ok in the output already; ", None),
        (0, 2, 1, "1 ok, 0 failed, 2 not finished; ", "1 call was still running and left behind; "),
        (0, 2, 2, "1 ok, 0 failed, 2 not finished; ", "2 calls were still running and left behind; "),
    ],
)
def test_what_was_not_done_is_said(skipped, unfinished, left, first, last):
    """A run that was cut short would look complete."""
    tally = Tally()
    tally.add('"a"', Outcome("null", None, 0, 1))
    tally.skipped, tally.unfinished, tally.left_running = skipped, unfinished, left
    lines = tally.lines(1)
    assert lines[0].startswith(first)
    assert len(lines) == (1 if last is None else 2)
    assert last is None or lines[1].startswith(last)


def test_long_inputs_are_shortened_in_the_middle():
    """One long JSON document would fill the screen, or its end, which tells paths apart, would be cut off."""
    text = "a" * 100 + "\n" + "z" * 100
    assert shortened(text, 21) == "a" * 10 + "…" + "z" * 10
    assert shortened("short\ntext") == "short text"
