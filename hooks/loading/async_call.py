"""One call of an async hook, which may take being cancelled as it likes."""

import asyncio
from collections.abc import Callable, Coroutine, Generator
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import Any

GRACE = 1.0
"""Seconds past its deadline in which what was told to end may do so by itself."""


class AsyncCall:
    """Awaits a hook's coroutine, in the task of the request that it is for, but no longer than its deadline.

    Being cancelled is for the hook to answer: it may clean up, or go on. Only past its deadline is it not
    awaited any more; what is left of it then goes on in a task of its own, `rest`.
    """

    __slots__ = ("_coroutine", "_deadline", "_waits_for", "rest")

    def __init__(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        self._coroutine = coroutine
        self._waits_for: Any = None
        """What the coroutine's last step was to await."""
        self._deadline: asyncio.Timeout | None = None
        self.rest: asyncio.Task[None] | None = None

    async def within(self, seconds: float) -> Any:
        """What the hook returns. Raises what it raises, `TimeoutError` past the deadline, and
        `CancelledError` if the request is cancelled."""
        started = monotonic()
        try:
            verdict = await self._returned(seconds)
        except TimeoutError as error:
            if monotonic() - started < seconds:  # the hook's own
                raise
            raise TimeoutError("its deadline passed") from error
        if monotonic() - started > seconds:  # it caught being interrupted, or awaited nothing
            raise TimeoutError("its deadline passed")
        return verdict

    async def _returned(self, seconds: float) -> Any:
        try:
            self._waits_for = self._coroutine.send(None)
        except StopIteration as end:  # most calls wait for nothing
            return end.value
        async with asyncio.timeout(seconds) as self._deadline:
            return await self

    def __await__(self) -> Generator[Any, Any, Any]:
        while True:
            step: Callable[[], Any] = partial(self._coroutine.send, None)
            try:
                yield self._waits_for
            except GeneratorExit:
                self._coroutine.close()
                raise
            except BaseException as error:  # noqa: BLE001 - the hook's to answer
                step = partial(self._coroutine.throw, error)
            try:
                self._waits_for = step()
            except StopIteration as end:
                return end.value
            if self._deadline is not None and self._deadline.expired():
                self._deadline = None
                self.rest = asyncio.get_running_loop().create_task(self._go_on())
                raise asyncio.CancelledError

    async def _go_on(self) -> None:
        with suppress(BaseException):  # nobody is left to hear of it
            await self
