"""What is seen on standard error while a run goes on: a bar drawn by rich if that is installed, else a plain line.

The only file of the package that imports rich.  Both are fed by the main thread whenever records were written.
"""

import sys
import time
from typing import TYPE_CHECKING, Protocol

from filch.cli._summary import Tally

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress

REDRAW_SECONDS = 0.1
PLAIN_SECONDS = 2.0
"""How often the plain line is written where it cannot overwrite itself, as in a log file."""


class Progress(Protocol):
    """A display of how far a run is."""

    @property
    def counts(self) -> bool:
        """Whether it is worth counting the inputs ahead."""

    def update(self, tally: Tally, total: int | None) -> None:
        """Show the counts; `total` is the number of inputs, as far as it is known."""

    def close(self) -> None:
        """Take the display away, so that the summary stands alone."""


class NoProgress:
    """Shows nothing."""

    counts = False

    def update(self, tally: Tally, total: int | None) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


def start_progress(wanted: bool | None) -> Progress:
    """Start the display that fits: by default one only if standard error is a terminal."""
    terminal = sys.stderr.isatty()
    if wanted is False or (wanted is None and not terminal):
        return NoProgress()
    if not terminal:
        return _PlainLine(redraw=False)
    try:
        return _Bar()
    except ImportError:
        return _PlainLine(redraw=True)


class _PlainLine:
    """`12 done, 0 failed, 34.0/s`, written over itself on a terminal and now and then elsewhere."""

    counts = True

    def __init__(self, redraw: bool) -> None:
        self._redraw = redraw
        self._next = 0.0
        self._width = 0

    def update(self, tally: Tally, total: int | None) -> None:
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + (REDRAW_SECONDS if self._redraw else PLAIN_SECONDS)
        of_total = "" if total is None else f" of {max(total - tally.skipped, tally.done)}"
        text = f"filch map: {tally.done}{of_total} done, {tally.failed} failed, {tally.rate:,.1f}/s"
        if self._redraw:
            sys.stderr.write("\r" + text.ljust(self._width))
            self._width = len(text)
        else:
            sys.stderr.write(text + "\n")
        sys.stderr.flush()

    def close(self) -> None:
        if self._redraw and self._width:
            sys.stderr.write("\r" + " " * self._width + "\r")
            sys.stderr.flush()


class _Bar:
    """rich's bar.  What functions print to the terminal meanwhile appears above it."""

    counts = True

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

        self._bar: RichProgress = Progress(
            TextColumn("{task.completed:,.0f} done"),
            TextColumn("[red]{task.fields[failed]:,} failed"),
            BarColumn(),
            TextColumn("{task.fields[rate]:,.1f}/s"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
            redirect_stdout=sys.stdout.isatty(),
            redirect_stderr=True,
        )
        self._task = self._bar.add_task("map", total=None, failed=0, rate=0.0)
        self._next = 0.0
        self._bar.start()

    def update(self, tally: Tally, total: int | None) -> None:
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + REDRAW_SECONDS
        left = None if total is None else max(total - tally.skipped, tally.done)
        self._bar.update(self._task, completed=tally.done, total=left, failed=tally.failed, rate=tally.rate)

    def close(self) -> None:
        self._bar.stop()
