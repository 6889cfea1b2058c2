"""Each HTTP request in the log and the traces: its id, and one line once it is answered.

A request's id is the header `X-Request-Id` of the client. Without one, it is the id in the answer's JSON; for
an answer without an id, it is made here. The answer has it in the header `X-Request-Id`.
"""

import asyncio
import logging
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, Self

from aiohttp import web
from aiohttp.typedefs import Middleware

from engine.protocol import GenerationRequest
from engine.protocol.tracing import CURRENT_SPAN, NO_SPAN, Span
from proxy.http.access.auth import KEY_RECORD
from proxy.service.metrics import RequestMetrics
from proxy.service.service import ROUTE, Service
from proxy.telemetry.attributes import answer_attributes, operation, request_attributes
from proxy.telemetry.logs import REQUEST_ID, log_fields
from proxy.wire.errors import Handler
from proxy.wire.openai.endpoint_fields import known_names

logger = logging.getLogger("weir.access")

QUIET_PATHS = frozenset({"/health", "/ready", "/metrics"})
"""Machines ask for them every few seconds, and nobody reads of it."""

CLIENT_LEFT = 499
"""The status in the log if the client left before the answer's end. No client gets it (nginx's number)."""

NO_ENDPOINT = "other"
"""The path in metrics of a request that no endpoint takes."""

_ID = re.compile(r"[A-Za-z0-9._:/+=@-]{1,128}")
_MAX_PATH = 256


@dataclass(slots=True)
class RequestLog:
    """One HTTP request, as the log tells of it."""

    request_id: str
    is_client_id: bool = False
    """Whether the client chose the id."""
    answer_id: str | None = None
    """The id in the answer's JSON."""
    metrics: RequestMetrics | None = None
    """None: no generation, or nothing that an upstream answers."""
    ignored: str = ""
    """The request's fields without effect."""
    operation: str | None = None
    """OpenTelemetry's name for what the request asks for; None: nothing of a model, or nobody traces it."""
    started: float = field(default_factory=perf_counter)
    sent_status: int | None = None
    """The status of a streamed answer whose last byte is sent. None: there is none so far."""

    @classmethod
    def of(cls, http: web.Request) -> Self:
        given = http.headers.get("X-Request-Id", "")
        is_client_id = _ID.fullmatch(given) is not None
        return cls(given if is_client_id else f"req_{os.urandom(16).hex()}", is_client_id)

    def begin(
        self,
        answer_id: str,
        metrics: RequestMetrics,
        request: GenerationRequest | None = None,
        ignored: Sequence[str] = (),
    ) -> None:
        """The HTTP request is read, its answer will have this id, and `metrics` will say how it ends.
        `request`: None if it is no single one. `ignored`: the names of its fields without effect."""
        span = CURRENT_SPAN.get()
        if request is not None and span is not NO_SPAN:
            self.operation = operation(request)
            span.set(request_attributes(request))
        self.metrics = metrics
        self.ignored = known_names(ignored)
        self.answer_id = answer_id
        if not self.is_client_id:
            self.request_id = answer_id
            REQUEST_ID.set(answer_id)

    def fields(self, http: web.Request, status: int) -> dict[str, Any]:
        """The line's fields. None holds text of the request's body or its query."""
        told: dict[str, Any] = {
            "method": http.method,
            "path": _path_of(http),
            "status": status,
            "seconds": round(perf_counter() - self.started, 6),
        }
        if (key := http.get(KEY_RECORD)) is not None:
            told |= {"tenant": key.tenant, "key": key.name}
        if (route := http.get(ROUTE)) is not None:
            told |= {"model": route.model.name, "policy": route.policy.name}
        if self.is_client_id and self.answer_id is not None:
            told["answer_id"] = self.answer_id
        if self.ignored:
            told["ignored_fields"] = self.ignored
        if self.metrics is not None:
            told |= self.metrics.summary()
        return told


REQUEST_LOG = web.RequestKey("request_log", RequestLog)


def request_log_middleware(service: Service) -> Middleware:
    """Sets `REQUEST_LOG`, and `CURRENT_SPAN` to the request's span. Counts each request once it is answered,
    and logs it unless the settings say no. Comes first."""
    telemetry, access_log = service.telemetry, service.settings.access_log

    @web.middleware
    async def keep_log(request: web.Request, handler: Handler) -> web.StreamResponse:
        log = request[REQUEST_LOG] = RequestLog.of(request)
        is_quiet = request.path in QUIET_PATHS
        span = NO_SPAN if is_quiet else telemetry.begin_request(request.method, request.headers)
        id_before, span_before = REQUEST_ID.set(log.request_id), CURRENT_SPAN.set(span)
        status = 500
        try:
            response = await handler(request)
            status = response.status
            return response
        except (asyncio.CancelledError, ConnectionError):
            # A client may close the connection as soon as it has read the whole stream.
            status = log.sent_status or CLIENT_LEFT
            raise
        finally:
            service.metrics.answered(_endpoint_of(request), status)
            CURRENT_SPAN.reset(span_before)
            is_logged = access_log and not is_quiet and logger.isEnabledFor(logging.INFO)
            if is_logged or span is not NO_SPAN:
                fields = log.fields(request, status)
                if is_logged:
                    log_fields(logger, "answered", fields)
                _end_span(span, log, fields)
            REQUEST_ID.reset(id_before)

    return keep_log


def _end_span(span: Span, log: RequestLog, fields: dict[str, Any]) -> None:
    asked = (fields["method"], fields["path"]) if log.operation is None else (log.operation,)
    span.rename(" ".join([*asked, *filter(None, [fields.get("model")])]))
    span.set(answer_attributes({**fields, "request_id": log.request_id}))
    status = fields["status"]
    span.end(str(status) if status >= 500 else "failed" if fields.get("outcome") == "failed" else None)


async def add_request_id(http: web.Request, response: web.StreamResponse) -> None:
    """For the application's `on_response_prepare`."""
    if (log := http.get(REQUEST_LOG)) is not None:
        response.headers["X-Request-Id"] = log.request_id


def _endpoint_of(http: web.Request) -> str:
    """The endpoint's path, without names and ids that the client put into it."""
    resource = http.match_info.route.resource
    return NO_ENDPOINT if resource is None else resource.canonical


def _path_of(http: web.Request) -> str:
    endpoint = _endpoint_of(http)
    return http.rel_url.raw_path[:_MAX_PATH] if endpoint == NO_ENDPOINT else endpoint
