"""Processes that tests start: each wait for one has a limit, and none outlives its test."""

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

WAIT_LIMIT = 120.0
"""Seconds after which a wait has failed, however slow the machine is."""


class Process(Protocol):
    """What `subprocess.Popen` and `ForkedWeir` have in common."""

    def __enter__(self) -> Any: ...
    def __exit__(self, *_: Any) -> Any: ...
    def kill(self) -> None: ...


P = TypeVar("P", bound=Process)


@contextmanager
def killed_at_end(process: P) -> Iterator[P]:
    """Kills the process at the end of the block, unless it has ended, and closes its pipes."""
    with process:
        try:
            yield process
        finally:
            process.kill()


def wait_until(is_so: Callable[[], Any]) -> None:
    """As `tests.helpers.until`, where no event loop runs."""
    limit = time.monotonic() + WAIT_LIMIT
    while not is_so():
        assert time.monotonic() < limit, f"still not so after {WAIT_LIMIT} seconds"
        time.sleep(0.01)


def obey_interrupts() -> None:
    """Undo what a shell does to its background jobs: they ignore SIGINT, and so do their child processes."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
