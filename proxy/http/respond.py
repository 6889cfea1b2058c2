"""Sends a generation's answer: as events, or whole."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic, perf_counter
from types import TracebackType
from typing import Any, Self

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter

from engine.protocol import Delta
from engine.protocol.call_arguments import IGNORED_ARGUMENTS, has_other_arguments
from engine.streams.flow import Stage, StagedFlow
from proxy.http.admission import Exchange
from proxy.http.websocket import Socket, frame, messages
from proxy.service.metrics import RequestMetrics
from proxy.wire.errors import APIError, to_api_error
from proxy.wire.openai.answer import COMMENT, Answer
from proxy.wire.openai.endpoint_fields import ignored_header, names_of

logger = logging.getLogger("weir.proxy")

_HEADERS = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-cache",
    "X-Accel-Buffering": "no",  # otherwise nginx collects the stream before it passes it on
}


class EventStream:
    """Writes server-sent events to a client, and `filler` after `keep_alive` seconds without an event.

    The response starts with its first event, so that an earlier failure can have a status of its own.
    aiohttp-sse is not used: it starts the response before the first event, and it formats each event again.
    """

    def __init__(
        self, request: web.Request, *, keep_alive: float, headers: dict[str, str], filler: bytes = COMMENT
    ) -> None:
        self._request = request
        self._protocol = request.protocol
        self._keep_alive = keep_alive
        self._filler = filler
        self._starting = asyncio.Lock()
        self._loop = asyncio.get_running_loop()
        self._last_write = monotonic()
        self._filling: asyncio.Task[None] | None = None
        self._writer: AbstractStreamWriter | None = None
        """Writes the response's body. The response's own `write` would only pass each event on to it."""
        self._chunked: asyncio.Transport | None = None
        """The client's connection, once the response has begun on it in HTTP's chunked coding."""
        self.response = web.StreamResponse(headers={**_HEADERS, **headers})

    async def __aenter__(self) -> Self:
        self._timer = self._loop.call_later(self._keep_alive, self._break_silence)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        if self._filling is not None:
            self._filling.cancel()
            await asyncio.gather(self._filling, return_exceptions=True)

    @property
    def started(self) -> bool:
        return self.response.prepared

    async def write(self, frames: bytes) -> None:
        """Send whole events. Waits while the client has too much unread data. Raises `ConnectionError` if the
        client is gone."""
        if self._writer is None:
            async with self._starting:  # the response starts once
                self._writer = self._writer or await self.response.prepare(self._request)
        writer = self._writer
        assert writer is not None
        self._last_write = monotonic()
        await writer.write(frames)  # the first time with the headers
        if self.response.headers.get("Transfer-Encoding") == "chunked":
            self._chunked = self._protocol.transport
        await writer.drain()

    def _break_silence(self) -> None:
        left = self._last_write + self._keep_alive - monotonic()
        if left <= 0:
            left = self._keep_alive
            if self._filling is None or self._filling.done():
                self._filling = self._loop.create_task(self._fill())
        self._timer = self._loop.call_later(left, self._break_silence)

    async def _fill(self) -> None:
        with suppress(ConnectionError):  # the writer of the next event gets the error, too
            await self.write(self._filler)


@dataclass(eq=False)
class AnswerStage(Stage):
    """The last stage: gives each delta to the answer, and counts it for the metrics."""

    take: Callable[[Delta], bytes | None]
    """The answer's `chunk`, or its `fold`."""
    metrics: RequestMetrics
    _released: dict[int, float] = field(default_factory=dict)
    """The time of the last text of each output."""

    def feed(self, delta: Delta) -> None:
        frames = self.take(delta)
        index, now = delta.index, perf_counter()
        last = self._released.get(index)
        if last is None:
            self.metrics.begin(now - self.metrics.waited.pop(index, 0.0))
            self._released[index] = now
        elif delta.text:
            seconds = now - last
            if self.metrics.waited:  # other text may have left meanwhile
                seconds = max(0.0, seconds - self.metrics.waited.pop(index, 0.0))
            self.metrics.inter_token_latency.observe(seconds)
            self._released[index] = now
        if delta.usage is not None:
            self.metrics.usage = delta.usage
        if delta.finish_reason is not None:
            self.metrics.finish(delta.finish_reason)
        if frames:
            self.send(frames)

    def send(self, frames: bytes) -> None:
        """Send events. A whole answer has none."""
        raise NotImplementedError


class StreamedAnswer(AnswerStage, EventStream):
    """Sends the events of an answer's deltas."""

    def __init__(
        self,
        request: web.Request,
        answer: Answer,
        exchange: Exchange[Any],
        *,
        keep_alive: float,
        headers: dict[str, str],
    ) -> None:
        EventStream.__init__(self, request, keep_alive=keep_alive, headers=headers, filler=answer.keep_alive)
        decisions = exchange.arrival.decisions
        take = answer.chunk if decisions is None else decisions.before(answer.chunk)
        AnswerStage.__init__(self, take, exchange.metrics)
        self._unsent = bytearray()
        """Events that wait for the start of the response, or for the client."""
        if decisions is not None:
            decisions.send = self.send

    def send(self, frames: bytes) -> None:
        """Send events at once, unless the response begins with them, or the client has too much unread data.

        Most events go this way, past aiohttp's writer, whose coroutine takes four times as long.
        """
        transport, writer = self._chunked, self._writer
        if (
            self._unsent
            or transport is None
            or writer is None
            or transport.is_closing()
            or self._protocol.writing_paused
        ):
            if not self._unsent:
                self.flow.wait_for(self._send_rest())
            self._unsent += frames
            return
        chunk = b"%x\r\n%b\r\n" % (len(frames), frames)
        writer.output_size += len(chunk)
        self._last_write = monotonic()
        transport.write(chunk)

    async def _send_rest(self) -> None:
        while self._unsent:
            frames, self._unsent = bytes(self._unsent), bytearray()
            await self.write(frames)

    async def end(self, frames: bytes, failure: APIError | None) -> None:
        """Send the last events."""
        await self.write(frames)
        await self.response.write_eof()


class SocketAnswer(AnswerStage):
    """Sends the events of an answer's deltas as messages of a socket. The first one has the headers that an
    answer by HTTP would have."""

    def __init__(
        self, answer: Answer, exchange: Exchange[Any], socket: Socket, headers: dict[str, str]
    ) -> None:
        decisions = exchange.arrival.decisions
        super().__init__(
            answer.chunk if decisions is None else decisions.before(answer.chunk), exchange.metrics
        )
        self._socket = socket
        self._first: dict[str, Any] = {"headers": {**exchange.arrival.answer_headers(), **headers}}
        self._each = socket.lane()
        self._unsent: list[bytes] = []
        """Messages that wait for the client."""
        self.started = False
        self.response = web.StreamResponse()
        if decisions is not None:
            decisions.send = self.send

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        """The socket stays open."""

    def send(self, frames: bytes) -> None:
        """Send events at once, unless the client has too much unread data."""
        new = self._messages(frames)
        if self._unsent or not self._socket.send_now(b"".join(map(frame, new))):
            if not self._unsent:
                self.flow.wait_for(self._send_rest())
            self._unsent += new

    async def end(self, frames: bytes, failure: APIError | None) -> None:
        """Send the last events."""
        if failure is not None:
            self._each["status"] = failure.status
        for message in self._messages(frames):
            await self._socket.send(message)

    def _messages(self, events: bytes) -> list[bytes]:
        first = {} if self.started else self._first
        made = list(messages(events, first, self._each))
        self.started = self.started or bool(made)
        return made

    async def _send_rest(self) -> None:
        while self._unsent:
            unsent, self._unsent = self._unsent, []
            for message in unsent:
                await self._socket.send(message)


async def respond(exchange: Exchange[Any], answer: Answer) -> web.StreamResponse:
    """Generate, and send the answer. Streaming changes only the time of sending, not the deltas (contract
    2.5)."""
    http = exchange.arrival.http
    ignored = exchange.arrival.ignored = answer.fields.ignored(exchange.support)
    if answer.request.sampling.logprobs and _withholds_alternatives(exchange, answer):
        ignored.append("top_logprobs")
    if exchange.tokenizer is not None and has_other_arguments(answer.request.messages):
        ignored.append(IGNORED_ARGUMENTS)  # the chat template of a model in this process gets an object
    headers = answer.headers | ignored_header(ignored) if ignored else answer.headers
    flow = await exchange.flow()
    if answer.request.stream:
        keep_alive, socket = exchange.arrival.service.settings.keep_alive_interval, exchange.arrival.socket
        stream = (
            StreamedAnswer(http, answer, exchange, keep_alive=keep_alive, headers=headers)
            if socket is None
            else SocketAnswer(answer, exchange, socket, headers)
        )
        async with stream:
            response = await _send_events(stream, flow, answer, exchange)
            exchange.arrival.status = response.status
            return response
    await flow.run(AnswerStage(answer.fold, exchange.metrics))
    exchange.metrics.end("finished")
    await answer.settle()
    body = answer.whole()
    if exchange.arrival.decisions is not None:
        body = exchange.arrival.decisions.added_to(body)
    return web.Response(body=body, content_type="application/json", headers=headers)


def _withholds_alternatives(exchange: Exchange[Any], answer: Answer) -> bool:
    """Whether a hook withholds what the field `top_logprobs` asks for. Completions do not have the field."""
    return "top_logprobs" in names_of(type(answer.fields)) and exchange.withholds_alternatives()


async def _send_events(
    stream: StreamedAnswer | SocketAnswer, flow: StagedFlow, answer: Answer, exchange: Exchange[Any]
) -> web.StreamResponse:
    """Send each delta as events. A failure before the first has a status of its own; after it, one `error`
    event says so (contract 4.2). Either way `answer.done` is last.

    OpenAI's own responses end without `[DONE]`. Weir's have one: the SDKs stop reading there, as in any
    stream, and a client that waits for `[DONE]` would wait for ever.
    """
    metrics, decisions = exchange.metrics, exchange.arrival.decisions
    failure: APIError | None = None
    try:
        try:
            await flow.run(stream)
            metrics.end("finished")
            await answer.settle()
        except asyncio.CancelledError as error:
            if exchange.running is not None:
                exchange.running.raise_if_cancelled(error)  # the answer can still say so
            raise
        last = answer.end()
    except ConnectionError:  # the client is gone
        metrics.end("closed")
        raise
    except Exception as error:
        metrics.fail(error)
        if not stream.started:
            raise
        failure = to_api_error(error)
        last = _failure(answer, failure)
        if decisions is not None:
            last = decisions.take_events() + last
    await stream.end(last + answer.done, failure)
    return stream.response


def _failure(answer: Answer, error: APIError) -> bytes:
    """The events of a failed answer. If the answer so far cannot be written, the error stands alone."""
    try:
        return answer.failure(error.body())
    except Exception as second:  # noqa: BLE001 - whatever happened, the client gets an end
        logger.error("an answer cannot be written (%s)", type(second).__name__)
        return Answer.failure(answer, error.body())
