"""The way of a text through the hooks to their decisions, without an engine."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import chain

from aiohttp import web

from engine.protocol import Delta, GenerationRequest
from hooks.api.decision import Decision
from hooks.pipeline.open_guard import OpenGuard, PassThrough
from proxy.deployment.deployment import Route
from proxy.http.access.callers import CALLER
from proxy.http.request_log import REQUEST_LOG
from proxy.service.prompts import check_prompts
from proxy.service.quotas import estimated_tokens
from proxy.service.service import SERVICE
from proxy.wire.errors import APIError
from proxy.wire.openai.answer import JSONObject, new_id
from proxy.wire.openai.moderations import MODEL, ModerationRequest, result

PIECE = 1024
"""Characters that hooks are shown at a time. Guards take milliseconds for them; then others have a turn."""


async def moderate(http: web.Request, route: Route, fields: ModerationRequest) -> JSONObject:
    """Judge each input by itself, as a prompt and as an answer (contract 8.13). Raises `APIError` 501 if the
    server judges no texts, `RequestError` for a field that it does not take, and `HookError`."""
    service = http.app[SERVICE]
    if not service.settings.moderations:
        raise APIError(501, "This server answers no moderations (--moderations).", "server_error")
    request_id = new_id("modr")
    with service.metrics.request("moderations", route.model.name, route.key.tenant) as metrics:
        http[REQUEST_LOG].begin(request_id, metrics)
        inputs, results = fields.inputs(), []
        whole, _ = fields.to_requests(request_id, tuple(chain.from_iterable(inputs)), caller=http[CALLER])
        async with service.quotas.admitted(http, route.limited) as spending, service.begin(route, whole):
            spending.spend(estimated_tokens(whole))
            for i, texts in enumerate(inputs):
                as_prompt, as_answer = fields.to_requests(f"{request_id}-{i}", texts, caller=http[CALLER])
                check_prompts(as_prompt, route.model.engine.info)
                decisions = await _of_prompt(route, as_prompt)
                decisions += await _of_answer(route, as_answer, texts)
                results.append(result(decisions))
        metrics.end("finished")
        return {"id": request_id, "model": MODEL, "results": results}


async def _of_prompt(route: Route, request: GenerationRequest) -> list[Decision]:
    decisions: list[Decision] = []
    async with _opened(route, request, decisions) as guard:
        if isinstance(guard, PassThrough):
            raise APIError(501, "This server has no hooks to judge a text by.", "server_error")
        if not guard.reads_prompts:
            return []
        await guard.admit(request)
        # If a hook answers in the engine's place, later hooks also decide on that answer.
        return [decision for decision in decisions if decision.channel == "prompt"]


async def _of_answer(route: Route, request: GenerationRequest, texts: tuple[str, ...]) -> list[Decision]:
    decisions: list[Decision] = []
    async with _opened(route, request, decisions) as guard:
        for delta in _deltas(texts):
            step = await guard.feed(delta)
            if step.is_over:
                break
            await asyncio.sleep(0)
    return decisions


@asynccontextmanager
async def _opened(
    route: Route, request: GenerationRequest, decisions: list[Decision]
) -> AsyncIterator[OpenGuard]:
    """A guard that adds its decisions to `decisions`. There is no engine to go back, so a rewind acts as a
    terminate."""
    guard = route.policy.pipeline.open(request, listener=decisions.append)
    try:
        yield guard
    finally:
        await guard.close()


def _deltas(texts: tuple[str, ...]) -> Iterator[Delta]:
    """Each text as an output, piece by piece."""
    for index, text in enumerate(texts):
        for start in range(0, len(text), PIECE):
            yield Delta(index=index, text=text[start : start + PIECE])
        yield Delta(index=index, finish_reason="stop")
