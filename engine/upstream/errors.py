"""Translates an upstream's error to one that puts the caller at fault, or the upstream."""

import logging
from collections.abc import Collection, Mapping
from typing import Any

from engine.protocol import EngineError, QueueFullError, RequestError
from engine.protocol.prompt_size import CONTEXT_LENGTH_EXCEEDED
from engine.upstream.json_text import read_json
from engine.upstream.refusal import REFUSED, as_too_long, in_own_words

_CALLERS_FAULT = (400, 404, 413, 422)
_LONGEST_WAIT = 3600
"""The most seconds in a `Retry-After` header."""

_log = logging.getLogger("weir.engine")


def upstream_error(
    status: int, body: Any, fields: Collection[str] = (), *, model: str = "", retry_after: str | None = None
) -> RequestError | EngineError:
    """The error to raise for an upstream's HTTP status and error body (bytes, or parsed JSON).

    If the caller is at fault, the error has the upstream's message, and its `unquoted` the same in Weir's
    words (`in_own_words`). The message about an unknown model always has the caller's name for it. The
    message about a prompt that does not fit has the words by which clients know this error (`as_too_long`).
    If the upstream is at fault, or Weir in how it calls the upstream, the error has a general message. The
    upstream's message is in no log, because it may quote the model's output.

    `fields`: the fields that were sent. `model`: the name that the caller gave. `retry_after`: the upstream's
    header.
    """
    error = _error_object(body)
    message = str(error.get("message") or error.get("detail") or "")
    if status in _CALLERS_FAULT:
        param, code = _string(error.get("param")), _string(error.get("code"))
        own = in_own_words(status, message, param, code, model=model, fields=fields)
        if own.code == "model_not_found":
            return own  # the upstream may know the model by another name than the caller
        if own.code == CONTEXT_LENGTH_EXCEEDED:
            message, code = as_too_long(message), CONTEXT_LENGTH_EXCEEDED
        return RequestError(message or REFUSED, param=param, code=code, status=status, unquoted=own)
    if status == 429:
        seconds = _seconds(retry_after)
        own_words = QueueFullError(retry_after=seconds)
        return QueueFullError(message, retry_after=seconds, unquoted=own_words) if message else own_words
    _log.warning("upstream answered %d", status)
    if status in (401, 403):
        return EngineError("The upstream engine refused this service's credentials.", status=502)
    if status in (503, 504, 529):  # 529: overloaded, of the Messages API
        return EngineError("The upstream engine is not available.", status=504 if status == 504 else 503)
    return EngineError("The upstream engine failed.", status=502)


def stream_error(
    error: Any, *, begun: bool, fields: Collection[str] = (), statuses: Mapping[str, int] = {}
) -> RequestError | EngineError:
    """The error to raise for an error inside a stream. Once the answer has begun, the upstream is at fault.
    The message is general: inside a stream, an upstream's message may quote the model's output. Before the
    answer, the error for a prompt that does not fit has Weir's words.

    `statuses`: the HTTP statuses that types of errors stand for, for an error without a code."""
    details = _error_object(error)
    code = details.get("code") or details.get("status") or statuses.get(str(details.get("type")))
    status = code if isinstance(code, int) and not begun else 500
    message, param = str(details.get("message") or ""), details.get("param")
    if status in (400, 413):
        return in_own_words(status, message, _string(param), None, model="", fields=fields)
    return upstream_error(status, {"error": {"type": details.get("type"), "param": param}}, fields)


def stream_broke() -> EngineError:
    """The error to raise for a stream that ends too early."""
    _log.warning("upstream's answer broke off, or is no answer of this API")
    return EngineError("The upstream engine's answer broke off.", status=502)


def _error_object(body: Any) -> Mapping[str, Any]:
    """The details in `{"error": {...}}`, `{"error": "..."}` or `{"message": ...}`. Empty for other bodies."""
    if isinstance(body, bytes):
        try:
            body = read_json(body)
        except (ValueError, RecursionError):
            return {}
    if isinstance(body, Mapping) and "error" in body:
        body = body["error"]
    return body if isinstance(body, Mapping) else {"message": body}


def _seconds(retry_after: str | None) -> int:
    """The seconds of a header `Retry-After`. 1 for a date, and without a header."""
    text = (retry_after or "").strip()
    return min(max(1, int(text)), _LONGEST_WAIT) if text.isdecimal() and len(text) < 10 else 1


def _string(value: Any) -> str | None:
    return value if isinstance(value, str) else None
