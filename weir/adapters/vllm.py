"""Weir's guards inside `vllm serve`, as a middleware.

    WEIR_CONFIG=weir.yaml vllm serve MODEL --middleware weir.adapters.vllm.Guard

A middleware sees every byte of vLLM's HTTP. Chats, completions and responses go through the hooks, on every
channel, as through Weir's proxy: its own code reads the request, asks vLLM for a stream of chats or
completions, reads the answer and writes that of the client. Of all other paths, only those that have no text
of prompts and answers pass. The rest are refused, WebSockets too (contract 1.3, 5.3).

Read in `vllm/entrypoints/serve/middleware` and the routers of vLLM 0.32.
"""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import httpx2

from hooks.decisions.failure import HookError
from proxy.deployment.keys import digest_of
from proxy.wire.errors import APIError, to_api_error
from weir.adapters.configured import configured_policy
from weir.answer import Answer
from weir.guards import Guards
from weir.openai import _api
from weir.transport import _FAILURES, Exchange, Reader

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]

GUARDED = {"/v1/chat/completions", "/v1/completions", "/v1/responses"}
"""Paths of POST."""
OPEN = {"/health", "/ping", "/version", "/load", "/metrics", "/v1/models"}
"""Paths of GET. They have no text of prompts and answers."""
MAX_BODY = 64 * 2**20
"""Bytes of a request."""


class Guard:
    """An ASGI app before another one. Its hooks are those of the configuration (`weir.adapters.configured`).

    Raises `HookLoadError` and `ValueError` if they cannot run.
    """

    def __init__(self, app: App) -> None:
        policy = configured_policy()
        self._app = app
        self._guards = Guards(policy.hooks, options=policy.options)
        self._api = _api()

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
        elif scope["method"] in ("GET", "HEAD") and scope["path"] in OPEN:
            await self._app(scope, receive, send)
        else:
            await self._guarded(scope, receive, send)

    async def _guarded(self, scope: Message, receive: Receive, send: Send) -> None:
        try:
            exchange = await self._exchange(scope, receive)
            if exchange is None:
                return
            answer = await self._guards.aadmit(exchange.asked)
        except (HookError, *_FAILURES) as error:
            await _respond(self._api.failed(to_api_error(error)), send)
            return
        try:
            await _Passage(self._api, exchange, answer, send).run(self._app, scope, receive)
        finally:
            await answer.aclose()

    async def _exchange(self, scope: Message, receive: Receive) -> Exchange | None:
        """None: the client has left."""
        method, path = scope["method"], scope["path"]
        if method != "POST" or path not in GUARDED:
            raise APIError(404, f"No hook reads {method} {path}, so it is closed here.", "not_found_error")
        body = bytearray()
        while (message := await receive())["type"] == "http.request":
            body += message.get("body", b"")
            if len(body) > MAX_BODY:
                raise APIError(413, f"The request has more than {MAX_BODY} bytes.", "invalid_request_error")
            if not message.get("more_body", False):
                break
        else:
            return None
        request = httpx2.Request("POST", f"http://vllm{path}", headers=scope["headers"], content=bytes(body))
        caller = digest_of(request.headers.get("authorization", "").encode())
        return Exchange(self._api, path.removeprefix("/v1"), request, bytes(body), caller)


class _Passage:
    """One answer of vLLM's, on its way to the client."""

    def __init__(self, api: Any, exchange: Exchange, answer: Answer, send: Send) -> None:
        self._api, self._exchange, self._answer, self._send = api, exchange, answer, send
        self._has_begun = False
        self._is_done = False
        """Nothing of vLLM's is wanted any more."""
        self._status = 500
        self._headers: list[tuple[bytes, bytes]] = []
        self._refusal = bytearray()

    async def run(self, app: App, scope: Message, receive: Receive) -> None:
        try:
            self._call = self._exchange.call(self._answer.request)
            self._reader = Reader(self._api.engine, self._call)
            asked = self._exchange.sent(self._call)
            await self._ask(app, scope, asked, receive)
            if not self._is_done:
                await self._take(b"")
        except (HookError, *_FAILURES) as error:
            await self._fail(error)

    async def _ask(self, app: App, scope: Message, asked: httpx2.Request, receive: Receive) -> None:
        body = [{"type": "http.request", "body": asked.content, "more_body": False}]

        async def receive_ours() -> Message:
            if body:
                return body.pop()
            message = await receive()
            if message["type"] == "http.disconnect":
                self._is_done = True  # nobody gets an answer
            return message

        path = asked.url.path
        own = {"method": "POST", "path": path, "raw_path": path.encode(), "query_string": b""}
        try:
            await app({**scope, **own, "headers": _lower(asked.headers)}, receive_ours, self._get)
        except Exception:
            if not self._is_done:
                raise

    async def _get(self, message: Message) -> None:
        """vLLM's `send`. Raises `OSError` once nothing is wanted, as a closed connection does."""
        if self._is_done:
            raise OSError("the answer has ended")
        if message["type"] == "http.response.start":
            self._status, self._headers = message["status"], list(message.get("headers", []))
        elif message["type"] == "http.response.body":
            try:
                await self._take(message.get("body", b""))
            except (HookError, *_FAILURES) as error:
                await self._fail(error)

    async def _take(self, data: bytes) -> None:
        """The next bytes of vLLM's answer; none: it has ended."""
        if self._status != 200:
            self._refusal += data
            if not data:
                response = httpx2.Response(self._status, headers=self._headers)
                await self._finish(self._exchange.refused(self._call, response, bytes(self._refusal)))
            return
        for delta in self._reader.feed(data):
            await self._write(await self._answer.afeed(delta))
            if self._answer.is_over:
                break
        if self._reader.has_ended and not self._answer.is_over:
            await self._write(await self._answer.aend())
        if self._reader.has_ended or self._answer.is_over:
            await self._end()

    async def _write(self, released: list[Any]) -> None:
        writer = self._exchange.writer
        for delta in released:
            if not self._exchange.asked.stream:
                writer.fold(delta)
            elif events := writer.chunk(delta):
                await self._begin()
                await self._send({"type": "http.response.body", "body": events, "more_body": True})

    async def _begin(self) -> None:
        if not self._has_begun:
            self._has_begun = True
            answered = self._exchange.answered(httpx2.Response(200, headers=self._headers))
            await self._send(
                {"type": "http.response.start", "status": 200, "headers": _lower(answered.headers)}
            )

    async def _end(self) -> None:
        self._is_done = True
        last = self._exchange.last_events() if self._exchange.asked.stream else self._exchange.whole()
        await self._begin()
        await self._send({"type": "http.response.body", "body": last, "more_body": False})

    async def _fail(self, error: Exception) -> None:
        self._is_done = True
        if self._has_begun:
            last = self._exchange.failure_events(error)
            await self._send({"type": "http.response.body", "body": last, "more_body": False})
        else:
            await self._finish(self._api.failed(to_api_error(error)))

    async def _finish(self, response: httpx2.Response) -> None:
        self._is_done = True
        self._has_begun = True
        await _respond(response, self._send)


async def _respond(response: httpx2.Response, send: Send) -> None:
    headers = _lower(response.headers)
    await send({"type": "http.response.start", "status": response.status_code, "headers": headers})
    await send({"type": "http.response.body", "body": response.content, "more_body": False})


def _lower(headers: httpx2.Headers) -> list[tuple[bytes, bytes]]:
    return [(name.lower(), value) for name, value in headers.raw]
