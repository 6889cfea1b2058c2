"""The other processes that serve the same port, as a service sees them.

One process asks all its peers a question, which is a value that can be pickled. Its type says who answers it.
"""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from typing import Any, Protocol

Answerer = Callable[[Any], Awaitable[Any]]

PATIENCE = 1.0
"""Seconds to wait for the peers' answers. A peer that is busy for longer gives none; the last copy of
its metrics counts."""


class Ask(Protocol):
    def __call__(self, question: Any, *, patience: float = PATIENCE) -> Awaitable[list[Any]]:
        """The answers of all other processes to a question, within `patience` seconds. One that is busy for
        longer has none, and neither has one that failed."""


class Peers:
    """No process, until a worker replaces `ask` (`proxy.workers.siblings`)."""

    def __init__(self) -> None:
        self.answers: dict[type, Answerer] = {}
        """The functions that answer questions here, by the question's type. A result can be pickled."""
        self.ask: Ask = _ask_nobody


async def _ask_nobody(question: Any, *, patience: float = PATIENCE) -> list[Any]:
    return []


class Questions:
    """The questions that one process has asked and whose answers have not all come."""

    def __init__(self) -> None:
        self._keys = itertools.count()
        self._asked: dict[int, _Asked] = {}

    async def ask(self, send: Callable[[int], None], patience: float | None) -> dict[int, Any]:
        """The answers to a question, by the numbers of the processes. One that failed answers None. `send`
        gets the question's key."""
        key = next(self._keys)
        asked = self._asked[key] = _Asked()
        send(key)
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(patience):
                    await asked.is_complete.wait()
        finally:
            del self._asked[key]
        return asked.values

    def expect(self, key: int, numbers: Collection[int]) -> None:
        """These processes will answer."""
        if asked := self._asked.get(key):
            asked.missing = set(numbers)
            asked.check()

    def take(self, key: int, number: int, value: Any) -> None:
        """A process answers."""
        if asked := self._asked.get(key):
            asked.values[number] = value
            asked.missing.discard(number)
            asked.check()

    def forget(self, number: int) -> None:
        """A process is gone, and answers nothing more."""
        for asked in self._asked.values():
            asked.missing.discard(number)
            asked.check()


class _Asked:
    """A question, and its answers so far."""

    def __init__(self) -> None:
        self.values: dict[int, Any] = {}
        self.missing: set[int] = set()
        self.is_complete = asyncio.Event()

    def check(self) -> None:
        if not self.missing:
            self.is_complete.set()
