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

from engine.protocol import EngineError
from weir.adapters.passage import FAILURES, Gate, Passage, is_open
from weir.guards import Guards

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]


class Guard:
    """An ASGI app before another one, `app`. `guards`: None: the hooks of the configuration
    (`weir.adapters.configured`).

    Raises `HookLoadError` and `ValueError` if these cannot run.
    """

    def __init__(self, app: App, guards: Guards | None = None) -> None:
        self._app = app
        self._gate = Gate(guards)

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
        elif is_open(scope["method"], scope["path"]):
            await self._app(scope, receive, send)
        else:
            await self._guarded(scope, receive, send)

    async def _guarded(self, scope: Message, receive: Receive, send: Send) -> None:
        sink = _Sink(send)
        try:
            self._gate.check(scope["method"], scope["path"])
            if (body := await self._body(receive)) is None:
                return
            passage = await self._gate.admit(scope["path"], scope["headers"], body, sink)
        except FAILURES as error:
            await self._gate.fail(error, sink)
            return
        try:
            await self._ask(passage, scope, receive)
            await passage.take(b"")
        except Exception:  # vLLM's handler of errors, outside this app, would quote it to the client
            await passage.fail(EngineError("The server had an error while it answered."))
            raise
        finally:
            await passage.aclose()

    async def _body(self, receive: Receive) -> bytes | None:
        """None: the client has left."""
        body = bytearray()
        while (message := await receive())["type"] == "http.request":
            body += message.get("body", b"")
            self._gate.check_size(body)
            if not message.get("more_body", False):
                return bytes(body)
        return None

    async def _ask(self, passage: Passage, scope: Message, receive: Receive) -> None:
        """Ask vLLM, which sees a client that leaves once nothing more is wanted."""
        asked = passage.request
        body = [{"type": "http.request", "body": asked.content, "more_body": False}]

        async def receive_ours() -> Message:
            if body:
                return body.pop()
            message = await receive()
            if message["type"] == "http.disconnect":
                passage.is_done = True
            return message

        async def send_ours(message: Message) -> None:
            if passage.is_done:
                raise OSError("the answer has ended")  # as of a closed connection
            if message["type"] == "http.response.start":
                passage.answered(message["status"], [*message.get("headers", [])])
            elif data := message.get("body", b""):
                await passage.take(data)

        path = asked.url.path
        own = {"method": "POST", "path": path, "raw_path": path.encode(), "query_string": b""}
        try:
            await self._app({**scope, **own, "headers": _lower(asked.headers)}, receive_ours, send_ours)
        except Exception:
            if not passage.is_done:
                raise


class _Sink:
    def __init__(self, send: Send) -> None:
        self._send = send

    async def begin(self, status: int, headers: httpx2.Headers) -> None:
        await self._send({"type": "http.response.start", "status": status, "headers": _lower(headers)})

    async def write(self, data: bytes, *, is_last: bool) -> None:
        await self._send({"type": "http.response.body", "body": data, "more_body": not is_last})


def _lower(headers: httpx2.Headers) -> list[tuple[bytes, bytes]]:
    return [(name.lower(), value) for name, value in headers.raw]
