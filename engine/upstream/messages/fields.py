"""The treatment of each field of a request with an upstream of the Messages API, and the error for a value
that the API cannot express."""

from engine.protocol import RequestError
from engine.protocol.fields.asked import SAMPLING_FIELDS
from engine.protocol.fields.support import FieldSupport, Treatment
from engine.upstream.request_tracker import NO_LOGITS

_REASON = "the upstream speaks the Messages API, which has no such field"
_NOT_SUPPORTED = f"is not supported: {_REASON}"
_SAMPLING = frozenset({"temperature", "top_p", "top_k", "max_tokens", "stop"})
_OTHERS = frozenset({"tools", "tool_choice", "parallel_tool_calls", "response_format", "reasoning_effort"})
_EXTRA = frozenset(
    {"thinking", "thinking.budget_tokens", "service_tier", "cache_control", "anthropic_beta"}
    | {"context_management.edits"}
    | {"safety_identifier", "chat_template_kwargs", "continue_final_message", "add_generation_prompt"}
)

TIERS = {"auto": "auto", "default": "standard_only", "standard_only": "standard_only"}

FIELDS = FieldSupport(
    honoured_in_chats=_SAMPLING | _OTHERS | _EXTRA,
    refused={
        **dict.fromkeys(sorted(SAMPLING_FIELDS - _SAMPLING), _NOT_SUPPORTED),
        **dict.fromkeys(("return_token_ids", "cache_salt", "priority"), _NOT_SUPPORTED),
        **NO_LOGITS,
    },
    ignored=_SAMPLING,
    values={"service_tier": (None, *TIERS)},
    rest=Treatment.REFUSED,
)
"""Completions are refused by their prompt, so no other field of theirs matters."""


def refused(field: str, reason: str = _REASON) -> RequestError:
    return RequestError(f"{field} is not supported: {reason}.", param=field)
