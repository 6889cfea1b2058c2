"""One call of an async hook, with a deadline that holds however the hook treats its cancellation."""

import asyncio
from collections.abc import Callable, Coroutine, Generator
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import Any

GRACE = 1.0
"""Seconds after a deadline in which a call or a process may end by itself."""


class LateAndCancelledError(asyncio.CancelledError):
    """The request was cancelled while a call went on past its deadline."""


open_calls: set["AsyncCall"] = set()
"""Calls that wait for something, those past their deadline included."""


class AsyncCall:
    """Awaits a hook's coroutine in the request's own task, but no longer than its deadline.

    A cancelled hook may clean up or continue. Nobody awaits it past the deadline: the rest of the call then
    runs in a task of its own, `rest`.
    """

    __slots__ = ("_coroutine", "_deadline", "_waits_for", "rest")

    def __init__(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        self._coroutine = coroutine
        self._waits_for: Any = None
        """The awaitable that the coroutine waits for."""
        self._deadline: asyncio.Timeout | None = None
        self.rest: asyncio.Task[None] | None = None

    async def within(self, seconds: float) -> Any:
        """The hook's return value. Raises the hook's own error, `TimeoutError` past the deadline, and
        `CancelledError` if the request is cancelled: `LateAndCancelledError` if the call continues. A
        `GeneratorExit` of the hook's own is raised as a `RuntimeError`: otherwise the call was closed."""
        started = monotonic()
        try:
            verdict = await self._returned(seconds)
        except asyncio.CancelledError as error:
            if self.rest is None:
                raise
            raise LateAndCancelledError from error
        except TimeoutError as error:
            if monotonic() - started < seconds:  # the hook raised it itself
                raise
            raise TimeoutError("its deadline passed") from error
        if monotonic() - started > seconds:  # it caught the interruption, or awaited nothing
            raise TimeoutError("its deadline passed")
        return verdict

    async def _returned(self, seconds: float) -> Any:
        try:
            self._waits_for = self._coroutine.send(None)
        except StopIteration as end:  # most calls wait for nothing
            return end.value
        except GeneratorExit as error:
            raise _own_exit(error) from error
        open_calls.add(self)
        try:
            async with asyncio.timeout(seconds) as self._deadline:
                return await self
        finally:
            if self.rest is None:
                open_calls.discard(self)

    def __await__(self) -> Generator[Any, Any, Any]:
        while True:
            step: Callable[[], Any] = partial(self._coroutine.send, None)
            try:
                yield self._waits_for
            except GeneratorExit:
                self._coroutine.close()
                raise
            except BaseException as error:  # noqa: BLE001 - the hook decides
                step = partial(self._coroutine.throw, error)
            try:
                self._waits_for = step()
            except StopIteration as end:
                return end.value
            except GeneratorExit as error:
                raise _own_exit(error) from error
            finally:
                del step  # it may have an error, which refers to this frame
            if self._deadline is not None and self._deadline.expired():
                self._deadline = None
                self.rest = asyncio.get_running_loop().create_task(self._go_on())
                raise asyncio.CancelledError

    async def _go_on(self) -> None:
        try:
            with suppress(BaseException):  # nobody awaits the result any more
                await self
        finally:
            open_calls.discard(self)


def _own_exit(error: GeneratorExit) -> RuntimeError:
    """The error in place of a `GeneratorExit` that a hook raised by itself, from the same line."""
    return RuntimeError("the hook raised GeneratorExit").with_traceback(error.__traceback__)
