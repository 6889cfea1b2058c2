"""A request on its way to the engine: what hooks make of it, in order, and what they may not."""

import copy
import inspect
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from time import monotonic
from typing import Any

import orjson

from engine.protocol import GenerationRequest, RequestError
from hooks.loading.async_call import AsyncCall
from hooks.loading.loader import LoadedHook
from hooks.pipeline.decision import Decision, of_prompt
from hooks.pipeline.release import BadVerdictError, checked_text
from hooks.pipeline.stage import HookError, count_failure, is_cancelled, place_of
from hooks.pipeline.tally import Tallies, Tally
from hooks.prompts.texts import PROMPT_FIELDS, Refusal

_FIXED = tuple(field.name for field in fields(GenerationRequest) if field.name not in PROMPT_FIELDS)
_ENDPOINTS = {"chat": "messages", "completions": "prompt", "responses": "input"}
"""What each calls its prompt."""


class RefusedError(RequestError):
    """A hook refused the prompt, and gave no text to answer with."""

    def __init__(self, reason: str, request: GenerationRequest) -> None:
        super().__init__(
            f"The prompt was refused: {reason}", param=_ENDPOINTS[request.endpoint], code="content_filter"
        )
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Admission:
    """What hooks said of a request."""

    request: GenerationRequest
    """As the last hook let it go on."""
    refusal: Refusal | None = None
    later: Sequence[LoadedHook] = ()
    """The hooks behind the one that refused it."""


async def admit(
    request: GenerationRequest,
    hooks: Sequence[LoadedHook],
    tallies: Tallies,
    seconds: float,
    decisions: list[Decision] | None = None,
) -> Admission:
    """Show the request to each hook that wants to see it, for so many seconds each. Raises `HookError`.

    `decisions`: where to put what they decide; None: nobody wants to know.
    """
    for i, hook in enumerate(hooks):
        if hook.on_request is None:
            continue
        # A copy, so that nothing that a hook in shadow mode does has an effect.
        shown = copy.deepcopy(request) if hook.is_shadow else request
        answer = await _ask(hook, shown, tallies[hook.name], seconds, decisions)
        if hook.is_shadow:
            continue
        if isinstance(answer, Refusal):
            return Admission(request, answer, hooks[i + 1 :])
        request = answer
    return Admission(request)


async def _ask(
    hook: LoadedHook,
    request: GenerationRequest,
    tally: Tally,
    seconds: float,
    decisions: list[Decision] | None,
) -> GenerationRequest | Refusal:
    started = monotonic()
    try:
        answer = _checked(await _answer(hook, request, seconds), request)
    except BaseException as error:
        if hook.is_request_async and is_cancelled(error):
            raise
        count_failure(hook, tally, error)
        if decisions is not None:
            decisions.append(of_prompt(request, hook.name, hook.is_shadow, "error", place_of(error)))
        if hook.is_shadow:
            return request
        raise HookError(hook.name) from error
    finally:
        tally.seconds += monotonic() - started
    is_refused = isinstance(answer, Refusal)
    tally.count("refuse" if is_refused else "admit" if answer is request else "rewrite_prompt")
    if decisions is not None and isinstance(answer, Refusal):
        decisions.append(of_prompt(request, hook.name, hook.is_shadow, "refuse", answer.reason))
    elif decisions is not None and answer is not request:
        decisions.append(of_prompt(request, hook.name, hook.is_shadow, "rewrite_prompt", None))
    return answer


async def _answer(hook: LoadedHook, request: GenerationRequest, seconds: float) -> Any:
    assert hook.on_request is not None
    if hook.is_request_async:
        call = AsyncCall(hook.on_request(request))
        try:
            return await call.within(seconds)
        finally:
            if call.rest is not None:
                hook.keep(call.rest)
    started = monotonic()
    answer = hook.on_request(request)
    if monotonic() - started > seconds:
        raise TimeoutError("its deadline passed")
    return answer


def _checked(answer: Any, request: GenerationRequest) -> GenerationRequest | Refusal:
    """What a hook returned. Raises `BadVerdictError` for what it may not return."""
    if isinstance(answer, Refusal):
        text = None if answer.text is None else checked_text(answer.text)
        return Refusal(checked_text(answer.reason), text)
    if not isinstance(answer, GenerationRequest):
        if inspect.iscoroutine(answer):
            answer.close()  # what a plain method returned is not awaited
        raise BadVerdictError(f"its on_request returned {type(answer).__name__}")
    return request if answer == request else _rewritten(answer, request)


def _rewritten(answer: GenerationRequest, request: GenerationRequest) -> GenerationRequest:
    """With values of ours alone: those that a hook made may be of classes of its own."""
    sampling = replace(request.sampling, stop=answer.sampling.stop)
    fixed = {name: getattr(request, name) for name in _FIXED} | {"sampling": sampling}
    for name, value in fixed.items():
        if getattr(answer, name) != value:
            raise BadVerdictError(f"its on_request changed {name}, which no prompt is made of")
    if len(answer.prompts) != len(request.prompts) or bool(answer.messages) != bool(request.messages):
        raise BadVerdictError("its on_request left no prompt, or another number of them")
    told = {name: getattr(answer, name) for name in PROMPT_FIELDS}
    made: dict[str, Any] = orjson.loads(orjson.dumps({**told, "stop": sampling.stop}, default=dict))
    stop = made.pop("stop")
    objects = [*made["messages"], *made["tools"], made["extra"]]
    texts = [*made["prompts"], *stop]
    are_texts = all(isinstance(one, str) for one in texts) and all(stop)
    if not all(isinstance(one, dict) for one in objects) or not are_texts:
        raise BadVerdictError("its on_request gave a prompt that is none")
    changed = {name: tuple(value) if isinstance(value, list) else value for name, value in made.items()}
    return replace(request, sampling=replace(sampling, stop=tuple(stop)), **changed)  # type: ignore[arg-type]
