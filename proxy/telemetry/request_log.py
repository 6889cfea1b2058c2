"""What the log and the traces say of each HTTP request: its id, and one line once it is answered.

A request's id is the header `X-Request-Id` of the client. Without one, it is the id in the answer's JSON; for
an answer without an id, it is made here. The answer has it in the header `X-Request-Id`.
"""

import asyncio
import logging
import re
import uuid
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, Self

from aiohttp import web
from aiohttp.typedefs import Middleware

from proxy.errors import Handler
from proxy.metrics import RequestMetrics
from proxy.telemetry.logs import REQUEST_ID, log_fields

logger = logging.getLogger("weir.access")

QUIET_PATHS = frozenset({"/health", "/ready", "/metrics"})
"""Machines ask for them every few seconds, and nobody reads of it."""

CLIENT_LEFT = 499
"""The status in the log if the client left before the answer's end. No client gets it (nginx's number)."""

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
    started: float = field(default_factory=perf_counter)

    @classmethod
    def of(cls, http: web.Request) -> Self:
        given = http.headers.get("X-Request-Id", "")
        is_client_id = _ID.fullmatch(given) is not None
        return cls(given if is_client_id else f"req_{uuid.uuid4().hex}", is_client_id)

    def begin(self, answer_id: str, metrics: RequestMetrics) -> None:
        """The HTTP request is read, its answer will have this id, and `metrics` will say how it ends."""
        self.metrics = metrics
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
        if self.is_client_id and self.answer_id is not None:
            told["answer_id"] = self.answer_id
        if self.metrics is not None:
            told |= self.metrics.summary()
        return told


REQUEST_LOG = web.RequestKey("request_log", RequestLog)


def request_log_middleware(*, access_log: bool) -> Middleware:
    """Sets `REQUEST_LOG`, and logs each request once it is answered if `access_log`. Comes first."""

    @web.middleware
    async def keep_log(request: web.Request, handler: Handler) -> web.StreamResponse:
        log = request[REQUEST_LOG] = RequestLog.of(request)
        before = REQUEST_ID.set(log.request_id)
        status = 500
        try:
            response = await handler(request)
            status = response.status
            return response
        except (asyncio.CancelledError, ConnectionError):
            status = CLIENT_LEFT
            raise
        finally:
            if access_log and request.path not in QUIET_PATHS:
                log_fields(logger, "answered", log.fields(request, status))
            REQUEST_ID.reset(before)

    return keep_log


async def add_request_id(http: web.Request, response: web.StreamResponse) -> None:
    """For the application's `on_response_prepare`."""
    if (log := http.get(REQUEST_LOG)) is not None:
        response.headers["X-Request-Id"] = log.request_id


def _path_of(http: web.Request) -> str:
    """The endpoint's path, without names and ids that the client put into it."""
    resource = http.match_info.route.resource
    return http.rel_url.raw_path[:_MAX_PATH] if resource is None else resource.canonical
