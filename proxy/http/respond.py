"""One request's way from its fields to its answer: the composition. `docs/architecture.md` draws it."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import replace
from functools import partial

from aiohttp import web

from engine.parsers import parsed
from engine.protocol import Delta, GenerationRequest
from engine.protocol.fields.ends import steers_end
from engine.streams.rewindable import rewindable
from engine.text.chat_echo import with_echo
from hooks.pipeline.driver import admit, as_deltas, guarded
from hooks.pipeline.open_guard import PassThrough
from proxy.deployment.deployment import Route
from proxy.deployment.enforce import under_policy
from proxy.http.event_stream import EventStream
from proxy.http.in_answer import asked_decisions
from proxy.http.request_log import REQUEST_LOG
from proxy.service.metrics import RequestMetrics
from proxy.service.prompts import check_prompts
from proxy.service.running import RunningRequest
from proxy.service.service import SERVICE
from proxy.wire.errors import APIError, to_api_error
from proxy.wire.openai.answer import Answer

logger = logging.getLogger("weir.proxy")


async def respond(
    http: web.Request, route: Route, request: GenerationRequest, answer: Answer
) -> web.StreamResponse:
    """Admit, generate, rewind, parse, guard, answer.

    `admit` runs first. Each later step takes the deltas of the step before it, and runs when `send` takes the
    first delta. Closing the last one closes all of them and cancels the engine's work.
    """
    service = http.app[SERVICE]
    engine = route.model.engine
    request = replace(request, steers_end=steers_end(request, engine.fields, engine.info))
    request = under_policy(route, request)
    answer.ignored = answer.fields.ignored(engine.fields)
    answer.decisions = asked_decisions(http)
    with service.metrics.request(request.endpoint, route.model.name, route.key.tenant) as metrics:
        http[REQUEST_LOG].begin(request.request_id, metrics, request, answer.ignored)
        async with (
            service.quotas.admitted(http, route.limited) as spending,
            service.begin(route, request) as running,
            service.opened(route, request, answer.decisions) as guard,
        ):
            check_prompts(request, engine.info)
            admitted = await admit(guard, engine.tokenizer)
            if isinstance(admitted, GenerationRequest):
                parsers = route.model.parsers_for(admitted)
                deltas = with_echo(admitted, spending.counted(engine.generate(admitted)))
                if guard.may_rewind:
                    deltas = rewindable(deltas)
                deltas = parsed(parsers, admitted, deltas, engine.tokenizer)
                if answer.decisions is not None:
                    deltas = answer.decisions.watched(guard, deltas)
                released = deltas if isinstance(guard, PassThrough) else guarded(guard, deltas)
            else:
                released = as_deltas(admitted)
            metrics.on_usage = partial(spending.settle, request)
            return await send(http, answer, released, metrics, running)


async def send(
    http: web.Request,
    answer: Answer,
    deltas: AsyncGenerator[Delta, None],
    metrics: RequestMetrics,
    running: RunningRequest,
) -> web.StreamResponse:
    """Send the answer. Streaming changes only the time of sending, not the deltas (contract 2.5)."""
    headers = answer.headers
    async with aclosing(deltas):
        if answer.request.stream:
            keep_alive = http.app[SERVICE].settings.keep_alive_interval
            filler = answer.keep_alive
            async with EventStream(http, keep_alive=keep_alive, headers=headers, filler=filler) as stream:
                response = await _send_events(stream, deltas, answer, metrics, running)
                http[REQUEST_LOG].sent_status = response.status
                return response
        async for delta in deltas:
            metrics.release(delta)
            answer.fold(delta)
        metrics.end("finished")
        await answer.settle()
        body = answer.whole()
        if answer.decisions is not None:
            body = answer.decisions.added_to(body)
        return web.Response(body=body, content_type="application/json", headers=headers)


async def _send_events(
    stream: EventStream,
    deltas: AsyncGenerator[Delta, None],
    answer: Answer,
    metrics: RequestMetrics,
    running: RunningRequest,
) -> web.StreamResponse:
    """Send each delta as events. A failure before the first has a status of its own; after it, one `error`
    event tells of it (contract 4.2). Either way `answer.done` is last.

    OpenAI's own responses end without `[DONE]`. Weir's have one: the SDKs stop reading there, as in any
    stream, and a client that waits for `[DONE]` would wait for ever.
    """
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
            running.raise_if_cancelled(error)  # so that the answer can still tell of it
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
    """The events of a failed answer. If the answer so far cannot be written, the error is told alone."""
    try:
        return answer.failure(error.body())
    except Exception as second:  # noqa: BLE001 - whatever happened, the client gets an end
        logger.error("an answer cannot be written (%s)", type(second).__name__)
        return Answer.failure(answer, error.body())
