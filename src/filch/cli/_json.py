"""JSON as `filch map` writes it: strict, one line, readable, and never bytes that are not UTF-8.

Strict means that reading a line back gives what the function returned, as JSON sees it: no NaN or Infinity, and no keys
that are not strings.  The standard library writes the first and changes the second without a word.
"""

import json
import math

_readable = json.JSONEncoder(ensure_ascii=False, allow_nan=False)
_escaped = json.JSONEncoder(ensure_ascii=True, allow_nan=False)
_canonical = json.JSONEncoder(ensure_ascii=True, allow_nan=False, sort_keys=True, separators=(",", ":"))

_ATOMS = (str, int, type(None))  # bool is an int


class NotJSON(Exception):
    """A value is no JSON; the text says what it is and where in the value."""


def encode(value: object) -> str:
    """Return `value` as one line of JSON that can be written as UTF-8; raise NotJSON if it is none."""
    try:
        if not isinstance(value, _ATOMS):
            _refuse_foreign(value)
        text = _readable.encode(value)
        if not text.isascii():
            try:
                text.encode()
            except UnicodeEncodeError:  # half of a surrogate pair, as in a file name that is not UTF-8
                text = _escaped.encode(value)
    except RecursionError:
        raise NotJSON(f"{_called(value)} that is nested too deep or holds itself") from None
    except (TypeError, ValueError) as error:
        raise NotJSON(f"{_called(value)} ({error})") from None
    return text


def canonical(value: object) -> str:
    """Return the one text that equal JSON values share: the order of keys does not matter, 1 and 1.0 differ."""
    return _canonical.encode(value)


def decode(text: str | bytes) -> object:
    """Return the value of one line of strict JSON; raise ValueError for anything else, NaN and Infinity included."""
    try:
        return _decoder.decode(text if isinstance(text, str) else text.decode())
    except json.JSONDecodeError as error:
        raise ValueError(f"{error.msg[:1].lower()}{error.msg[1:]} at column {error.colno}") from None


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")


def _finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise ValueError(f"{digits} is too large for a float")
    return number


_decoder = json.JSONDecoder(parse_constant=_no_constant, parse_float=_finite)


def _refuse_foreign(value: object, path: str = "") -> None:
    """Raise NotJSON, with the place, for the first part of `value` that JSON has no form for."""
    if isinstance(value, _ATOMS):
        return
    if isinstance(value, float):
        if not math.isfinite(value):
            raise NotJSON(f"the float {value!r}{_at(path)}")
    elif isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                raise NotJSON(f"a dict with the key {key!r} of type {type(key).__name__}{_at(path)}")
            if not isinstance(item, _ATOMS):
                _refuse_foreign(item, f"{path}[{key!r}]")
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            if not isinstance(item, _ATOMS):
                _refuse_foreign(item, f"{path}[{index}]")
    else:
        raise NotJSON(f"{_called(value)}{_at(path)}")


def _called(value: object) -> str:
    return f"a value of type {type(value).__name__}"


def _at(path: str) -> str:
    return f" at result{path}" if path else ""
