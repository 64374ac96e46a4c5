"""The command line: `filch COMMAND …`, the same as `python -m filch COMMAND …`.

This file finds the command; each command is a file of its own.
"""

import os
import platform
import sys
import sysconfig
from collections.abc import Callable, Sequence
from pathlib import Path

from filch._kernel import implementation
from filch._version import __version__
from filch.cli import _map
from filch.cli._options import Parser
from filch.cli._refusal import Refusal

_COMMANDS: dict[str, tuple[str, Callable[[list[str]], int]]] = {
    "map": (_map.SUMMARY, _map.main),
}

_EPILOG = """\
example:
  filch map os.path:getsize --glob '/usr/lib/python3*/*.py' --output sizes.jsonl

filch COMMAND --help says more about a command."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line with these arguments (those of the process by default) and return the exit code."""
    if sys.stderr is None:  # closed by whoever started us; what is said there is lost, and nothing else
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    arguments = list(sys.argv[1:] if argv is None else argv)
    command = next((word for word in arguments[:1] if word in _COMMANDS), None)
    name = "filch" if command is None else f"filch {command}"
    try:
        if command is None:
            return _no_command(arguments)
        return _COMMANDS[command][1](arguments[1:])
    except Refusal as refusal:
        sys.stderr.write(f"{name}: error: {refusal}\n")
        return 2
    except SystemExit as end:  # argparse has printed the help
        return int(end.code or 0)
    except KeyboardInterrupt:
        sys.stderr.write(f"{name}: interrupted\n")
        return 130


def _no_command(arguments: list[str]) -> int:
    listed = "\n".join(f"  {command}    {summary}" for command, (summary, _) in _COMMANDS.items())
    parser = Parser("filch", f"A work-stealing task runtime, from the command line.\n\ncommands:\n{listed}", _EPILOG)
    parser.usage = "filch COMMAND …"
    parser.add_argument("--version", action="store_true", help="print versions, kernel and default workers, and exit")
    parser.add_argument("command", metavar="COMMAND", nargs="?", help="one of the commands above")
    options = parser.parse_args(arguments)
    if options.version:
        print(_version())
        return 0
    known = ", ".join(_COMMANDS)
    if options.command is None:
        raise Refusal(f"no command given; the commands are {known}, and filch --help shows an example")
    raise Refusal(f"no command {options.command!r}; the commands are {known}")


def _version() -> str:
    lock = "with the GIL"
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        running = getattr(sys, "_is_gil_enabled", lambda: True)()
        lock = "free-threaded, but with the GIL switched on" if running else "free-threaded"
    return (
        f"filch {__version__}\n"
        f"kernel: {implementation}{_why_not_native()}\n"
        f"python: {platform.python_implementation()} {platform.python_version()}, {lock}\n"
        f"workers: {_map.workers_by_default()} by default"
    )


def _why_not_native() -> str:
    """Return what the build has written down if it fell back to the pure kernel."""
    reason = Path(__file__).parents[1] / "_kernel" / "not_built.txt"
    if implementation != "pure" or not reason.is_file():
        return ""
    return f" (the native kernel could not be built: {reason.read_text(encoding='utf-8').strip()})"
