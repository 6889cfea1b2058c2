"""A deadline for plain code: a signal interrupts it.

Only a process's main thread can be interrupted, and only where Python checks for signals, as in `time.sleep`
and in a regular expression. Elsewhere a call has no deadline.
"""

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def interrupting(seconds: float) -> Iterator[None]:
    """Raise `TimeoutError` inside the block after `seconds`, or in each call of the function that this
    decorates. The process's own alarm is kept."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.signal(signal.SIGALRM, interrupt)
    started = time.monotonic()
    earlier, _ = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
        if earlier:
            signal.setitimer(signal.ITIMER_REAL, max(earlier - (time.monotonic() - started), 0.001))


def interrupt(*_: object) -> None:
    """The alarm's handler."""
    raise TimeoutError("its deadline passed")
