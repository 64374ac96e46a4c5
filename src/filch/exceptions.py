"""Every error that filch raises.

One root, `FilchError`; each class is also a subclass of the built-in that a user would catch.  A message has the rule,
the value and the way out, in lower case and without a full stop.  Not here: errors that tasks raise themselves.
"""

from concurrent.futures import CancelledError


class FilchError(Exception):
    """Root of the errors that filch raises."""


class PoolShutdown(FilchError, RuntimeError):
    """The pool was shut down (or the interpreter is ending), so it takes no new task."""


class Cancelled(FilchError, CancelledError):
    """A running task was asked to stop and came to a checkpoint."""


class TaskTimeout(FilchError, TimeoutError):
    """A task ran longer than its `timeout` option allows."""


class DeadlockError(FilchError, RuntimeError):
    """Tasks wait for each other in a circle; raised in the task whose wait closed it."""


class ForkedError(FilchError, RuntimeError):
    """The task belongs to the parent process; in this forked child it will never run."""


class InternalError(FilchError, RuntimeError):
    """A bug in filch: please report it."""
