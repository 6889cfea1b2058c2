"""The door: the one middleware, which every HTTP request passes.

It makes the request's `Arrival`: who asks, the counts of the caller, and the line in the log. It turns away
other sites' pages, and turns errors into answers. `proxy.http.admission` does the rest for an endpoint.

A request's id is the header `X-Request-Id` of the client. Without one, it is the id in the answer's JSON; for
an answer without an id, it is made here. The answer has it in the header `X-Request-Id`. A message of a
WebSocket has the handshake's header with the message's number, such as `my-id-2`.
"""

import asyncio
import hashlib
import logging
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import lru_cache
from time import perf_counter
from typing import Any

from aiohttp import hdrs, web
from aiohttp.typedefs import Middleware
from pydantic import ValidationError

from engine.protocol import GenerationRequest, RequestError
from engine.protocol.fields.names import is_known
from engine.protocol.tracing import CURRENT_SPAN, NO_SPAN, Span
from proxy.deployment.deployment import Deployment, Route
from proxy.deployment.keys import ANONYMOUS, Key, digest_of
from proxy.http.access.browser import BrowserRule, is_preflight, preflight_answer
from proxy.http.dialect import DIALECTS, dialect_of, error_answer, speaks_messages
from proxy.http.optional import page_paths
from proxy.http.websocket import Socket
from proxy.network.connections import Connection
from proxy.network.errors import SERVER, Handler
from proxy.service.metrics import RequestMetrics
from proxy.service.receipt_keeping import BodyDigest, Receipt
from proxy.service.service import Service
from proxy.storage.shared.protocol import Owner
from proxy.telemetry.attributes import answer_attributes, operation, request_attributes
from proxy.telemetry.logs import REQUEST_ID, log_fields
from proxy.wire.answer_decisions import AnswerDecisions
from proxy.wire.errors import APIError, to_api_error
from proxy.wire.openai.endpoint_fields import known_names

logger = logging.getLogger("weir.access")

OPEN_PATHS = frozenset({"/health", "/ready", *page_paths()})
"""Paths that need no key. The page's files hold no data; its requests for data need one."""

QUIET_PATHS = frozenset({"/health", "/ready", "/metrics"})
"""Machines ask for them every few seconds. The log leaves them out."""

CLIENT_DISCONNECTED = 499
"""The status in the log if the client disconnected before the answer's end. nginx uses the same number."""

NO_ENDPOINT = "other"
"""The path in metrics of a request that no endpoint takes."""

NOBODY = Owner("", "")

NO_KEY = digest_of(b"")

_FIELD = re.compile(r"([A-Za-z_]\w{0,63})(?:[.\[](\d{1,6})\b)?", re.ASCII)
_CODE = re.compile(r"[a-z_]{1,64}")
_PROMPTS = frozenset({"messages", "system", "prompt", "input", "tools", "documents", "texts", "model"})
"""Fields with prompts, which engines do not have as such."""
_ID = re.compile(r"[A-Za-z0-9._:/+=@-]{1,128}")
_MAX_PATH = 256
_CALLERS_KEPT = 4096
"""Addresses, and digests of keys, whose salted forms are remembered: those that asked last."""


@dataclass(slots=True, eq=False)
class Arrival:
    """One HTTP request, from its arrival to its line in the log.

    A caller is an API key that the server accepts. On a server without keys it is an address: a key that
    nobody checks could be another one in each request.
    """

    http: web.Request
    service: Service
    deployment: Deployment
    """The configuration that the request keeps to its end. A POST, or a message, counts as running in it."""
    address: str = ""
    """The client's."""
    body: bytes | None = None
    """The body, if the request is a message of a socket. None: it is the HTTP request's own."""
    socket: Socket | None = None
    """The socket that the answer goes to."""
    message: int = 0
    """The number of the message among those of its socket that are answered, from 1. 0: it is none."""
    request_id: str = ""
    is_client_id: bool = False
    """Whether the client chose the id."""
    key: Key = ANONYMOUS
    owner: Owner = NOBODY
    """Who asks: the caller, and the key in the request, whether or not the server needs keys. `NOBODY`: not
    known yet."""
    num_bytes: int = 0
    """Bytes of the body, as they count for the caller."""
    body_digest: BodyDigest | None = None
    """The request's, for its receipt."""
    receipt: Receipt | None = None
    """The receipt of an admitted request, if the server keeps any."""
    route: Route | None = None
    """The model and the policy. Set once the body says which model is asked for."""
    headers: dict[str, str] = field(default_factory=dict)
    """The response's headers beside those of its endpoint."""
    decisions: AnswerDecisions | None = None
    """The hooks' decisions, if the operator wants them in the answer."""
    answer_id: str | None = None
    """The id in the answer's JSON."""
    metrics: RequestMetrics | None = None
    """How the request to a model ends. None: the request has no model, or its body is not read yet."""
    ignored: list[str] = field(default_factory=list)
    """The names of the request's fields without effect."""
    operation: str | None = None
    """OpenTelemetry's name for the kind of request. None: no request to a model, or not traced."""
    refused_key: str | None = None
    """Why the request's key was refused, a client's or an operator's. None: it was not."""
    fault: APIError | None = None
    """The error, if the answer is one and the caller may be at fault."""
    started: float = field(default_factory=perf_counter)
    answer: bytes | None = None
    """The body of a whole answer, for its receipt."""
    status: int = 500
    """The status of the answer, once it is sent, or of a stream whose last byte is sent."""

    def answer_headers(self) -> dict[str, str]:
        """The headers that every answer has, for one over a socket."""
        return {"X-Request-Id": self.request_id, **self.headers}

    def identify(self, *, needs_key: bool = True) -> None:
        """Finds out who asks. Raises `APIError` 401 for a request without a key that the server accepts.
        `needs_key`: False for the operator's paths, whose caller is an address here."""
        service = self.service
        scheme, given = _credentials(self.http)
        if needs_key and needs_keys(service):
            found = _find_key(service, scheme, given)
            if found is None or found.has_expired:
                reason = "A valid API key is needed." if found is None else "This API key has expired."
                raise APIError(401, reason, "authentication_error", code="invalid_api_key")
            self.key = found
        # Stored responses belong to a key, so that callers behind one address do not read each other's.
        salt = service.state.salt
        key = _salted(salt, digest_of(given) if given else NO_KEY)
        self.owner = Owner(_salted(salt, self.address) if self.key is ANONYMOUS else key, key)

    async def let_in(self, handler: Handler, *, is_operators: bool) -> web.StreamResponse:
        """The handler's answer, once it is known who asks. Counts a POST to its end: for its caller, and
        unless it is the operator's, as running in its deployment. Raises `APIError` 401, 503 if the server is
        stopping, and 429 if the caller has too many requests."""
        self.identify(needs_key=not is_operators)
        if self.http.method != hdrs.METH_POST and self.body is None:
            return await handler(self.http)
        service, caller = self.service, self.owner.caller
        if service.stopping.is_set() and not is_operators:
            raise APIError(503, "The server is shutting down.", "server_error", retry_after=1)
        with nullcontext() if is_operators else self.deployment.running():
            if not await service.limits.enter(caller):
                limit = f"{service.settings.max_requests_per_caller} (max_requests_per_caller)"
                raise _too_many("requests", limit)
            try:
                return await handler(self.http)
            finally:
                service.limits.leave(caller)
                self.release_bytes(self.num_bytes)

    def count_bytes(self, size: int) -> None:
        """Count the bytes of the request's body until it ends, or until a message of its socket has its turn.
        Raises `APIError` 429 if its caller has too many in this process. One body alone always fits."""
        caller, held = self.owner.caller, self.service.body_bytes
        limit = self.service.settings.max_body_bytes_per_caller
        if held[caller] and held[caller] + size > limit:
            raise _too_many("bytes of requests", str(limit))
        self.num_bytes += size
        held[caller] += size

    def release_bytes(self, size: int) -> None:
        """The opposite of `count_bytes`."""
        caller, held = self.owner.caller, self.service.body_bytes
        self.num_bytes -= size
        held[caller] -= size
        if not held[caller]:
            del held[caller]

    def note(self, error: Exception) -> None:
        """Keep for the log why the request failed."""
        if isinstance(error, APIError) and error.status == 401:
            self.refused_key = str(error)
        if isinstance(error, APIError | RequestError | ValidationError):
            self.fault = to_api_error(error)

    def begin(self, request: GenerationRequest) -> None:
        """The HTTP request is read, and its answer will have this request's id."""
        span = CURRENT_SPAN.get()
        if span is not NO_SPAN:
            self.operation = operation(request.endpoint)
            span.set(request_attributes(request))
        self.answer_id = request.request_id
        if not self.is_client_id:
            self.request_id = self.answer_id
            REQUEST_ID.set(self.request_id)

    @contextmanager
    def logged(self) -> Iterator[None]:
        """Gives the request its id. Counts it once it is answered, logs it unless the settings say no, and
        ends its span. Sets `CURRENT_SPAN` meanwhile."""
        http, service = self.http, self.service
        given = http.headers.get("X-Request-Id", "")
        self.is_client_id = _ID.fullmatch(given) is not None
        self.request_id = given if self.is_client_id else f"req_{os.urandom(16).hex()}"
        if self.is_client_id and self.message:  # the header is the handshake's
            self.request_id = f"{given}-{self.message}"
        is_quiet = http.path in QUIET_PATHS
        is_traced = service.telemetry.has_spans and not is_quiet
        span = service.telemetry.begin_request(http.method, http.headers) if is_traced else NO_SPAN
        id_before, span_before = REQUEST_ID.set(self.request_id), CURRENT_SPAN.set(span)
        try:
            yield
        except (asyncio.CancelledError, ConnectionError):
            # A client may close the connection as soon as it has read the whole stream.
            self.status = CLIENT_DISCONNECTED if self.status == 500 else self.status
            self.http.pop(ARRIVAL, None)
            raise
        finally:
            resource = http.match_info.route.resource
            endpoint = NO_ENDPOINT if resource is None else resource.canonical
            if self.refused_key is not None:
                service.key_refusals.report(self.address, endpoint, self.refused_key)
            service.metrics.answered(endpoint, self.status)
            if self.receipt is not None:
                outcome = None if self.metrics is None else self.metrics.outcome
                self.receipt.end(self.request_id, self.status, outcome, self.answer)
            CURRENT_SPAN.reset(span_before)
            is_logged = service.settings.access_log and not is_quiet and logger.isEnabledFor(logging.INFO)
            if is_logged or span is not NO_SPAN:
                fields = self._fields(endpoint)
                if is_logged:
                    log_fields(logger, "answered", fields)
                self._end_span(span, fields)
            REQUEST_ID.reset(id_before)

    def _fields(self, endpoint: str) -> dict[str, Any]:
        """The line's fields. They hold no text of the request's body or its query. `endpoint`: its path,
        without names and ids that the client put into it."""
        said: dict[str, Any] = {
            "method": self.http.method,
            "path": self.http.rel_url.raw_path[:_MAX_PATH] if endpoint == NO_ENDPOINT else endpoint,
            "status": self.status,
            "seconds": round(perf_counter() - self.started, 6),
        }
        if self.owner is not NOBODY:
            said |= {"tenant": self.key.tenant, "key": self.key.name}
        if self.route is not None:
            policy = self.route.policy
            said |= {"model": self.route.model.name, "policy": policy.name}
            said["revision"] = self.service.applied.revision(policy)
        if self.is_client_id and self.answer_id is not None:
            said["answer_id"] = self.answer_id
        if self.fault is not None and 400 <= self.status < 500:
            said |= _named(self.fault)
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


def _named(fault: APIError) -> dict[str, str]:
    """The field and the code that an error names, for the log. Neither is a value of the caller's."""
    named: dict[str, str] = {}
    if found := _FIELD.match(fault.param or ""):
        name, place = found.groups()
        named["error_field"] = name if is_known(name) or name in _PROMPTS else "other"
        named["error_field"] += f"[{place}]" if place else ""
    if fault.code is not None and _CODE.fullmatch(fault.code):
        named["error_code"] = fault.code
    return named


ARRIVAL = web.RequestKey("arrival", Arrival)


def needs_keys(service: Service) -> bool:
    """Whether requests need a key."""
    return service.operator.keys.has_any or bool(service.deployments.current.keys)


def sender(http: web.Request, service: Service) -> Key | None:
    """The key in the request, if the server knows it now; while the server needs no keys, `ANONYMOUS`."""
    if not needs_keys(service):
        return ANONYMOUS
    found = _find_key(service, *_credentials(http))
    return None if found is None or found.has_expired else found


def _find_key(service: Service, scheme: str, given: bytes) -> Key | None:
    """The key, which may have expired. Keys are found by their digests: no time shows which key was close."""
    if scheme.lower() != "bearer":
        return None
    digest = digest_of(given)
    return service.operator.keys.find(digest) or service.deployments.current.keys.get(digest)


def _credentials(request: web.Request) -> tuple[str, bytes]:
    """The scheme and the key of `Authorization: Bearer KEY`. A client of the Messages API may have
    `x-api-key: KEY` instead, and one of another dialect has its key where that dialect says."""
    key = request.headers.get("x-api-key")
    if request.app.get(DIALECTS) and (dialect := dialect_of(request)) is not None:
        key = dialect.key(request.headers)
    elif key is not None and not speaks_messages(request):
        key = None
    if key is not None:
        return "Bearer", key.strip().encode(errors="surrogateescape")
    scheme, _, given = request.headers.get("Authorization", "").partition(" ")
    return scheme, given.strip().encode(errors="surrogateescape")


@lru_cache(_CALLERS_KEPT)
def _salted(salt: bytes, text: str) -> str:
    """Nobody guesses the text without the salt."""
    return hashlib.blake2b(text.encode(), key=salt, digest_size=16).hexdigest()


def _too_many(things: str, limit: str) -> APIError:
    return APIError(
        429,
        f"Too many {things} are in flight for this caller: the limit is {limit}.",
        "rate_limit_error",
        code="rate_limit_exceeded",
        retry_after=1,
    )


async def add_headers(http: web.Request, response: web.StreamResponse) -> None:
    """For the application's `on_response_prepare`. The arrival is not needed afterwards: the request drops
    it, so that neither waits for the garbage collector."""
    response.headers.update(SERVER)
    if (arrival := http.pop(ARRIVAL, None)) is not None:
        response.headers["X-Request-Id"] = arrival.request_id
        response.headers.update(arrival.headers)


OWN_CHECK = web.AppKey("own_check", bool)
"""Set in an application, inside of another one, that checks its requests itself."""


def door(service: Service, browser: BrowserRule, *, knows_keys: bool = True) -> Middleware:
    """`knows_keys`: False where only the operator asks, and its application checks that by itself."""

    @web.middleware
    async def pass_door(request: web.Request, handler: Handler) -> web.StreamResponse:
        arrival = request[ARRIVAL] = Arrival(request, service, service.deployments.current)
        if browser.lets_pages_read:
            arrival.headers = browser.headers(request)
        with arrival.logged():
            response: web.StreamResponse
            try:
                assert isinstance(request.protocol, Connection)
                with request.protocol.serving(request) as arrival.address:
                    browser.check(request)
                    if request.method == hdrs.METH_OPTIONS and is_preflight(request):
                        response = preflight_answer(request)
                    elif knows_keys and request.path not in OPEN_PATHS:
                        is_operators = OWN_CHECK in request.match_info.apps[-1]
                        response = await arrival.let_in(handler, is_operators=is_operators)
                    else:
                        response = await handler(request)
            except Exception as error:  # noqa: BLE001 - every error is answered
                if not isinstance(error, ConnectionError):
                    arrival.status = 500  # also where the answer has been sent
                arrival.note(error)
                response = error_answer(request, error, arrival.decisions)
            arrival.status = response.status
            if arrival.receipt is not None and isinstance(response, web.Response):
                arrival.answer = bytes(response.body) if isinstance(response.body, bytes) else None
            return response

    return pass_door
