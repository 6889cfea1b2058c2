"""Guards the HTTP of a model's SDK, for `weir.openai` and `weir.anthropic`.

    SDK ─► request ─► hooks ─► server
    SDK ◄─ answer  ◄─ hooks ◄─ deltas ◄─ server

Both ways are the proxy's own code. `proxy.wire` reads the SDK's request, and writes its answer. An engine of
`engine.upstream` writes the server's request, and reads its answer. So the SDK gets byte for byte what it
would get of the proxy. The server is always asked for a stream. What no hook can read is refused.
"""

import re
from collections.abc import AsyncGenerator, Callable, Generator, Iterator, Mapping
from contextlib import aclosing, closing, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import httpx2
import orjson
from pydantic import ValidationError

from engine.protocol import Delta, EngineError, GenerationRequest, RequestError
from engine.protocol.deltas import in_pieces
from engine.protocol.documents import with_documents_as_text
from engine.protocol.fields.asked import check_fields, steers_end
from engine.upstream.answer import translated
from engine.upstream.call import Call
from engine.upstream.engine import UpstreamEngine
from engine.upstream.errors import upstream_error
from engine.upstream.limits import LONG_TEXT, Patience, UpstreamOptions
from engine.upstream.sse import Event, EventReader, SSEDecoder
from hooks.decisions.failure import HookError
from proxy.wire.errors import APIError, to_api_error
from proxy.wire.messages.fields import CountFields
from proxy.wire.openai.answer import Answer as Writer
from proxy.wire.openai.answer import JSONObject, new_id
from proxy.wire.openai.endpoint_fields import ignored_header
from proxy.wire.openai.fields import GenerationFields
from weir.answer import Answer, RefusedError
from weir.guards import Guards
from weir.running import finished
from weir.streams import GuardedIterator, GuardedStream

_OF_BODIES = frozenset(
    {"accept-encoding", "content-encoding", "content-length", "content-type", "transfer-encoding"}
)
"""Headers of a request that depend on its body, or on the answer's."""
_ID, _NUMBER = re.compile(r"[\w.:-]{1,128}", re.ASCII), re.compile(r"\d{1,9}(?:\.\d{1,6})?", re.ASCII)
_DATE = r"[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d GMT"
_PASSED = {
    "request-id": _ID,
    "x-request-id": _ID,
    "retry-after": re.compile(
        rf"{_NUMBER.pattern}|\w{{3}}, \d\d \w{{3}} \d{{4}} \d\d:\d\d:\d\d GMT", re.ASCII
    ),
    "retry-after-ms": _NUMBER,
    "x-should-retry": re.compile("true|false"),
}
"""Headers of a server's answer that the SDKs read, and their form. Another text may be the model's."""
_MODELS = re.compile(r"(?:.*/v\d\w*)?/models(?:/[\w.:-]+)?")
"""The path of the list of models, and of one model."""
TOLD_ERRORS = (RequestError, EngineError, APIError, ValidationError)
"""The errors that the SDK gets as an HTTP answer. Those of hooks go through it as they are."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A path that generates."""

    fields: type[GenerationFields]
    """Reads its requests."""
    to_request: Callable[[Any, httpx2.Headers, str], GenerationRequest]
    """Takes the fields, the headers, and the caller."""
    writer: Callable[[Any, GenerationRequest], Writer]
    """Writes its answers."""


@dataclass(frozen=True, slots=True)
class API:
    """An API as its SDK speaks it."""

    engine: UpstreamEngine
    """Writes requests, and reads answers. It is not started: the SDK has the connections."""
    endpoints: Mapping[str, Endpoint]
    """By the end of their path. One that is the end of another comes after it."""
    error_body: Callable[[JSONObject, str, int], JSONObject]
    """The body of an error. Takes Weir's own (contract 4.2), an id, and the HTTP status."""
    hook_error: type[HookError]
    refused_error: type[RefusedError]
    """The errors of hooks, as errors that the SDK neither retries nor hides in its own."""

    def end_of(self, request: httpx2.Request) -> str | None:
        """The end of the path of a request that generates. None: the request has no text that hooks read.
        Raises `APIError` for any other request."""
        path = request.url.path
        if request.method == "GET" and _MODELS.fullmatch(path):
            return None
        end = next((end for end in self.endpoints if request.method == "POST" and path.endswith(end)), None)
        if end is None:
            reason = f"No hook reads {request.method} {path}: use a client without guards for it."
            raise APIError(404, reason, "not_found_error")
        return end

    def failed(self, error: APIError, headers: Mapping[str, str] = {}) -> httpx2.Response:
        body = self.error_body(error.body(), new_id("req", "_"), error.status)
        return httpx2.Response(error.status, headers=headers, json=body)

    def of_hooks(self, error: HookError | RefusedError) -> Exception:
        kind = self.hook_error if isinstance(error, HookError) else self.refused_error
        own = kind.__new__(kind, *error.args)
        vars(own).update(vars(error))
        return own


class Exchange:
    """One request of the SDK, and its answer. No I/O. Raises the errors of `TOLD_ERRORS` for a request that
    cannot be read."""

    def __init__(self, api: API, end: str, request: httpx2.Request, body: bytes, caller: str) -> None:
        """`end`: of the path. `caller`: see `Guards.prompt`."""
        self._api, self._end, self._request = api, end, request
        endpoint, engine = api.endpoints[end], api.engine
        self._fields = endpoint.fields.model_validate(orjson.loads(body))
        asked = endpoint.to_request(self._fields, request.headers, caller)
        if asked.echo and asked.is_chat:
            raise RequestError("echo is not supported here.", param="echo")
        self.asked = replace(asked, steers_end=steers_end(asked, engine.fields, engine.info))
        """The request for the hooks."""
        self.writer = endpoint.writer(self._fields, self.asked)

    def call(self, admitted: GenerationRequest) -> Call:
        """The call of the server, as the hooks let it go on. Raises `RequestError` for what the server cannot
        be asked."""
        engine = self._api.engine
        if isinstance(self._fields, CountFields):
            # Before documents become text, which would look like a hook's change.
            admitted = with_documents_as_text(self._fields.for_engine(self.asked, admitted))
        check_fields(admitted, engine.fields)
        return engine.call(admitted)

    def sent(self, call: Call) -> httpx2.Request:
        """The request for the server, at the address and with the key that the SDK has."""
        url, own = self._request.url, self._request.headers
        headers = {name: value for name, value in own.items() if name not in _OF_BODIES}
        headers |= {"content-type": "application/json", "accept-encoding": "identity", **call.headers}
        return httpx2.Request(
            "POST",
            url.copy_with(path=url.path.removesuffix(self._end) + call.path),
            headers=headers,
            content=orjson.dumps(call.fields, default=dict),
            extensions=self._request.extensions,
        )

    def refused(self, call: Call, response: httpx2.Response, body: bytes) -> httpx2.Response:
        """The server's error, in Weir's words: the server may quote text that no hook has seen (contract
        5.3)."""
        status = response.status_code
        error = upstream_error(status, body, call.fields, model=self.asked.model)
        own = to_api_error(getattr(error, "unquoted", None) or error)
        own.status = max(status, 400)
        return self._api.failed(own, _passed(response))

    def answered(self, response: httpx2.Response, **body: Any) -> httpx2.Response:
        """The answer for the SDK. Its headers name the fields that have no effect."""
        kind = "text/event-stream" if self.asked.stream else "application/json"
        ignored = ignored_header(self._fields.ignored(self._api.engine.fields))
        headers = {"content-type": kind, **self.writer.headers, **ignored, **_passed(response)}
        return httpx2.Response(200, headers=headers, **body)

    def last_events(self) -> bytes:
        finished(self.writer.settle())
        return self.writer.end() + self.writer.done

    def failure_events(self, error: Exception) -> bytes:
        return self.writer.failure(to_api_error(error).body()) + self.writer.done

    def whole(self) -> bytes:
        finished(self.writer.settle())
        return self.writer.whole()


def _passed(response: httpx2.Response) -> dict[str, str]:
    given = response.headers
    return {name: given[name] for name, form in _PASSED.items() if form.fullmatch(given.get(name, ""))}


@contextmanager
def _in_own_words() -> Generator[None, None, None]:
    """Raise a broken protocol's error without the server's bytes, which it quotes (contract 5.3)."""
    try:
        yield
    except httpx2.ProtocolError as error:
        raise type(error)("The server's answer breaks HTTP's protocol.") from None


class Reader:
    """Reads a server's answer into deltas. No I/O, and no clock: the SDK has timeouts."""

    def __init__(self, engine: UpstreamEngine, call: Call) -> None:
        self._engine, self._call = engine, call
        self._patience = Patience(UpstreamOptions(), lambda: 0.0)
        decoder = SSEDecoder(UpstreamOptions.max_upstream_event)
        self._events = EventReader(self._patience, decoder, engine.is_last)
        self._body = bytearray()
        self._has_begun = False
        self.has_ended = False

    def feed(self, data: bytes) -> Iterator[Delta]:
        """The deltas that the next bytes complete. `data` is empty at the end. Raises `EngineError`, and
        `RequestError` if the server says so before it answers."""
        with self._engine.engine_errors():
            call, translator = self._call, self._call.translator
            deltas, error = translated(
                call, self._read(data), self._engine.error_statuses, has_begun=self._has_begun
            )
            for delta in in_pieces(deltas, LONG_TEXT):
                self._has_begun = True
                yield delta
                self._patience.received(has_piece=True)
            if error is not None:
                raise error
            if translator.is_finished:
                self._patience.end()
            if self.has_ended:
                yield from translator.finish(complete=call.is_whole or self._events.is_complete)

    def _read(self, data: bytes) -> list[Event]:
        if not self._call.is_whole:
            events = self._events.feed(data)
            self.has_ended = self._events.has_ended
            return events
        self._patience.received(len(data))
        self._body += data
        self.has_ended = not data
        return [Event(bytes(self._body))] if self.has_ended else []


class GuardedTransport(httpx2.BaseTransport):
    """For a client without an event loop.

    `transport`: sends what hooks let through; None: httpx2's. `caller`: see `Guards.prompt`.
    """

    def __init__(
        self, api: API, guards: Guards, *, transport: httpx2.BaseTransport | None = None, caller: str = ""
    ) -> None:
        self._api, self._guards, self._caller = api, guards, caller
        self._transport = transport or httpx2.HTTPTransport()

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        """Raises the API's errors of hooks, and those of `transport`."""
        try:
            end = self._api.end_of(request)
            if end is None:
                return self._transport.handle_request(request)
            exchange = Exchange(self._api, end, request, request.read(), self._caller)
            answer = self._guards.admit(exchange.asked)
            try:
                return self._answered(exchange, answer)
            except BaseException:
                answer.close()
                raise
        except (HookError, RefusedError) as error:
            raise self._api.of_hooks(error) from error.__cause__
        except TOLD_ERRORS as error:
            return self._api.failed(to_api_error(error))

    def _answered(self, exchange: Exchange, answer: Answer) -> httpx2.Response:
        call = exchange.call(answer.request)
        with _in_own_words():
            response = self._transport.handle_request(exchange.sent(call))
        if response.status_code != 200:
            return exchange.refused(call, response, response.read())
        deltas = answer.deltas(_deltas(Reader(self._api.engine, call), response))
        stream = _Stream(exchange, deltas, response)
        if exchange.asked.stream:
            return exchange.answered(response, stream=stream)
        with closing(stream):
            for delta in deltas:
                exchange.writer.fold(delta)
            return exchange.answered(response, content=exchange.whole())

    def close(self) -> None:
        self._transport.close()


def _deltas(reader: Reader, response: httpx2.Response) -> Generator[Delta, None, None]:
    with closing(response), _in_own_words():
        for data in response.iter_bytes():
            yield from reader.feed(data)
            if reader.has_ended:
                return
        yield from reader.feed(b"")


class _Stream(httpx2.SyncByteStream):
    """The events of an answer. Closing it, or its hooks' end, closes the server's answer."""

    def __init__(self, exchange: Exchange, deltas: GuardedIterator[Delta], response: httpx2.Response) -> None:
        self._exchange, self._deltas, self._response = exchange, deltas, response

    def __iter__(self) -> Iterator[bytes]:
        try:
            for delta in self._deltas:
                if events := self._exchange.writer.chunk(delta):
                    yield events
            last = self._exchange.last_events()
        except TOLD_ERRORS as error:
            last = self._exchange.failure_events(error)
        yield last

    def close(self) -> None:
        with closing(self._response):  # a source that was never read does not close it
            self._deltas.close()


class AsyncGuardedTransport(httpx2.AsyncBaseTransport):
    """As `GuardedTransport`, for a client in an event loop."""

    def __init__(
        self,
        api: API,
        guards: Guards,
        *,
        transport: httpx2.AsyncBaseTransport | None = None,
        caller: str = "",
    ) -> None:
        self._api, self._guards, self._caller = api, guards, caller
        self._transport = transport or httpx2.AsyncHTTPTransport()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        try:
            end = self._api.end_of(request)
            if end is None:
                return await self._transport.handle_async_request(request)
            exchange = Exchange(self._api, end, request, await request.aread(), self._caller)
            answer = await self._guards.aadmit(exchange.asked)
            try:
                return await self._answered(exchange, answer)
            except BaseException:
                await answer.aclose()
                raise
        except (HookError, RefusedError) as error:
            raise self._api.of_hooks(error) from error.__cause__
        except TOLD_ERRORS as error:
            return self._api.failed(to_api_error(error))

    async def _answered(self, exchange: Exchange, answer: Answer) -> httpx2.Response:
        call = exchange.call(answer.request)
        with _in_own_words():
            response = await self._transport.handle_async_request(exchange.sent(call))
        if response.status_code != 200:
            return exchange.refused(call, response, await response.aread())
        deltas = answer.deltas(_later_deltas(Reader(self._api.engine, call), response))
        stream = _AsyncStream(exchange, deltas, response)
        if exchange.asked.stream:
            return exchange.answered(response, stream=stream)
        async with aclosing(stream):
            async for delta in deltas:
                exchange.writer.fold(delta)
            return exchange.answered(response, content=exchange.whole())

    async def aclose(self) -> None:
        await self._transport.aclose()


async def _later_deltas(reader: Reader, response: httpx2.Response) -> AsyncGenerator[Delta, None]:
    async with aclosing(response):
        with _in_own_words():
            async for data in response.aiter_bytes():
                for delta in reader.feed(data):
                    yield delta
                if reader.has_ended:
                    return
            for delta in reader.feed(b""):
                yield delta


class _AsyncStream(httpx2.AsyncByteStream):
    """As `_Stream`."""

    def __init__(self, exchange: Exchange, deltas: GuardedStream[Delta], response: httpx2.Response) -> None:
        self._exchange, self._deltas, self._response = exchange, deltas, response

    async def __aiter__(self) -> AsyncGenerator[bytes, None]:
        try:
            async for delta in self._deltas:
                if events := self._exchange.writer.chunk(delta):
                    yield events
            last = self._exchange.last_events()
        except TOLD_ERRORS as error:
            last = self._exchange.failure_events(error)
        yield last

    async def aclose(self) -> None:
        async with aclosing(self._response):  # a source that was never read does not close it
            await self._deltas.aclose()
