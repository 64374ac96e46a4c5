"""How a command says no: one exception for everything that the user can put right, and the look of what is quoted."""


class Refusal(Exception):
    """A command cannot start, or cannot go on, for a reason that its user can put right.

    Its text is one sentence: the rule, the value and the way out, in lower case and without a full stop.  The command
    line prints it and ends with exit code 2.
    """


def reason_of(error: OSError) -> str:
    """Return what the system said, in the case that sentences of ours have."""
    text = error.strerror or str(error)
    return text[:1].lower() + text[1:]


def shortened(text: str, limit: int = 72) -> str:
    """Return `text` on one line, with its middle left out when it is longer than `limit`."""
    line = " ".join(text.split())
    if len(line) <= limit:
        return line
    tail = limit // 2
    return f"{line[: limit - tail - 1]}…{line[-tail:]}"
