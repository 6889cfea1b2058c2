"""What a server's handlers share: the engine, the hooks, the settings, and which requests run."""

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, contextmanager
from functools import partial

from aiohttp import web

from engine.parsers import Parsers, parsed
from engine.protocol import Delta, Deltas, Engine, GenerationRequest, RequestError
from engine.rewindable import rewindable
from hooks.pipeline.pipeline import Opener, guarded
from proxy.config import ServeSettings
from proxy.errors import APIError
from proxy.metrics import Metrics
from proxy.response_store import ResponseStore


class Service:
    """One server."""

    def __init__(self, engine: Engine, pipeline: Opener, settings: ServeSettings, names: list[str]) -> None:
        """`names`: what requests may call the model, the default first; none: whatever the engine takes."""
        self.engine = engine
        self.pipeline = pipeline
        self.settings = settings
        self._names = names
        self._parsers = Parsers(settings.reasoning_parser, settings.tool_call_parser)
        self.metrics = Metrics(engine, pipeline)
        self.responses = ResponseStore(settings.max_stored_responses)
        self.draining = False
        """No new generation is taken: the server is about to stop."""
        self._num_running = 0
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def names(self) -> list[str]:
        """The names to list."""
        return self._names or list(self.engine.info.names)

    def model_name(self, asked: str | None) -> str:
        """The name to answer under. Raises `APIError` 404 for a model that is not served."""
        if asked is None:
            return self.names[0] if self.names else ""
        if self._names and asked not in self._names:
            raise APIError(
                404,
                f"The model '{asked}' is not served here.",
                "not_found_error",
                param="model",
                code="model_not_found",
            )
        return asked

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[Delta, None]:
        """What a client may have of the engine's answer. Raises as `guarded` and `Engine.generate` do."""
        metrics = self.metrics.request(request.endpoint)
        outcome = "closed"
        try:
            guard = self.pipeline.open(request, can_rewind=self.engine.info.can_rewind)
            ask = partial(self._parsed, is_rewindable=guard.may_rewind)
            async with aclosing(guarded(guard, ask, self.engine.tokenizer)) as released:
                async for delta in released:
                    metrics.release(delta)
                    yield delta
            outcome = "finished"
        except RequestError:
            outcome = "refused"
            raise
        except Exception:
            outcome = "failed"
            raise
        finally:
            metrics.end(outcome)

    def _parsed(self, request: GenerationRequest, *, is_rewindable: bool) -> Deltas:
        """The engine's answer on its channels. Raises `RequestError` for tools that it could not tell from
        content."""
        engine, parsers = self.engine, self._parsers
        if request.uses_tools and not (engine.info.parses_tool_calls or parsers.tool_calls):
            raise RequestError(
                "tools: this server has no parser for its model's tool calls (--tool-call-parser).",
                param="tools",
            )
        deltas = engine.generate(request)
        if is_rewindable:
            deltas = rewindable(deltas)
        if not request.is_chat or parsers == Parsers():
            return deltas
        return parsed(parsers, request, deltas, engine.tokenizer)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Marks a generation as running. Raises `APIError` 503 if the server is stopping."""
        if self.draining:
            raise APIError(503, "The server is shutting down.", "server_error", retry_after=1)
        self._num_running += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._num_running -= 1
            if not self._num_running:
                self._idle.set()

    async def idle(self) -> None:
        """Returns once nothing runs."""
        await self._idle.wait()


SERVICE = web.AppKey("service", Service)
