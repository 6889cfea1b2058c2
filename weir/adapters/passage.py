"""One request to a model's server and its answer, for adapters that see the bytes of its HTTP. No I/O.

The code is that of `weir.transport`: a client gets what Weir's proxy would give it. Paths that no hook reads
are closed (contract 1.3, 5.3).
"""

from typing import Protocol

import httpx2

from engine.protocol import Delta
from hooks.decisions.failure import HookError
from proxy.deployment.keys import digest_of
from proxy.wire.errors import APIError, to_api_error
from weir.adapters.configured import configured_policy
from weir.answer import Answer
from weir.guards import Guards
from weir.openai import api
from weir.transport import API, TOLD_ERRORS, Exchange, Reader

GUARDED = {"/v1/chat/completions", "/v1/completions", "/v1/responses"}
"""Paths of POST."""
OPEN = {"/health", "/ping", "/version", "/load", "/metrics", "/v1/models"}
"""Paths of GET. They have no text of prompts and answers."""
MAX_BODY = 64 * 2**20
"""Bytes of a request."""
FAILURES = (HookError, *TOLD_ERRORS)
"""The errors that a client gets as an HTTP answer."""


class Sink(Protocol):
    """The client's side."""

    async def begin(self, status: int, headers: httpx2.Headers) -> None: ...
    async def write(self, data: bytes, *, is_last: bool) -> None: ...


def is_open(method: str, path: str) -> bool:
    """Whether a request passes, and its answer, though no hook reads them."""
    return method in ("GET", "HEAD") and path in OPEN


class Gate:
    """The way in. `guards`: None: the hooks of the configuration (`weir.adapters.configured`). Raises
    `HookLoadError` and `ValueError` if these cannot run."""

    def __init__(self, guards: Guards | None = None) -> None:
        self.guards = guards or _configured_guards()
        self._api: API = api()

    def check(self, method: str, path: str) -> None:
        """Raise `APIError` for a request that hooks cannot read."""
        if method != "POST" or path not in GUARDED:
            raise APIError(404, f"No hook reads {method} {path}, so it is closed here.", "not_found_error")

    def check_size(self, body: bytes | bytearray) -> None:
        """Raise `APIError` for a body that is too long."""
        if len(body) > MAX_BODY:
            raise APIError(413, f"The request has more than {MAX_BODY} bytes.", "invalid_request_error")

    async def admit(
        self, path: str, headers: list[tuple[bytes, bytes]], body: bytes, sink: Sink
    ) -> "Passage":
        """The passage of a request that was checked. Raises the errors of `FAILURES`."""
        request = httpx2.Request("POST", f"http://server{path}", headers=headers, content=body)
        caller = digest_of(request.headers.get("authorization", "").encode())
        exchange = Exchange(self._api, path.removeprefix("/v1"), request, body, caller)
        answer = await self.guards.aadmit(exchange.asked)
        try:
            return Passage(self._api, exchange, answer, sink)
        except BaseException:
            await answer.aclose()
            raise

    async def fail(self, error: Exception, sink: Sink) -> None:
        """Answer with one of `FAILURES`."""
        await _respond(self._api.failed(to_api_error(error)), sink)


def _configured_guards() -> Guards:
    policy = configured_policy()
    return Guards(policy.hooks, options=policy.options)


class Passage:
    """An admitted request, and its answer. Raises `RequestError` for what a server cannot be asked."""

    def __init__(self, api: API, exchange: Exchange, answer: Answer, sink: Sink) -> None:
        self._api, self._exchange, self._answer, self._sink = api, exchange, answer, sink
        self._call = exchange.call(answer.request)
        self._reader = Reader(api.engine, self._call)
        self.request = exchange.sent(self._call)
        """The request for the server."""
        self.is_done = False
        """Whether the client has its whole answer, or has left."""
        self._has_begun = False
        self._response = httpx2.Response(500)
        self._refusal = bytearray()

    def answered(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        """The server answers with this status."""
        self._response = httpx2.Response(status, headers=headers)

    async def take(self, data: bytes) -> None:
        """The next bytes of the server's answer; none: it has ended."""
        if self.is_done:
            return
        try:
            await self._take(data)
        except FAILURES as error:
            await self.fail(error)

    async def _take(self, data: bytes) -> None:
        if self._response.status_code != 200:
            self._refusal += data
            if not data:
                refused = self._exchange.refused(self._call, self._response, bytes(self._refusal))
                self.is_done = True
                await _respond(refused, self._sink)
            return
        for delta in self._reader.feed(data):
            await self._write(await self._answer.afeed(delta))
            if self._answer.is_over:
                break
        if self._reader.has_ended and not self._answer.is_over:
            await self._write(await self._answer.aend())
        if self._reader.has_ended or self._answer.is_over:
            streams = self._exchange.asked.stream
            last = self._exchange.last_events() if streams else self._exchange.whole()
            await self._begin()
            self.is_done = True
            await self._sink.write(last, is_last=True)

    async def _write(self, released: list[Delta]) -> None:
        writer = self._exchange.writer
        for delta in released:
            if not self._exchange.asked.stream:
                writer.fold(delta)
            elif events := writer.chunk(delta):
                await self._begin()
                await self._sink.write(events, is_last=False)

    async def _begin(self) -> None:
        if not self._has_begun:
            self._has_begun = True
            await self._sink.begin(200, self._exchange.answered(self._response).headers)

    async def fail(self, error: Exception) -> None:
        """End the answer with an error, if it has not ended."""
        if self.is_done:
            return
        self.is_done = True
        if self._has_begun:
            await self._sink.write(self._exchange.failure_events(error), is_last=True)
        else:
            await _respond(self._api.failed(to_api_error(error)), self._sink)

    async def aclose(self) -> None:
        """The client has its answer, or has left. Closing twice is fine."""
        self.is_done = True
        await self._answer.aclose()


async def _respond(response: httpx2.Response, sink: Sink) -> None:
    await sink.begin(response.status_code, response.headers)
    await sink.write(response.content, is_last=True)
