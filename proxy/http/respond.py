"""Sends a generation's answer: as events, or whole."""

import asyncio
import logging
from collections.abc import AsyncIterable, Callable
from contextlib import aclosing
from typing import Any

from aiohttp import web

from engine.protocol import Delta
from proxy.http.admission import Exchange
from proxy.http.event_stream import EventStream
from proxy.wire.errors import APIError, to_api_error
from proxy.wire.openai.answer import Answer

logger = logging.getLogger("weir.proxy")


async def respond(exchange: Exchange[Any], answer: Answer) -> web.StreamResponse:
    """Generate, and send the answer. Streaming changes only the time of sending, not the deltas (contract
    2.5)."""
    http = exchange.arrival.http
    answer.ignored = exchange.arrival.ignored = answer.fields.ignored(exchange.support)
    answer.decisions = exchange.arrival.decisions
    async with aclosing(await exchange.generation()) as deltas:
        if answer.request.stream:
            keep_alive = exchange.arrival.service.settings.keep_alive_interval
            stream = EventStream(
                http, keep_alive=keep_alive, headers=answer.headers, filler=answer.keep_alive
            )
            async with stream:
                response = await _send_events(stream, deltas, answer, exchange)
                exchange.arrival.status = response.status
                return response
        async for delta in deltas:
            exchange.metrics.release(delta)
            answer.fold(delta)
        exchange.metrics.end("finished")
        await answer.settle()
        body = answer.whole()
        if answer.decisions is not None:
            body = answer.decisions.added_to(body)
        return web.Response(body=body, content_type="application/json", headers=answer.headers)


async def _send_events(
    stream: EventStream, deltas: AsyncIterable[Delta], answer: Answer, exchange: Exchange[Any]
) -> web.StreamResponse:
    """Send each delta as events. A failure before the first has a status of its own; after it, one `error`
    event says so (contract 4.2). Either way `answer.done` is last.

    OpenAI's own responses end without `[DONE]`. Weir's have one: the SDKs stop reading there, as in any
    stream, and a client that waits for `[DONE]` would wait for ever.
    """
    metrics = exchange.metrics
    frames_of: Callable[[Delta], bytes] = answer.chunk
    decisions = answer.decisions
    if decisions is not None:
        decisions.write = stream.write
        frames_of = decisions.before(answer.chunk)
    try:
        try:
            async for delta in deltas:
                metrics.release(delta)
                frames = frames_of(delta)
                if frames and not stream.write_now(frames):
                    await stream.write(frames)
            metrics.end("finished")
            await answer.settle()
        except asyncio.CancelledError as error:
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
