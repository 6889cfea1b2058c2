"""Which fields of a request ask an engine for something, whether it refuses one of them, and whether one may
choose where the model's own end comes."""

from collections.abc import Mapping
from dataclasses import fields
from functools import lru_cache
from operator import attrgetter
from typing import Any

from engine.protocol import GenerationRequest, ModelInfo, RequestError, SamplingParams
from engine.protocol.fields.names import HINTS, caller_name, is_neutral
from engine.protocol.fields.support import FieldSupport, Treatment

SAMPLING_FIELDS = frozenset(field.name for field in fields(SamplingParams))
ENGINE_FIELDS = frozenset(
    {"echo", "return_token_ids", "cache_salt", "priority", "tools", "tool_choice", "parallel_tool_calls"}
)
"""The fields of `GenerationRequest` beside `sampling` and `extra` that an engine acts on."""

_NAMES = (*sorted(SAMPLING_FIELDS), *sorted(ENGINE_FIELDS))
_values_of = attrgetter(*(f"sampling.{name}" if name in SAMPLING_FIELDS else name for name in _NAMES))
_DEFAULTS = _values_of(GenerationRequest(request_id="", model="", endpoint="chat"))

_DEPENDENT = frozenset({"echo", "best_of", "tools", "tool_choice", "functions", "function_call"})
"""Fields whose effect another field may take (`_is_void`)."""

_LEAVE_THE_END = frozenset(
    {
        # An end at `max_tokens` has a finish reason of its own.
        *(SAMPLING_FIELDS - {"min_tokens", "ignore_eos", "logit_bias", "logits_processors"}),
        *(ENGINE_FIELDS | HINTS),
        # The prompt.
        *("add_special_tokens", "add_generation_prompt", "continue_final_message", "truncate_prompt_tokens"),
        *("truncation_side", "chat_template_kwargs", "documents", "functions", "suffix", "safe_prompt"),
        *("media_io_kwargs", "mm_processor_kwargs", "web_search_options", "prompt_embeds"),
        # The answer's form.
        *("skip_special_tokens", "spaces_between_special_tokens", "include_reasoning", "separate_reasoning"),
        # Whether the model thinks. A budget for thoughts in tokens is another field.
        *("thinking", "enable_thinking", "think", "anthropic_beta"),
        # Sampling, costs and routes of other servers.
        *("typical_p", "top_a", "random_seed", "cache_prompt", "keep_alive", "usage"),
        *("provider", "models", "route", "transforms", "plugins"),
    }
)
"""Fields that do not choose where the model's own end comes. An upstream has fields that Weir does not
know: a field that is not listed here may."""
_NEVER_STEER = _LEAVE_THE_END - {"stop", "stop_token_ids"}
"""Those of them that need no look at their values."""


def check_fields(request: GenerationRequest, support: FieldSupport) -> None:
    """Raise `RequestError` for the first field that the engine with this `support` refuses."""
    taken = _taken(support, request.endpoint)
    for name in asked_fields(request):
        if name not in taken and support.treatment(name, request.endpoint) is Treatment.REFUSED:
            own = caller_name(request.endpoint, name)
            reason = support.refused.get(name, "is not supported by this engine")
            raise RequestError(f"{own} {reason}.", param=own)


@lru_cache(256)
def _taken(support: FieldSupport, endpoint: str) -> frozenset[str]:
    """The fields of Weir's own that the engine does not refuse on this endpoint."""
    names = SAMPLING_FIELDS | ENGINE_FIELDS
    return frozenset(name for name in names if support.treatment(name, endpoint) is not Treatment.REFUSED)


def asked_fields(request: GenerationRequest) -> list[str]:
    """The names, as engines use them, of the fields with another value than the default."""
    asked: list[str] = []
    if (values := _values_of(request)) != _DEFAULTS:
        for name, value, default in zip(_NAMES, values, _DEFAULTS, strict=True):
            if value != default and not (name in _DEPENDENT and _is_void(name, request)):
                asked.append(name)
    for name, value in request.extra.items():
        if not is_neutral(name, value) and not (name in _DEPENDENT and _is_void(name, request)):
            asked.append(name)
    return asked


def _is_void(name: str, request: GenerationRequest) -> bool:
    """Whether another field takes the field's effect."""
    extra = request.extra
    match name:
        case "echo":
            return request.is_chat  # no engine acts on it
        case "best_of":
            return bool(extra.get("best_of", request.sampling.best_of) == request.sampling.n)
        case "tools" | "tool_choice":
            tools = request.tools or extra.get("tools")
            return not tools or "none" in (request.tool_choice, extra.get("tool_choice"))
        case "functions" | "function_call":
            return not extra.get("functions") or extra.get("function_call") == "none"
    return False


def steers_end(request: GenerationRequest, support: FieldSupport, info: ModelInfo) -> bool:
    """Whether a field of the request may choose the place of an end that the engine calls the model's own
    (contract 2.9). `support` and `info` are the engine's."""
    if request.tool_choice not in (None, "auto") and request.uses_tools:
        return True
    for name in asked_fields(request):
        if name in _NEVER_STEER:
            continue
        is_ignored = support.treatment(name, request.endpoint) is Treatment.IGNORED
        if not is_ignored and _steers(name, request, info):
            return True
    return False


def _steers(name: str, request: GenerationRequest, info: ModelInfo) -> bool:
    """Whether the field's value may choose the end. For a field that is not in `_NEVER_STEER`."""
    if name in ("stop", "stop_token_ids"):
        return info.eos_token_ids is None  # an upstream may call a stop string the model's own end
    if name == "logit_bias":
        return _biases_end(request, info)
    return not _is_choice(name, request.extra.get(name))


def _is_choice(name: str, value: Any) -> bool:
    """Whether the output is one of the caller's own texts: no end of it is a place in the model's words."""
    if name == "structured_outputs":
        return isinstance(value, Mapping) and {key for key, one in value.items() if one} == {"choice"}
    return name == "guided_choice"


def _biases_end(request: GenerationRequest, info: ModelInfo) -> bool:
    """Whether the bias may be one of the end of sequence. A bias of all other tokens does the same."""
    bias, ends, size = request.sampling.logit_bias, info.eos_token_ids, info.vocab_size
    return ends is None or size is None or not ends.isdisjoint(bias) or 2 * len(bias) > size
