"""The HTTP application: its routes, and its life from the start to the end of the last stream."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Self

import orjson
from aiohttp import web
from aiohttp.typedefs import Middleware
from pydantic import BaseModel

from proxy.deployment.deployment import Deployment
from proxy.http import handlers
from proxy.http.access.browser import BrowserRule, is_loopback
from proxy.http.access.operator import OPERATOR_RULE, OperatorRule, operator_middleware
from proxy.http.dialect import DIALECTS
from proxy.http.door import OWN_CHECK, add_headers, door, needs_keys
from proxy.http.openapi import Operation, openapi
from proxy.http.optional import add_admin, add_guard_api, add_page
from proxy.http.turns import responses_socket
from proxy.network.addresses import FORWARDERS
from proxy.network.connections import Connections
from proxy.network.errors import Handler
from proxy.network.listener import SharedPort
from proxy.network.port import Port
from proxy.network.tls import PLAIN
from proxy.service.service import SERVICE, Service
from proxy.settings.network import BrowserOptions
from proxy.settings.serve import ServeSettings
from proxy.storage.query import StateError
from proxy.wire.messages.fields import CountFields, MessagesRequest
from proxy.wire.openai.chat import ChatRequest
from proxy.wire.openai.completions import CompletionRequest
from proxy.wire.openai.moderations import ModerationRequest
from proxy.wire.openai.relayed import EmbeddingsRequest, RerankRequest, ScoreRequest
from proxy.wire.openai.responses import ResponsesRequest
from proxy.wire.openai.tokens import DetokenizeRequest, TokenizeRequest

logger = logging.getLogger("weir.proxy")

TELEMETRY_SECONDS = 2.0
"""How long the end of a server waits for the collector to take the last spans and metrics."""

Endpoint = tuple[str, str, str, type[BaseModel] | None, Handler]

ENDPOINTS: list[Endpoint] = [
    ("POST", "/v1/chat/completions", "Answer a chat", ChatRequest, handlers.chat_completions),
    ("POST", "/v1/completions", "Complete one or more prompts", CompletionRequest, handlers.completions),
    ("POST", "/v1/responses", "Respond to a conversation", ResponsesRequest, handlers.responses),
    ("POST", "/v1/messages", "Answer a conversation (Messages API)", MessagesRequest, handlers.messages),
    ("POST", "/v1/messages/count_tokens", "Count a prompt's tokens", CountFields, handlers.count_tokens),
    ("POST", "/v1/moderations", "The hooks' verdicts on texts", ModerationRequest, handlers.moderations),
    ("POST", "/v1/embeddings", "Vectors of texts, by an upstream", EmbeddingsRequest, handlers.embeddings),
    ("POST", "/v1/rerank", "The order of documents, by an upstream", RerankRequest, handlers.rerank),
    ("POST", "/rerank", "The order of documents, by an upstream", RerankRequest, handlers.rerank),
    ("POST", "/v1/score", "Scores of pairs of texts, by an upstream", ScoreRequest, handlers.score),
    ("POST", "/score", "Scores of pairs of texts, by an upstream", ScoreRequest, handlers.score),
    ("GET", "/v1/responses", "Respond to a conversation, over a WebSocket", None, responses_socket),
    ("GET", "/v1/responses/{id}", "A stored response", None, handlers.response),
    ("DELETE", "/v1/responses/{id}", "Forget a stored response", None, handlers.delete_response),
    ("GET", "/v1/models", "The models served", None, handlers.models),
    ("GET", "/v1/models/{id}", "One of the models served", None, handlers.model),
    ("POST", "/tokenize", "A text's or a chat's token ids", TokenizeRequest, handlers.tokenize),
    ("POST", "/detokenize", "Token ids' text", DetokenizeRequest, handlers.detokenize),
    ("GET", "/health", "Whether the process can serve", None, handlers.health),
    ("GET", "/ready", "Whether new requests are taken", None, handlers.ready),
    ("GET", "/version", "Weir's version", None, handlers.version),
]


@cache
def _description(added: tuple[Operation, ...]) -> bytes:
    """The OpenAPI document, which is slow to make. `added`: the operations beside `ENDPOINTS`. A start does
    without it. A thread makes it, beside the streams, when a client first asks."""
    return orjson.dumps(openapi([*(Operation(*endpoint[:4]) for endpoint in ENDPOINTS), *added]))


BESIDE_ADMIN: tuple[tuple[str, Handler], ...] = (
    ("/metrics", handlers.metrics),
    ("/health", handlers.health),
    ("/ready", handlers.ready),
)
"""The paths of the operator's own port beside `/admin` and the page. It needs no key."""


def make_app(service: Service, rule: OperatorRule) -> web.Application:
    """The application of `service`. Its runner needs aiohttp's `handler_cancellation`: without it, a
    disconnect is noticed only at the next write."""
    settings = service.settings
    app = _application(service, rule, door(service, BrowserRule(settings, settings.host)))
    added = add_guard_api(app)

    async def openapi_json(_: web.Request) -> web.Response:
        return web.Response(
            body=await asyncio.to_thread(_description, added), content_type="application/json"
        )

    for method, path, _, _, handler in ENDPOINTS:
        add = getattr(app.router, f"add_{method.lower()}")
        add(path.replace("{id}", "{id:.+}"), handler)  # a model's name may contain slashes
    app.router.add_get("/openapi.json", openapi_json)
    if settings.admin_port is None:
        add_admin(app)
        _add_metrics(app)
    return app


def admin_port_app(service: Service, rule: OperatorRule) -> web.Application:
    """The application of `--admin-port`."""
    settings = service.settings
    browser = BrowserRule(BrowserOptions(allowed_hosts=settings.allowed_hosts), settings.admin_host)
    app = _application(service, rule, door(service, browser, knows_keys=False))
    for path, handler in BESIDE_ADMIN:
        app.router.add_get(path, handler)
    add_admin(app)
    return app


def _application(service: Service, rule: OperatorRule, middleware: Middleware) -> web.Application:
    """An application with the parts that both have. Handlers bound the bodies that they read."""
    app = web.Application(middlewares=[middleware], client_max_size=0)
    app[SERVICE] = service
    app[DIALECTS] = {}
    app[FORWARDERS] = service.settings.trusted_forwarders
    app[OPERATOR_RULE] = rule
    app.on_response_prepare.append(add_headers)
    if service.settings.page:
        add_page(app)
    return app


def _add_metrics(app: web.Application) -> None:
    """Add `/metrics` for the operator: it names tenants, policies and upstreams."""
    metrics = web.Application(middlewares=[operator_middleware()])
    metrics[OWN_CHECK] = True
    metrics.router.add_get("", handlers.metrics)
    app.add_subapp("/metrics", metrics)


def operator_rule(service: Service) -> OperatorRule:
    settings = service.settings
    hosts = [settings.host] if settings.admin_port is None else [settings.host, settings.admin_host]
    is_private = all(map(is_loopback, hosts)) and not settings.trusted_forwarders
    return OperatorRule(settings.admin_key, lambda: is_private and not needs_keys(service))


@dataclass(frozen=True, slots=True)
class Ending:
    """How a server shares out the seconds of `shutdown_timeout`, from its first to its last."""

    drain: float
    """Running requests may finish until then."""
    notify: float
    """The clients of aborted requests may read the reason until then."""
    close: float
    """Requests, hooks and connections must have ended."""
    leave: float
    """The process ends, whatever still runs."""

    @classmethod
    def within(cls, timeout: float) -> Self:
        leave = max(timeout, 2.0)  # enough to send clients the reason why their requests end
        close = leave - min(1.0, leave / 10)
        drain = max(0.0, close - (leave - timeout) - min(2.0, timeout / 4))
        return cls(drain, (drain + close) / 2, close, leave)


class Server:
    """A service on a socket, as `weir serve` runs it."""

    def __init__(
        self,
        deployment: Deployment,
        settings: ServeSettings,
        *,
        shared: Sequence[SharedPort] = (),
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`shared`: the port and the operator's port, if other processes listen there as well. `clock`: as
        `Service` takes it."""
        self.service = Service(deployment, settings, clock)
        self._shared = shared
        self.ending = Ending.within(settings.shutdown_timeout)
        self.connections = Connections(settings)
        access = self.connections, settings.trusted_forwarders
        certificates = self.service.certificates
        rule = operator_rule(self.service)
        self._port = Port(make_app(self.service, rule), *access, certificates)
        self._ports = [self._port]
        if settings.admin_port is not None:
            admin = admin_port_app(self.service, rule)
            self._ports.append(Port(admin, *access, certificates if settings.admin_ssl else PLAIN))
        self._tasks: list[asyncio.Task[None]] = []
        self._state_is_open = False
        self.admin_url: str | None = None
        """The base URL of `--admin-port`, once it is open."""

    async def start(self, salt: bytes | None = None) -> str:
        """Run every hook's self-test, start the engine, then listen. Returns the base URL.

        `salt`: the shared state's, as another process of this service knows it. With it, a state that does
        not answer keeps nobody from starting: only requests that need the state fail until it does.

        Raises `EngineError`, `HookLoadError`, `StateError` or `OSError` if the service cannot
        start.
        """
        service = self.service
        try:
            # Hooks come first: they fail fast, before a model is loaded.
            await service.deployment.start_hooks()
            await self._open_state(salt)
            await service.deployment.start_engines()
            for work in (
                self.connections.watch(),
                service.limits.run(),
                service.rates.run(),
                service.operator.run(),
            ):
                self._tasks.append(asyncio.get_running_loop().create_task(work))
            settings = service.settings
            url = await self._port.start(settings.host, settings.port, *self._shared[:1])
            await self._start_admin_port()
            service.telemetry.start()
        except BaseException:
            for port in self._ports:
                await port.aclose()
            await _ended("", service.telemetry.aclose(), self._now())
            await service.deployment.aclose()
            await self._close_state()
            await service.receipts.aclose()
            await service.audit.aclose()
            raise
        return url

    async def _start_admin_port(self) -> None:
        settings = self.service.settings
        for port in self._ports[1:]:
            assert settings.admin_port is not None
            self.admin_url = await port.start(settings.admin_host, settings.admin_port, *self._shared[1:])
            logger.info("the operator's API is at %s/admin", self.admin_url)
            if settings.ssl_certfile and not (settings.admin_ssl or is_loopback(settings.admin_host)):
                logger.warning(
                    "the operator's API speaks plain HTTP, and others reach %s", settings.admin_host
                )

    async def stop(self) -> None:
        """Accept no more requests, let running ones finish, and abort those that take too long.

        Returns `ending.close` seconds later at the latest, whatever clients, hooks and the engine do.
        """
        service, ending, started = self.service, self.ending, self._now()
        drain, notify, close = (started + s for s in (ending.drain, ending.notify, ending.close))
        service.stopping.set()
        for port in self._ports:
            port.close()
        await _ended("", service.deployments.wait_until_idle(), drain)
        # Requests that still run fail together with the engine, so each client gets an error event.
        service.metrics.is_ending = True
        service.approvals.end()
        await _ended("the engine", service.deployments.close_engines(), notify)
        service.prompt_threads.close()
        self.connections.close()
        await _ended("", self.connections.closed(), notify)
        self.connections.abort()
        await _ended("", service.deployments.wait_until_idle(), (notify + close) / 2)
        await _ended("the collector", service.telemetry.aclose(), min(close, self._now() + TELEMETRY_SECONDS))
        await _ended("the shared state", self._close_state(), (notify + 3 * close) / 4)
        await _ended("the audit", service.audit.aclose(), (notify + 7 * close) / 8)
        await _ended("the writer of receipts", service.receipts.aclose(), (notify + 7 * close) / 8)
        await _ended("", service.reloads.aclose(), close)
        await _ended("the hooks", service.deployments.close_hooks(), close)
        for port in self._ports:
            await _ended("", port.aclose(), close)

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()

    async def _open_state(self, salt: bytes | None) -> None:
        service = self.service
        for start in (service.state.start, service.operator.start):
            try:
                await start()
            except StateError as error:
                if salt is None:
                    raise
                logger.warning("the shared state or the store cannot be used now: %s", error)
        service.state.salt = service.state.salt or salt or b""
        self._state_is_open = True
        self.service.operator.keep_decisions()

    async def _close_state(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._state_is_open:
            self._state_is_open = False
            with contextlib.suppress(StateError):
                await self.service.limits.aclose()
            with contextlib.suppress(StateError):
                await self.service.rates.aclose()
            with contextlib.suppress(StateError):
                await self.service.operator.write_decisions()
        await self.service.state.aclose()
        await self.service.operator.aclose()
        await self.service.approvals.aclose()


async def _ended(name: str, ending: Awaitable[None], deadline: float) -> None:
    """Await an ending until the loop's time is `deadline`. Logs if the part with this name has not ended."""
    try:
        async with asyncio.timeout_at(deadline):
            await ending
    except TimeoutError:
        if name:
            logger.warning("%s did not end in time", name)
