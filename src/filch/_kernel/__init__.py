"""Choose the kernel once, by presence: a binary that is there but does not load is an error, never a fall-back.

FILCH_KERNEL unset: the native kernel where it was built, else the pure one; `native` or `pure`: that one.
"""

import os
from importlib.util import find_spec
from typing import TYPE_CHECKING

_wanted = os.environ.get("FILCH_KERNEL", "auto")
if _wanted not in ("auto", "native", "pure"):
    raise ImportError(f"FILCH_KERNEL must be native or pure, or unset, not {_wanted!r}")

if TYPE_CHECKING or _wanted == "native" or (_wanted == "auto" and find_spec("filch._kernel._native")):
    from filch._kernel._native import (
        Bulk,
        Engine,
        Future,
        after_fork_in_child,
        after_fork_in_parent,
        before_fork,
        blocking,
        checkpoint,
        current_engine,
        current_future,
        engines,
        implementation,
        isolate,
        main_ended,
        report_lost,
        unlocked,
    )
else:
    from filch._kernel._pure import (
        Bulk,
        Engine,
        Future,
        after_fork_in_child,
        after_fork_in_parent,
        before_fork,
        blocking,
        checkpoint,
        current_engine,
        current_future,
        engines,
        implementation,
        isolate,
        main_ended,
        report_lost,
        unlocked,
    )

__all__ = [
    "Bulk",
    "Engine",
    "Future",
    "after_fork_in_child",
    "after_fork_in_parent",
    "before_fork",
    "blocking",
    "checkpoint",
    "current_engine",
    "current_future",
    "engines",
    "implementation",
    "isolate",
    "main_ended",
    "report_lost",
    "unlocked",
]
