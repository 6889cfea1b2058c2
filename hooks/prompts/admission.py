"""A request on its way to the engine: hooks read it, rewrite it or refuse it, in order (contract 8.1).

A machine without I/O, as the guard is: it asks each hook by yielding an `Ask`.
"""

import copy
import inspect
from collections.abc import Generator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import orjson

from engine.protocol import GenerationRequest, RequestError
from hooks.loading.loader import LoadedHook
from hooks.pipeline.ask import Ask, Reply
from hooks.pipeline.decision import Action, DecisionLog, prompt_decision
from hooks.pipeline.failure import BadVerdictError, HookError, HookFailure, count_failure, place_of
from hooks.pipeline.release import checked_text
from hooks.pipeline.tally import Tallies
from hooks.prompts.texts import PROMPT_FIELDS, Refusal

_FIXED = tuple(field.name for field in fields(GenerationRequest) if field.name not in PROMPT_FIELDS)
_ENDPOINTS = {"chat": "messages", "completions": "prompt", "responses": "input"}
"""The field that holds the prompt, by endpoint."""


class RefusedError(RequestError):
    """A hook refused the prompt and gave no text to answer with."""

    def __init__(self, reason: str, request: GenerationRequest) -> None:
        super().__init__(
            f"The prompt was refused: {reason}", param=_ENDPOINTS[request.endpoint], code="content_filter"
        )
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Admission:
    """The result of showing a request to all hooks."""

    request: GenerationRequest
    """As the last hook let it go on."""
    refusal: Refusal | None = None
    later: Sequence[LoadedHook] = ()
    """The hooks after the one that refused it."""


def admission(
    request: GenerationRequest,
    hooks: Sequence[LoadedHook],
    tallies: Tallies,
    decisions: DecisionLog | None = None,
) -> Generator[Ask, Reply, Admission]:
    """Show the request to each hook that reads prompts. `decisions`: None if no hook listens.

    Raises `HookError`.
    """
    for i, hook in enumerate(hooks):
        if hook.on_request is None:
            continue
        # A copy, so that a hook in shadow mode has no effect, whatever it does to the request (contract
        # 3.10).
        shown = copy.deepcopy(request) if hook.is_shadow else request
        reply = yield Ask(hook, shown)
        try:
            answer = _checked(reply, shown)
        except BaseException as error:
            count_failure(hook, tallies[hook.name], error)
            _tell(decisions, request, hook, "error", place_of(error))
            if hook.is_shadow:
                continue
            raise HookError(hook.name) from error
        if isinstance(answer, Refusal):
            tallies[hook.name].count("refuse")
            _tell(decisions, request, hook, "refuse", answer.reason)
            if not hook.is_shadow:
                return Admission(request, answer, hooks[i + 1 :])
        elif answer is shown:
            tallies[hook.name].count("admit")
        else:
            tallies[hook.name].count("rewrite_prompt")
            _tell(decisions, request, hook, "rewrite_prompt", None)
            request = request if hook.is_shadow else answer
    return Admission(request)


def _tell(
    decisions: DecisionLog | None,
    request: GenerationRequest,
    hook: LoadedHook,
    action: Action,
    reason: str | None,
) -> None:
    if decisions is not None:
        decisions.add(prompt_decision(request, hook.name, hook.is_shadow, action, reason))


def _checked(answer: Reply, request: GenerationRequest) -> GenerationRequest | Refusal:
    """The hook's answer. Raises `BadVerdictError` for anything that it may not return."""
    if isinstance(answer, HookFailure):
        raise answer.error
    if isinstance(answer, Refusal):
        text = None if answer.text is None else checked_text(answer.text)
        return Refusal(checked_text(answer.reason), text)
    if not isinstance(answer, GenerationRequest):
        if inspect.iscoroutine(answer):
            answer.close()  # a plain method's coroutine is never awaited
        raise BadVerdictError(f"its on_request returned {type(answer).__name__}")
    return request if answer == request else _rewritten(answer, request)


def _rewritten(answer: GenerationRequest, request: GenerationRequest) -> GenerationRequest:
    """The answer's prompt, rebuilt of plain values: a hook may give objects of classes of its own."""
    sampling = replace(request.sampling, stop=answer.sampling.stop)
    fixed = {name: getattr(request, name) for name in _FIXED} | {"sampling": sampling}
    for name, value in fixed.items():
        if getattr(answer, name) != value:
            raise BadVerdictError(f"its on_request changed {name}, which is no part of the prompt")
    if len(answer.prompts) != len(request.prompts) or bool(answer.messages) != bool(request.messages):
        raise BadVerdictError("its on_request changed the number of prompts")
    given = {name: getattr(answer, name) for name in PROMPT_FIELDS}
    made: dict[str, Any] = orjson.loads(orjson.dumps({**given, "stop": sampling.stop}, default=dict))
    stop = made.pop("stop")
    objects = [*made["messages"], *made["tools"], made["extra"]]
    texts = [*made["prompts"], *stop]
    are_texts = all(isinstance(one, str) for one in texts) and all(stop)
    if not all(isinstance(one, dict) for one in objects) or not are_texts:
        raise BadVerdictError("its on_request gave a value that is no prompt")
    changed = {name: tuple(value) if isinstance(value, list) else value for name, value in made.items()}
    return replace(request, sampling=replace(sampling, stop=tuple(stop)), **changed)  # type: ignore[arg-type]
