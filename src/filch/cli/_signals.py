"""Ctrl-C and SIGTERM while calls run: passed on as messages, so that the run ends in good order."""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType


@contextlib.contextmanager
def stop_signals(tell: Callable[[int], None]) -> Iterator[None]:
    """Within the block, `tell` the number of a SIGINT or SIGTERM; from the third on raise KeyboardInterrupt instead.

    `tell` runs inside a signal handler and must be one that may (`SimpleQueue.put` is).  The third is for a main thread
    that is stuck in a write.  A signal that the parent had us ignore stays ignored, as for a job in the background.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    received = 0

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal received
        received += 1
        if received > 2:
            raise KeyboardInterrupt
        tell(number)

    before = {}
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is not signal.SIG_IGN:
            before[number] = signal.signal(number, handle)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
