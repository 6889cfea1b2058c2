"""The other processes that serve the same port, as a service sees them.

One process asks all others a question, which is a value that can be pickled. Its type says who answers it.
"""

from collections.abc import Awaitable, Callable
from typing import Any

Answerer = Callable[[Any], Awaitable[Any]]


class Others:
    """Nobody, until a worker replaces `ask` (`proxy.workers.siblings`)."""

    def __init__(self) -> None:
        self.answers: dict[type, Answerer] = {}
        """What this process does with a question, by its type. The result can be pickled."""
        self.ask: Callable[[Any], Awaitable[list[Any]]] = _ask_nobody
        """The answers of all other processes to a question. One that is busy for too long has none."""


async def _ask_nobody(question: Any) -> list[Any]:
    return []
