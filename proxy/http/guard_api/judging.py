"""Takes the texts of a gateway's question through the hooks, without an engine."""

import asyncio

from engine.protocol import RequestError
from hooks.api.decision import Listener
from hooks.pipeline.open_guard import OpenGuard
from hooks.prompts.media import prompt_media
from proxy.http.admission import Exchange
from proxy.http.guard_api.open_texts import OpenTexts
from proxy.http.guard_api.reading import BlockedError, blocked_reason, check_has_hooks, read_call, read_whole
from proxy.http.moderate import KeptDecisions
from proxy.wire.errors import APIError
from proxy.wire.guard_api.check import (
    Check,
    CheckedCall,
    JudgedCall,
    JudgedPrompt,
    JudgedText,
    Judgement,
    Question,
)

_NO_MEDIA = "No hook here looks at images, sound or files."


async def judge(exchange: Exchange[Question], check: Check, texts: OpenTexts) -> Judgement:
    """The hooks' verdicts. Raises `APIError` 501 if no hook judges such a text, `RequestError` for what no
    hook reads, and `HookError`."""
    publish = exchange.listener()
    prompt = await _judge_prompt(exchange, publish) if check.is_prompt else None
    if check.has_media:
        raise RequestError(_NO_MEDIA, param="images")
    judged = []
    for i, text in enumerate(check.texts):
        await asyncio.sleep(0)  # other requests are served between two texts
        if check.stream is None:
            judged.append(await _judge_text(exchange, text, publish))
        else:
            key = (exchange.arrival.owner.caller, check.stream, i)
            judged.append(await texts.judge(exchange, key, text))
    calls = [await _judge_call(exchange, call, publish) for call in check.calls]
    pipeline = exchange.route.policy.pipeline
    return Judgement(
        prompt=prompt,
        texts=judged,
        calls=calls,
        hooks=[name for name in pipeline.modes if name not in pipeline.allowed],
        prompt_readers=pipeline.prompt_readers,
    )


async def _judge_prompt(exchange: Exchange[Question], publish: Listener | None) -> JudgedPrompt:
    request, decisions = exchange.request, KeptDecisions(publish)
    async with exchange.judged(request, decisions) as guard:
        _check_reads_prompts(guard)
        if prompt_media(request) and not guard.reads_media:
            raise RequestError(_NO_MEDIA, param="images")
        step = await guard.admit(request)
        reason = blocked_reason(step) if step.is_over else step.refused
        return JudgedPrompt(request=guard.request, blocked=reason, decisions=decisions.made)


def _check_reads_prompts(guard: OpenGuard) -> None:
    check_has_hooks(guard)
    if not guard.reads_prompts:
        reason = "No hook of this server reads prompts: give a guard the argument prompt."
        raise APIError(501, reason, "server_error")


async def _judge_text(exchange: Exchange[Question], text: str, publish: Listener | None) -> JudgedText:
    decisions = KeptDecisions(publish)
    async with exchange.judged(exchange.request, decisions) as guard:
        check_has_hooks(guard)
        try:
            decided, rest = await read_whole(guard, text)
        except BlockedError as error:
            return JudgedText(blocked=error.reason, decisions=decisions.made)
        return JudgedText(text=decided + rest, decisions=decisions.made)


async def _judge_call(
    exchange: Exchange[Question], call: CheckedCall, publish: Listener | None
) -> JudgedCall:
    decisions = KeptDecisions(publish)
    async with exchange.judged(exchange.request, decisions) as guard:
        check_has_hooks(guard)
        try:
            released = await read_call(guard, call)
        except BlockedError as error:
            return JudgedCall(blocked=error.reason, decisions=decisions.made)
        return JudgedCall(call=released, decisions=decisions.made)
