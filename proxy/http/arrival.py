"""One HTTP request, from its arrival to its line in the log.

A request's id is the header `X-Request-Id` of the client. Without one, it is the id in the answer's JSON; for
an answer without an id, it is made here. The answer has it in the header `X-Request-Id`.
"""

import asyncio
import logging
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

from aiohttp import web

from engine.protocol import GenerationRequest
from engine.protocol.tracing import CURRENT_SPAN, NO_SPAN, Span
from proxy.deployment.deployment import Deployment, Route
from proxy.deployment.keys import ANONYMOUS, Key
from proxy.service.metrics import RequestMetrics
from proxy.service.service import Service
from proxy.storage.shared.protocol import Owner
from proxy.telemetry.attributes import answer_attributes, operation, request_attributes
from proxy.telemetry.logs import REQUEST_ID, log_fields
from proxy.wire.answer_decisions import AnswerDecisions
from proxy.wire.openai.endpoint_fields import known_names

logger = logging.getLogger("weir.access")

QUIET_PATHS = frozenset({"/health", "/ready", "/metrics"})
"""Machines ask for them every few seconds. The log leaves them out."""

CLIENT_LEFT = 499
"""The status in the log if the client left before the answer's end. No client gets it (nginx's number)."""

NO_ENDPOINT = "other"
"""The path in metrics of a request that no endpoint takes."""

NOBODY = Owner("", "")

_ID = re.compile(r"[A-Za-z0-9._:/+=@-]{1,128}")
_MAX_PATH = 256


@dataclass(slots=True, eq=False)
class Arrival:
    """One HTTP request. The door makes it and fills in who asks (`proxy.http.door`)."""

    http: web.Request
    service: Service
    deployment: Deployment
    """The configuration that the request keeps to its end. A POST counts as running in it."""
    request_id: str = ""
    is_client_id: bool = False
    """Whether the client chose the id."""
    key: Key | None = None
    """None: the path needs no key, and nobody has looked for one."""
    owner: Owner = NOBODY
    """Who asks: the caller, and the key in the request, whether or not the server needs keys."""
    num_bytes: int = 0
    """Bytes of the body, as they count for the caller."""
    route: Route | None = None
    """The model and the policy. Set once the body says which model is asked for."""
    headers: dict[str, str] = field(default_factory=dict)
    """The response's headers beside those of its endpoint."""
    decisions: AnswerDecisions | None = None
    """The hooks' decisions, if the operator wants them in the answer."""
    answer_id: str | None = None
    """The id in the answer's JSON."""
    metrics: RequestMetrics | None = None
    """None: no generation, or nothing that an upstream answers."""
    ignored: list[str] = field(default_factory=list)
    """The names of the request's fields without effect."""
    operation: str | None = None
    """OpenTelemetry's name for what the request asks for; None: nothing of a model, or nobody traces it."""
    started: float = field(default_factory=perf_counter)
    status: int = 500
    """The status of the answer, once it is sent, or of a stream whose last byte is sent."""

    def __post_init__(self) -> None:
        given = self.http.headers.get("X-Request-Id", "")
        self.is_client_id = _ID.fullmatch(given) is not None
        self.request_id = given if self.is_client_id else f"req_{os.urandom(16).hex()}"

    @property
    def known_key(self) -> Key:
        """The key, or `ANONYMOUS` on a server or a path that needs none."""
        return self.key or ANONYMOUS

    def begin(
        self, answer_id: str, metrics: RequestMetrics, request: GenerationRequest | None = None
    ) -> None:
        """The HTTP request is read, its answer will have this id, and `metrics` will say how it ends.
        `request`: None if it is no single one."""
        span = CURRENT_SPAN.get()
        if request is not None and span is not NO_SPAN:
            self.operation = operation(request)
            span.set(request_attributes(request))
        self.metrics = metrics
        self.answer_id = answer_id
        if not self.is_client_id:
            self.request_id = answer_id
            REQUEST_ID.set(answer_id)

    @contextmanager
    def logged(self) -> Iterator[None]:
        """Counts the request once it is answered, logs it unless the settings say no, and ends its span. Sets
        `CURRENT_SPAN` meanwhile."""
        http, service = self.http, self.service
        is_quiet = http.path in QUIET_PATHS
        is_traced = service.telemetry.has_spans and not is_quiet
        span = service.telemetry.begin_request(http.method, http.headers) if is_traced else NO_SPAN
        id_before, span_before = REQUEST_ID.set(self.request_id), CURRENT_SPAN.set(span)
        try:
            yield
        except (asyncio.CancelledError, ConnectionError):
            # A client may close the connection as soon as it has read the whole stream.
            self.status = CLIENT_LEFT if self.status == 500 else self.status
            self.http.pop(ARRIVAL, None)
            raise
        finally:
            resource = http.match_info.route.resource
            endpoint = NO_ENDPOINT if resource is None else resource.canonical
            service.metrics.answered(endpoint, self.status)
            CURRENT_SPAN.reset(span_before)
            is_logged = service.settings.access_log and not is_quiet and logger.isEnabledFor(logging.INFO)
            if is_logged or span is not NO_SPAN:
                fields = self._fields(endpoint)
                if is_logged:
                    log_fields(logger, "answered", fields)
                self._end_span(span, fields)
            REQUEST_ID.reset(id_before)

    def _fields(self, endpoint: str) -> dict[str, Any]:
        """The line's fields. None holds text of the request's body or its query. `endpoint`: its path,
        without names and ids that the client put into it."""
        said: dict[str, Any] = {
            "method": self.http.method,
            "path": self.http.rel_url.raw_path[:_MAX_PATH] if endpoint == NO_ENDPOINT else endpoint,
            "status": self.status,
            "seconds": round(perf_counter() - self.started, 6),
        }
        if self.key is not None:
            said |= {"tenant": self.key.tenant, "key": self.key.name}
        if self.route is not None:
            said |= {"model": self.route.model.name, "policy": self.route.policy.name}
        if self.is_client_id and self.answer_id is not None:
            said["answer_id"] = self.answer_id
        if self.ignored:
            said["ignored_fields"] = known_names(self.ignored)
        if self.metrics is not None:
            said |= self.metrics.summary()
        return said

    def _end_span(self, span: Span, fields: dict[str, Any]) -> None:
        asked = (fields["method"], fields["path"]) if self.operation is None else (self.operation,)
        span.rename(" ".join([*asked, *filter(None, [fields.get("model")])]))
        span.set(answer_attributes({**fields, "request_id": self.request_id}))
        status = fields["status"]
        failed = "failed" if fields.get("outcome") == "failed" else None
        span.end(str(status) if status >= 500 else failed)


ARRIVAL = web.RequestKey("arrival", Arrival)


async def add_headers(http: web.Request, response: web.StreamResponse) -> None:
    """For the application's `on_response_prepare`. Nobody looks for the arrival afterwards: the request lets
    go of it, so that neither waits for the garbage collector."""
    if (arrival := http.pop(ARRIVAL, None)) is not None:
        response.headers["X-Request-Id"] = arrival.request_id
        response.headers.update(arrival.headers)
