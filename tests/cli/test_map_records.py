"""Records: strict JSON and nothing else, whatever a function returns or raises."""

import enum
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from filch.cli._call import Call, NoOutcome
from filch.cli._inputs import Input
from filch.cli._json import NotJSON, canonical, decode, encode
from filch.cli._records import TRACEBACK_LIMIT, Outcome, error_text, line
from filch.exceptions import Cancelled

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(JSON)
def test_what_is_written_reads_back_the_same(value):
    """A result would come out of the file as another value, or a line would not be one line."""
    text = encode(value)
    assert "\n" not in text
    assert json.loads(text.encode()) == value
    assert decode(text) == value


@given(st.text(st.characters(categories=("Cs", "L"))))
def test_lone_surrogates_are_escaped(text):
    """A file name that is not UTF-8 would break the whole output file."""
    assert json.loads(encode(text).encode()) == text


@given(JSON, st.randoms())
def test_equal_values_have_one_canonical_text(value, order):
    """`--resume` would run an input again because its keys come in another order."""

    def shuffled(part):
        if isinstance(part, dict):
            items = [(key, shuffled(item)) for key, item in part.items()]
            order.shuffle(items)
            return dict(items)
        return [shuffled(item) for item in part] if isinstance(part, list) else part

    assert canonical(shuffled(value)) == canonical(json.loads(encode(value)))


def test_different_values_have_different_canonical_texts():
    """`--resume` would skip an input that was never done."""
    values = [1, 1.0, "1", True, "true", None, "null", [], {}, [1], {"1": 1}, {"a": {"b": 1}}, {"a": {"c": 1}}, ""]
    assert len({canonical(value) for value in values}) == len(values)


class Color(enum.StrEnum):
    """A string that is an enumeration."""

    RED = "red"


class Level(enum.IntEnum):
    """An int that is an enumeration."""

    LOW = 1


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ((1, 2), "[1, 2]"),
        (Color.RED, '"red"'),
        ({"a": Level.LOW}, '{"a": 1}'),
        ([10**400], f"[{10**400}]"),
        (1e300, "1e+300"),
        ("é\u2028", '"é\u2028"'),
    ],
)
def test_values_that_have_a_json_form(value, text):
    """A result that everybody would write as JSON would be refused."""
    assert encode(value) == text
    assert json.loads(text) == value or json.loads(text) == list(value)


def holding_itself():
    """Return a list that holds itself."""
    endless: list[object] = []
    endless.append(endless)
    return endless


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({1, 2}, "a value of type set"),
        (b"bytes", "a value of type bytes"),
        ([1, {"a": object()}], "a value of type object at result[1]['a']"),
        (math.nan, "the float nan"),
        ({"a": [0.0, -math.inf]}, "the float -inf at result['a'][1]"),
        ({1: 2}, "a dict with the key 1 of type int"),
        ({"a": {None: 2}}, "a dict with the key None of type NoneType at result['a']"),
        ({True: 2}, "a dict with the key True of type bool"),
        ((x for x in "ab"), "a value of type generator"),
        (holding_itself(), "a value of type list that is nested too deep or holds itself"),
        ([10**5000], "a value of type list (Exceeds the limit"),
    ],
)
def test_what_is_no_json_is_named(value, said):
    """A result would be written as something that is not JSON, or changed, without a word."""
    with pytest.raises(NotJSON) as caught:
        encode(value)
    assert str(caught.value).startswith(said)


def outcome_of(function, limit=1, *, stopping=False, leaving=False):
    """Run one call of `function` as a worker does."""
    return Call(0, Input("input", '"input"'), limit).run(function, lambda: stopping, lambda: leaving)


def fail_until(attempt, error):
    """Return a function that raises `error` until its call number `attempt`, and the list of its calls."""
    calls = []

    def function(value):
        calls.append(value)
        if len(calls) < attempt:
            raise error
        return len(calls)

    return function, calls


@pytest.mark.parametrize(("limit", "ok", "made"), [(1, False, 1), (2, False, 2), (3, True, 3), (9, True, 3)])
def test_retries(limit, ok, made):
    """An input would get fewer or more attempts than asked for, or a wrong count of them."""
    function, calls = fail_until(3, ValueError("not yet"))
    outcome = outcome_of(function, limit)
    assert (outcome.error is None) is ok
    assert outcome.attempts == len(calls) == made
    assert calls == ["input"] * made


@pytest.mark.parametrize("error", [SystemExit(3), GeneratorExit(), Cancelled("from a pool of its own")])
def test_an_error_that_asks_for_the_end_is_not_retried(error):
    """A function that calls sys.exit() would end the run, or be called again and again."""
    function, calls = fail_until(9, error)
    outcome = outcome_of(function, 5)
    assert outcome.error == type(error).__name__
    assert len(calls) == outcome.attempts == 1


def test_a_result_that_is_not_json_is_not_retried():
    """Work that was done would be done again, for the same result."""
    calls = []
    outcome = outcome_of(lambda value: calls.append(value) or {1}, 5)
    assert (outcome.error, len(calls)) == ("NotJSON", 1)
    error = json.loads(outcome.text)
    assert error["message"].startswith("a result must be JSON, not a value of type set; return str, int, ")


def test_no_more_attempts_once_the_run_is_stopping():
    """Ctrl-C would wait for all the retries of a call."""
    function, calls = fail_until(9, ValueError())
    assert outcome_of(function, 5, stopping=True).attempts == 1
    assert len(calls) == 1


def test_endings_that_say_nothing_of_the_input():
    """A call that Ctrl-C cut short would be written down as failed, or a KeyboardInterrupt would not stop the run."""
    assert outcome_of(fail_until(9, Cancelled())[0], 5, leaving=True) is NoOutcome.INTERRUPTED
    assert outcome_of(fail_until(9, KeyboardInterrupt())[0], 5) is NoOutcome.END_OF_RUN


class Mute(Exception):
    """An error whose message cannot be had."""

    def __str__(self):
        raise RuntimeError("no")


def raised(function):
    """Return what `function` raises."""
    try:
        function()
    except BaseException as error:
        return error
    raise AssertionError("it did not raise")


def test_error_that_cannot_be_printed():
    """One faulty exception class would end the run."""
    error = json.loads(error_text(Mute()))
    assert error == {"type": "Mute", "message": "(no message: its __str__ raised RuntimeError)"}


def test_traceback_begins_in_the_function():
    """Every traceback would begin with lines of filch that tell the user nothing."""
    error = json.loads(outcome_of(json.loads).text)
    first = error["traceback"].splitlines()[1]
    assert first.endswith("in loads")
    assert error["traceback"].endswith("JSONDecodeError: Expecting value: line 1 column 1 (char 0)\n")
    assert (error["type"], error["message"]) == ("JSONDecodeError", "Expecting value: line 1 column 1 (char 0)")


def test_long_traceback_is_cut_at_its_beginning():
    """A record would be as long as the longest chain of errors, or lose the error itself."""

    def chain(depth):
        try:
            if depth:
                chain(depth - 1)
        finally:
            raise ValueError("x" * 500)

    trace = json.loads(error_text(raised(lambda: chain(40))))["traceback"]
    assert len(trace) == TRACEBACK_LIMIT + 1
    assert trace.startswith("…")
    assert trace.endswith("ValueError: " + "x" * 500 + "\n")


def test_line_of_a_record():
    """The documented form of a record would change."""
    good = line('"a"', Outcome('{"n": 1}', None, 0.25, 1))
    assert good == '{"input": "a", "ok": true, "result": {"n": 1}, "seconds": 0.250000, "attempts": 1}\n'
    bad = line("[1]", Outcome('{"type": "E"}', "E", 1e-9, 3))
    assert bad == '{"input": [1], "ok": false, "error": {"type": "E"}, "seconds": 0.000000, "attempts": 3}\n'
