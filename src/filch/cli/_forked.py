"""A function that forks: its child process must not go on as a worker of the run, which is the parent's."""

import os
import sys
import traceback
from types import TracebackType
from typing import NoReturn


class OneProcess:
    """A block that only the process that entered it may leave; for a forked child the process ends there."""

    __slots__ = ("_process",)

    def __enter__(self) -> None:
        self._process = os.getpid()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if os.getpid() != self._process:
            _end(error)


def _end(error: BaseException | None) -> NoReturn:
    """End this process as `multiprocessing` ends its children: flushed, but without what is to be done at exit.

    Locks that other threads of the parent held when it forked are held for ever, so none of the run may be asked for.
    """
    code = 1
    try:
        code = _exit_code(error)
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
    finally:
        os._exit(code)


def _exit_code(error: BaseException | None) -> int:
    if error is None:
        return 0
    if not isinstance(error, SystemExit):
        traceback.print_exception(error)
        return 1
    if error.code is None or isinstance(error.code, int):
        return (error.code or 0) & 0xFF
    print(error.code, file=sys.stderr)
    return 1
