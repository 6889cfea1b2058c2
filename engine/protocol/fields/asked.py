"""Which fields of a request ask an engine for something, and whether it refuses one of them."""

from dataclasses import fields
from typing import Any

from engine.protocol import GenerationRequest, RequestError, SamplingParams
from engine.protocol.fields.names import caller_name, is_neutral
from engine.protocol.fields.support import FieldSupport, Treatment

SAMPLING_FIELDS = frozenset(field.name for field in fields(SamplingParams))
ENGINE_FIELDS = frozenset(
    {"echo", "return_token_ids", "cache_salt", "priority", "tools", "tool_choice", "parallel_tool_calls"}
)
"""The fields of `GenerationRequest` beside `sampling` and `extra` that an engine acts on."""

_SAMPLING_DEFAULTS = {name: getattr(SamplingParams(), name) for name in sorted(SAMPLING_FIELDS)}
_ENGINE_DEFAULTS: dict[str, Any] = {
    field.name: field.default
    for field in sorted(fields(GenerationRequest), key=lambda field: field.name)
    if field.name in ENGINE_FIELDS
}


def check_fields(request: GenerationRequest, support: FieldSupport) -> None:
    """Raise `RequestError` for the first field that the engine with this `support` refuses."""
    for name in asked_fields(request):
        if support.treatment(name, request.endpoint) is Treatment.REFUSED:
            own = caller_name(request.endpoint, name)
            reason = support.refused.get(name, "is not supported by this engine")
            raise RequestError(f"{own} {reason}.", param=own)


def asked_fields(request: GenerationRequest) -> list[str]:
    """The names, as engines use them, of the fields with another value than the default."""
    asked: list[str] = []
    for part, defaults in ((request.sampling, _SAMPLING_DEFAULTS), (request, _ENGINE_DEFAULTS)):
        for name, default in defaults.items():
            if getattr(part, name) != default and not _is_void(name, request):
                asked.append(name)
    for name, value in request.extra.items():
        if not is_neutral(name, value) and not _is_void(name, request):
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
