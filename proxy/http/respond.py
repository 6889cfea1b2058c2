"""Sends a generation's answer: as events, or whole."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import aclosing, suppress
from time import monotonic
from types import TracebackType
from typing import Any, Self

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter

from engine.protocol import Delta
from engine.protocol.call_arguments import IGNORED_ARGUMENTS, has_other_arguments
from proxy.http.admission import Exchange, Released
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


class AnswerStream(EventStream):
    """Sends the events of an answer's deltas."""

    _unsent: bytes | Exception | None = None
    """The events of the last delta, if they could not be sent at once; or the error of writing them."""

    def __init__(
        self,
        request: web.Request,
        answer: Answer,
        exchange: Exchange[Any],
        *,
        keep_alive: float,
        headers: dict[str, str],
    ) -> None:
        super().__init__(request, keep_alive=keep_alive, headers=headers, filler=answer.keep_alive)
        self._metrics = exchange.metrics
        self._frames_of: Callable[[Delta], bytes] = answer.chunk
        decisions = exchange.arrival.decisions
        if decisions is not None:
            decisions.write = self.write
            self._frames_of = decisions.before(answer.chunk)

    def take(self, delta: Delta) -> bool:
        """Send the delta's events without waiting (`engine.protocol.Take`). False: `send_rest` has to send
        them. Until it has, the same delta may come once more, and is not written again.

        Most events go this way, past aiohttp's writer, whose coroutine takes four times as long.
        """
        if self._unsent is not None:
            return False
        try:
            frames = self._frames_of(delta)
        except Exception as error:  # noqa: BLE001 - `send_rest` raises it
            self._unsent = error
            return False
        self._metrics.release(delta)
        if not frames:
            return True
        transport, writer = self._chunked, self._writer
        if transport is None or writer is None or transport.is_closing() or self._protocol.writing_paused:
            self._unsent = frames
            return False
        chunk = b"%x\r\n%b\r\n" % (len(frames), frames)
        writer.output_size += len(chunk)
        self._last_write = monotonic()
        transport.write(chunk)
        return True

    async def send_rest(self) -> None:
        """Send the events that `take` could not send. Raises the error if they could not be written."""
        unsent, self._unsent = self._unsent, None
        if isinstance(unsent, Exception):
            raise unsent
        if unsent is not None:
            await self.write(unsent)


class WholeAnswer:
    """Folds the deltas of an answer into one body."""

    def __init__(self, answer: Answer, metrics: RequestMetrics) -> None:
        self._fold = answer.fold
        self._metrics = metrics
        self._failure: Exception | None = None

    def take(self, delta: Delta) -> bool:
        """Add the delta (`engine.protocol.Take`). False: it cannot be added, and `send_rest` raises the
        error. Until then the same delta may come once more, and is not added again."""
        if self._failure is not None:
            return False
        try:
            self._fold(delta)
        except Exception as error:  # noqa: BLE001 - `send_rest` raises it
            self._failure = error
            return False
        self._metrics.release(delta)
        return True

    async def send_rest(self) -> None:
        """Raises the error of a delta that could not be added."""
        if self._failure is not None:
            raise self._failure


async def _deliver(deltas: Released, to: AnswerStream | WholeAnswer) -> None:
    """Give all deltas to `to`. Behind the first, the engine may give them by a call."""
    is_handed = False
    async for delta in deltas:
        if not to.take(delta):
            await to.send_rest()
        if not is_handed:
            deltas.hand_to(to.take)
            is_handed = True


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
    async with aclosing(await exchange.generation()) as deltas:
        if answer.request.stream:
            keep_alive = exchange.arrival.service.settings.keep_alive_interval
            stream = AnswerStream(http, answer, exchange, keep_alive=keep_alive, headers=headers)
            async with stream:
                response = await _send_events(stream, deltas, answer, exchange)
                exchange.arrival.status = response.status
                return response
        await _deliver(deltas, WholeAnswer(answer, exchange.metrics))
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
    stream: AnswerStream, deltas: Released, answer: Answer, exchange: Exchange[Any]
) -> web.StreamResponse:
    """Send each delta as events. A failure before the first has a status of its own; after it, one `error`
    event says so (contract 4.2). Either way `answer.done` is last.

    OpenAI's own responses end without `[DONE]`. Weir's have one: the SDKs stop reading there, as in any
    stream, and a client that waits for `[DONE]` would wait for ever.
    """
    metrics, decisions = exchange.metrics, exchange.arrival.decisions
    try:
        try:
            await _deliver(deltas, stream)
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
        last = _failure(answer, to_api_error(error))
        if decisions is not None:
            last = decisions.take_events() + last
    await stream.write(last + answer.done)
    await stream.response.write_eof()
    return stream.response


def _failure(answer: Answer, error: APIError) -> bytes:
    """The events of a failed answer. If the answer so far cannot be written, the error stands alone."""
    try:
        return answer.failure(error.body())
    except Exception as second:  # noqa: BLE001 - whatever happened, the client gets an end
        logger.error("an answer cannot be written (%s)", type(second).__name__)
        return Answer.failure(answer, error.body())
