"""Takes the texts of a gateway's question through the hooks, without an engine."""

from engine.protocol import GenerationRequest, RequestError
from hooks.api.decision import Listener
from hooks.prompts.media import prompt_media
from proxy.http.admission import Exchange
from proxy.http.guard_api.open_texts import OpenTexts
from proxy.http.guard_api.reading import BlockedError, blocked_reason, check_has_hooks, read_call, read_whole
from proxy.http.moderate import KeptDecisions
from proxy.wire.errors import APIError
from proxy.wire.guard_api.check import Check, JudgedText, Judgement, Question

_NO_IMAGES = "No hook here looks at images, sound or files."


async def judge(exchange: Exchange[Question], check: Check, texts: OpenTexts) -> Judgement:
    """The hooks' verdicts. Raises `APIError` 501 if no hook judges such a text, `RequestError` for what no hook
    reads, and `HookError`."""
    decisions = KeptDecisions(exchange.listener())
    request = None
    judged: list[JudgedText] = []
    calls = []
    try:
        if check.is_prompt:
            request = await _judge_prompt(exchange, decisions)
        if check.has_media:
            raise RequestError(_NO_IMAGES, param="images")
        for i, text in enumerate(check.texts):
            if check.stream is not None:
                key = (exchange.arrival.owner.caller, check.stream, i)
                judged.append(await texts.judge(exchange, key, text))
                continue
            async with exchange.judged(exchange.request, decisions) as guard:
                check_has_hooks(guard)
                judged.append(JudgedText((await read_whole(guard, text)).text))
        for call in check.calls:
            async with exchange.judged(exchange.request, decisions) as guard:
                check_has_hooks(guard)
                calls.append(await read_call(guard, call))
    except BlockedError as error:
        return Judgement(blocked=error.reason, decisions=decisions.made)
    return Judgement(request=request, texts=judged, calls=calls, decisions=decisions.made)


async def _judge_prompt(exchange: Exchange[Question], decisions: Listener) -> GenerationRequest:
    """The prompt as the hooks let it go on."""
    request = exchange.request
    async with exchange.judged(request, decisions) as guard:
        check_has_hooks(guard)
        if not guard.reads_prompts:
            reason = "No hook of this server reads prompts: give a guard the argument prompt."
            raise APIError(501, reason, "server_error")
        if prompt_media(request):
            raise RequestError(_NO_IMAGES, param="images")
        step = await guard.admit(request)
        if step.refused is not None:
            raise BlockedError(step.refused)
        if step.is_over:
            raise BlockedError(blocked_reason(step))
        return guard.request
