"""Texts through the hooks to their decisions, without an engine."""

import asyncio
from collections.abc import Iterator

from engine.protocol import Delta, GenerationRequest
from hooks.api.decision import Decision
from hooks.pipeline.open_guard import PassThrough
from proxy.http.admission import Exchange
from proxy.wire.errors import APIError
from proxy.wire.openai.answer import JSONObject
from proxy.wire.openai.moderations import MODEL, ModerationRequest, result

PIECE = 1024
"""Characters that hooks are shown at a time. Guards take milliseconds for them. Then other requests run."""


async def moderated(exchange: Exchange[ModerationRequest]) -> JSONObject:
    """Judge each input by itself, as a prompt and as an answer (contract 8.13). Raises `APIError` 501 if no
    hook judges texts, `RequestError` for a field that it does not take, and `HookError`."""
    fields, request_id, results = exchange.fields, exchange.request.request_id, []
    exchange.spend_estimate()
    for i, texts in enumerate(fields.inputs()):
        requests = fields.to_requests(f"{request_id}-{i}", texts, caller=exchange.arrival.owner.caller)
        decisions = await _of_prompt(exchange, requests[0])
        decisions += await _of_answer(exchange, requests[1], texts)
        results.append(result(decisions))
    exchange.metrics.end("finished")
    return {"id": request_id, "model": MODEL, "results": results}


async def _of_prompt(exchange: Exchange[ModerationRequest], request: GenerationRequest) -> list[Decision]:
    decisions: list[Decision] = []
    async with exchange.judged(request, decisions) as guard:
        if isinstance(guard, PassThrough):
            raise APIError(501, "This server has no hooks to judge a text by.", "server_error")
        if not guard.reads_prompts:
            return []
        await guard.admit(request)
        # If a hook answers in the engine's place, later hooks also decide on that answer.
        return [decision for decision in decisions if decision.channel == "prompt"]


async def _of_answer(
    exchange: Exchange[ModerationRequest], request: GenerationRequest, texts: tuple[str, ...]
) -> list[Decision]:
    decisions: list[Decision] = []
    async with exchange.judged(request, decisions) as guard:
        for delta in _deltas(texts):
            step = await guard.feed(delta)
            if step.is_over:
                break
            await asyncio.sleep(0)
    return decisions


def _deltas(texts: tuple[str, ...]) -> Iterator[Delta]:
    """Each text as an output, piece by piece."""
    for index, text in enumerate(texts):
        for start in range(0, len(text), PIECE):
            yield Delta(index=index, text=text[start : start + PIECE])
        yield Delta(index=index, finish_reason="stop")
