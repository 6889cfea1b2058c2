"""Shows a prompt to one hook. The hook admits it, changes it or refuses it (contract 8.1)."""

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import fields, replace
from functools import partial
from typing import Any

import orjson

from engine.protocol import GenerationRequest, RequestError
from hooks.api.chunk import CALLER_VALUES
from hooks.api.decision import Action
from hooks.decisions.failure import BadVerdictError, HookError, HookFailure, count_failure, discard, place_of
from hooks.decisions.log import request_decision
from hooks.loading.loader import LoadedHook
from hooks.pipeline.ask import Ask, Asking, Reply
from hooks.pipeline.guarded_request import GuardedRequest
from hooks.pipeline.release import checked_text
from hooks.prompts.texts import PROMPT_FIELDS, Refusal

_OF_HOOKS = (*PROMPT_FIELDS, "taint")
"""The fields that a hook may change, and `sampling.stop` (contract 8.7, 8.15)."""
_FIXED = tuple(field.name for field in fields(GenerationRequest) if field.name not in _OF_HOOKS)


class RefusedError(RequestError):
    """A hook refused the prompt and gave no text to answer with."""

    def __init__(self, reason: str, request: GenerationRequest, place: str | None = None) -> None:
        """`place`: of the text at fault, if the hook named one."""
        super().__init__(
            f"The prompt was refused: {reason}", param=request.prompt_field, code="content_filter"
        )
        self.reason = reason
        self.place = place

    def named_by(self, place_of: Callable[[str, str | None], str | None]) -> "RefusedError":
        """The error with the caller's name of the place. `place_of`: takes the hook's, and the field."""
        if self.place is not None:
            self.param = place_of(self.place, self.param)
        return self


def ask_prompt(guarded: GuardedRequest, hook: LoadedHook) -> Asking[Refusal | None]:
    """Show one hook the request, and apply its change. Returns its refusal, if it refuses."""
    assert hook.on_request is not None
    request = guarded.request
    tally = guarded.tallies[hook.name]
    # A copy: a hook in shadow mode has no effect, whatever it does to the request (contract 3.10).
    shown = deepcopy(request) if hook.is_shadow else request
    method = hook.on_request
    if hook.takes_state:
        method = partial(_with_state, method, guarded.states[id(hook)])
    ask = Ask(hook, tally, method, hook.is_request_async, shown)
    yield ask
    try:
        answer = checked_answer(ask.reply, shown)
        values = checked_values(guarded.states[id(hook)]) if hook.takes_state else {}
    except BaseException as error:
        count_failure(hook, tally, error)
        _decided(guarded, hook, "error", place_of(error))
        if hook.is_shadow:
            return None
        raise HookError.of(hook, error, request) from error
    if isinstance(answer, Refusal):
        tally.count("refuse")
        _decided(guarded, hook, "refuse", answer.reason)
        return None if hook.is_shadow else answer
    if not hook.is_shadow:
        guarded.values.update(values)
    if answer is shown:
        tally.count("admit")
        return None
    if answer.taint != shown.taint:
        tally.count("taint")
        _decided(guarded, hook, "taint", answer.taint)
    if replace(answer, taint=shown.taint) != shown:
        tally.count("rewrite_prompt")
        _decided(guarded, hook, "rewrite_prompt", None)
    if not hook.is_shadow:
        guarded.request = answer
    return None


def _decided(guarded: GuardedRequest, hook: LoadedHook, action: Action, reason: str | None) -> None:
    if guarded.decisions is not None:
        guarded.decisions.append(request_decision(guarded.request, hook.name, action, reason, hook.mode))


def _with_state(method: Callable[..., Any], state: dict[Any, Any], shown: GenerationRequest) -> Any:
    return method(shown, state)


def checked_answer(answer: Reply, request: GenerationRequest) -> GenerationRequest | Refusal:
    """The hook's answer. Raises `BadVerdictError` for anything that it may not return."""
    if isinstance(answer, HookFailure):
        raise answer.error
    if isinstance(answer, Refusal):
        text = None if answer.text is None else checked_text(answer.text)
        place = None if answer.place is None else checked_text(answer.place)
        return Refusal(checked_text(answer.reason), text, place)
    if not isinstance(answer, GenerationRequest):
        discard(answer)
        raise BadVerdictError(f"its on_request returned {type(answer).__name__}")
    return request if answer == request else _rewritten(answer, request)


def checked_values(state: Mapping[Any, Any]) -> dict[str, str]:
    """The hook's placeholders and their values (contract 9.11). Raises `BadVerdictError`."""
    values = state.get(CALLER_VALUES, {})
    if not isinstance(values, Mapping):
        raise BadVerdictError(f"its {CALLER_VALUES} are {type(values).__name__}")
    return {checked_text(placeholder): checked_text(value) for placeholder, value in values.items()}


def _rewritten(answer: GenerationRequest, request: GenerationRequest) -> GenerationRequest:
    """The answer's prompt, rebuilt of plain values: a hook may give objects of classes of its own."""
    sampling = replace(request.sampling, stop=answer.sampling.stop)
    fixed = {name: getattr(request, name) for name in _FIXED} | {"sampling": sampling}
    for name, value in fixed.items():
        if getattr(answer, name) != value:
            raise BadVerdictError(f"its on_request changed {name}, which is not a part of the prompt")
    if len(answer.prompts) != len(request.prompts) or bool(answer.messages) != bool(request.messages):
        raise BadVerdictError("its on_request changed the number of prompts")
    given = {name: getattr(answer, name) for name in PROMPT_FIELDS}
    made: dict[str, Any] = orjson.loads(orjson.dumps({**given, "stop": sampling.stop}, default=dict))
    stop = made.pop("stop")
    objects = [*made["messages"], *made["tools"], made["extra"]]
    texts = [*made["prompts"], *stop]
    are_texts = all(isinstance(one, str) for one in texts) and all(stop)
    are_objects = all(isinstance(one, dict) for one in objects)
    if not (are_objects and are_texts and all(map(_is_message, made["messages"]))):
        raise BadVerdictError("its on_request gave a value that is not a prompt")
    made["taint"] = None if answer.taint is None else checked_text(answer.taint)
    changed = {name: tuple(value) if isinstance(value, list) else value for name, value in made.items()}
    return replace(request, sampling=replace(sampling, stop=tuple(stop)), **changed)  # type: ignore[arg-type]


def _is_message(one: dict[str, Any]) -> bool:
    """Whether it has a role, and a content of a kind that messages have. An engine would blame the caller for
    a wrong one, and the hook is at fault."""
    role, content = one.get("role"), one.get("content")
    are_parts = isinstance(content, list) and all(isinstance(part, dict) for part in content)
    return isinstance(role, str) and role != "" and (are_parts or isinstance(content, str | None))
