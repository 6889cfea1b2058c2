"""Errors as the Messages API shapes them, and which requests get them so."""

import re

from engine.protocol.prompt_size import CONTEXT_LENGTH_EXCEEDED
from proxy.wire.openai.answer import JSONObject

_TYPES = {
    "server_error": "api_error",
    "guardrail_error": "api_error",
    "insufficient_quota": "rate_limit_error",
}
"""The API's names for Weir's types of errors, where they differ."""
_STATUS_TYPES = {413: "request_too_large", 503: "overloaded_error", 504: "timeout_error"}

_OWN = re.compile(r"(?:prompt is too long|input length and `max_tokens` exceed context limit): .*", re.S)
"""The API's own words for a prompt that does not fit, which an upstream may have said."""
_CONTEXT = re.compile(
    r"maximum context length is (?P<most>\d+) tokens\. However, .*?(?<![\d,])(?P<asked>\d+) (?:input )?tokens"
    r"(?: \((?P<prompt>\d+) in the \w+, (?P<output>\d+) in the completion\))?"
)
"""The words with which Weir and other servers say it (`docs/api.md`)."""


def error_body(error: JSONObject, request_id: str, status: int | None = None) -> JSONObject:
    """The error object for Weir's own (contract 4.2)."""
    kind = _STATUS_TYPES.get(status or 0) or _TYPES.get(error["type"], error["type"])
    fields = {"type": kind, "message": _message(error)}
    return {"type": "error", "error": fields, "request_id": request_id}


def _message(error: JSONObject) -> str:
    """The message. Clients shorten their history when they read one of these forms."""
    message: str = error["message"]
    if error["code"] == "content_filter" and error["param"] is not None:
        return f"{message} (in {error['param']})"  # the API has no field for it (contract 8.8)
    is_too_long = error["code"] == CONTEXT_LENGTH_EXCEEDED
    if is_too_long and (own := _OWN.search(message)):
        return own[0]
    if found := _CONTEXT.search(message):
        most, asked, prompt, output = (int(one) if one else 0 for one in found.groups())
        if prompt and prompt <= most < prompt + output:
            return f"input length and `max_tokens` exceed context limit: {prompt} + {output} > {most}"
        if (prompt or asked) > most:
            return f"prompt is too long: {prompt or asked} tokens > {most} maximum"
    return f"prompt is too long: {message}" if is_too_long else message
