"""Translates an upstream's error: is the caller at fault, or the upstream?"""

import logging
import re
from collections.abc import Collection, Mapping
from typing import Any

import orjson

from engine.protocol import EngineError, QueueFullError, RequestError

_CALLERS_FAULT = (400, 404, 413, 422)
_FIELD_NAME = re.compile(r"\w+")

_log = logging.getLogger("weir.engine")


def upstream_error(status: int, body: Any, fields: Collection[str] = ()) -> RequestError | EngineError:
    """The error to raise for an upstream's HTTP status and error body (bytes, or parsed JSON).

    If the caller is at fault, the error has the upstream's message. Its `unquoted` has a general message, and
    names the field only if it is one of `fields`, the fields that were sent to the upstream. If the upstream
    is at fault, or Weir in how it calls the upstream, the error has a general message. The upstream's message
    is in no log, because it may quote the model's output.
    """
    error = _error_object(body)
    message = str(error.get("message") or error.get("detail") or "")
    if status in _CALLERS_FAULT:
        refused = "The upstream engine refused the request."
        param = _string(error.get("param"))
        field = _FIELD_NAME.match(param or "")
        known = field[0] if field and field[0] in fields else None
        return RequestError(
            message or refused,
            param=param,
            code=_string(error.get("code")),
            status=status,
            unquoted=RequestError(refused, param=known, status=status),
        )
    if status == 429:
        return QueueFullError(message, unquoted=QueueFullError()) if message else QueueFullError()
    _log.warning("upstream answered %d", status)
    if status in (401, 403):
        return EngineError("The upstream engine refused this service's credentials.", status=502)
    if status in (503, 504):
        return EngineError("The upstream engine is not available.", status=status)
    return EngineError("The upstream engine failed.", status=502)


def stream_error(error: Any, *, begun: bool, fields: Collection[str] = ()) -> RequestError | EngineError:
    """The error to raise for an error inside a stream. Once the answer has begun, the upstream is at fault.
    The message is general: inside a stream, an upstream's message may quote the model's output."""
    details = _error_object(error)
    code = details.get("code") or details.get("status")
    status = code if isinstance(code, int) and not begun else 500
    quotable = {"error": {"type": details.get("type"), "param": details.get("param")}}
    return upstream_error(status, quotable, fields)


def _error_object(body: Any) -> Mapping[str, Any]:
    """The details in `{"error": {...}}`, `{"error": "..."}` or `{"message": ...}`. Empty for other bodies."""
    if isinstance(body, bytes):
        try:
            body = orjson.loads(body)
        except orjson.JSONDecodeError:
            return {}
    if isinstance(body, Mapping) and "error" in body:
        body = body["error"]
    return body if isinstance(body, Mapping) else {"message": body}


def _string(value: Any) -> str | None:
    return value if isinstance(value, str) else None
