"""The objects that all handlers share: engine, hooks, settings, and the count of running requests."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

from aiohttp import web

from engine.parsers import Parsers
from engine.prompt_threads import PromptThreads
from engine.protocol import Engine, GenerationRequest, QueueFullError, RequestError
from hooks.pipeline.open_guard import OpenGuard
from hooks.pipeline.pipeline import GuardFactory
from proxy.config import ServeSettings
from proxy.decisions.feed import DecisionFeed, Subscriber
from proxy.decisions.record import Asker
from proxy.errors import APIError
from proxy.metrics import Metrics
from proxy.state.connect import make_state
from proxy.state.options import StateOptions
from proxy.state.responses import ResponseStore
from proxy.state.under_way import RequestLimits
from proxy.store.options import StoreOptions
from proxy.store.store import Store
from proxy.workers.others import Others


class Service:
    """One server."""

    def __init__(
        self, engine: Engine, pipeline: GuardFactory, settings: ServeSettings, names: list[str]
    ) -> None:
        """`names`: what requests may call the model, the default first; none: whatever the engine takes."""
        self.engine = engine
        self.pipeline = pipeline
        self.settings = settings
        self._names = names
        self._parsers = Parsers(settings.reasoning_parser, settings.tool_call_parser)
        self.metrics = Metrics(engine, pipeline)
        self.render_metrics: Callable[[], Awaitable[bytes]] = self.metrics.render
        """Several workers replace it, to show the metrics of all."""
        self.others = Others()
        self.state = make_state(settings.options(StateOptions))
        self.decisions = DecisionFeed(keeps_withheld_text=settings.keep_withheld_text)
        self.responses = ResponseStore(settings, self.state)
        self.store = Store(settings.options(StoreOptions), has_admin_key=bool(settings.admin_key))
        self.process = secrets.token_hex(8)
        """A name that no other process has."""
        is_shared = settings.state is not None
        limit = settings.max_requests_per_caller
        self.limits = RequestLimits(limit, self.state if is_shared else None, self.process)
        self.prompt_threads = PromptThreads(settings.tokenizer_pool_size)
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
        """The name to answer under. Raises `RequestError` 404 for a model that is not served."""
        if asked is None:
            return self.names[0] if self.names else ""
        if self._names and asked not in self._names:
            raise self.no_model(asked)
        return asked

    @staticmethod
    def no_model(name: str) -> RequestError:
        told = f"The model '{name}' is not served here."
        return RequestError(told, param="model", code="model_not_found", status=404)

    def check_room(self, endpoint: str, caller: str) -> None:
        """Raise `QueueFullError` if the engine takes no request of this caller now. Checked before a body is
        read, so that a caller with a full queue costs the others little."""
        try:
            self.engine.check_room(caller)
        except QueueFullError:
            with self.metrics.request(endpoint):
                raise

    @asynccontextmanager
    async def opened(
        self, request: GenerationRequest, subscriber: Subscriber | None = None
    ) -> AsyncIterator[OpenGuard]:
        """The request's guard, closed at the end. `subscriber`: hears this request's decisions. Raises
        `RequestError` for a hook that it may not name."""
        asker = Asker("default", "anonymous", "default", request.model)
        listener = self.decisions.listener(asker, subscriber)
        can_rewind = self.engine.info.can_rewind_for(request)
        guard = self.pipeline.open(request, can_rewind=can_rewind, listener=listener)
        try:
            yield guard
        finally:
            await guard.close()

    def parsers_for(self, request: GenerationRequest) -> Parsers:
        """The answer's parsers. Raises `RequestError` for tools if nothing could tell calls from content."""
        if request.uses_tools and not (self.engine.info.parses_tool_calls or self._parsers.tool_calls):
            raise RequestError(
                "tools: this server has no parser for its model's tool calls (--tool-call-parser).",
                param="tools",
            )
        return self._parsers if request.is_chat else Parsers()

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

    async def wait_until_idle(self) -> None:
        """Returns once nothing runs."""
        await self._idle.wait()


SERVICE = web.AppKey("service", Service)
