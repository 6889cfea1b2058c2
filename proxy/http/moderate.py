"""Texts through the hooks to their decisions, without an engine."""

import asyncio
from collections.abc import Iterator

from engine.protocol import Delta, GenerationRequest
from hooks.api.decision import Decision, Listener
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
    categories = exchange.service.settings.moderation_categories
    exchange.spend_estimate()
    publish = exchange.listener()
    for i, texts in enumerate(fields.inputs()):
        requests = fields.to_requests(f"{request_id}-{i}", texts, caller=exchange.arrival.owner.caller)
        of_prompt, of_answer = KeptDecisions(publish), KeptDecisions(publish)
        await _judge_prompt(exchange, requests[0], of_prompt)
        await _judge_answer(exchange, requests[1], texts, of_answer)
        # If a hook answers in the engine's place, later hooks also decide on that answer.
        decisions = [decision for decision in of_prompt.made if decision.channel == "prompt"]
        results.append(result(decisions + of_answer.made, categories))
    exchange.metrics.end("finished")
    return {"id": request_id, "model": MODEL, "results": results}


class KeptDecisions:
    """A listener that keeps the decisions for the answer, and passes each on to the operator."""

    def __init__(self, publish: Listener | None) -> None:
        self.made: list[Decision] = []
        self._publish = publish

    def __call__(self, decision: Decision) -> None:
        self.made.append(decision)
        if self._publish is not None:
            self._publish(decision)


async def _judge_prompt(
    exchange: Exchange[ModerationRequest], request: GenerationRequest, listener: Listener
) -> None:
    async with exchange.judged(request, listener) as guard:
        if isinstance(guard, PassThrough):
            raise APIError(501, "This server has no hooks to judge a text by.", "server_error")
        if guard.reads_prompts:
            await guard.admit(request)


async def _judge_answer(
    exchange: Exchange[ModerationRequest],
    request: GenerationRequest,
    texts: tuple[str, ...],
    listener: Listener,
) -> None:
    async with exchange.judged(request, listener) as guard:
        for delta in _deltas(texts):
            step = await guard.feed(delta)
            if step.is_over:
                break
            await asyncio.sleep(0)


def _deltas(texts: tuple[str, ...]) -> Iterator[Delta]:
    """Each text as an output, piece by piece."""
    for index, text in enumerate(texts):
        for start in range(0, len(text), PIECE):
            yield Delta(index=index, text=text[start : start + PIECE])
        yield Delta(index=index, finish_reason="stop")
