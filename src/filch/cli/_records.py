"""What came of one input, and its line: `{"input", "ok", "result" | "error", "seconds", "attempts"}`.

Not here: in which order lines are written (`_run.py`) and where to (`_output.py`).
"""

import traceback
from typing import NamedTuple

from filch.cli._json import NotJSON, encode

RECORD_START = b'{"input": '
"""The first bytes of every record."""

TRACEBACK_LIMIT = 8_000
"""Characters kept of a traceback, from its end: the exception itself comes last."""


class Outcome(NamedTuple):
    """How the attempts of one call ended.  `text` is JSON: the result if `error` is None, else the error."""

    text: str
    error: str | None
    """The name of the error's type."""
    seconds: float
    """How long the call ran, all its attempts together, without the time it waited to start."""
    attempts: int
    retry: bool = False
    """Whether another attempt may end better."""


def result_text(result: object) -> str:
    """Return the JSON text of what a function returned; raise NotJSON, as a sentence, where it has none."""
    try:
        return encode(result)
    except NotJSON as error:
        raise NotJSON(
            f"a result must be JSON, not {error}; "
            "return str, int, finite float, bool, None, or lists of them and dicts of them with str as keys"
        ) from None


def error_text(error: BaseException, frames_to_skip: int = 0) -> str:
    """Return the JSON text of an error: its type, its message, and its traceback from the function's own frame on."""
    trace = error.__traceback__
    for _ in range(frames_to_skip):
        trace = trace.tb_next if trace is not None else None
    fields = {"type": type(error).__name__, "message": _message(error)}
    if trace is not None:
        shown = "".join(traceback.TracebackException(type(error), error, trace, compact=True).format())
        fields["traceback"] = shown if len(shown) <= TRACEBACK_LIMIT else "…" + shown[-TRACEBACK_LIMIT:]
    return encode(fields)


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as second:
        return f"(no message: its __str__ raised {type(second).__name__})"


def line(input_text: str, outcome: Outcome) -> str:
    """Return the record of one input with the end of its line."""
    verdict = '"ok": true, "result": ' if outcome.error is None else '"ok": false, "error": '
    return (
        f'{{"input": {input_text}, {verdict}{outcome.text}, '
        f'"seconds": {outcome.seconds:.6f}, "attempts": {outcome.attempts}}}\n'
    )
