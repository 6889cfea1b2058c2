"""Writes a `GenerationRequest` as the JSON body of the Messages API. No I/O.

A value that the API cannot express is refused by its field's name. `fields` refuses whole fields.
"""

import re
from collections.abc import Mapping
from typing import Any

from engine.protocol import GenerationRequest, RequestError, SamplingParams
from engine.protocol.fields.names import caller_name
from engine.upstream.messages.fields import TIERS, refused
from engine.upstream.messages.options import MessagesOptions
from engine.upstream.messages.signatures import Signatures
from engine.upstream.messages.tools import tool_fields
from engine.upstream.messages.turns import to_turns

_DRAWING = ("temperature", "top_p", "top_k")
_PROMPT = frozenset(
    {"model", "messages", "system", "tools", "tool_choice", "thinking", "output_config", "cache_control"}
    | {"context_management"}
)
"""Fields of the body that make the prompt."""
_OWN = ("cache_control", "context_management")
"""Fields that are the same there, if the caller's API is this one."""
_BETAS = re.compile(r"[\w.,:+ -]+", re.ASCII)


def request_body(
    request: GenerationRequest,
    options: MessagesOptions,
    model: str | None = None,
    signatures: Signatures | None = None,
) -> dict[str, Any]:
    """The body. It asks for a stream. `model`: the upstream's name for the model; None: the caller's.

    Raises `RequestError` for a request that the API cannot express.
    """
    sampling, extra = request.sampling, request.extra
    _check(request)
    signatures, own = signatures or Signatures(), request.caller_body
    system: Any
    if own is None:
        system, turns = to_turns(request.messages, signatures, request.caller)
    else:
        system, turns = own.get("system"), signatures.signed(own["messages"], request.caller)
    _check_end(request, turns)
    body: dict[str, Any] = {"model": model or request.model, "stream": True, "messages": turns}
    has_limit = sampling.max_tokens is not None
    body["max_tokens"] = sampling.max_tokens if has_limit else options.upstream_max_tokens
    body |= {"system": system} if system else {}
    body |= {name: getattr(sampling, name) for name in _DRAWING if _says(request, name)}
    body |= {"stop_sequences": list(sampling.stop)} if sampling.stop else {}
    body |= tool_fields(request)
    if own is not None and "tools" in body:
        body["tools"] = own["tools"]
    if thinking := _thinking(request):
        body["thinking"] = thinking
    if output_config := _output_config(request):
        body["output_config"] = output_config
    if user := extra.get("safety_identifier") or request.user:
        body["metadata"] = {"user_id": user}
    if tier := _tier(request):
        body["service_tier"] = tier
    for name in _OWN if request.endpoint == "messages" else ("cache_control",):
        if value := extra.get(name):
            body[name] = value
    return body if own is None else _as_the_caller(body, own)


def _as_the_caller(body: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """The body in the order of the caller's, with the caller's own writing of all that is the same. A cache
    of prompts compares bytes."""
    kept = {name: own[name] if own[name] == body[name] else body[name] for name in own if name in body}
    return {**kept, **{name: value for name, value in body.items() if name not in kept}}


def headers_of(request: GenerationRequest) -> dict[str, str]:
    """The header with the names of the betas that the caller wants. Raises `RequestError`."""
    betas = request.extra.get("anthropic_beta")
    if not betas:
        return {}
    if not isinstance(betas, str) or not _BETAS.fullmatch(betas):
        raise refused("anthropic_beta", "it must be names with commas between them")
    return {"anthropic-beta": betas}


def count_body(body: Mapping[str, Any]) -> dict[str, Any]:
    """The body that asks how many tokens the prompt of `body` has."""
    return {name: value for name, value in body.items() if name in _PROMPT}


def _check(request: GenerationRequest) -> None:
    """Refuse values that the API's own fields cannot have."""
    if not request.is_chat:
        raise refused(request.prompt_field, "the upstream speaks the Messages API, which has chats alone")
    if request.sampling.temperature > 1:
        raise refused("temperature", "with this upstream, it must be at most 1")


def _check_end(request: GenerationRequest, turns: list[dict[str, Any]]) -> None:
    """The answer continues from an assistant's message at the end, and only from one. One without text has no
    turn, and nothing to continue from."""
    continues = bool(request.extra.get("continue_final_message"))
    ends = request.messages if continues else turns
    if not turns or (ends[-1]["role"] == "assistant") != continues:
        reason = "an answer continues it" if turns and not continues else "another role has the last message"
        raise RequestError(
            f"messages: the last message of the assistant and continue_final_message go together ({reason}).",
            param="messages",
        )
    if not continues and request.extra.get("add_generation_prompt") is False:
        raise refused("add_generation_prompt")


def _tier(request: GenerationRequest) -> str | None:
    """The API's name for the tier. None: the caller names none that the API has."""
    tier = request.extra.get("service_tier")
    return TIERS.get(tier) if isinstance(tier, str) else None


def _says(request: GenerationRequest, name: str) -> bool:
    value = getattr(request.sampling, name)
    return bool(value != getattr(SamplingParams(), name) or (name in request.given and name != "top_k"))


def _thinking(request: GenerationRequest) -> Mapping[str, Any] | None:
    """Whether, and how much, the model thinks. None: as the upstream does by default."""
    extra = request.extra
    if (thinking := extra.get("thinking")) is not None:
        if not isinstance(thinking, Mapping):
            raise RequestError("thinking must be an object.", param="thinking")
        return thinking
    template = extra.get("chat_template_kwargs") or {}
    if not isinstance(template, Mapping) or template.keys() - {"enable_thinking"}:
        raise refused("chat_template_kwargs", "of its keys, this upstream takes enable_thinking")
    enabled = template.get("enable_thinking")
    effort = extra.get("reasoning_effort")
    if effort == "none" or enabled is False:
        return {"type": "disabled"}
    # In the Messages API, an effort alone asks for no thinking. In a chat, it does.
    if enabled or (effort is not None and request.endpoint != "messages"):
        return {"type": "adaptive"}
    return None


def _output_config(request: GenerationRequest) -> dict[str, Any]:
    extra, config = request.extra, dict[str, Any]()
    if (effort := extra.get("reasoning_effort")) not in (None, "none"):
        config["effort"] = "low" if effort == "minimal" else effort
    match extra.get("response_format"):
        case None | {"type": "text"}:
            pass
        case {"type": "json_schema", "json_schema": {"schema": Mapping() as schema}}:
            config["format"] = {"type": "json_schema", "schema": schema}
        case _:
            name = caller_name(request.endpoint, "response_format")
            raise refused(name, "this upstream takes the type json_schema, with a schema")
    return config
