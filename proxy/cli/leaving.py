"""How a command ends when it cannot do its work: a line on standard error, and a status."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn


def leave(command: str, reason: object, status: int = 2) -> NoReturn:
    """Print the reason, and exit. `command`: such as `weir config check`."""
    print(f"{command}: {reason}", file=sys.stderr)
    raise SystemExit(status)


@contextmanager
def leaving(command: str, *errors: type[Exception], status: int = 2) -> Iterator[None]:
    """Inside, each of these errors is the reason to `leave`."""
    try:
        yield
    except errors as error:
        leave(command, error, status)
