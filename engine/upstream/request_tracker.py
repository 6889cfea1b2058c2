"""The base of engines without a model of their own: it counts their requests, and ends them at closing."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

from engine.protocol import EngineError, EngineStats, ModelInfo, ShutdownError, Tokenizer, Usage
from engine.protocol.fields.support import FieldSupport

T = TypeVar("T")


_UNUSED = Usage(prompt_tokens=0, completion_tokens=0)


class TrackedRequest:
    """A request that runs. Its engine keeps `usage` up to date."""

    __slots__ = ("usage",)
    usage: Usage


class RequestTracker:
    def __init__(self) -> None:
        self.is_closing = False
        self._stops: set[Callable[[], None]] = set()
        self.on_close = self._stops.add
        """Has a function called when the engine closes, unless `forget` removes it."""
        self.forget = self._stops.discard
        self._running: set[TrackedRequest] = set()
        self._aborted = 0
        self._prompt_tokens = 0
        self._generation_tokens = 0
        self._reported = (0, 0)
        """Prompt tokens and generated tokens, as last reported."""

    def close(self) -> None:
        """End every request that runs, and refuse new ones."""
        if self.is_closing:
            return
        self.is_closing = True
        for stop in list(self._stops):
            stop()

    def check(self) -> None:
        """Raise `ShutdownError` if the engine is closing."""
        if self.is_closing:
            raise ShutdownError

    async def wait(self, work: Awaitable[T], deadline: float | None = None) -> T:
        """Await `work`. Raises `ShutdownError` at once when the engine closes, and `TimeoutError` at
        `deadline`, in the event loop's time."""
        try:
            async with asyncio.timeout_at(0 if self.is_closing else deadline) as wait:
                stop = partial(wait.reschedule, 0)
                self.on_close(stop)
                try:
                    return await work
                finally:
                    self.forget(stop)
        except TimeoutError:
            self.check()
            raise

    async def pause(self, seconds: float = 0) -> None:
        """Sleep, or let other tasks run once. Raises `ShutdownError` at once when the engine closes."""
        if seconds > 0:
            await self.wait(asyncio.sleep(seconds))
        else:
            await asyncio.sleep(0)
            self.check()

    @contextmanager
    def track(self) -> Iterator[TrackedRequest]:
        """Count one request's work. A request that is closed, cancelled or shut down counts as aborted.

        Raises `ShutdownError` in the place of an `EngineError` that comes while the engine closes.
        """
        self.check()
        request = TrackedRequest()
        request.usage = _UNUSED
        self._running.add(request)
        try:
            yield request
        except (GeneratorExit, asyncio.CancelledError):
            self._aborted += 1
            raise
        except EngineError as error:
            if not self.is_closing:
                raise
            self._aborted += 1
            if isinstance(error, ShutdownError):
                raise
            raise ShutdownError from error
        finally:
            self._running.discard(request)
            self._prompt_tokens += request.usage.prompt_tokens
            self._generation_tokens += request.usage.completion_tokens

    def stats(self) -> EngineStats:
        """The tokens of running requests count too. An upstream may correct a count downwards at a request's
        end; the totals never go back."""
        prompts, generated = self._prompt_tokens, self._generation_tokens
        for request in self._running:
            usage = request.usage
            prompts += usage.prompt_tokens
            generated += usage.completion_tokens
        self._reported = max(prompts, self._reported[0]), max(generated, self._reported[1])
        return EngineStats(
            num_running=len(self._running),
            prompt_tokens_total=self._reported[0],
            generation_tokens_total=self._reported[1],
            aborted_total=self._aborted,
        )


class TrackedEngine:
    """The base of engines that have no scheduler. It implements `protocol.Engine`, except `generate`."""

    fields = FieldSupport()
    tokenizer: Tokenizer | None = None

    def __init__(self) -> None:
        self.info = ModelInfo()
        self._requests = RequestTracker()

    async def start(self) -> None:
        pass

    def stats(self) -> EngineStats:
        return self._requests.stats()

    def check_room(self, caller: str) -> None:
        pass

    def check_health(self) -> None:
        self._requests.check()

    async def aclose(self) -> None:
        self._requests.close()


NO_LOGITS = {"logits_processors": "is refused: this engine has no logits of its own to process"}
"""The field that an engine without a model refuses, with the reason (contract 7.7)."""
